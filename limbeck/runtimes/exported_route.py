"""What an exported model does with one side's texts, or with pairs: tokens, a graph or a table, and steps in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from limbeck.matchers.splitting import USUAL, split_by_length
from limbeck.runtimes.sessions import Session
from limbeck.runtimes.tail import Step, pooled


@dataclass(frozen=True)
class Tokens:
    """A text, or a pair, as ids and types. The first `attended` tokens are seen by the others."""

    ids: list[int]
    types: list[int]
    attended: int


class Encoder(Protocol):
    """Turns tokens into states."""

    def states(self, tokens: Sequence[Tokens]) -> Iterator[np.ndarray]:
        """The states [tokens, width] of each text; of a graph with a classifier, the scores [outputs] of each pair."""


class GraphEncoder:
    """A transformer as a graph; texts are padded on the right."""

    def __init__(self, session: Session, padding: int) -> None:
        self.session, self.padding = session, padding

    def states(self, tokens: Sequence[Tokens]) -> Iterator[np.ndarray]:
        width = max(len(text.ids) for text in tokens)
        ids = np.full((len(tokens), width), self.padding, np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, text in enumerate(tokens):
            ids[row, : len(text.ids)], types[row, : len(text.types)] = text.ids, text.types
            mask[row, : text.attended] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        yield from self.session.run(given)[0]


class TableEncoder:
    """A vector for each token, independent of the other tokens."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def states(self, tokens: Sequence[Tokens]) -> Iterator[np.ndarray]:
        for text in tokens:
            yield self.table[text.ids] if text.ids else np.zeros((1, self.table.shape[1]), np.float32)


@dataclass(frozen=True)
class Route:
    """How texts are read: what stands before them, how many tokens count, and what is done with their states.

    The tokenizer is the route's own, because it is set to cut at the route's length. Several threads may use a route.
    """

    encoder: Encoder
    tokenizer: Tokenizer
    longest: int | None  # tokens of a text, or of a pair
    cut_from: str = "right"
    prompt: str = ""
    marks: bool = True  # special tokens around the text
    fill: dict[str, Any] | None = None  # a ColBERT's query: {"length", "id", "attend"}
    skip: list[int] = field(default_factory=list)  # tokens that are left out at the end
    steps: list[Step] = field(default_factory=list)
    whole: bool = False  # the graph has the classifier: its outputs are scores

    def __post_init__(self) -> None:
        if self.longest is None:
            self.tokenizer.no_truncation()
        else:
            self.tokenizer.enable_truncation(self.longest, direction=self.cut_from)  # the longest of a pair first

    def outputs(self, texts: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        """What the steps make of each text, or of each pair of texts."""
        tokens = self.tokens(texts)
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row].ids))
        found: list[Any] = [None] * len(tokens)
        for part in split_by_length([len(tokens[row].ids) for row in order], budget=batch_size * USUAL):
            rows = order[part]
            for row, states in zip(rows, self.encoder.states([tokens[row] for row in rows]), strict=True):
                found[row] = states if self.whole else self._finished(tokens[row], states)
        return found

    def tokens(self, texts: Sequence[Any]) -> list[Tokens]:
        """The tokens of texts, or of pairs, cut to their length."""
        given = [self.prompt + text if isinstance(text, str) else text for text in texts]
        found = self.tokenizer.encode_batch(given, add_special_tokens=self.marks)
        return [self._filled(each.ids, each.type_ids) for each in found]

    def _filled(self, ids: list[int], types: list[int]) -> Tokens:
        if self.fill is None:
            return Tokens(ids, types, len(ids))
        more = max(0, self.fill["length"] - len(ids))
        attended = len(ids) + (more if self.fill["attend"] else 0)
        return Tokens(ids + [self.fill["id"]] * more, types + [0] * more, attended)

    def _finished(self, tokens: Tokens, states: np.ndarray) -> np.ndarray:
        own = states[: max(1, len(tokens.ids))]
        if self.skip:
            own = own[~np.isin(tokens.ids, self.skip)]
        return pooled(own, self.steps)
