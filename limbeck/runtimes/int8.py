"""Graphs with 8-bit products: weights are rounded ahead, one scale a column; inputs as they come, by their range.

Weights have 8 bits where the processor adds byte products in 32 bits, else 7 (`processor.py`). Inputs are rounded by
the range of the whole batch, so outputs depend on the batch they are in, in the third digit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators


def rounded(weight: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of a weight [inputs, outputs] as whole numbers of so many bits, and what one step of each is worth."""
    most = 2 ** (bits - 1) - 1
    scales = np.maximum(np.abs(weight).max(axis=0), np.finfo(np.float32).tiny * most) / most
    return np.rint(weight / scales).astype(np.int8), scales.astype(np.float32)


def with_int8_weights(graph: bytes, bits: int) -> tuple[bytes, int]:
    """The graph with every product of states and a weight in bytes, and how many these are."""
    import onnx

    model = onnx.load_from_string(graph)
    nodes, tensors = model.graph.node, {tensor.name: tensor for tensor in model.graph.initializer}
    made: dict[str, list[str]] = {}  # of each weight: its bytes, their scales, their zeros
    count = 0
    for at, node in enumerate(nodes):
        weight = tensors.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or len(weight.dims) != 2 or weight.data_type != onnx.TensorProto.FLOAT:
            continue
        if weight.name not in made:
            made[weight.name] = _add_bytes(model, weight, bits)
        given = [node.input[0], *made[weight.name]]
        nodes[at].CopyFrom(
            onnx.helper.make_node("DynamicQuantizeMatMul", given, list(node.output), node.name, domain=MICROSOFT)
        )
        count += 1
    if count:
        _drop_unused(model)
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    return bytes(model.SerializeToString()), count


def _add_bytes(model: Any, weight: Any, bits: int) -> list[str]:
    import onnx

    whole, scales = rounded(onnx.numpy_helper.to_array(weight), bits)
    parts = {"bytes": whole, "scales": scales, "zeros": np.zeros(len(scales), np.int8)}
    for kind, values in parts.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, f"{weight.name}_{kind}"))
    return [f"{weight.name}_{kind}" for kind in parts]


def _drop_unused(model: Any) -> None:
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
