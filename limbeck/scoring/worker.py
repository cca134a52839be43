"""A worker of a scoring job: its plan, its head, its stores. It imports no model library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.calibration import Calibration
from limbeck.matchers.device import chosen_device
from limbeck.matchers.pair_scorer import PairScorer
from limbeck.runtimes.choice import measuring_on, using_runtime
from limbeck.scoring.heads import load_head, require_whole_head, running
from limbeck.scoring.inputs import require_same_times
from limbeck.scoring.list_columns import rows_of
from limbeck.scoring.parts import write_part
from limbeck.scoring.plan import HEAD, WORK, Plan
from limbeck.scoring.scorer import one_thread
from limbeck.scoring.source import Wanted, mapped_rows, open_source
from limbeck.stores import EncodingStore

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher


def model_identity(matcher: Matcher, model: str, computed: dict[str, Any] | None = None) -> str:
    """The key of a job: the model's weights and configuration, its calibration, and what rounds its outputs: as it is,
    or as `computed`.
    """
    from limbeck.matchers.names import model_folder  # not at the top: most workers load no model

    identity = matcher.identity() | ({"computed": computed} if computed else {})
    return digest(str(identity), repr(Calibration.load(model_folder(model))))


def why_another(matcher: Matcher, plan: Plan) -> str:
    """Why a worker's model is not the one of the job."""
    computed = matcher.computed
    if "bits" in computed:
        for bits in {7, 8} - {computed["bits"]}:
            if model_identity(matcher, plan.model, {**computed, "bits": bits}) == plan.identity:
                problem = f"{plan.runtime} rounds weights to {computed['bits']} bits on this processor"
                remedy = "use workers of one kind, or start again with --runtime onnx and another --out"
                return f"{problem}, and to {bits} bits where the job was started; {remedy}"
    return "the model changed while pairs were scored; choose another --out"


def store_rows(folder: Path, rows: np.ndarray) -> np.ndarray:
    """Map rows of text tables to rows of the stores."""
    columns = [mapped_rows(folder / WORK / f"rows-{at}.npy")[rows[:, at]] for at in range(rows.shape[1])]
    return np.stack(columns, axis=1)


def named_rows(folder: Path, position: int) -> np.ndarray:
    """The rows in a store of all texts that occur in pairs, in the order of the user's texts: so what is computed
    together, and with it the last digit of a score, does not depend on the store's order.
    """
    rows = np.asarray(mapped_rows(folder / WORK / f"rows-{position}.npy"))
    named = rows[rows >= 0]
    return named[np.sort(np.unique(named, return_index=True)[1])]


class Worker:
    """Scores shards of one job, in any process or machine that sees its folder."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.folder, self.device = folder, device
        self.plan = plan = Plan.read(folder)
        require_whole_head(folder / HEAD)
        self.calibration = Calibration.load(folder / HEAD)
        wanted = Wanted(plan.list_file, plan.left, plan.right, plan.columns)
        self.source = open_source(wanted, folder / WORK)
        require_same_times(folder, plan)
        self.scores = self._of_stored_texts() if plan.stores else self._of_whole_model()

    def _of_stored_texts(self) -> Callable[[np.ndarray], np.ndarray]:
        stores = [EncodingStore.read(self.folder / place) for place in self.plan.stores]
        head = load_head(self.folder / HEAD).to(chosen_device(self.device))
        scorer = PairScorer(running(head, self.plan.head), stores, self.plan.batch)
        if self.plan.shards > 1:  # otherwise the texts would be prepared again for each shard
            scorer.keep([named_rows(self.folder, position) for position in range(len(stores))])
        return lambda rows: scorer.score(store_rows(self.folder, rows))

    def _of_whole_model(self) -> Callable[[np.ndarray], np.ndarray]:
        """For a model without encodings: only then does a worker load a model."""
        from limbeck.matchers import load
        from limbeck.scoring.whole_model import WholeModel

        texts = self.plan.right or self.plan.list_file
        with one_thread(), measuring_on(texts), using_runtime(self.plan.runtime):  # as in the driver
            matcher = load(self.plan.model, device=self.device)
        if model_identity(matcher, self.plan.model) != self.plan.identity:
            raise LimbeckError(f"{self.plan.model}: {why_another(matcher, self.plan)}")
        return WholeModel(matcher, self.source.tables).score

    @cached_property
    def by_left(self) -> tuple[np.ndarray, np.ndarray]:
        """Listed pairs sorted by left text, to find the best of each, and these texts: 12 bytes per pair."""
        assert self.source.pairs is not None
        lefts = np.asarray(self.source.pairs[:, 0])
        order = np.argsort(lefts, kind="stable")
        return order, lefts[order]

    def run(self, shard: int) -> int:
        """Score one shard and write its file; returns the number of its pairs."""
        plan = self.plan
        start, stop = shard * plan.shard, min((shard + 1) * plan.shard, plan.pairs)
        if plan.top_k is None or self.source.pairs is None:
            numbers, rows = np.arange(start, stop), self.source.rows(start, stop)
        else:
            order, lefts = self.by_left
            numbers = order[slice(*_whole_lefts(lefts, start, stop))]
            rows = np.asarray(self.source.pairs[numbers], dtype=np.int64)
        scores = self.scores(rows) if len(rows) else np.zeros((0, 1), np.float32)
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
        if len(bad):
            raise LimbeckError(
                f"the score of pair {numbers[bad[0]]} is not finite: the model is damaged; use another model"
            )
        write_part(self.folder, shard, self._table(numbers, rows, scores))
        return stop - start

    def _table(self, numbers: np.ndarray, rows: np.ndarray, scores: np.ndarray) -> pa.Table:
        rank: dict[str, Any] = {}
        if self.plan.top_k is not None:
            keep, ranks = top_of_each(rows[:, 0], scores[:, 0], self.plan.top_k)
            numbers, rows, scores = numbers[keep], rows[keep], scores[keep]
            rank["rank"] = pa.array(ranks.astype(np.int32))
        named = {self.source.naming[at]: self._naming(at, rows[:, at]) for at in self.source.shown.positions}
        scored = self._scored(scores)
        own = {"pair": pa.array(numbers), **rank, **named}
        if self.source.columns is not None:
            own |= rows_of(self.source.columns, numbers, [*own, *scored])
        return pa.table({**own, **scored})

    def _naming(self, position: int, rows: np.ndarray) -> pa.DictionaryArray:
        """The ids of the texts of a position, or the texts themselves, each distinct one once."""
        table = self.source.tables[position]
        distinct, where = np.unique(rows, return_inverse=True)
        if self.source.named:
            values = pa.array(table.ids_at(distinct), type=pa.string())
        else:
            values = table.text_column(distinct)
        return pa.DictionaryArray.from_arrays(pa.array(where.astype(np.int32)), values)

    def _scored(self, scores: np.ndarray) -> dict[str, pa.Array]:
        if scores.shape[1] > 1:
            return {f"score_{number}": pa.array(column) for number, column in enumerate(scores.T)}
        columns = {"score": pa.array(scores[:, 0])}
        if self.calibration is not None:
            probabilities = self.calibration.probabilities(scores[:, 0])
            columns["probability"] = pa.array(probabilities.astype(np.float32))
            columns["match"] = pa.array(probabilities >= self.calibration.threshold)
        return columns


def _whole_lefts(lefts: np.ndarray, start: int, stop: int) -> tuple[int, int]:
    """Move a slice of sorted pairs so that no left text is split: each belongs to the shard in which it starts."""

    def moved(at: int) -> int:
        if at == 0 or at >= len(lefts):
            return min(at, len(lefts))
        return int(np.searchsorted(lefts, lefts[at - 1], side="right")) if lefts[at] == lefts[at - 1] else at

    return moved(start), moved(stop)


def top_of_each(lefts: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of each left text's k best pairs, best first, and their ranks from 1; ties keep the given order."""
    order = np.lexsort((np.arange(len(scores)), -scores, lefts))
    starts = np.flatnonzero(np.append(True, np.diff(lefts[order]) != 0))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    keep = rank < k
    return order[keep], rank[keep] + 1
