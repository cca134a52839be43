"""The dense part of an index: the model that encodes queries, the vectors of all segments, and windows of passages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest
from limbeck.matchers.after_loading import after_loading, asked_finish
from limbeck.progress import progress
from limbeck.search.exact import comparable
from limbeck.search.manifest import DenseFacts, Segment
from limbeck.search.milvus import MilvusIndex
from limbeck.search.milvus_address import require_trusted
from limbeck.search.results import DenseList
from limbeck.search.segmented import Segmented, VectorIndex
from limbeck.search.segments import Collection
from limbeck.search.windows import best_windows, distinct
from limbeck.stores.manifest import canonical

_QUERIES = 64  # queries searched at a time


def model_digest(matcher: Any, position: int | None = 1) -> str:
    """The identity of a model, as far as it affects document vectors, whatever runtime computes them."""
    return digest(canonical({key: value for key, value in matcher.identity(position).items() if key != "computed"}))


class DensePart:
    """Search by vectors. The model, and vectors in Milvus, are loaded with the first query."""

    def __init__(
        self, path: Path, facts: DenseFacts, segments: Sequence[Segment], collection: Collection, model: Any = None
    ) -> None:
        self.path, self.facts, self._segments, self._collection = path, facts, segments, collection
        self._given = model
        self._finish = asked_finish()  # the model is loaded later, when nobody asks for a runtime any more
        if model is not None:
            self._require_model(model, "the model that was given")

    @cached_property
    def matcher(self) -> Any:
        """The model that encodes queries: the index's own copy, after a check that the index was built with it."""
        if self._given is not None:
            return self._given
        from limbeck.matchers import load

        folder = self.path / "model"
        remedy = f"remove {self.path} and build the index again"
        if not folder.is_dir():
            raise bad_input(folder, "is missing", remedy)
        try:
            with after_loading(self._finish):
                matcher = load(folder)
        except LimbeckError as error:
            raise bad_input(folder, f"is damaged ({error})", remedy) from error
        self._require_model(matcher, f"{self.path / 'model'}")
        return matcher

    @property
    def loaded(self) -> Any:
        """The model if it is in memory already, otherwise None."""
        return self.__dict__.get("matcher", self._given)

    def _require_model(self, matcher: Any, name: str) -> None:
        """Refuse a model that would encode documents differently; its query tower may differ."""
        whole = model_digest(matcher, None)  # written by earlier versions
        if self.facts.model not in (model_digest(matcher), whole):
            problem = f"{name} is not the one that {self.path} was built with, or is damaged"
            remedy = "use the original model, a student that has its document tower, or build the index again"
            raise LimbeckError(f"{problem}; {remedy}")

    @cached_property
    def windows(self) -> np.ndarray | None:
        """The row and the characters of each vector, [vectors, 3]; None if vector i is the whole of row i."""
        if self.facts.window is None:
            return None
        parts, start = [], 0
        for segment in self._collection.segments:
            assert segment.windows is not None
            parts.append(segment.windows + np.array([start, 0, 0]))
            start += len(segment.texts)
        return np.concatenate(parts)

    @cached_property
    def vectors(self) -> VectorIndex:
        """All vectors, including those of deleted passages."""
        facts = self.facts
        if facts.store is not None:
            require_trusted(facts.store, str(self.path))
            keys = np.concatenate([np.asarray(segment.keys) for segment in self._collection.segments])
            index = MilvusIndex(facts.store, keys, facts.dim, facts.kind, self._segments[0].effort)
            index.require_complete(len(self.kept(self._collection.alive)))
            return index
        parts = [segment.dense for segment in self._collection.segments if segment.dense is not None]
        for part, segment in zip(parts, self._segments, strict=True):
            if part.dim != facts.dim or len(part) != segment.vectors:
                file = self.path / "segments" / segment.name / "dense.faiss"
                problem = f"has {len(part):,} vectors of {part.dim} numbers, not {segment.vectors:,} of {facts.dim}"
                raise bad_input(file, problem, "build the index again")
        return Segmented(parts)

    def kept(self, allowed: np.ndarray) -> np.ndarray:
        """The numbers of the vectors of allowed rows, [rows] bool."""
        return np.flatnonzero(allowed if self.windows is None else allowed[self.windows[:, 0]])

    def encode(self, queries: Sequence[str]) -> np.ndarray:
        """Query vectors [queries, dim] whose inner products are the model's scores."""
        return comparable(self.matcher.encode_query(list(queries)), self.facts.similarity)

    def search(self, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None) -> list[DenseList]:
        """The k best passages for each query vector; `allowed` [rows] bool excludes passages."""
        best = self._best if self.windows is None else self._best_windows
        found: list[DenseList] = []
        with progress("Dense search", len(vectors)) as advance:
            for start in range(0, len(vectors), _QUERIES):
                block = vectors[start : start + _QUERIES]
                found += best(block, k, allowed)
                advance(len(block))
        return found

    def _best(self, vectors: np.ndarray, k: int, allowed: np.ndarray | None) -> list[DenseList]:
        rows, scores = self.vectors.search(vectors, k, allowed)
        return [DenseList(row[row >= 0], score[row >= 0]) for row, score in zip(rows, scores, strict=True)]

    def _best_windows(self, vectors: np.ndarray, k: int, allowed: np.ndarray | None) -> list[DenseList]:
        """By the best window of each passage; searches for more windows until they belong to k passages."""
        assert self.windows is not None
        owners = self.windows[:, 0]
        mask = None if allowed is None else allowed[owners]
        windows, passages = len(owners), len(self._collection)
        if mask is not None and allowed is not None:
            windows, passages = int(np.count_nonzero(mask)), int(np.count_nonzero(allowed))
        ask = 2 * k
        while True:
            rows, scores = self.vectors.search(vectors, ask, mask)
            kept = [row[row >= 0] for row in rows]
            if ask >= windows or distinct(owners, kept) >= min(k, passages):
                break
            ask *= 2
        return [DenseList(*best_windows(owners, row, score, k)) for row, score in zip(kept, scores, strict=True)]

    def span(self, listed: DenseList, row: int) -> tuple[int, int] | None:
        """The characters of a passage in its best window; None if passages are not cut."""
        place = np.flatnonzero(listed.rows == row)
        if self.windows is None or listed.windows is None or not len(place):
            return None
        _, first, last = self.windows[listed.windows[place[0]]].tolist()
        return first, last
