"""Document vectors from the user (`teacher.vectors`), so that a run does not encode the corpus again.

They are a store that `limbeck index --store` filled, an index, or a `.npy` file [documents, dim] in the order of the
corpus. A store is read in place and never written. The vectors of an index or a file are copied into the run's own
store block by block, after some of them are compared with the teacher's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.data.texts import Texts
from limbeck.errors import bad_input
from limbeck.progress import progress, say
from limbeck.search.dense_part import model_digest
from limbeck.search.index import SearchIndex
from limbeck.search.manifest import IndexManifest, is_an_index
from limbeck.stores.encodings import EncodingStore, store_path
from limbeck.training.stored_outputs import StoredOutputs

FORMS = "give a folder of `limbeck index --store`, an index, or a .npy file with a row for each document"
STORE = "build the index again with --store DIR, and give DIR"
SAME_MODEL = "set teacher.model, teacher.length and teacher.bf16 to what made the vectors"
EXACT = ("flat", "hnsw")  # kinds of index that keep every number of a vector
DOCUMENT = 1  # position
BLOCK = 8192  # vectors in memory at a time
COMPARED = 20  # documents that the teacher encodes again, to compare
LOWEST_COSINE, LENGTH_TOLERANCE = 0.99, 0.02  # float16 and bfloat16 stay well within


def check_vectors(given: str, documents: int) -> None:
    """Check a path before the teacher is loaded."""
    path = Path(given).expanduser()
    if not path.exists():
        raise bad_input(path, "teacher.vectors: no such file or folder", FORMS)
    if is_an_index(path):
        _require_exact(path)
    elif not path.is_dir():
        _mapped(path, documents)


def use_vectors(given: str, outputs: StoredOutputs, teacher: Any, corpus: Texts, write: bool) -> None:
    """Let `outputs`, the teacher's, use the document vectors at a path; with `write`, copy them if necessary."""
    path, own = Path(given).expanduser(), outputs.stores[DOCUMENT]
    check_vectors(given, len(corpus))
    if path.is_dir() and not is_an_index(path):
        outputs.given[DOCUMENT] = _given_store(path, own, corpus)
    elif write and _lacks_some(own, corpus):
        found = _of_index(path, teacher, corpus) if path.is_dir() else _of_file(path, teacher, corpus)
        _compare(found, teacher, corpus)
        _copy(found, own, corpus)


@dataclass(frozen=True)
class Source:
    """Document vectors: `take` returns [n, dim] for rows of the corpus that are in `known`."""

    path: Path
    known: np.ndarray
    take: Callable[[np.ndarray], np.ndarray]
    remedy: str  # if the vectors are not the teacher's


def _lacks_some(store: EncodingStore, corpus: Texts) -> bool:
    return any(store.missing(texts) for _, texts in _blocks(corpus))


def _blocks(texts: Texts) -> Iterator[tuple[np.ndarray, list[str]]]:
    """Row numbers and texts, in blocks."""
    for start in range(0, len(texts), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(texts)))
        yield rows, texts.take(rows)


def _given_store(path: Path, own: EncodingStore, corpus: Texts) -> EncodingStore:
    place = store_path(path, own.key)
    if not (place / "manifest.json").is_file():
        others = any(path.glob("*/manifest.json"))
        problem = "has only vectors of other models or lengths" if others else "has no vectors"
        remedy = SAME_MODEL if others else FORMS
        raise bad_input(path, f"teacher.vectors: {problem}", remedy)
    store = EncodingStore.open(place, own.key, own.dim)
    known = sum(int((store.rows(texts) >= 0).sum()) for _, texts in _blocks(corpus))
    _say_how_many(path, known, len(corpus))
    return store


def _say_how_many(path: Path, known: int, documents: int) -> None:
    if not known:
        problem = "teacher.vectors: has no vector of any document of the corpus"
        raise bad_input(path, problem, "index the same texts, whole (without --window)")
    if known < documents:
        say(f"{path}: has {known:,} of {documents:,} documents; the teacher encodes the others")


def _require_exact(path: Path) -> IndexManifest:
    """Refuse an index whose vectors are not exactly the model's, or are not for whole documents."""
    manifest = IndexManifest.load(path)
    facts = manifest.dense
    if facts is None:
        raise bad_input(path, "teacher.vectors: is an index without vectors", "build it without --no-dense")
    inexact = next((part.kind for part in manifest.segments if part.kind not in EXACT), None)
    problem = (
        "keeps its vectors in Milvus" if facts.store is not None
        else "has vectors of windows, not of whole documents" if facts.window is not None
        else f"keeps only 8 bits of each number ({inexact})" if inexact is not None
        else None
    )  # fmt: skip
    if problem is not None:
        remedy = STORE if facts.window is None else f"{STORE}; without --window"
        raise bad_input(path, f"teacher.vectors: the index {problem}", remedy)
    return manifest


def _of_index(path: Path, teacher: Any, corpus: Texts) -> Source:
    facts = _require_exact(path).dense
    if facts is None or facts.model != model_digest(teacher):
        problem = "teacher.vectors: the index was built with another model than the teacher, or another length"
        raise bad_input(path, problem, SAME_MODEL)
    index = SearchIndex.open(path, teacher)
    there = index.collection.find(list(corpus))  # [documents], rows of the index
    same = [
        rows[place]
        for rows, texts in _blocks(corpus)
        for place in np.flatnonzero(there[rows] >= 0)
        if index.collection.text_at(int(there[rows[place]])) == texts[place]
    ]
    known = np.array(same, dtype=np.int64)
    _say_how_many(path, len(known), len(corpus))
    vectors = index.dense.vectors
    return Source(path, known, lambda rows: vectors.take(there[rows]), STORE)


def _of_file(path: Path, teacher: Any, corpus: Texts) -> Source:
    vectors, dim = _mapped(path, len(corpus)), teacher.encoding(DOCUMENT).dim
    if vectors.shape[1] != dim:
        problem = f"teacher.vectors: has {vectors.shape[1]} numbers per document, the teacher's embeddings have {dim}"
        raise bad_input(path, problem, "give vectors that the teacher made, or name their model as teacher.model")
    remedy = "save what the teacher gives, in the order of corpus.jsonl"
    return Source(path, np.arange(len(corpus)), lambda rows: np.asarray(vectors[rows], dtype=np.float32), remedy)


def _mapped(path: Path, documents: int) -> np.ndarray:
    """The rows [documents, dim] of a file, memory-mapped."""
    if path.suffix != ".npy":
        raise bad_input(path, "teacher.vectors: is not a .npy file", FORMS)
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0][:100] if str(error) else "empty"
        raise bad_input(path, f"teacher.vectors: cannot be read ({reason})", "write it with numpy.save") from error
    if found.ndim != 2 or found.dtype.kind != "f":
        problem = f"teacher.vectors: is an array {list(found.shape)} of {found.dtype}, not [documents, dim] of floats"
        raise bad_input(path, problem, "save one float vector for each document")
    if len(found) != documents:
        problem = f"teacher.vectors: has {len(found):,} rows, and the corpus has {documents:,} documents"
        raise bad_input(path, problem, "give one row for each document, in the order of corpus.jsonl")
    return found


def _compare(found: Source, teacher: Any, corpus: Texts) -> None:
    """Refuse vectors from another model: the teacher encodes some documents, spread over the corpus, again."""
    rows = found.known[np.unique(np.linspace(0, len(found.known) - 1, COMPARED).astype(np.int64))]
    given, own = found.take(rows), teacher.encode(corpus.take(rows), DOCUMENT)
    _require_finite(found.path, given, corpus, rows)
    for row, theirs, ours in zip(rows.tolist(), given.astype(np.float64), own.astype(np.float64), strict=True):
        long, right = float(np.linalg.norm(theirs)), float(np.linalg.norm(ours))
        cosine = float(theirs @ ours) / (long * right) if long and right else float(long == right)
        name = f"document {corpus.id_at(row)!r}"
        if cosine < LOWEST_COSINE:
            problem = f"has vectors that the teacher did not make: that of {name} has a cosine of {cosine:.3f}"
            raise bad_input(found.path, f"teacher.vectors: {problem} to the teacher's", found.remedy)
        if abs(long - right) > LENGTH_TOLERANCE * right:
            problem = f"has scaled vectors: that of {name} has length {long:.3g}, the teacher's {right:.3g}"
            raise bad_input(found.path, f"teacher.vectors: {problem}", found.remedy)


def _require_finite(path: Path, vectors: np.ndarray, corpus: Texts, rows: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        row = int(rows[wrong[0]])
        problem = f"teacher.vectors: row {row} (document {corpus.id_at(row)!r}) has a number that is not finite"
        raise bad_input(path, problem, "encode that document again")


def _copy(found: Source, store: EncodingStore, corpus: Texts) -> None:
    """Copy vectors into the run's store, block by block."""
    with progress(f"Reading {found.path.name}", len(found.known)) as advance, store.writing():
        for start in range(0, len(found.known), BLOCK):
            rows = found.known[start : start + BLOCK]
            vectors = found.take(rows)
            _require_finite(found.path, vectors, corpus, rows)
            store.append(corpus.take(rows), vectors)
            advance(len(rows))
