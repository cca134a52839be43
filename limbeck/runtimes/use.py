"""Let the transformers of a matcher run in another runtime. What comes behind them stays in torch, in float32.

8-bit outputs are not those of the float32 model, so they are a part of the matcher's identity: a store never mixes
them. The float32 runtimes are checked to equal torch to 1e-4 and share its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher
from limbeck.matchers.encoders import encoders, pooled_by_its_owner
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.matchers.safe_loading import try_out
from limbeck.processor import weight_bits
from limbeck.progress import reporting, say
from limbeck.runtimes.calibrated import Inputs, inputs_digest
from limbeck.runtimes.choice import CALIBRATED, FLOAT32, require_runtime
from limbeck.runtimes.compiled import CompiledEncoder
from limbeck.runtimes.inputs import CannotExport, Signature
from limbeck.runtimes.sample import Sample, sample_at_hand
from limbeck.runtimes.single import short_ways

TORCH = "torch"


def use_runtime(matcher: Matcher, runtime: str, sample: Sample | None = None) -> Matcher:
    """Run the matcher's transformers in `runtime` from now on. If one cannot be exported, a line says so, and all stay
    in torch. A runtime that is calibrated reads a sample of texts, by default of the data that the command reads.
    """
    try:
        require_in(matcher, runtime, sample)
    except CannotExport as error:
        kinds = ", ".join(dict.fromkeys(type(each).__name__ for each in encoders(matcher)))
        say(f"--runtime {runtime}: {kinds} cannot be exported ({error}); it runs in torch")
    return matcher


def require_in(matcher: Matcher, runtime: str, sample: Sample | None = None) -> None:
    """The same, but a transformer that cannot be exported raises `CannotExport`."""
    require_runtime(runtime)
    use_torch(matcher)
    if runtime == TORCH:
        return
    _require_possible(matcher, runtime)
    compiled = [CompiledEncoder(each, runtime, pooled_by_its_owner(matcher, each)) for each in encoders(matcher)]
    called = list(zip(compiled, _calls(matcher, compiled, lambda: try_out(matcher)), strict=True))
    if matcher.reads_stored_outputs:  # so it may have a tower that nothing calls
        called = [(each, calls) for each, calls in called if calls]
    if not called or not all(calls for _, calls in called):
        raise CannotExport("only parts of it are called")
    if runtime == CALIBRATED:
        texts = sample or sample_at_hand()
        for each, calls in zip(compiled, _calls(matcher, compiled, lambda: _run(matcher, texts)), strict=True):
            each.calls = calls
    for each, calls in called:
        for signature in calls:
            each.session(signature)
    compiled = [each for each, _ in called]
    for each in compiled:
        each.encoder.forward = each
    matcher.runtime = runtime
    matcher.computed = _computed(compiled, runtime)
    for tower in _towers(matcher):
        tower.single = short_ways(tower, compiled)


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


def _calls(
    matcher: Matcher, compiled: list[CompiledEncoder], run: Callable[[], Any]
) -> list[dict[Signature, list[Inputs]]]:
    """What each transformer is called with while the matcher runs in torch."""
    seen: list[dict[Signature, list[Inputs]]] = [{} for _ in compiled]

    def watched(each: CompiledEncoder, own: dict[Signature, list[Inputs]]) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            given = each.tensors(args, kwargs)
            if given is None:
                raise CannotExport("its caller asks for more than its last states")
            values = {name: value.numpy() for name, value in given.items()}
            own.setdefault(Signature.of(values, each.pooled), []).append(values)
            return each.torch_forward(*args, **kwargs)

        return forward

    try:
        for each, own in zip(compiled, seen, strict=True):
            each.encoder.forward = watched(each, own)
        with torch.inference_mode():
            run()
    finally:
        for each in compiled:
            each.encoder.__dict__.pop("forward", None)
    return seen


def _run(matcher: Any, sample: Sample) -> None:
    """Each text or pair of a sample alone, because padding would count as states."""
    with reporting(None):
        if not encodes_apart(matcher):
            for pair in sample.pairs(matcher.texts):
                matcher.score([pair])
            return
        for text in sample.queries:
            matcher.encode_query(text)
        for text in sample.documents:
            matcher.encode_document([text])


def _computed(compiled: list[CompiledEncoder], runtime: str) -> dict[str, Any]:
    """What makes outputs differ from float32."""
    if runtime in FLOAT32:
        return {}
    calls = [given for each in compiled for every in each.calls.values() for given in every]
    return {"runtime": runtime, "bits": weight_bits(), **({"calibrated": inputs_digest(calls)} if calls else {})}


def _towers(matcher: nn.Module) -> list[Any]:
    """The parts of a matcher that turn one text into one vector."""
    return [part for part in matcher.modules() if hasattr(part, "single")]
