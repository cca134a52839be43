"""The short way of a single text: tokenise, one pass without padding, pool. No batch, no modules in between.

For one query, what sentence-transformers does around the transformer takes as long as the transformer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sentence_transformers.base.modules import Transformer
from tokenizers import Tokenizer

from limbeck.matchers.chunks import SIDES, Side
from limbeck.runtimes.compiled import CompiledEncoder
from limbeck.runtimes.tail import Step, pooled
from limbeck.runtimes.tail_of_modules import steps_of

TRIED = ("", "a", " Two words, and more? ", "word " * 600)  # texts whose tokens have to be the same both ways


class ShortWay:
    """One text to its vector [1, dim]."""

    def __init__(self, part: Any, side: Side, prompt: str, names: Sequence[str], steps: list[Step], run: Any) -> None:
        self.part, self.side, self.prompt, self.names, self.steps, self.run = part, side, prompt, names, steps, run
        self.tokenizer = Tokenizer.from_str(part.tokenizer.backend_tokenizer.to_str())
        self.tokenizer.no_padding()
        self._cut_at: int | None = None

    @property
    def longest(self) -> int:
        """Tokens that are read of a text; `evaluate --lengths` changes it."""
        own = self.part.query_length if self.side == "query" else self.part.document_length
        return int(own or self.part.max_seq_length)

    def tokens(self, text: str) -> dict[str, np.ndarray]:
        """The inputs [1, tokens] of the transformer, cut to the length that the model has at the moment."""
        longest = self.longest
        if longest != self._cut_at:
            self.tokenizer.enable_truncation(longest, direction=self.part.tokenizer.truncation_side)
            self._cut_at = longest
        found = self.tokenizer.encode(self.prompt + text)
        ids = np.array([found.ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        if "token_type_ids" in self.names:
            given["token_type_ids"] = np.array([found.type_ids], dtype=np.int64)
        return {name: given[name] for name in self.names}

    def __call__(self, text: str) -> np.ndarray:
        states = self.run(self.tokens(text))[0][0]  # [tokens, width]
        return pooled(states, self.steps)[np.newaxis]


def short_ways(tower: Any, compiled: Sequence[CompiledEncoder]) -> dict[Side, Callable[[str], np.ndarray]]:
    """The short way of each side of a tower that has one; a side of an uncommon kind takes the long way."""
    found: dict[Side, Callable[[str], np.ndarray]] = {}
    for side in SIDES:
        way = _short_way(tower, side, compiled)
        if way is not None:
            found[side] = way
    return found


def _short_way(tower: Any, side: Side, compiled: Sequence[CompiledEncoder]) -> ShortWay | None:
    part, *rest = tower.route(side)
    if type(part) is not Transformer or part.query_expansion or not hasattr(part.tokenizer, "backend_tokenizer"):
        return None
    encoder = next((each for each in compiled if each.encoder is part.model), None)
    prompt = tower.prompt(side) or ""
    steps = steps_of(rest, bool(prompt))
    if encoder is None or steps is None:
        return None
    features = _features(tower, side, TRIED[1])
    names = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in features]
    way = ShortWay(part, side, prompt, names, steps, encoder.run)
    return way if all(_same(way.tokens(text), _features(tower, side, text)) for text in TRIED) else None


def _features(tower: Any, side: Side, text: str) -> dict[str, np.ndarray]:
    """What sentence-transformers makes of a text, without what its modules alone read."""
    made = tower.model.preprocess([text], prompt=tower.prompt(side), task=side)
    return {name: value.numpy() for name, value in made.items() if getattr(value, "ndim", 0) == 2}


def _same(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
