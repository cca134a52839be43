"""While an encoder is frozen its outputs never change: they are computed once, and a step costs the head alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from limbeck.matchers import DiPair, Matcher
from limbeck.matchers.base import weights_digest
from limbeck.stores import EncodingStore
from limbeck.stores.encodings import encode_with_store
from limbeck.training.lists import TrainingLists
from limbeck.training.processes import main_first


class FrozenOutputs:
    """The encoder's outputs of texts at each position, on disk; texts that are new (dev's) are added as they come."""

    def __init__(self, matcher: DiPair, folder: Path) -> None:
        self.matcher = matcher
        self.stores = []
        for position, slots in enumerate(matcher.spec.tokens):
            encoder = matcher.encoder(position)
            key = {
                "weights": weights_digest(encoder),
                "configuration": matcher.configuration(),
                "position": position,
            }
            place = folder / f"position-{position}"
            self.stores.append(EncodingStore.open(place, key, matcher.width, tokens=slots))

    def add(self, texts: Sequence[str], position: int) -> None:
        """Encode the texts that are not there yet."""
        encode_with_store(self.stores[position], texts, lambda block: self.matcher.keep(block, position))

    def __call__(self, texts: list[str], position: int) -> np.ndarray:
        store = self.stores[position]
        if store.missing(texts):
            self.add(texts, position)
        return store.get(texts)


@contextmanager
def frozen_outputs(matcher: Matcher, frozen: Sequence[str], lists: TrainingLists, folder: Path) -> Iterator[None]:
    """Let a matcher with a frozen encoder read its outputs from `folder` inside the block."""
    if not isinstance(matcher, DiPair) or not matcher.outputs_are_the_encoders or "encoder" not in frozen:
        yield
        return
    outputs = FrozenOutputs(matcher, folder)
    with main_first() as main:
        if main:
            queries, documents = lists.everything()
            for position, texts in enumerate([queries, *matcher.parts(documents)]):
                outputs.add(texts, position)
    for store in outputs.stores:
        store.refresh()
    matcher.encoded = outputs
    try:
        yield
    finally:
        matcher.encoded = None
