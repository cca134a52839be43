"""While an encoder is frozen its outputs never change: they are computed once, and a step costs the head alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from limbeck.matchers.base import Document, Matcher, as_parts
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.matchers.half import in_bf16
from limbeck.training.lists import TrainingLists
from limbeck.training.recipe import Stage
from limbeck.training.stored_outputs import Output, StoredOutputs


@contextmanager
def frozen_outputs(matcher: Matcher, stage: Stage, lists: TrainingLists, folder: Path) -> Iterator[None]:
    """Let a matcher whose encoder a stage freezes read its outputs from `folder` inside the block.

    Students that start from the same encoder find the same outputs, whatever their heads and seeds.
    """
    described = [matcher.encoder_outputs(position) for position in range(matcher.texts)]
    if "encoder" not in stage.freeze or not encodes_apart(matcher) or None in described:
        yield
        return

    def compute(texts: list[str], position: int) -> np.ndarray:
        with in_bf16(matcher, stage.bf16):
            return matcher.keep(texts, position)

    bf16 = {"bf16": True} if stage.bf16 else {}
    outputs = StoredOutputs([Output(one[0], one[1] | bf16) for one in described if one is not None], compute, folder)
    queries, documents = lists.everything()
    outputs.add_all([queries, *documents_by_position(matcher, documents)])
    matcher.read_outputs_from(outputs)
    try:
        yield
    finally:
        matcher.read_outputs_from(None)


def documents_by_position(matcher: EncodingMatcher, documents: Sequence[Document]) -> list[list[str]]:
    """The texts of each position but the first."""
    return matcher.columns([("", *as_parts(document)) for document in documents])[1:]
