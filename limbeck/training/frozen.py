"""While an encoder is frozen its outputs never change: they are computed once, and a step costs the head alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from limbeck.matchers import DiPair, Matcher
from limbeck.matchers.base import weights_digest
from limbeck.matchers.half import in_bf16
from limbeck.stores import EncodingStore
from limbeck.stores.encodings import encode_with_store, store_path
from limbeck.training.lists import TrainingLists
from limbeck.training.processes import main_first
from limbeck.training.recipe import Stage

# Of a description, what the encoder's outputs do not depend on; `tokens` counts for its own position alone.
OF_THE_HEAD = {"start", "inner_dropout", "dropout", "dim", "outputs", "tokens"}
OF_THE_HEAD |= {"head", "head_layers", "head_heads", "head_width"}


class FrozenOutputs:
    """The encoder's outputs of texts at each position, on disk; texts that are new (dev's) are added as they come.

    Students that start from the same encoder find the same outputs, whatever their heads and seeds.
    """

    def __init__(self, matcher: DiPair, folder: Path, bf16: bool = False) -> None:
        self.matcher, self.bf16 = matcher, bf16
        self.stores = []
        for position, slots in enumerate(matcher.spec.tokens):
            key = {
                "weights": weights_digest(matcher.encoder(position)),
                "configuration": matcher.configuration() | {"spec": matcher.spec.model_dump(exclude=OF_THE_HEAD)},
                "position": position,
                "tokens": slots,
                **({"bf16": True} if bf16 else {}),
            }
            self.stores.append(EncodingStore.open(store_path(folder, key), key, matcher.width, tokens=slots))

    def add(self, texts: Sequence[str], position: int) -> None:
        """Encode the texts that are not there yet."""
        with in_bf16(self.matcher, self.bf16):
            encode_with_store(self.stores[position], texts, lambda block: self.matcher.keep(block, position))

    def __call__(self, texts: list[str], position: int) -> np.ndarray:
        store = self.stores[position]
        if store.missing(texts):
            self.add(texts, position)
        return store.get(texts)


@contextmanager
def frozen_outputs(matcher: Matcher, stage: Stage, lists: TrainingLists, folder: Path) -> Iterator[None]:
    """Let a matcher whose encoder a stage freezes read its outputs from `folder` inside the block."""
    if not isinstance(matcher, DiPair) or not matcher.outputs_are_the_encoders or "encoder" not in stage.freeze:
        yield
        return
    outputs = FrozenOutputs(matcher, folder, stage.bf16)
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
