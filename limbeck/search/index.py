"""A searchable index: vectors, words and texts in one folder.

    index = SearchIndex.open("my-index")
    for hit in index.search("how do I copy a file", k=10).hits:
        print(hit.rank, hit.id, hit.score, hit.found_by)

There are three modes: `dense` uses vectors, `sparse` uses BM25, `hybrid` fuses both by Eq. 7 with the weight that
`limbeck tune` found, or by reciprocal ranks if it is not tuned. `limbeck.search.build` makes an index, `add` and
`delete` change one, and `get` finds a passage by its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from limbeck.data.dataset import Run
from limbeck.data.passages import Passages
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError, did_you_mean
from limbeck.files import alone_in
from limbeck.progress import track
from limbeck.search.analyzer import Words
from limbeck.search.checks import check
from limbeck.search.dense_part import DensePart
from limbeck.search.filters import parse_conditions, require_known
from limbeck.search.hybrid import Fused, List, fuse, reciprocal_rank_fusion, require_alpha
from limbeck.search.manifest import IndexManifest
from limbeck.search.results import Candidates, DenseList, Hit, Passage, Ranking, Results, part_of
from limbeck.search.segments import open_collection
from limbeck.search.sparse import SparseIndex

if TYPE_CHECKING:
    from limbeck.search.changes import Changed

MODES = ["dense", "sparse", "hybrid"]
FUSIONS = ["interpolate", "rrf"]
DEPTH = 1000  # candidates of each part, as in the paper

Where = str | Sequence[str]
Source = Mapping[str, str] | Iterable[Mapping[str, Any]] | Passages | str | Path


class SearchIndex:
    """An open index. `model` may be given if it is in memory already: it must be the model of the index."""

    def __init__(self, path: Path, manifest: IndexManifest, model: Any = None) -> None:
        self.path, self.manifest = path, manifest
        self._check()
        self.collection = open_collection(path, manifest)
        self._masks: dict[tuple[str, ...], np.ndarray] = {}
        self._dense, self._sparse = None, None
        if manifest.dense is not None:
            self._dense = DensePart(path, manifest.dense, manifest.segments, self.collection, model)
        if manifest.sparse_part is not None:
            self._sparse = SparseIndex.load(path / "sparse" / manifest.sparse_part, check=False)

    @classmethod
    def open(cls, path: str | Path, model: Any = None) -> SearchIndex:
        """Map the index in a folder, after a check of its files."""
        path = Path(path).expanduser()
        manifest = IndexManifest.load(path)
        while True:
            try:
                return cls(path, manifest, model)
            except (LimbeckError, FileNotFoundError):
                again = IndexManifest.load(path)  # a writer may have replaced it in the meantime
                if again == manifest:
                    raise
                manifest = again

    @staticmethod
    def set_alpha(path: str | Path, alpha: float) -> None:
        """Save the fusion weight in an index."""
        require_alpha(alpha)
        folder = Path(path).expanduser()
        IndexManifest.load(folder)
        with alone_in(folder):
            replace(IndexManifest.load(folder), alpha=float(alpha)).save(folder)

    def __len__(self) -> int:
        return self.manifest.passages

    def __contains__(self, key: object) -> bool:
        """Whether a passage with this id can be found."""
        return isinstance(key, str) and bool(self.collection.find([key])[0] >= 0)

    def get(self, key: str) -> Passage | None:
        """The passage with an id, or None.

        >>> from limbeck.search.build import build_index
        >>> index = build_index(None, Passages.of({"a": "copy a file", "b": "sort a list"}), folder, dense=False)
        >>> index.get("a").text, index.get("c"), "b" in index
        ('copy a file', None, True)
        """
        (row,) = self.collection.find([key]).tolist()
        if row < 0:
            return None
        return Passage(*self.collection.record_at(row), self.collection.fields_at(row))

    def add(self, passages: Source, *, delete: Iterable[str] = (), mix_runtimes: bool = False) -> Changed:
        """Add passages, and delete others in the same step; a passage with an existing id replaces the old one.

        `passages` are texts by id, records such as `{"_id": "n1", "text": "...", "year": 2023}`, a file or a data set.
        The change is written to the folder, and this object shows the new index. `mix_runtimes` allows vectors of
        another runtime of the model than the index has.

        >>> from limbeck.search.build import build_index
        >>> index = build_index(None, Passages.of({"a": "copy a file", "b": "sort a list"}), folder, dense=False)
        >>> index.add([{"_id": "c", "text": "move a file", "year": 2023}], delete=["b"])
        Changed(added=1, replaced=0, deleted=1)
        >>> [hit.id for hit in index.search("file", where="year>=2020").hits], len(index)
        (['c'], 2)
        """
        given = passages if isinstance(passages, Passages | str | Path) else Passages.of(passages)
        return self._changed(given, delete, mix_runtimes)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete passages by id; returns how many there were. Unknown ids are skipped.

        >>> from limbeck.search.build import build_index
        >>> index = build_index(None, Passages.of({"a": "copy a file", "b": "sort a list"}), folder, dense=False)
        >>> index.delete(["a", "absent"]), len(index), "a" in index
        (1, 1, False)
        """
        return self._changed(None, [ids] if isinstance(ids, str) else ids).deleted

    def _changed(
        self, passages: Passages | str | Path | None, ids: Iterable[str], mix_runtimes: bool = False
    ) -> Changed:
        """Change the folder, then read it again; a loaded model stays in memory."""
        from limbeck.search.changes import change_index

        model = self._dense.loaded if self._dense is not None else None
        done = change_index(self.path, passages, ids, model, mix_runtimes=mix_runtimes)
        self.__dict__ = SearchIndex.open(self.path, model).__dict__
        return done

    @property
    def dense(self) -> DensePart:
        if self._dense is None:
            problem = "has no dense part; search with --mode sparse, or build it without --no-dense"
            raise LimbeckError(f"{self.path}: {problem}")
        return self._dense

    @property
    def sparse(self) -> SparseIndex:
        if self._sparse is None:
            problem = "has no sparse part; search with --mode dense, or build it without --no-sparse"
            raise LimbeckError(f"{self.path}: {problem}")
        return self._sparse

    @property
    def words(self) -> Words:
        """How texts are split into words, to show where the words of a query are."""
        return self._sparse.words if self._sparse is not None else Words()

    def mode(self, wanted: str | None = None) -> str:
        """A search mode of this index; by default both parts if it has both."""
        if wanted is None:
            return "hybrid" if self._dense and self._sparse else "dense" if self._dense else "sparse"
        if wanted not in MODES:
            raise LimbeckError(f"unknown mode {wanted!r}; {did_you_mean(wanted, MODES)}")
        if wanted != "sparse":
            _ = self.dense
        if wanted != "dense":
            _ = self.sparse
        return wanted

    def verify(self) -> None:
        """Read everything and compare it with its checksums; an error names the damaged file."""
        self._check(everything=True)
        if self._dense is not None:
            _ = self._dense.matcher, self._dense.vectors

    def _check(self, everything: bool = False) -> None:
        check(self.path, self.manifest.files, f"remove {self.path} and build the index again", everything)

    @overload
    def search(self, query: str, k: int = 10, *, explain: bool = False, **options: Any) -> Results: ...

    @overload
    def search(self, query: Sequence[str], k: int = 10, *, explain: bool = False, **options: Any) -> list[Results]: ...

    def search(
        self, query: str | Sequence[str], k: int = 10, *, explain: bool = False, **options: Any
    ) -> Results | list[Results]:
        """The k best passages for a query, or for each of several, with their texts and how they were found.

        Options are those of `rank`; with `explain` each hit has the contribution of every shared word to its sparse
        score.
        """
        queries = [query] if isinstance(query, str) else list(query)
        mode = self.mode(options.get("mode"))
        results = [
            Results(text, mode, self._hits(text, ranking, explain), ranking.note)
            for text, ranking in zip(queries, self.rank(queries, k, **options), strict=True)
        ]
        return results[0] if isinstance(query, str) else results

    def run(self, queries: Texts, k: int = DEPTH, keys: Sequence[str] | None = None, **options: Any) -> Run:
        """The k best passages of each query, or of those with the given ids, as a run; options are those of `rank`."""
        keys = list(queries) if keys is None else keys
        rankings = self.rank(queries.take(queries.rows(keys)), k, **options)
        return {
            key: dict(zip(self.collection.ids_at(ranking.rows), ranking.scores.tolist(), strict=True))
            for key, ranking in zip(keys, rankings, strict=True)
        }

    def rank(
        self,
        queries: Sequence[str],
        k: int = 10,
        mode: str | None = None,
        fusion: str | None = None,
        alpha: float | None = None,
        where: Where = (),
        depth: int = DEPTH,
    ) -> list[Ranking]:
        """The rows of the k best passages for each query, or fewer if there are not enough.

        `where` has conditions on fields (`limbeck.search.filters`). A hybrid search fuses the `depth` best of both
        parts: by Eq. 7 with `alpha`, or the tuned one of the index; by reciprocal ranks if there is neither.
        """
        mode = self.mode(mode)
        _require_queries(queries, k)
        allowed = self.allowed(where)
        if mode == "dense":
            found = self.dense.search(self.dense.encode(queries), k, allowed)
            return [Ranking(listed.rows, listed.scores, dense=listed) for listed in found]
        how = self.fusion(fusion, alpha) if mode == "hybrid" else None
        depth = max(k, depth) if mode == "hybrid" else k
        sparse = self.sparse_lists(queries, depth, allowed)
        notes = [None if len(rows) else self._note(text, mode) for text, (rows, _) in zip(queries, sparse, strict=True)]
        if how is None:
            return [Ranking(*listed, sparse=listed, note=note) for listed, note in zip(sparse, notes, strict=True)]
        rankings = []
        dense = self.dense.search(self.dense.encode(queries), depth, allowed)
        for left, right, note in zip(dense, sparse, notes, strict=True):
            fused = self.fused(left, right, k, *how)
            rankings.append(Ranking(fused.rows, fused.scores, left, right, note))
        return rankings

    def candidates(self, queries: Sequence[str], depth: int = DEPTH, where: Where = ()) -> Candidates:
        """The lists of both parts for each query, to the given depth: the input of fusion."""
        _require_queries(queries, depth)
        allowed = self.allowed(where)
        sparse = self.sparse_lists(queries, depth, allowed)
        dense = self.dense.search(self.dense.encode(queries), depth, allowed)
        return Candidates([listed.pair for listed in dense], sparse)

    def sparse_lists(self, queries: Sequence[str], k: int, allowed: np.ndarray | None = None) -> list[List]:
        """The k best passages for each query by BM25; none if no word of the query is known."""
        live = self.collection.rows
        mask = None if allowed is None else allowed[live]
        found: list[List] = []
        for query in track(queries, "Sparse search"):
            rows, scores = self.sparse.search(query, k, mask)
            found.append((live[rows], scores))
        return found

    def fused(self, dense: DenseList, sparse: List, k: int, fusion: str, alpha: float) -> Fused:
        """Fuse two lists."""
        if fusion == "rrf":
            return reciprocal_rank_fusion(dense.pair, sparse, k)
        return fuse(dense.pair, sparse, alpha, k)

    def check(self, mode: str | None, fusion: str | None, alpha: float | None) -> None:
        """Refuse invalid search options before a model is loaded."""
        if self.mode(mode) == "hybrid":
            self.fusion(fusion, alpha)
        elif fusion is not None or alpha is not None:
            raise LimbeckError("--fusion and --alpha require a hybrid search; leave them out, or use --mode hybrid")

    def fusion(self, fusion: str | None = None, alpha: float | None = None) -> tuple[str, float]:
        """The fusion: as requested, otherwise by Eq. 7 with the tuned weight, or else by reciprocal ranks."""
        if fusion is not None and fusion not in FUSIONS:
            raise LimbeckError(f"unknown fusion {fusion!r}; {did_you_mean(fusion, FUSIONS)}")
        if fusion == "rrf" and alpha is not None:
            raise LimbeckError("reciprocal rank fusion has no alpha; leave it out, or use --fusion interpolate")
        alpha = self.manifest.alpha if alpha is None else alpha
        if fusion == "rrf" or (fusion is None and alpha is None):
            return "rrf", 0.0
        if alpha is None:
            remedy = f"set --alpha, or find it with `limbeck tune {self.path} DATA`"
            raise LimbeckError(f"{self.path}: has no alpha yet; {remedy}")
        require_alpha(alpha)
        return "interpolate", alpha

    def allowed(self, where: Where = ()) -> np.ndarray | None:
        """Which rows may be found, [rows] bool; None for all."""
        conditions = parse_conditions(where)
        if not conditions:
            return self.collection.alive if self.manifest.deleted else None
        require_known(conditions, self.collection.field_names, self.path)
        key = tuple(map(str, conditions))
        if key not in self._masks:
            self._masks = {key: self.collection.matching(conditions)}
        return self._masks[key]

    def terms(self, query: str, row: int) -> dict[str, float]:
        """The contribution of each word that query and passage share to the sparse score."""
        if self._sparse is None:
            return {}
        return self._sparse.terms(query, int(np.searchsorted(self.collection.rows, row)))

    def _note(self, query: str, mode: str) -> str | None:
        """Why the sparse part found nothing."""
        if self.sparse.knows(query):
            return None
        words = self.words.stems(query)
        reason = "no word of the query is in the index" if words else "the query has no words to search for"
        return f"{reason}; " + ("the dense part alone answers" if mode == "hybrid" else "try other words")

    def _hits(self, query: str, ranking: Ranking, explain: bool) -> list[Hit]:
        listed = ranking.dense
        hits = []
        for rank, (row, score) in enumerate(zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True), 1):
            key, title, text = self.collection.record_at(row)
            parts = part_of(listed.pair if listed else None, row), part_of(ranking.sparse, row)
            span = self.dense.span(listed, row) if listed else None
            terms = self.terms(query, row) if explain else None
            hits.append(Hit(rank, key, score, title, text, self.collection.fields_at(row), *parts, span, terms))
        return hits


def _require_queries(queries: Sequence[str], k: int) -> None:
    if isinstance(queries, str):
        raise LimbeckError("give a list of queries, not one text; put it in a list")
    if k < 1:
        raise LimbeckError(f"k is {k}; ask for 1 passage or more")
    if any(not query.strip() for query in queries):
        raise LimbeckError("a query is empty; write its text")
