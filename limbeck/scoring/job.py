"""A scoring job: texts are encoded once, pairs are scored shard by shard, every shard is one file.

    DIR/
      job.json               what is scored by whom, and how it is cut; another job may not take over the folder
      head/                  the model's head: workers need no more of it
      encodings/position-0/  stored vectors of the texts (elsewhere with `store`)
      work/                  rows of pairs and texts
      scores/part-0000000.parquet ...  written beside and renamed: complete or absent
      done.json              once all are there

A job that was killed goes on with the shards that are missing and ends with the same files. A shard depends on the job
alone, not on the engine that ran it.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from limbeck import __version__
from limbeck.errors import LimbeckError
from limbeck.evaluation.calibration import Calibration
from limbeck.files import alone_in, digest, make_directory, read_json, write_atomically, write_json
from limbeck.matchers import DiPair, Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.load import model_folder
from limbeck.progress import progress, say
from limbeck.scoring.engine import Engine
from limbeck.scoring.heads import PairHead
from limbeck.scoring.scorer import TRIED, Scorer, choose_head, encoder_of, open_store
from limbeck.scoring.source import Source, open_source, source_state
from limbeck.stores import EncodingStore, encode_with_store

JOB, DONE, SCORES, HEAD = "job.json", "done.json", "scores", "head"
SHARD = 100_000  # pairs in a file
TOGETHER, LARGEST = 8, 4_000_000  # left texts that share a shard of a cross product, and its pairs at most
FORMAT = 2


@dataclass(frozen=True)
class Plan:
    """What decides the files of a job."""

    model: str
    identity: str  # of the model's weights and configuration
    source: str  # of the pairs' files
    pairs: int
    pairs_file: str | None
    left: str | None
    right: str | None
    shard: int
    top_k: int | None
    dtype: str
    store: str | None
    stores: list[str]  # of each position's texts, by their place or by their place in the job's folder
    asked: str  # which head was asked for
    head: str  # and which one it is
    batch: int  # pairs through the head at a time: fixed, since sums differ in their last digit by it
    format: int = FORMAT
    limbeck: str = __version__

    @property
    def shards(self) -> int:
        return math.ceil(self.pairs / self.shard)


@dataclass(frozen=True)
class Done:
    """A finished job."""

    folder: Path
    pairs: int
    scored: int  # in this call
    encoded: int  # texts, in this call
    seconds: float
    bytes: int

    @property
    def pairs_per_second(self) -> float:
        return self.scored / self.seconds if self.seconds else 0.0


def score_pairs(
    model: str,
    pairs: str | Path | None,
    out: str | Path,
    engine: Engine,
    left: str | None = None,
    right: str | None = None,
    top_k: int | None = None,
    shard: int = SHARD,
    dtype: str = "float32",
    store: str | Path | None = None,
    head: str = "auto",
) -> Done:
    """Score a list of pairs into `out`; killed at any point and called again, it goes on where it was."""
    folder = Path(out).expanduser()
    matcher = load_matcher(model)
    PairHead.of(matcher).require(head)
    make_directory(folder)
    with alone_in(folder):
        began = time.monotonic()
        given = Path(pairs).absolute() if pairs is not None else None
        left, right = (str(Path(side).absolute()) if side and Path(side).exists() else side for side in (left, right))
        wanted: dict[str, Any] = {
            "model": str(model),
            "identity": digest(str(matcher.identity()), str(Calibration.load(model_folder(model)))),
            "source": source_state(given, left, right),
            "pairs_file": str(given) if given else None,
            "left": left,
            "right": right,
            "top_k": top_k,
            "dtype": dtype,
            "store": str(Path(store).absolute()) if store else None,
            "asked": head,
        }
        _claim(folder, wanted)
        with _nothing_left_of_a_mistake(folder):
            source = open_source(given, left, right, folder / "work")
            _require_texts(matcher, source)
        encoded = _encode(matcher, source, folder, dtype, wanted["store"])
        plan = _planned(folder, wanted, source, matcher, shard)
        waiting = [number for number in range(plan.shards) if not part_file(folder, number).exists()]
        todo = sum(_size(plan, number) for number in waiting)
        with progress("Scoring pairs", plan.pairs) as advance:
            advance(plan.pairs - todo)
            if waiting:
                engine.run(folder, waiting, advance)
        size = sum(file.stat().st_size for file in (folder / SCORES).glob("part-*.parquet"))
        done = Done(folder, plan.pairs, todo, encoded, time.monotonic() - began, size)
        write_json(folder / DONE, {"pairs": plan.pairs, "shards": plan.shards, "bytes": size})
        return done


@contextmanager
def _nothing_left_of_a_mistake(folder: Path) -> Iterator[None]:
    """A list that cannot be read leaves no folder behind that was made for it."""
    try:
        yield
    except LimbeckError:
        if not (folder / JOB).exists():
            shutil.rmtree(folder / "work", ignore_errors=True)
            with suppress(OSError):  # somebody else's files
                folder.rmdir()
        raise


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Refuse a folder of another job, by the first thing that differs; forget what a job left that never began."""
    begun = folder / "work" / "begun.json"
    if not (folder / JOB).exists():
        ours = ("work", "encodings", HEAD)
        if any(path.name not in ours and not path.name.startswith(".") for path in folder.iterdir()):
            raise LimbeckError(f"{folder}: is not empty and holds no scoring job; choose another --out")
        if not begun.exists() or read_json(begun) != wanted:
            shutil.rmtree(folder / "work", ignore_errors=True)  # rows of another list would pass for this one's
            make_directory(folder / "work")
            write_json(begun, wanted)
        return
    known = read_json(folder / JOB)
    names = {"identity": "the model", "source": "the list of pairs", "asked": "head"}
    for key in ("identity", "source", "top_k", "dtype", "store", "asked"):
        if known.get(key) != wanted[key]:
            problem = f"holds another job ({names.get(key, key)} differs)"
            raise LimbeckError(f"{folder}: {problem}; choose another --out, with one --store for both")


def _require_texts(matcher: Matcher, source: Source) -> None:
    texts = matcher.texts if isinstance(matcher, DiPair) else 2
    if len(source.tables) != texts:
        problem = f"the pairs have {len(source.tables)} texts and the model reads {texts}"
        raise LimbeckError(f"{problem}; give a list and a model that fit")


def _store(folder: Path, store: str | None, matcher: Matcher, position: int, dtype: str) -> EncodingStore:
    """The vectors of one position's texts: the job's own, or in a folder that jobs share."""
    return open_store(folder / _store_place(store, matcher, position, dtype), matcher, position, dtype)


def _store_place(store: str | None, matcher: Matcher, position: int, dtype: str) -> str:
    if store is None:
        return f"encodings/position-{position}"
    return str(Path(store) / f"{digest(str(matcher.identity()))[:12]}-{dtype}-position-{position}")


def _encode(matcher: Matcher, source: Source, folder: Path, dtype: str, store: str | None) -> int:
    """Encode what the stores lack, and note each text's row in them."""
    encoded = 0
    make_directory(folder / "work")
    for position, table in enumerate(source.tables):
        kept = _store(folder, store, matcher, position, dtype)
        texts = (text for _, text in table.items())
        encoded += encode_with_store(kept, texts, encoder_of(matcher, position), total=len(table))
        place = folder / "work" / f"rows-{position}.npy"
        if not place.exists() or len(np.load(place, mmap_mode="r")) != len(table) or encoded:
            blocks = [kept.rows(table.take(range(at, min(at + 8192, len(table))))) for at in range(0, len(table), 8192)]
            with write_atomically(place) as handle:
                np.save(handle, np.concatenate([*blocks, np.zeros(0, dtype=np.int64)]), allow_pickle=False)
        if dtype != "float32":
            off = f"off by {kept.error.relative:.2%}, at worst by {kept.error.worst:.2%}"
            say(f"vectors of text {position + 1} are stored as {dtype}: {off}")
    return encoded


def _planned(folder: Path, wanted: dict[str, Any], source: Source, matcher: Matcher, shard: int) -> Plan:
    """The plan of the folder; the first call decides how pairs are cut and batched."""
    place = folder / JOB
    if place.exists():
        known = read_json(place)
        if known.get("format") != FORMAT:
            raise LimbeckError(f"{place}: is of format {known.get('format')}; use the limbeck that wrote it")
        return Plan(**known)
    if not len(source):
        raise LimbeckError("there are no pairs to score; check the list")
    if wanted["top_k"] is not None and source.pairs is None:
        shard = whole_lefts(shard, len(source.tables[1]))
    positions = range(len(source.tables))
    stores = [_store(folder, wanted["store"], matcher, at, wanted["dtype"]) for at in positions]
    rows = _store_rows(folder, source.rows(0, min(len(source), TRIED)))
    head = PairHead.of(matcher)
    how, batch = choose_head(head, wanted["asked"], stores, rows)
    places = [_store_place(wanted["store"], matcher, at, wanted["dtype"]) for at in positions]
    plan = Plan(**wanted, pairs=len(source), shard=shard, stores=places, head=how, batch=batch)
    head.save(folder / HEAD)
    calibration = Calibration.load(model_folder(wanted["model"]))
    if calibration is not None:
        calibration.save(folder / HEAD)
    make_directory(folder / SCORES)
    write_json(place, asdict(plan))
    return plan


def whole_lefts(shard: int, rights: int) -> int:
    """Pairs in a shard when each left text's best are kept: no left text is cut, and several meet each right."""
    return max(1, max(shard, min(TOGETHER * rights, LARGEST)) // rights) * rights


def _store_rows(folder: Path, rows: np.ndarray) -> np.ndarray:
    """Rows of text tables as rows of the stores."""
    columns = [np.load(folder / "work" / f"rows-{at}.npy", mmap_mode="r")[rows[:, at]] for at in range(rows.shape[1])]
    return np.stack(columns, axis=1)


def part_file(folder: Path, shard: int) -> Path:
    return folder / SCORES / f"part-{shard:07}.parquet"


def _size(plan: Plan, shard: int) -> int:
    return min(plan.shard, plan.pairs - shard * plan.shard)


class Worker:
    """Scores shards of one job; made in whatever process or machine sees its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = plan = Plan(**read_json(folder / JOB))
        self.calibration = Calibration.load(folder / HEAD)
        listed = Path(plan.pairs_file) if plan.pairs_file else None
        self.source = open_source(listed, plan.left, plan.right, folder / "work")
        stores = [EncodingStore.read(folder / place) for place in plan.stores]
        self.scorer = Scorer(PairHead.load(folder / HEAD).folded(plan.head), stores, plan.batch)

    @cached_property
    def by_left(self) -> tuple[np.ndarray, np.ndarray]:
        """Listed pairs in the order of their left texts, for the best of each, and these texts: 12 bytes a pair."""
        assert self.source.pairs is not None
        lefts = np.asarray(self.source.pairs[:, 0])
        order = np.argsort(lefts, kind="stable")
        return order, lefts[order]

    def run(self, shard: int) -> int:
        """Score one shard and write its file; the number of its pairs."""
        plan = self.plan
        start, stop = shard * plan.shard, min((shard + 1) * plan.shard, plan.pairs)
        if plan.top_k is None or self.source.pairs is None:
            numbers, rows = np.arange(start, stop), self.source.rows(start, stop)
        else:
            order, lefts = self.by_left
            numbers = order[slice(*_whole_lefts(lefts, start, stop))]
            rows = np.asarray(self.source.pairs[numbers], dtype=np.int64)
        scores = self.scorer.score(_store_rows(self.folder, rows)) if len(rows) else np.zeros((0, 1), np.float32)
        bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
        if len(bad):
            raise LimbeckError(
                f"the score of pair {numbers[bad[0]] + 1} is not finite; the model is damaged, use another"
            )
        table = self._table(numbers, rows, scores)
        with write_atomically(part_file(self.folder, shard)) as handle:
            pq.write_table(table, handle, compression="zstd")
        return stop - start

    def _table(self, numbers: np.ndarray, rows: np.ndarray, scores: np.ndarray) -> pa.Table:
        columns: dict[str, Any] = {}
        if self.plan.top_k is not None:
            keep, rank = top_of_each(rows[:, 0], scores[:, -1], self.plan.top_k)
            numbers, rows, scores = numbers[keep], rows[keep], scores[keep]
            columns["rank"] = pa.array(rank.astype(np.int32))
        columns = {"pair": pa.array(numbers)} | columns
        if self.source.named:
            for name, table, place in zip(("left", "right"), self.source.tables, rows.T, strict=True):
                distinct, where = np.unique(place, return_inverse=True)
                values = pa.array(table.ids_at(distinct), type=pa.string())
                columns[name] = pa.DictionaryArray.from_arrays(pa.array(where.astype(np.int32)), values)
        if scores.shape[1] == 1:
            columns["score"] = pa.array(scores[:, 0])
            if self.calibration is not None:
                probabilities = self.calibration.probabilities(scores[:, 0])
                columns["probability"] = pa.array(probabilities.astype(np.float32))
                columns["match"] = pa.array(probabilities >= self.calibration.threshold)
        else:
            columns |= {f"score_{number}": pa.array(column) for number, column in enumerate(scores.T)}
        return pa.table(columns)


def _whole_lefts(lefts: np.ndarray, start: int, stop: int) -> tuple[int, int]:
    """A slice of ordered pairs moved so that no left text is cut: each belongs to the shard in which it starts."""

    def moved(at: int) -> int:
        if at == 0 or at >= len(lefts):
            return min(at, len(lefts))
        return int(np.searchsorted(lefts, lefts[at - 1], side="right")) if lefts[at] == lefts[at - 1] else at

    return moved(start), moved(stop)


def top_of_each(lefts: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of each left text's k best pairs, best first, and their ranks from 1; equal scores in given order."""
    order = np.lexsort((np.arange(len(scores)), -scores, lefts))
    starts = np.flatnonzero(np.append(True, np.diff(lefts[order]) != 0))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    keep = rank < k
    return order[keep], rank[keep] + 1
