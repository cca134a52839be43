"""One shard at a time: gather what is stored of the texts, run the folded head, give the scores.

A scorer needs no encoder and no tokeniser: only the head's weights, the stores, and the row of each text in them.

What a head can know of a text before it meets another takes several times the room of what is stored. So a shard is
taken tile by tile, so many texts of each position that all that is known of them fits `PREPARED`: a cross product reads
every text once a tile of the others, and a list in which no text comes twice needs no more memory than one in which
the same few meet all the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from limbeck.progress import say
from limbeck.scoring.folded import FoldedHead, Prepared
from limbeck.scoring.heads import PairHead

BATCHES = (32, 64, 128, 256, 512)  # pairs through the head at a time, tried on the machine at hand
TRIED = 2048  # pairs that are tried
TEXTS = 1024  # prepared at a time
PREPARED = 256 << 20  # bytes of prepared texts


class Vectors(Protocol):
    """Stored vectors of texts, by their rows."""

    def take(self, rows: np.ndarray) -> np.ndarray: ...


def choose_head(head: PairHead, asked: str, stores: Sequence[Vectors], rows: np.ndarray) -> tuple[str, int]:
    """Which head and how many pairs at a time are fastest here, tried on some pairs in one thread, as workers have."""
    with one_thread():
        names = [asked] if asked != "auto" else ["torch"]
        if asked == "auto" and head.is_transformer and _onnx_is_there():
            names.append("onnx")
        scorers = {name: Scorer(head.folded(name), stores) for name in names}
        spent = {name: scorer.tune(rows) for name, scorer in scorers.items()}
        best = min(spent, key=spent.__getitem__)
        if asked == "int8":
            exact = Scorer(head.folded(), stores).score(rows)
            off = np.abs(scorers["int8"].score(rows) - exact)
            range_ = max(float(np.ptp(exact)), np.finfo(np.float32).tiny)
            worst = f"{off.max():.4f} at worst, {off.max() / range_:.2%} of their range"
            say(f"8-bit scores of {len(rows):,} pairs are off by {off.mean():.4f} on average, {worst}")
    return best, scorers[best].batch


def _onnx_is_there() -> bool:
    return find_spec("onnx") is not None and find_spec("onnxruntime") is not None


@contextmanager
def one_thread() -> Iterator[None]:
    """What is measured here is measured as workers run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _by_appearance(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows in the order of the pairs, and each pair's place among them.

    So whom a pair is computed with, and its last digit with that, depends on the list and not on the store's order.
    """
    distinct, first, place = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[place]


class Scorer:
    """Scores pairs that are given as rows of the stores."""

    def __init__(self, head: FoldedHead, stores: Sequence[Vectors], batch: int | None = None) -> None:
        self.head, self.stores = head, stores
        self.batch = batch or BATCHES[1]
        self.known: dict[int, tuple[np.ndarray, Prepared]] = {}

    @torch.inference_mode()
    def score(self, rows: np.ndarray) -> np.ndarray:
        """Scores [pairs, outputs] of rows [pairs, positions]."""
        found = [_by_appearance(column) for column in rows.T]
        places = [place for _, place in found]
        tiles = [place // self._fitting(position) for position, place in enumerate(places)]
        # Tile by tile; within one, neighbours share their left text, which stays in the processor's cache.
        order = np.lexsort((*reversed(places), *reversed(tiles)))
        turns = np.any([np.diff(tile[order]) != 0 for tile in tiles], axis=0)
        scores = None
        for tile in np.split(order, np.flatnonzero(turns) + 1):
            texts = []
            for position, (distinct, place) in enumerate(found):
                present, where = np.unique(place[tile], return_inverse=True)
                texts.append((self._known(distinct[present], position), torch.from_numpy(where)))
            block = torch.cat([self._batch(texts, at) for at in range(0, len(tile), self.batch)]).float().numpy()
            scores = np.empty((len(rows), block.shape[1]), dtype=np.float32) if scores is None else scores
            scores[tile] = block
        assert scores is not None
        return scores

    def _known(self, rows: np.ndarray, position: int) -> Prepared:
        """What the head knows of texts; kept until others are asked for."""
        if position not in self.known or not np.array_equal(self.known[position][0], rows):
            self.known.pop(position, None)  # before its successor takes the room
            self.known[position] = rows, self.prepare(rows, position)
        return self.known[position][1]

    def _batch(self, texts: Sequence[tuple[Prepared, Tensor]], start: int) -> Tensor:
        some = slice(start, start + self.batch)
        return self.head.score([tuple(part[place[some]] for part in prepared) for prepared, place in texts])

    def _fitting(self, position: int) -> int:
        """How many texts of a position may be prepared at a time."""
        one = self.head.prepare(torch.from_numpy(self.stores[position].take(np.zeros(1, np.int64))), position)
        size = sum(part.element_size() * part.numel() for part in one)
        return max(1, PREPARED // len(self.stores) // size)

    def prepare(self, rows: np.ndarray, position: int) -> Prepared:
        """What the head can know of texts, by their rows in the store."""
        store = self.stores[position]
        blocks = [
            self.head.prepare(torch.from_numpy(store.take(rows[start : start + TEXTS])), position)
            for start in range(0, len(rows), TEXTS)
        ]
        return tuple(torch.cat(part) for part in zip(*blocks, strict=True))

    def tune(self, rows: np.ndarray) -> float:
        """Settle on the batch that is fastest here: small ones stay in cache, large ones waste less. Its seconds."""
        some = rows[:TRIED]
        self.score(some)  # prepares the texts, once
        spent = {}
        for batch in BATCHES:
            self.batch = batch
            start = time.perf_counter()
            self.score(some)
            spent[batch] = time.perf_counter() - start
        self.batch = min(spent, key=spent.__getitem__)
        return spent[self.batch]
