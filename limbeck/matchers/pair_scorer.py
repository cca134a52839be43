"""Score pairs of encoded texts: gather encodings, prepare each text once, run the interaction per pair.

A scorer needs no tower and no tokeniser: only the interaction, the encodings, and the row of each text in them.

A prepared text takes several times the memory of a stored one. So pairs are processed in tiles: as many texts of each
position as fit into `PREPARED` bytes. A cross product reads every text once per tile of the other side, and a list of
all different texts needs no more memory than a list that repeats a few texts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from limbeck.matchers.encoding import Vectors, as_encoded
from limbeck.matchers.interactions.base import Interaction, Prepared
from limbeck.stores.ragged import Ragged

BATCHES = (32, 64, 128, 256, 512)  # pairs at a time, tried on this machine
TRIED = 2048  # number of pairs to try
TEXTS = 1024  # texts prepared at a time
PREPARED = 256 << 20  # bytes of prepared texts
SAMPLE = 64  # sample of texts to estimate the memory of all
IN_CACHE = 2**20  # bytes of prepared texts that one batch of pairs reads, if no batch size is given


class Encodings(Protocol):
    """Encodings of texts, by their rows."""

    def encodings(self, rows: np.ndarray) -> Vectors: ...


class PairScorer:
    """Scores pairs, given as rows of encodings."""

    def __init__(self, interaction: Interaction, stores: Sequence[Encodings], batch: int | None = None) -> None:
        self.interaction, self.stores = interaction, stores
        self.batch = batch
        self._known: dict[int, tuple[np.ndarray, Prepared, np.ndarray | None]] = {}
        self._kept: list[tuple[np.ndarray, np.ndarray, Prepared]] | None = None  # see `keep`

    @torch.inference_mode()
    def keep(self, rows: Sequence[np.ndarray]) -> bool:
        """Prepare the texts of all positions now, for every later call, if they fit into `PREPARED` bytes; later calls
        may name no others. Texts with different numbers of tokens are prepared in each call: they would be padded to
        the longest of all.
        """
        sizes = [self._bytes_of_a_text(each, position) for position, each in enumerate(rows)]
        if sum(size * len(each) for size, each in zip(sizes, rows, strict=True)) > PREPARED:
            return False
        kept = []
        for position, each in enumerate(rows):
            prepared, lengths = self._prepare(each, position)
            if lengths is not None:
                return False
            order = np.argsort(each)
            kept.append((each[order], order, prepared))
        self._kept = kept
        return True

    @torch.inference_mode()
    def score(self, rows: np.ndarray) -> np.ndarray:
        """Scores [pairs, outputs] of rows [pairs, positions]."""
        if not len(rows):
            return np.zeros((0, self.interaction.outputs), dtype=np.float32)
        found = [_by_appearance(column) for column in rows.T]
        places = [place for _, place in found]
        if self._kept is not None:
            return self._score_kept(self._kept, found)
        sizes = [self._bytes_of_a_text(distinct, position) for position, (distinct, _) in enumerate(found)]
        room = PREPARED // len(sizes)
        tiles = [place // max(1, room // size) for place, size in zip(places, sizes, strict=True)]
        batch = self.batch or max(BATCHES[0], IN_CACHE // sum(sizes))
        order = np.lexsort((*_largest_last(places, sizes), *reversed(tiles)))  # tile by tile
        turns = np.any([np.diff(tile[order]) != 0 for tile in tiles], axis=0)
        scores = np.empty((len(rows), self.interaction.outputs), dtype=np.float32)
        for tile in np.split(order, np.flatnonzero(turns) + 1):
            texts, lengths = [], []
            for position, (distinct, place) in enumerate(found):
                present, where = np.unique(place[tile], return_inverse=True)
                prepared, tokens = self._prepared(distinct[present], position)
                texts.append((prepared, where))
                lengths += [tokens[where]] if tokens is not None else []
            if lengths:  # pairs of like length in one batch need little padding
                like = _by_length(lengths, batch)
                tile, texts = tile[like], [(prepared, where[like]) for prepared, where in texts]
            placed = [(prepared, torch.from_numpy(where).to(prepared[0].device)) for prepared, where in texts]
            blocks = [self._score_batch(placed, slice(at, at + batch)) for at in range(0, len(tile), batch)]
            scores[tile] = torch.cat(blocks).float().cpu().numpy()
        return scores

    def _score_kept(
        self, kept: list[tuple[np.ndarray, np.ndarray, Prepared]], found: list[tuple[np.ndarray, np.ndarray]]
    ) -> np.ndarray:
        """All pairs in one tile, by the rows of texts that are prepared already."""
        sizes = [sum(part[0].nbytes for part in prepared) for _, _, prepared in kept]
        order = np.lexsort(_largest_last([place for _, place in found], sizes))
        placed = []
        for (rows, places, prepared), (distinct, place) in zip(kept, found, strict=True):
            own = places[np.searchsorted(rows, distinct)]
            placed.append((prepared, torch.from_numpy(own[place[order]]).to(prepared[0].device)))
        batch = self.batch or BATCHES[1]
        blocks = [self._score_batch(placed, slice(at, at + batch)) for at in range(0, len(order), batch)]
        scores = np.empty((len(order), self.interaction.outputs), dtype=np.float32)
        scores[order] = torch.cat(blocks).float().cpu().numpy()
        return scores

    def _prepared(self, rows: np.ndarray, position: int) -> tuple[Prepared, np.ndarray | None]:
        """The prepared texts, and their numbers of tokens if these differ; kept until other texts are requested."""
        if position not in self._known or not np.array_equal(self._known[position][0], rows):
            self._known.pop(position, None)  # free the memory before preparing the next
            self._known[position] = rows, *self._prepare(rows, position)
        return self._known[position][1:]

    def _score_batch(self, texts: Sequence[tuple[Prepared, Tensor]], some: slice) -> Tensor:
        return self.interaction.score_rows([text for text, _ in texts], [place[some] for _, place in texts])

    def _bytes_of_a_text(self, rows: np.ndarray, position: int) -> int:
        """The size of a prepared text in bytes; if the number of tokens differs, of one of the longer texts."""
        sample = rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]
        prepared = self.prepare(sample, position)
        return max(1, sum(part.element_size() * part.numel() for part in prepared) // len(sample))

    def prepare(self, rows: np.ndarray, position: int) -> Prepared:
        """Prepare texts, given by their rows."""
        return self._prepare(rows, position)[0]

    def _prepare(self, rows: np.ndarray, position: int) -> tuple[Prepared, np.ndarray | None]:
        device, store = self.interaction.device, self.stores[position]
        starts = range(0, len(rows), TEXTS)
        stored = [store.encodings(rows[start : start + TEXTS]) for start in starts]
        lengths = None
        if isinstance(stored[0], Ragged):  # padded to one width, so that blocks can be joined
            joined = Ragged.join(stored)  # type: ignore[arg-type]
            stored, lengths = [joined], joined.lengths
        blocks = [self.interaction.prepare(as_encoded(block, device), position) for block in stored]
        whole = blocks[0] if len(blocks) == 1 else tuple(torch.cat(part) for part in zip(*blocks, strict=True))
        return whole, lengths

    def tune(self, rows: np.ndarray) -> float:
        """Choose the fastest batch size: small ones stay in cache, large ones cost less. Returns its seconds."""
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


def _largest_last(places: Sequence[np.ndarray], sizes: Sequence[int]) -> list[np.ndarray]:
    """Sort keys with which consecutive pairs share the text that is largest when prepared: it stays in the processor's
    cache, and only the smaller ones come from memory.
    """
    return [places[position] for position in np.argsort(sizes, kind="stable")]


def _by_length(lengths: Sequence[np.ndarray], batch: int) -> np.ndarray:
    """An order of pairs in which those of a batch have texts of like length, at each of the positions.

    Sorted by the first length alone, a batch would have all lengths of the second text. So pairs are cut into as many
    groups by each length as leaves a few batches to a group.
    """
    pairs = len(lengths[0])
    groups = max(1, round((pairs / batch) ** (1 / len(lengths))))
    ranks = [np.argsort(np.argsort(each, kind="stable")) * groups // pairs for each in lengths[:-1]]
    return np.lexsort((lengths[-1], *ranks[::-1]))


def _by_appearance(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows in the order of the pairs, and each pair's place among them.

    So the pairs that are computed together, and with them the last digit of a score, do not depend on the store's
    order.
    """
    distinct, first, place = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[place]
