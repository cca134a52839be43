"""Inference in bfloat16: 1.5 to 1.7 times as fast on a CPU that supports it (`benchmarks.bf16`), with similar scores.

Only the transformer computes in bfloat16. Everything after it (pooling, a classifier, a projection, the interaction)
stays in float32: near 20, bfloat16 has steps of 1/8, and documents would tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from limbeck.matchers.base import Matcher
from limbeck.matchers.encoders import encoders
from limbeck.processor import emulates_bf16
from limbeck.progress import has_reporter, say

_warned: list[str] = []  # not empty once somebody was told


def use_bf16(matcher: Matcher) -> Matcher:
    """Run the matcher's transformers in bfloat16 from now on. Caches keep its outputs apart from those of float32."""
    warn_if_emulated(matcher.device.type)
    for encoder in encoders(matcher):
        encoder.forward = _halved(encoder.forward)
    matcher.bf16 = True
    return matcher


@contextmanager
def in_bf16(matcher: Matcher, wanted: bool = True) -> Iterator[None]:
    """Apply `use_bf16` inside the block."""
    if not wanted or matcher.bf16:
        yield
        return
    use_bf16(matcher)
    try:
        yield
    finally:
        for encoder in encoders(matcher):
            del encoder.forward
        matcher.bf16 = False


def warn_if_emulated(device: str) -> None:
    """Say once that bfloat16 does not pay on this machine."""
    if device == "cpu" and emulates_bf16() and has_reporter() and not _warned:
        _warned.append(device)
        say("bf16: this processor has no bfloat16 products and emulates them, up to 100 times slower; drop bf16")


def _halved(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        device = next(value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        with torch.autocast(device.type, torch.bfloat16):
            output = forward(*args, **kwargs)
        for name, value in output.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                output[name] = value.float()
        return output

    return run
