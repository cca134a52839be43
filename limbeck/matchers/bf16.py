"""Inference in bfloat16: 1.5 to 1.7 times as fast on a CPU that has it (`benchmarks.bf16`), for scores hardly off.

Only the transformer computes in bfloat16. What comes behind it (pooling, a classifier, a projection, the interaction)
stays in float32: a score that ends as a bfloat16 has steps of 1/8 at 20, and documents would tie.
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


def use_bf16(matcher: Matcher) -> Matcher:
    """Let the matcher's transformers compute in bfloat16 from now on. Its outputs are keyed apart from float32's."""
    for encoder in encoders(matcher):
        encoder.forward = _halved(encoder.forward)
    matcher.bf16 = True
    return matcher


@contextmanager
def in_bf16(matcher: Matcher, wanted: bool = True) -> Iterator[None]:
    """`use_bf16` inside the block."""
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
