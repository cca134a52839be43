"""Build an index: encode, index, count words, store the texts.

Encodings are stored when they are made, so that a killed build continues and encodes nothing twice; the steps after
that (a graph, BM25) start again. The index is complete when `index.json` exists, which is written last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.data.passages import Passages, load_passages
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest, directory_atomically
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import progress, say
from limbeck.search.analyzer import Words
from limbeck.search.dense import DenseIndex, VectorSource, build_dense, choose_kind
from limbeck.search.dense_part import model_digest
from limbeck.search.exact import comparable
from limbeck.search.expansions import expanded, read_expansions
from limbeck.search.index import SearchIndex
from limbeck.search.index_writer import WORK, finish, new_name, working
from limbeck.search.manifest import DenseFacts, IndexManifest, Segment, SparseFacts, is_an_index
from limbeck.search.milvus import MilvusIndex, fill_collection, require_milvus_kind, require_own
from limbeck.search.milvus_address import is_milvus, trust
from limbeck.search.mixing import described, remedy
from limbeck.search.recall import QUERIES, choose_effort, exact_top, sample_queries
from limbeck.search.segments import write_segment
from limbeck.search.sparse import K1, B, bm25_index, require_parameters
from limbeck.search.windows import Windows, cut, default_windows, window_texts
from limbeck.stores import EncodingStore, encode_with_store, store_path

_BLOCK = 4096


def build_index(
    model: str | Path | Any,
    source: str | Path | Passages,
    out: str | Path,
    kind: str = "auto",
    language: str = "english",
    k1: float = K1,
    b: float = B,
    window: int | None = None,
    stride: int | None = None,
    dense: bool = True,
    sparse: bool = True,
    store: str | Path | None = None,
    seed: int = 0,
    expansions: str | Path | None = None,
) -> SearchIndex:
    """Index passages with a dual encoder (a name, a folder, or a matcher) and with BM25.

    `store` is a folder that keeps the encodings for later, or a Milvus address that takes the vectors. An existing
    index is opened if it has the same passages and settings, otherwise refused. `expansions` is the output of `limbeck
    expand`: queries whose words BM25 counts with a passage's own; encoders do not see them.
    """
    out = Path(out).expanduser()
    if not dense and not sparse:
        raise LimbeckError("an index needs a dense or a sparse part; leave out --no-dense or --no-sparse")
    require_parameters(k1, b)
    windows = default_windows(window, stride)
    Words(language)
    passages = source if isinstance(source, Passages) else load_passages(source)
    if not len(passages.corpus):
        raise LimbeckError(f"{passages.name}: contains no passages; give a data set with passages")
    matcher = load_encoder(model) if dense else None
    if expansions is not None and not sparse:
        raise LimbeckError("--expansions requires BM25; leave out --no-sparse, or --expansions")
    counted = expanded(passages.corpus, read_expansions(expansions)) if expansions is not None else passages.corpus
    facts = SparseFacts(language, k1, b, counted.content_digest if expansions is not None else None) if sparse else None
    wanted = IndexManifest(passages.name, passages.content_digest, None, facts)
    with working(out, passages.name) as folder:
        builder = Builder(folder, matcher, windows, store, seed)
        if matcher is not None:
            wanted = replace(wanted, dense=builder.facts(kind))
        if is_an_index(folder):
            return _same_or_refused(folder, wanted, matcher)
        if wanted.dense is not None and wanted.dense.store is not None:
            require_own(wanted.dense.store, str(wanted.dense.owner))
        vectors = builder.encode(passages) if matcher is not None else None
        if matcher is not None:
            matcher.save_pretrained(folder / "model")
        segment, found = builder.segment(passages, vectors, wanted.dense)
        manifest = replace(wanted, dense=found, segments=(segment,))
        finish(folder, manifest, bm25_index(counted, language, k1, b) if sparse else None)
    return SearchIndex.open(out, matcher)


@dataclass(frozen=True)
class Encoded:
    """Stored vectors of texts: `rows` of the store, in the form for inner products. `windows` come from `cut`."""

    store: EncodingStore
    rows: np.ndarray
    similarity: str
    windows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        return self.store.dim

    def take(self, rows: np.ndarray) -> np.ndarray:
        return comparable(self.store.take(self.rows[rows]), self.similarity)


class Builder:
    """Makes segments for one index, with one model."""

    def __init__(
        self, folder: Path, matcher: Any, windows: Windows | None, store: str | Path | None, seed: int = 0
    ) -> None:
        self.folder, self.matcher, self.windows, self.seed = folder, matcher, windows, seed
        self.milvus = str(store) if is_milvus(store) else None
        if self.milvus is not None:
            trust(self.milvus)
        self._root = Path(store).expanduser() if store and not self.milvus else folder / WORK / "encodings"

    def encode(self, passages: Passages) -> Encoded:
        """The vectors of passages, or of their windows; only those missing in the store are encoded."""
        corpus, table = passages.corpus, None
        if self.windows is not None:
            table = cut(corpus, self.windows, *self.matcher.tower.words("document"))
        count = len(corpus) if table is None else len(table)

        def texts() -> Iterator[str]:
            return (text for _, text in corpus.items()) if table is None else window_texts(corpus, table)

        key = {**self.matcher.identity(1), "side": "document"}
        store = EncodingStore.open(store_path(self._root, key), key, self.matcher.dim)
        encode_with_store(store, texts(), self.matcher.encode_document, total=count, label="Encoding documents")
        rows = []
        with progress("Finding encodings", count) as advance:
            for block in _blocks(texts()):
                rows.append(store.rows(block))
                advance(len(block))
        short = None if table is None else table.astype(np.int32)
        return Encoded(store, np.concatenate(rows), self.matcher.interaction.name, short)

    def facts(self, kind: str) -> DenseFacts:
        """The manifest's facts about the dense part before it is built; `kind` may still be `auto`."""
        choose_kind(kind, 0)
        if self.milvus is not None and kind != "auto":
            require_milvus_kind(kind)
        matcher, windows = self.matcher, self.windows
        return DenseFacts(
            kind,
            matcher.dim,
            matcher.interaction.name,
            model_digest(matcher),
            window=windows.size if windows else None,
            stride=windows.stride if windows else None,
            store=self.milvus,
            owner=digest(model_digest(matcher), str(self.folder.resolve())) if self.milvus else None,
            computed=matcher.computed or None,
        )

    def segment(
        self, passages: Passages, vectors: Encoded | None, facts: DenseFacts | None, first_key: int = 0
    ) -> tuple[Segment, DenseFacts | None]:
        """Write a segment; returns the facts with the measured recall."""
        name = new_name(self.folder / "segments")
        segment, keys, dense = Segment(name, len(passages.corpus)), None, None
        if vectors is not None and facts is not None:
            index: DenseIndex | MilvusIndex
            facts = replace(facts, kind=choose_kind(facts.kind, len(vectors)))
            if facts.store is not None:
                keys = fill_collection(facts.store, facts.kind, vectors, str(facts.owner), first_key)
                index = MilvusIndex(facts.store, keys, facts.dim, facts.kind)
            else:
                index = dense = build_dense(facts.kind, vectors, self.seed)
            facts = self._measured(index, vectors, passages.queries, facts)
            segment = replace(segment, vectors=len(vectors), kind=facts.kind, effort=index.effort)
        table = vectors.windows if vectors is not None else None
        with directory_atomically(self.folder / "segments" / name) as place:
            write_segment(place, passages.corpus, passages.fields, dense, table, keys)
        return segment, facts

    def _measured(
        self, index: DenseIndex | MilvusIndex, vectors: VectorSource, queries: Texts | None, facts: DenseFacts
    ) -> DenseFacts:
        """Recall against exact search, with the data's queries if there are any; it decides the search effort."""
        if facts.kind == "flat":
            return replace(facts, recall=1.0)
        if queries is not None and len(queries):
            chosen = np.random.default_rng(self.seed).permutation(len(queries))[:QUERIES]
            asked = comparable(self.matcher.encode_query(queries.take(np.sort(chosen))), facts.similarity)
        else:
            asked = sample_queries(vectors, self.seed)
        reached = choose_effort(index, asked, exact_top(asked, vectors))
        return replace(facts, recall=round(reached, 4), measured_with="queries" if queries is not None else "passages")


def load_encoder(model: str | Path | Any) -> Any:
    """A dual encoder, given as a matcher, a folder or a name."""
    from limbeck.matchers import load

    matcher = load(model) if isinstance(model, str | Path) else model
    if not (encodes_apart(matcher) and matcher.interaction.search == "inner_product"):
        problem = f"is a {matcher.kind}, which does not give one vector per passage"
        raise LimbeckError(f"{model}: {problem}; give a dual encoder, or leave the dense part out with --no-dense")
    return matcher


def _same_or_refused(folder: Path, wanted: IndexManifest, matcher: Any) -> SearchIndex:
    there = IndexManifest.load(folder)
    if there.content != wanted.content:
        raise bad_input(folder, "contains an index of other passages", "add to it with --add, or name another --out")
    own = replace(there.dense, recall=None, measured_with=None) if there.dense else None
    if own is not None and wanted.dense is not None and wanted.dense.kind == "auto":
        own = replace(own, kind="auto")
    if (own, there.sparse) != (wanted.dense, wanted.sparse):
        problem = f"contains an index with other settings ({_difference(own, wanted)})"
        raise bad_input(folder, problem, _remedy(own, wanted))
    say(f"{folder}: is complete already")
    return SearchIndex.open(folder, matcher)


def _difference(own: DenseFacts | None, wanted: IndexManifest) -> str:
    if own is not None and wanted.dense is not None and own != wanted.dense:
        names = _differing(own, wanted.dense)
        return _other_runtime(own, wanted.dense) if names == ["runtime"] else f"with another {', '.join(names)}"
    return "another BM25, or none" if own == wanted.dense else "with and without a dense part"


def _differing(own: DenseFacts, wanted: DenseFacts) -> list[str]:
    names = [name for name in vars(own) if getattr(own, name) != getattr(wanted, name)]
    return ["runtime" if name == "computed" else name for name in names]


def _other_runtime(own: DenseFacts, wanted: DenseFacts) -> str:
    return f"its vectors were computed in {described(own.computed)}, not {described(wanted.computed)}"


def _remedy(own: DenseFacts | None, wanted: IndexManifest) -> str:
    if own is not None and wanted.dense is not None and _differing(own, wanted.dense) == ["runtime"]:
        return f"{remedy(own.computed, wanted.dense.computed)}, or name another --out"
    return "name another --out"


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    stream = iter(texts)
    while block := list(islice(stream, _BLOCK)):
        yield block
