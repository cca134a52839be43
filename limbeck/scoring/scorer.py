"""One shard at a time: gather what is stored of the texts, run the folded head, give the scores.

A scorer needs no encoder and no tokeniser: only the head's weights, the stores, and the row of each text in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.matchers import DiPair, DualEncoder, Matcher
from limbeck.scoring.folded import FoldedHead, Prepared, fold
from limbeck.stores import EncodingStore

BATCHES = (32, 64, 128, 256, 512)  # pairs through the head at a time, tried on the machine at hand
TRIED = 2048  # pairs that are tried
TEXTS = 1024  # prepared at a time


class FoldedDot:
    """A dual encoder as a head: nothing to fold but the norm of a cosine."""

    def __init__(self, cosine: bool) -> None:
        self.cosine = cosine

    def prepare(self, vectors: Tensor, position: int) -> Prepared:
        return (torch.nn.functional.normalize(vectors, dim=-1) if self.cosine else vectors,)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return (texts[0][0] * texts[1][0]).sum(dim=-1, keepdim=True)


def head_of(matcher: Matcher) -> FoldedHead:
    """What scores encoded texts."""
    if isinstance(matcher, DiPair):
        return fold(matcher)
    if isinstance(matcher, DualEncoder):
        return FoldedDot(matcher.similarity == "cosine")
    remedy = "distil it into a dipair or a dual_encoder first"
    raise LimbeckError(f"a {matcher.kind} has no head that is cheap enough for long lists of pairs; {remedy}")


def open_store(folder: Path, matcher: Matcher, position: int, dtype: str) -> EncodingStore:
    """The store of one position's texts, keyed by all that changes what it holds."""
    key = {**matcher.identity(), "position": position}
    tokens = matcher.spec.tokens[position] if isinstance(matcher, DiPair) else None
    dim: int = matcher.dim  # type: ignore[assignment]
    return EncodingStore.open(folder, key, dim, dtype, tokens)  # type: ignore[arg-type]


def encoder_of(matcher: Matcher, position: int) -> Callable[[list[str]], np.ndarray]:
    """How texts of one position are encoded."""
    if isinstance(matcher, DiPair):
        return lambda texts: matcher.encode(texts, position)
    assert isinstance(matcher, DualEncoder)
    return matcher.encode_query if position == 0 else matcher.encode_document


class Scorer:
    """Scores pairs that are given as rows of the stores."""

    def __init__(self, head: FoldedHead, stores: Sequence[EncodingStore], batch: int | None = None) -> None:
        self.head, self.stores = head, stores
        self.batch = batch or BATCHES[1]

    @torch.inference_mode()
    def score(self, rows: np.ndarray) -> np.ndarray:
        """Scores [pairs, outputs] of rows [pairs, positions]; each distinct text is prepared once."""
        texts, places = [], []
        for position in range(rows.shape[1]):
            distinct, place = np.unique(rows[:, position], return_inverse=True)
            texts.append(self.prepare(distinct, position))
            places.append(torch.from_numpy(place))
        order = torch.argsort(places[0], stable=True)  # neighbours share their left text, which stays in cache
        blocks = []
        for start in range(0, len(rows), self.batch):
            some = order[start : start + self.batch]
            blocks.append(
                self.head.score(
                    [tuple(part[place[some]] for part in text) for text, place in zip(texts, places, strict=True)]
                )
            )
        scores = torch.empty_like(found := torch.cat(blocks))
        scores[order] = found
        return scores.float().numpy()

    def prepare(self, rows: np.ndarray, position: int) -> Prepared:
        """What the head can know of texts, by their rows in the store."""
        store = self.stores[position]
        blocks = [
            self.head.prepare(torch.from_numpy(store.take(rows[start : start + TEXTS])), position)
            for start in range(0, len(rows), TEXTS)
        ]
        return tuple(torch.cat(part) for part in zip(*blocks, strict=True))

    def tune(self, rows: np.ndarray) -> int:
        """The batch that is fastest here, on some of the pairs: small ones stay in cache, large ones waste less."""
        some = rows[:TRIED]
        self.score(some[:64])
        spent = {}
        for batch in BATCHES:
            self.batch = batch
            start = time.perf_counter()
            self.score(some)
            spent[batch] = time.perf_counter() - start
        self.batch = min(spent, key=spent.__getitem__)
        return self.batch
