"""While an encoder is frozen its outputs never change: they are computed once, and a step costs the head alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from limbeck.matchers import DiPair, Matcher
from limbeck.matchers.base import weights_digest
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.half import in_bf16
from limbeck.training.lists import TrainingLists
from limbeck.training.recipe import Stage
from limbeck.training.stored_outputs import Output, StoredOutputs

# Of a description, what the encoder's outputs do not depend on; `tokens` counts for its own position alone.
OF_THE_HEAD = {"start", "inner_dropout", "dropout", "dim", "outputs", "tokens"}
OF_THE_HEAD |= {"head", "head_layers", "head_heads", "head_width"}


def _output(matcher: DiPair, position: int, bf16: bool) -> Output:
    """The encoder's outputs of texts at a position. Students that start from the same encoder find the same ones,
    whatever their heads and seeds.
    """
    slots = matcher.spec.tokens[position]
    key = {
        "weights": weights_digest(matcher.encoder(position)),
        "configuration": matcher.configuration() | {"spec": matcher.spec.model_dump(exclude=OF_THE_HEAD)},
        "position": position,
        "tokens": slots,
        **({"bf16": True} if bf16 else {}),
    }
    return Output(Encoding(matcher.width, slots), key)


@contextmanager
def frozen_outputs(matcher: Matcher, stage: Stage, lists: TrainingLists, folder: Path) -> Iterator[None]:
    """Let a matcher whose encoder a stage freezes read its outputs from `folder` inside the block."""
    if not isinstance(matcher, DiPair) or not matcher.outputs_are_the_encoders or "encoder" not in stage.freeze:
        yield
        return

    def compute(texts: list[str], position: int) -> np.ndarray:
        with in_bf16(matcher, stage.bf16):
            return matcher.keep(texts, position)

    outputs = StoredOutputs([_output(matcher, at, stage.bf16) for at in range(matcher.texts)], compute, folder)
    queries, documents = lists.everything()
    outputs.add_all([queries, *matcher.parts(documents)])
    matcher.encoded = outputs
    try:
        yield
    finally:
        matcher.encoded = None
