"""A transformer as an ONNX graph: torch traces one pass, and the graph is compared with torch on other shapes.

A trace keeps what Python decided on the way, so it is right for other shapes only if nothing was decided by them. That
is checked: outputs have to equal torch's to 1e-4 on batches of several shapes, padded and not.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.errors import first_line
from limbeck.matchers.quiet import quiet
from limbeck.runtimes.inputs import LONG, CannotExport, Signature, longest, made_up, real_tokens
from limbeck.runtimes.sessions import AnySession, NeedsTorch, OnnxSession, Session

OPSET = 20
TRACED = (3, 17)  # texts and tokens of the batch that is traced
TOLERANCE = 1e-4
Forward = Callable[..., Any]


class _ByPosition(nn.Module):
    """A transformer whose inputs and outputs have an order, as a graph's have."""

    def __init__(self, encoder: nn.Module, forward: Forward, signature: Signature) -> None:
        super().__init__()
        self.encoder, self.run, self.signature = encoder, forward, signature
        self.eval()  # the exporter puts back the mode it found

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        found = self.run(**dict(zip(self.signature.names, values, strict=True)), return_dict=True)
        return tuple(found[name] for name in self.signature.outputs)


def float32_graph(encoder: nn.Module, forward: Forward, signature: Signature) -> bytes:
    """The graph of a transformer; `forward` is its own, whatever runs it now. Refused where it differs from torch."""
    whole = _ByPosition(encoder, forward, signature)
    try:
        graph = _traced(whole, _to_trace(whole), signature.outputs, signature.axes)
        session = OnnxSession(graph, 1)
    except Exception as error:  # exporter and runtime have errors of their own
        raise _cannot(error) from error
    _require_same(session, whole)
    return graph


def require_same(session: AnySession, encoder: nn.Module, forward: Forward, signature: Signature) -> None:
    """Refuse a graph whose outputs differ from torch in this runtime."""
    _require_same(session, _ByPosition(encoder, forward, signature))


def _require_same(session: AnySession, whole: _ByPosition) -> None:
    name = type(whole.encoder).__name__
    try:
        batches = _batches(whole)
        off = [difference(session, whole, batch) for batch in batches]
    except Exception as error:  # runtime and model have errors of their own
        raise _cannot(error) from error
    worst = max(off)
    if not worst <= TOLERANCE:
        layer = _first_different(type(session), whole, batches[off.index(worst)])
        raise NeedsTorch(f"in {session.library} {name} differs from torch by {worst:.2g}, from {layer} on")


def _cannot(error: Exception) -> CannotExport:
    return CannotExport(first_line(error) or type(error).__name__)


def _to_trace(whole: _ByPosition) -> dict[str, Tensor]:
    texts, tokens = TRACED
    return made_up(whole.encoder, whole.signature, texts, min(tokens, longest(whole.encoder)))


def _traced(
    module: nn.Module, given: Mapping[str, Tensor], outputs: list[str], axes: dict[str, dict[int, str]]
) -> bytes:
    buffer = io.BytesIO()
    with quiet(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(given.values()),
            buffer,  # type: ignore[arg-type]
            input_names=list(given),
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
    return buffer.getvalue()


def _batches(whole: _ByPosition) -> list[dict[str, Tensor]]:
    most = longest(whole.encoder)
    shapes = ((1, min(2, most)), (2, min(9, most)), (5, most), (2, longest(whole.encoder, LONG)))
    return [made_up(whole.encoder, whole.signature, *shape, seed) for seed, shape in enumerate(shapes, 1)]


def difference(session: Session, whole: nn.Module, given: Mapping[str, Tensor]) -> float:
    """By how much a graph's outputs are off at most, relative to 1 + their size; padding does not count."""
    with torch.no_grad():
        wanted = whole(*given.values())
    found = session.run({name: given[name].numpy() for name in session.names})
    return max(_off(torch.from_numpy(mine), right, given) for mine, right in zip(found, wanted, strict=True))


def _off(found: Tensor, wanted: Tensor, given: Mapping[str, Tensor]) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    off = (found - wanted).abs() / (1 + wanted.abs())
    real = real_tokens(given)
    own = off[real] if off.shape[:2] == real.shape else off
    return float(own.max()) if torch.isfinite(own).all() else float("inf")


def _first_different(kind: Callable[[bytes, int], Session], whole: _ByPosition, other: Mapping[str, Tensor]) -> str:
    """The type of the first layer whose output differs, or else of the transformer."""
    try:
        found = _layer_that_differs(kind, whole, other)
    except Exception:  # the layers may have no graph of their own
        found = None
    return found or type(whole.encoder).__name__


def _layer_that_differs(
    kind: Callable[[bytes, int], Session], whole: _ByPosition, other: Mapping[str, Tensor]
) -> str | None:
    """In the order in which layers finish."""
    given = _to_trace(whole)
    with _recorded(whole) as seen:
        with torch.no_grad():
            whole(*given.values())
        kinds = [layer for layer, _ in seen]
        seen.clear()
        inner = _Inner(whole, seen)
        names = [f"layer_{at}" for at in range(len(kinds))]
        axes = {name: {0: "texts", 1: "tokens"} for name in [*given, *names]}
        session = kind(_traced(inner, given, names, axes), 1)
        got = session.run({name: other[name].numpy() for name in session.names})
        seen.clear()
        with torch.no_grad():
            wanted = inner(*other.values())
    wrong = [_off(torch.from_numpy(mine), right, other) > TOLERANCE for mine, right in zip(got, wanted, strict=True)]
    return kinds[wrong.index(True)] if True in wrong else None


class _Inner(nn.Module):
    """The outputs of all layers."""

    def __init__(self, whole: nn.Module, seen: list[tuple[str, Tensor]]) -> None:
        super().__init__()
        self.whole, self.seen = whole, seen
        self.eval()

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        self.seen.clear()
        self.whole(*values)
        return tuple(value.clone() for _, value in self.seen)


@contextmanager
def _recorded(module: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """The types and outputs of all layers that give states [texts, tokens, width], in the order they finish."""
    seen: list[tuple[str, Tensor]] = []

    def note(layer: nn.Module, _: Any, output: Any) -> None:
        value = output[0] if isinstance(output, tuple) else output
        if isinstance(value, Tensor) and value.ndim == 3:
            seen.append((type(layer).__name__, value))

    hooks = [layer.register_forward_hook(note) for layer in module.modules() if layer is not module]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
