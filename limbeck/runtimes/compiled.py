"""A bare transformer whose passes run in another runtime than torch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from limbeck.matchers.base import weights_digest
from limbeck.matchers.tower import config_digest
from limbeck.processor import processor_name, weight_bits
from limbeck.runtimes.calibrated import Inputs, inputs_digest, with_calibrated_products
from limbeck.runtimes.choice import CALIBRATED, OPENVINO, installed_versions
from limbeck.runtimes.graph_cache import cached_graph, checked_once
from limbeck.runtimes.inputs import CannotExport, NothingToRound, Signature
from limbeck.runtimes.int8 import with_int8_weights
from limbeck.runtimes.sessions import Session, open_session
from limbeck.runtimes.trace import OPSET, float32_graph, require_same

NOTHING = (None, False)  # what an option is that asks for nothing


class CompiledEncoder:
    """Replaces a transformer's `forward` for inference. Torch still runs it where gradients are wanted."""

    def __init__(self, encoder: nn.Module, runtime: str, pooled: bool) -> None:
        self.encoder, self.runtime, self.pooled = encoder, runtime, pooled
        self.calls: dict[Signature, list[Inputs]] = {}  # what a calibrated graph is fitted to
        self.torch_forward = encoder.forward
        self._names = list(inspect.signature(encoder.forward).parameters)
        self._sessions: dict[Signature, tuple[int, Session]] = {}
        self._weights: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.tensors(args, kwargs)
        if given is None or torch.is_grad_enabled():
            return self.torch_forward(*args, **kwargs)
        found = [torch.from_numpy(each) for each in self.run({name: value.numpy() for name, value in given.items()})]
        return BaseModelOutputWithPooling(*found)  # type: ignore[arg-type]

    def tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Tensor] | None:
        """The inputs by their names; None where the caller asks for more than states, such as attention maps."""
        given = dict(zip(self._names, args, strict=False)) | dict(kwargs)
        if given.pop("return_dict", True) is False:
            return None
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        asked = [value for name, value in given.items() if name not in tensors]
        return tensors if all(any(value is none for none in NOTHING) for value in asked) else None

    def run(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The states [texts, tokens, width], and the pooled output where it is read."""
        return self.session(Signature.of(given, self.pooled)).run(given)

    def session(self, signature: Signature) -> Session:
        """The graph for such inputs, on as many threads as torch has at the moment."""
        threads = torch.get_num_threads()
        known = self._sessions.get(signature)
        if known is None or known[0] != threads:
            session = open_session(self.runtime, self.graph(signature), threads, "--runtime")
            if self.runtime == OPENVINO:  # onnxruntime was checked when the graph was made
                checked_once(
                    self._key(signature),
                    [OPENVINO, *installed_versions(OPENVINO), processor_name()],
                    lambda: require_same(session, self.encoder, self.torch_forward, signature),
                )
            known = threads, session
            self._sessions[signature] = known
        return known[1]

    def graph(self, signature: Signature, bits: int | None = None) -> bytes:
        """The graph for such inputs; 8-bit weights have as many bits as suits this processor, or `bits`."""
        key = self._key(signature)
        bits = bits or weight_bits()

        def plain() -> bytes:
            return cached_graph(key, lambda: float32_graph(self.encoder, self.torch_forward, signature))

        def rounded() -> bytes:
            graph, products = with_int8_weights(plain(), bits)
            if not products:
                raise NothingToRound
            return graph

        if self.runtime == "int8":
            return cached_graph({**key, "bits": bits}, rounded)
        if self.runtime != CALIBRATED:
            return plain()
        calls = self.calls.get(signature, [])
        if not calls:
            raise CannotExport("no text to calibrate it on has such inputs")
        calibrated = {**key, "bits": bits, "calibrated": inputs_digest(calls)}
        return cached_graph(calibrated, lambda: with_calibrated_products(plain(), calls, bits))

    def _key(self, signature: Signature) -> dict[str, Any]:
        """Everything that decides a graph."""
        if self._weights is None:
            pooler = getattr(self.encoder, "pooler", None) if self.pooled else None
            parts = [nn.ModuleDict({"model": self.encoder}), *([pooler] if isinstance(pooler, nn.Module) else [])]
            self._weights = " ".join(weights_digest(part) for part in parts)
        return {
            "weights": self._weights,
            "architecture": [type(self.encoder).__name__, config_digest(self.encoder.config)],
            "attention": getattr(self.encoder.config, "_attn_implementation", None),
            "inputs": [list(each) for each in signature.inputs],
            "pooled": signature.pooled,
            "versions": [
                OPSET,
                torch.__version__,
                transformers.__version__,
                *installed_versions("onnx", "onnxruntime"),
            ],
        }
