"""The folded transformer head in onnxruntime, in float32 or with 8-bit weights.

The graph is `FoldedTransformer.score`, written out node by node. onnxruntime fuses bias and GELU, sum and norm, and
has none of the overhead of an eager framework between operations. With 8 bits every large map is a product of bytes
(`int8.py`). Weights have 7 bits on every processor, so that all machines of a cluster give the same scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded
from limbeck.matchers.interactions.base import Interaction, Prepared
from limbeck.matchers.interactions.dipair import CosineHead
from limbeck.matchers.interactions.folded import FoldedTransformer
from limbeck.matchers.interactions.layer import HeadLayer
from limbeck.runtimes.choice import require_runtime
from limbeck.runtimes.int8 import MICROSOFT, rounded
from limbeck.runtimes.sessions import open_session

# What `FoldedTransformer.joined` may return, with the numbers of dimensions.
PARTS = {"residual": 3, "queries": 3, "keys": 3, "values": 3, "unit_0": 2, "unit_1": 2, "masked": 2}
BITS = 7
_OPSET = 20


def has_graph(interaction: Interaction) -> TypeGuard[FoldedTransformer]:
    """Whether this module has a graph for the interaction."""
    return isinstance(interaction, FoldedTransformer)


class OnnxHead(Interaction):
    """`FoldedTransformer` with the work per pair in onnxruntime, with as many threads as torch."""

    name = "onnx transformer"

    def __init__(self, folded: FoldedTransformer, int8: bool = False) -> None:
        super().__init__()
        runtime = require_runtime("int8" if int8 else "onnx", "--head")
        self.torch_head, self.outputs = folded, folded.outputs
        self.session = open_session(runtime, head_graph(folded, int8), torch.get_num_threads(), "--head")

    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        return self.torch_head.prepare(encoded, position)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return self._score_joined(self.torch_head.joined(texts))

    @torch.inference_mode()
    def score_rows(self, texts: Sequence[Prepared], rows: Sequence[Tensor]) -> Tensor:
        return self._score_joined(self.torch_head.joined(texts, rows))

    def _score_joined(self, parts: dict[str, Tensor]) -> Tensor:
        return torch.from_numpy(self.session.run({name: part.numpy() for name, part in parts.items()})[0])


class _Graph:
    """Nodes and constants of an ONNX graph, with numbered names."""

    def __init__(self, int8: bool) -> None:
        import onnx

        self.onnx, self.int8 = onnx, int8
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, **options: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **options))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(array, dtype, order="C"), name))
        return name

    def shaped(self, value: str, *shape: int) -> str:
        return self.add("Reshape", value, self.constant(shape, np.int64))

    def linear(self, value: str, weight: Tensor, bias: Tensor) -> str:
        """value W^T + b; in bytes if requested."""
        if not self.int8:
            return self.add("Add", self.add("MatMul", value, self.constant(weight.T)), self.constant(bias))
        whole, scales = rounded(weight.detach().cpu().numpy().T, BITS)
        zeros = np.zeros(len(scales))
        given = [self.constant(whole, np.int8), self.constant(scales), self.constant(zeros, np.int8)]
        return self.add("DynamicQuantizeMatMul", value, *given, self.constant(bias), domain=MICROSOFT)

    def norm(self, value: str, norm: nn.LayerNorm) -> str:
        return self.add(
            "LayerNormalization", value, self.constant(norm.weight), self.constant(norm.bias), epsilon=norm.eps
        )

    def model(self, inputs: Sequence[Any], output: str) -> bytes:
        made = self.onnx.helper
        result = made.make_tensor_value_info(output, self.onnx.TensorProto.FLOAT, None)
        graph = made.make_graph(self.nodes, "head", list(inputs), [result], initializer=self.constants)
        opsets = [made.make_opsetid("", _OPSET), made.make_opsetid(MICROSOFT, 1)]
        model = made.make_model(graph, opset_imports=opsets, ir_version=9)
        return bytes(model.SerializeToString())


def head_graph(folded: FoldedTransformer, int8: bool) -> bytes:
    """The model; its inputs are what `joined` returns."""
    graph = _Graph(int8)
    cosine = folded.head.cosine
    units = [] if cosine is None else ["unit_0", "unit_1"]
    names = [*(part for part in folded.parts if part != "unit"), *units]
    info, kind = graph.onnx.helper.make_tensor_value_info, graph.onnx.TensorProto.FLOAT
    inputs = [info(name, kind, ["pairs"] + [None] * (PARTS[name] - 1)) for name in names]
    masked = graph.add("Unsqueeze", "masked", graph.constant([1], np.int64))  # [pairs, 1, slots]
    states = "residual"
    if len(folded.head.layers) > 1:
        states = _after(graph, folded.first, graph.add("Add", states, _attended(graph, masked, folded.heads)))
        for layer in folded.between:
            states = _between(graph, layer, states, masked)
    scores = _last(graph, folded, states, masked)
    if cosine is not None:
        scores = graph.add("Add", scores, _cosine(graph, cosine))
    return graph.model(inputs, scores)


def _cosine(graph: _Graph, cosine: CosineHead) -> str:
    """The DE-Cos score of the first tokens' unit vectors: [pairs, 1]."""
    product = graph.add("ReduceSum", graph.add("Mul", "unit_0", "unit_1"), graph.constant([1], np.int64), keepdims=1)
    return graph.add("Add", graph.add("Mul", product, graph.constant(cosine.scale)), graph.constant(cosine.offset))


def _attended(graph: _Graph, masked: str, heads: int) -> str:
    """The first layer's attention over prepared queries, keys and merged values: [pairs, slots, dim]."""
    if heads == 1:  # the keys are the states
        logits = graph.add("Add", graph.add("MatMul", "queries", _turned(graph, "residual")), masked)
        return graph.add("MatMul", graph.add("Softmax", logits, axis=-1), "values")
    queries, keys, values = (graph.shaped(value, 0, 0, heads, -1) for value in ("queries", "keys", "values"))
    found = _attention(graph, queries, keys, values, masked)  # [pairs, heads, slots, dim]
    return graph.add("ReduceSum", found, graph.constant([1], np.int64), keepdims=0)


def _attention(graph: _Graph, queries: str, keys: str, values: str, masked: str) -> str:
    """Queries, keys, values [pairs, slots, heads, size] to [pairs, heads, slots, size]."""
    queries, values = (graph.add("Transpose", value, perm=[0, 2, 1, 3]) for value in (queries, values))
    keys = graph.add("Transpose", keys, perm=[0, 2, 3, 1])
    seen = graph.add("Unsqueeze", masked, graph.constant([1], np.int64))  # [pairs, 1, 1, slots]
    logits = graph.add("Add", graph.add("MatMul", queries, keys), seen)
    return graph.add("MatMul", graph.add("Softmax", logits, axis=-1), values)


def _between(graph: _Graph, layer: HeadLayer, states: str, masked: str) -> str:
    """A complete layer that is neither the first nor the last."""
    dim = layer.merge.weight.shape[0]
    queries, keys, values = layer.attend.weight.chunk(3)
    biases = layer.attend.bias.chunk(3)
    scale = (dim // layer.heads) ** -0.5
    maps = [(queries * scale, biases[0] * scale), (keys, biases[1]), (values, biases[2])]
    asked, keyed, valued = (graph.shaped(graph.linear(states, *each), 0, 0, layer.heads, -1) for each in maps)
    found = graph.add("Transpose", _attention(graph, asked, keyed, valued, masked), perm=[0, 2, 1, 3])
    merged = graph.linear(graph.shaped(found, 0, 0, dim), layer.merge.weight, layer.merge.bias)
    return _after(graph, layer, graph.add("Add", states, merged))


def _last(graph: _Graph, folded: FoldedTransformer, states: str, masked: str) -> str:
    """The last layer for its first token, and the scores."""
    dim = folded.head.norm.weight.shape[0]
    first = graph.add("Gather", states, graph.constant(0, np.int64), axis=1)  # [pairs, dim]
    asked = graph.shaped(graph.linear(first, folded.ask, folded.ask_bias), 0, folded.heads, dim)
    logits = graph.add("Add", graph.add("MatMul", asked, _turned(graph, states)), masked)
    told = graph.add("MatMul", graph.add("Softmax", logits, axis=-1), states)
    told = graph.linear(graph.shaped(told, 0, folded.heads * dim), folded.tell, folded.tell_bias)
    found = _after(graph, folded.last, graph.add("Add", first, told))
    weight, bias = graph.constant(folded.head.output.weight.T), graph.constant(folded.head.output.bias)
    return graph.add("Add", graph.add("MatMul", found, weight), bias)


def _after(graph: _Graph, layer: HeadLayer, summed: str) -> str:
    """The part of a layer after attention is added."""
    states = graph.norm(summed, layer.first_norm)
    wide = graph.add("Gelu", graph.linear(states, layer.widen.weight, layer.widen.bias))
    narrow = graph.linear(wide, layer.narrow.weight, layer.narrow.bias)
    return graph.norm(graph.add("Add", states, narrow), layer.second_norm)


def _turned(graph: _Graph, value: str) -> str:
    return graph.add("Transpose", value, perm=[0, 2, 1])
