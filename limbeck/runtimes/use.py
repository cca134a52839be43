"""Let the transformers of a matcher run in another runtime. What comes behind them stays in torch, in float32.

8-bit outputs are not those of the float32 model, so they are a part of the matcher's identity: a store never mixes
them. The float32 runtimes are checked to equal torch to 1e-4 and share its identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.matchers.encoders import encoders, pooled_by_its_owner
from limbeck.matchers.safe_loading import try_out
from limbeck.progress import say
from limbeck.runtimes.choice import require_runtime
from limbeck.runtimes.compiled import CompiledEncoder
from limbeck.runtimes.inputs import CannotExport, Signature
from limbeck.runtimes.processor import weight_bits
from limbeck.runtimes.single import short_ways

TORCH = "torch"


def use_runtime(matcher: Matcher, runtime: str) -> Matcher:
    """Run the matcher's transformers in `runtime` from now on. If one cannot be exported, a line says so, and all stay
    in torch.
    """
    require_runtime(runtime)
    use_torch(matcher)
    if runtime == TORCH:
        return matcher
    _require_possible(matcher, runtime)
    compiled = [CompiledEncoder(each, runtime, pooled_by_its_owner(matcher, each)) for each in encoders(matcher)]
    try:
        called = list(zip(compiled, _signatures(matcher, compiled), strict=True))
        if matcher.reads_stored_outputs:  # so it may have a tower that nothing calls
            called = [(each, signatures) for each, signatures in called if signatures]
        if not called or not all(signatures for _, signatures in called):
            raise CannotExport("only parts of it are called")
        for each, signatures in called:
            for signature in signatures:
                each.session(signature)
    except CannotExport as error:
        kinds = ", ".join(dict.fromkeys(type(each.encoder).__name__ for each in compiled))
        say(f"--runtime {runtime}: {kinds} cannot be exported ({error}); it runs in torch")
        return matcher
    compiled = [each for each, _ in called]
    for each in compiled:
        each.encoder.forward = each
    matcher.runtime = runtime
    matcher.computed = {"runtime": "int8", "bits": weight_bits()} if runtime == "int8" else {}
    for tower in _towers(matcher):
        tower.single = short_ways(tower, compiled)
    return matcher


def use_torch(matcher: Matcher) -> None:
    """Undo `use_runtime`."""
    if matcher.runtime == TORCH:
        return
    for encoder in encoders(matcher):
        encoder.__dict__.pop("forward", None)
    for tower in _towers(matcher):
        tower.single = {}
    matcher.runtime, matcher.computed = TORCH, {}


@contextmanager
def in_runtime(matcher: Matcher, runtime: str) -> Iterator[Matcher]:
    """`use_runtime` inside the block."""
    before = matcher.runtime
    try:
        yield use_runtime(matcher, runtime)
    finally:
        use_runtime(matcher, before)


def _require_possible(matcher: Matcher, runtime: str) -> None:
    remedy = "use --runtime torch"
    if matcher.bf16:
        raise LimbeckError(f"--runtime {runtime}: cannot compute in bfloat16; leave out --bf16, or {remedy}")
    if matcher.device.type != "cpu":
        where = f"runs on the CPU, and the model is on {matcher.device}"
        raise LimbeckError(f"--runtime {runtime}: {where}; use --device cpu, or --runtime torch")
    if not encoders(matcher):
        raise LimbeckError(f"--runtime {runtime}: this {matcher.kind} has no transformer to run; {remedy}")


def _signatures(matcher: Matcher, compiled: list[CompiledEncoder]) -> list[list[Signature]]:
    """What each transformer is called with when the matcher scores a pair."""
    seen: list[dict[Signature, None]] = [{} for _ in compiled]

    def watched(each: CompiledEncoder, own: dict[Signature, None]) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            given = each.tensors(args, kwargs)
            if given is None:
                raise CannotExport("its caller asks for more than its last states")
            own[Signature.of(given, each.pooled)] = None
            return each.torch_forward(*args, **kwargs)

        return forward

    try:
        for each, own in zip(compiled, seen, strict=True):
            each.encoder.forward = watched(each, own)
        with torch.inference_mode():
            try_out(matcher)
    finally:
        for each in compiled:
            each.encoder.__dict__.pop("forward", None)
    return [list(own) for own in seen]


def _towers(matcher: nn.Module) -> list[Any]:
    """The parts of a matcher that turn one text into one vector."""
    return [part for part in matcher.modules() if hasattr(part, "single")]
