"""Cache the outputs of a frozen encoder: they are computed once, and a step runs only the head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from limbeck.matchers.base import Document, Matcher, as_parts
from limbeck.matchers.bf16 import in_bf16
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.recipe.stage import Stage
from limbeck.training.lists import Examples
from limbeck.training.stored_outputs import Output, StoredOutputs


@contextmanager
def frozen_outputs(matcher: Matcher, stage: Stage, lists: Examples, folder: Path) -> Iterator[None]:
    """If a stage freezes a matcher's encoder, read its outputs from `folder` inside the block."""
    outputs = encoder_outputs(matcher, folder, stage.bf16) if "encoder" in stage.freeze else None
    if outputs is None or not encodes_apart(matcher):
        yield
        return
    queries, documents = lists.everything()
    outputs.add_all([queries, *documents_by_position(matcher, documents)])
    matcher.read_outputs_from(outputs)
    try:
        yield
    finally:
        matcher.read_outputs_from(None)


def encoder_outputs(matcher: Matcher, folder: Path, bf16: bool = False) -> StoredOutputs | None:
    """The stored outputs of a matcher's encoder in `folder`; None if they cannot be stored.

    Students that start from the same encoder share its outputs, even with different heads and seeds.
    """
    described = [found for position in range(matcher.texts) if (found := matcher.encoder_outputs(position)) is not None]
    if len(described) < matcher.texts:
        return None

    def compute(texts: list[str], position: int) -> np.ndarray:
        with in_bf16(matcher, bf16):
            return matcher.keep(texts, position)

    marked = {"bf16": True} if bf16 else {}
    return StoredOutputs([Output(encoding, key | marked) for encoding, key in described], compute, folder)


def documents_by_position(matcher: EncodingMatcher, documents: Sequence[Document]) -> list[list[str]]:
    """The texts of each position except the first."""
    return matcher.columns([("", *as_parts(document)) for document in documents])[1:]
