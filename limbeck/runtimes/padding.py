"""How much of what transformers read is padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from limbeck.runtimes.inputs import real_tokens


class Padding:
    """Counts the tokens that pass through transformers, and those that are no padding."""

    def __init__(self) -> None:
        self.all = self.real = 0

    @property
    def share(self) -> float | None:
        """Of all tokens; None if no transformer was called with a mask."""
        return 1 - self.real / self.all if self.all else None

    def watch(self, transformer: nn.Module) -> None:
        """Count from now on. Sentence-transformers calls `forward` itself, so a hook would see nothing."""
        forward = transformer.forward

        def counted(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("attention_mask") is not None:
                real = real_tokens(kwargs)
                self.all, self.real = self.all + real.numel(), self.real + int(real.sum())
            return forward(*args, **kwargs)

        transformer.forward = counted


@contextmanager
def counted_padding(transformers: Iterable[nn.Module]) -> Iterator[Padding]:
    """Count what passes through inside the block."""
    padding, before = Padding(), {each: each.__dict__.get("forward") for each in transformers}
    try:
        for each in before:
            padding.watch(each)
        yield padding
    finally:
        for each, forward in before.items():
            if forward is None:
                each.__dict__.pop("forward", None)
            else:
                each.forward = forward
