"""8-bit weights by hand, and how many bits a processor can take."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from limbeck import processor
from limbeck.runtimes.int8 import rounded, with_int8_weights
from limbeck.runtimes.sessions import OnnxSession

WEIGHT = np.array([[1.0, 0.0, -6.3], [-0.51, 0.0, 0.1], [0.26, 0.0, 0.04]], np.float32)


def test_seven_bits_by_hand():
    """One step a column: its largest number is 63 steps, and rounding is off by half a step at most."""
    whole, steps = rounded(WEIGHT, 7)
    assert whole.tolist() == [[63, 0, -63], [-32, 0, 1], [16, 0, 0]]
    assert np.allclose(steps[[0, 2]], [1 / 63, 0.1])
    assert (np.abs(whole * steps - WEIGHT) <= steps / 2 + 1e-7).all()


def test_eight_bits_have_127_steps():
    whole, steps = rounded(WEIGHT, 8)
    assert whole[:, 0].tolist() == [127, -65, 33] and np.isclose(steps[0], 1 / 127)


def graph_of(*weights: np.ndarray) -> bytes:
    """x @ W1 @ W2 ..., and the product of x with itself, which has no weight."""
    names = [f"w{at}" for at in range(len(weights))]
    nodes, value = [], "x"
    for name in names:
        nodes.append(helper.make_node("MatMul", [value, name], [f"x{name}"]))
        value = f"x{name}"
    nodes.append(helper.make_node("MatMul", ["x", "x"], ["square"]))
    info = helper.make_tensor_value_info
    tensors = [numpy_helper.from_array(weight, name) for name, weight in zip(names, weights, strict=True)]
    outputs = [info(name, TensorProto.FLOAT, [3, 3]) for name in (value, "square")]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [3, 3])], outputs, initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def test_products_with_weights_are_rounded_and_others_are_not():
    x = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    graph, count = with_int8_weights(graph_of(WEIGHT, WEIGHT.T.copy()), 7)
    kinds = [node.op_type for node in onnx.load_from_string(graph).graph.node]
    assert count == 2 and kinds == ["DynamicQuantizeMatMul", "DynamicQuantizeMatMul", "MatMul"]
    assert all(tensor.data_type != TensorProto.FLOAT or len(tensor.dims) == 1 for tensor in
               onnx.load_from_string(graph).graph.initializer)  # fmt: skip
    product, square = OnnxSession(graph, 1).run({"x": x})
    exact = x @ WEIGHT @ WEIGHT.T
    assert np.allclose(square, x @ x, atol=1e-6)
    assert 0 < np.abs(product - exact).max() < 0.03 * np.abs(exact).max()


def test_a_graph_without_weights_stays_as_it_is():
    same, count = with_int8_weights(graph_of(), 8)
    assert count == 0 and onnx.load_from_string(same) == onnx.load_from_string(graph_of())


@pytest.mark.parametrize(
    ("facts", "bits"),
    [
        ({"flags": "fpu avx2 avx512f"}, 7),
        ({"flags": "fpu avx512_vnni"}, 8),
        ({"flags": "avx_vnni"}, 8),
        ({"Features": "fp asimd asimddp"}, 8),
        ({}, 7),
    ],
)
def test_weights_have_as_many_bits_as_the_processor_adds_exactly(facts, bits, monkeypatch):
    monkeypatch.setattr(processor, "_cpuinfo", lambda: facts)
    assert processor.weight_bits() == bits


def test_a_processor_is_named_by_its_model(monkeypatch):
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"model name": "Fast 9", "cpu family": "6", "model": "143"})
    assert processor.processor_name() == "Fast 9 family/model/stepping 6/143"


def test_processors_without_a_name_are_known_by_numbers(monkeypatch):
    monkeypatch.setattr(processor.platform, "machine", lambda: "aarch64")
    arm = {"CPU implementer": "0x41", "CPU variant": "0x3", "CPU part": "0xd0c", "CPU revision": "1"}
    monkeypatch.setattr(processor, "_cpuinfo", lambda: arm)
    assert processor.processor_name() == "aarch64 implementer/part/variant/revision 0x41/0xd0c/0x3/1"
    monkeypatch.setattr(processor, "_cpuinfo", dict)
    monkeypatch.setattr(processor.platform, "processor", lambda: "arm")
    monkeypatch.setattr(processor.os, "cpu_count", lambda: 10)
    assert processor.processor_name() == "arm aarch64 10 cores"
