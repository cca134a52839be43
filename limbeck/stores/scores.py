"""Teacher scores on disk: raw logits of (query id, document id) pairs, and the teacher's identity.

The `identity` of the teacher (weights, revision, lengths, name, code version) is part of the store; scores of another
teacher are refused. A pair is stored once and never replaced, so a killed job continues where it stopped.

    store = ScoreStore.open(path, identity)
    score_with_store(store, candidates, teacher_scores)
    store.lookup("q1", ["d1", "d2"])                # NaN if the teacher did not score the pair
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limbeck.errors import LimbeckError
from limbeck.progress import Advance, progress
from limbeck.stores.digests import first_occurrences, locate, pair_digests, text_digests
from limbeck.stores.manifest import Manifest, canonical
from limbeck.stores.score_files import ScoreShard, merge_shards, write_shard
from limbeck.stores.shards import Facts, Files, ShardDirectory, ShardedStore

if TYPE_CHECKING:
    from limbeck.data.dataset import Candidates, Run

KIND = "limbeck teacher scores"
LARGE = 64 * 2**20  # bytes; a merge needs this much memory
IMPORT_BLOCK = 500_000

Pair = tuple[str, str]


class ScoreStore(ShardedStore):
    """Scores per pair; see `limbeck.stores.shards` for how they survive a crash."""

    def __init__(self, path: Path, wanted: Manifest, *, any_identity: bool = False) -> None:
        self._shards = ShardDirectory(path, wanted, LARGE, merge_shards, any_identity=any_identity)
        self._readers: dict[str, ScoreShard] = {}
        self.path = path
        self.identity: dict[str, Any] = self._shards.manifest.identity
        self.outputs: int = self._shards.manifest.layout["outputs"]

    @classmethod
    def open(cls, path: str | Path, identity: dict[str, Any], outputs: int = 1) -> ScoreStore:
        """Open the store at `path`, or create it: nothing is written before the first append."""
        return cls(Path(path), Manifest(KIND, json.loads(canonical(identity)), {"outputs": outputs}))

    @classmethod
    def read(cls, path: str | Path) -> ScoreStore:
        """Open an existing store for reading, from any teacher."""
        return cls(Path(path), Manifest(KIND, {}, {}), any_identity=True)

    @classmethod
    def from_run(cls, path: str | Path, run: Candidates, identity: dict[str, Any]) -> ScoreStore:
        """Import scores that were made elsewhere. All are checked before the first is written."""
        store = cls.open(path, identity)
        for query_id, scores in run.items():
            _refuse_non_finite([query_id] * len(scores), list(scores), _as_float32(list(scores.values()), 1))
        pairs = ((query_id, *scored) for query_id, scores in run.items() for scored in scores.items())
        with progress("Storing scores", sum(map(len, run.values()))) as advance:
            while block := list(islice(pairs, IMPORT_BLOCK)):
                store.append([pair[0] for pair in block], [pair[1] for pair in block], [pair[2] for pair in block])
                advance(len(block))
        return store

    def _all(self) -> list[ScoreShard]:
        mapped = self._shards.shards
        self._readers = {shard.shard.name: self._readers.get(shard.shard.name) or ScoreShard(shard) for shard in mapped}
        return list(self._readers.values())

    def append(self, query_ids: Sequence[str], document_ids: Sequence[str], scores: Any) -> int:
        """Store the scores [pairs] or [pairs, outputs] of pairs that are not stored yet; returns how many were new."""
        table = _as_float32(scores, self.outputs)
        if not len(query_ids) == len(document_ids) == len(table):
            raise ValueError(f"{len(query_ids)} queries, {len(document_ids)} documents, {len(table)} scores")
        _refuse_non_finite(query_ids, document_ids, table)
        digests = pair_digests(query_ids, document_ids)
        with self.writing():
            new = self._absent(digests)
            if len(new) == 0:
                return 0
            queries, documents = [query_ids[at] for at in new], [document_ids[at] for at in new]

            def write(folder: Path) -> tuple[Files, Facts]:
                return write_shard(folder, queries, documents, table[new], digests[new])

            self._shards.append(len(new), write)
        return len(new)

    def _find(self, digests: np.ndarray) -> np.ndarray:
        scores = np.full((len(digests), self.outputs), np.nan, dtype=np.float32)
        shards = self._all()
        owners, rows = locate([shard.mapped["index.npy"].array for shard in shards], digests)
        for owner in np.unique(owners[owners >= 0]):
            here = owners == owner
            scores[here] = shards[owner].scores[rows[here]]
        return scores

    def _absent(self, digests: np.ndarray) -> np.ndarray:
        distinct = first_occurrences(digests)
        return distinct[np.isnan(self._find(digests[distinct])[:, 0])]

    def missing(self, pairs: Sequence[Pair]) -> list[int]:
        """The positions of the pairs that have no score yet; of equal pairs, only the first."""
        return self._absent(pair_digests([pair[0] for pair in pairs], [pair[1] for pair in pairs])).tolist()

    def get(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Scores [pairs], or [pairs, outputs] if there are several; NaN for pairs that were not scored."""
        scores = self._find(pair_digests([pair[0] for pair in pairs], [pair[1] for pair in pairs]))
        return scores[:, 0] if self.outputs == 1 else scores

    def lookup(self, query_id: str, document_ids: Sequence[str]) -> np.ndarray:
        """The scores of one query's documents, in the form of `get`."""
        return self.get([(query_id, document_id) for document_id in document_ids])

    def query_ids(self) -> list[str]:
        """The queries that have scores."""
        return list(dict.fromkeys(query_id for shard in self._all() for query_id in shard.query_ids.to_pylist()))

    def for_query(self, query_id: str, output: int | None = None) -> dict[str, float]:
        """All scores of one query: document id -> score."""
        column = self._column(output)
        scores: dict[str, float] = {}
        query = text_digests([query_id])
        for shard in self._all():
            rows = shard.rows_of(query)
            if rows.stop:
                scores.update(zip(shard.documents(rows), shard.scores[rows, column].tolist(), strict=True))
        return scores

    def to_run(self, output: int | None = None) -> Run:
        """All scores, as a run in memory."""
        column = self._column(output)
        run: Run = {}
        for query_id, shard, rows in self._by_query():
            scores = shard.scores[rows, column].tolist()
            run.setdefault(query_id, {}).update(zip(shard.documents(rows), scores, strict=True))
        return run

    def top(self, k: int, output: int | None = None) -> Run:
        """The k documents with the highest scores of each query, best first; ties in the order of ids."""
        column = self._column(output)
        best: Run = {}
        for query_id, shard, rows in self._by_query():
            scores = shard.scores[rows, column]
            kept = np.arange(len(scores))
            if len(scores) > k:
                kept = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
            found = zip(shard.documents(rows.start + kept), scores[kept].tolist(), strict=True)
            ranked = sorted((best.get(query_id, {}) | dict(found)).items(), key=lambda item: (-item[1], item[0]))
            best[query_id] = dict(ranked[:k])
        return best

    def _by_query(self) -> Iterator[tuple[str, ScoreShard, slice]]:
        """Every query of every shard, and its rows there."""
        for shard in self._all():
            query_ids = shard.query_ids.to_pylist()
            bounds = np.searchsorted(shard.query_codes, np.arange(len(query_ids) + 1)).tolist()
            for query_id, start, end in zip(query_ids, bounds[:-1], bounds[1:], strict=True):
                yield query_id, shard, slice(start, end)

    def _column(self, output: int | None) -> int:
        if output is None and self.outputs > 1:
            raise LimbeckError(f"{self.path}: has {self.outputs} scores per pair; choose one, 0 to {self.outputs - 1}")
        if output is not None and not 0 <= output < self.outputs:
            raise LimbeckError(f"{self.path}: has no output {output}; choose 0 to {self.outputs - 1}")
        return output or 0


def score_with_store(
    store: ScoreStore,
    candidates: Iterable[tuple[str, Sequence[str]]],
    score: Callable[[list[Pair]], Any],
    block: int = 1024,
    total: int | None = None,
) -> int:
    """Score the (query id, document ids) pairs that are not stored, and return how many there were.

    `score` gets up to `block` pairs, which are stored before the next block: a kill loses at most one block. If nothing
    is missing, nothing is locked. `total` is the number of pairs, if known, for the progress display.
    """
    scored = 0
    waiting: dict[Pair, None] = {}

    def flush(advance: Advance) -> int:
        batch = list(islice(waiting, block))
        for pair in batch:
            del waiting[pair]
        if not batch:
            return 0
        stored = store.append([pair[0] for pair in batch], [pair[1] for pair in batch], score(batch))
        advance(len(batch))
        return stored

    stream = ((query_id, document_id) for query_id, document_ids in candidates for document_id in document_ids)
    known = 0  # pairs stored before, reported at once, so that the remaining time only counts the others
    with progress("Scoring", total) as advance, ExitStack() as stack:
        while chunk := list(islice(stream, block)):
            missing = store.missing(chunk)
            if not missing and not scored and not waiting:
                known += len(chunk)
                continue
            if missing and not scored and not waiting:
                stack.enter_context(store.writing())
                missing = store.missing(chunk)
            before = len(waiting)
            waiting.update((chunk[at], None) for at in missing)
            advance(known + len(chunk) - (len(waiting) - before))
            known = 0
            while len(waiting) >= block:
                scored += flush(advance)
        advance(known)
        scored += flush(advance)
    return scored


def _as_float32(scores: Any, outputs: int) -> np.ndarray:
    """[pairs, outputs] float32; values that float32 cannot hold become infinite and are refused."""
    with np.errstate(over="ignore"):
        return np.asarray(scores, dtype=np.float64).astype(np.float32).reshape(-1, outputs)


def _refuse_non_finite(query_ids: Sequence[str], document_ids: Sequence[str], scores: np.ndarray) -> None:
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        at = int(np.argmin(finite))
        value = scores[at][~np.isfinite(scores[at])][0]
        problem = f"the score of query {query_ids[at]!r} and document {document_ids[at]!r} is {value}"
        raise LimbeckError(f"{problem}; a teacher score must be a finite number")
