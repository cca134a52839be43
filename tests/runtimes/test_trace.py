"""What a trace gets wrong is found, and what cannot be traced stays in torch."""

from __future__ import annotations

import errno
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.matchers import load
from limbeck.progress import reporting
from limbeck.runtimes import choice, compiled, graph_cache, sessions, trace
from limbeck.runtimes.choice import missing_package
from limbeck.runtimes.inputs import CannotExport, Signature, made_up
from limbeck.runtimes.use import use_runtime
from tests.runtimes.conftest import TEXTS

NAMES = Signature((("attention_mask", 2), ("input_ids", 2), ("token_type_ids", 2)))
needs_openvino = pytest.mark.skipif(
    missing_package("openvino") is not None, reason="needs `pip install 'limbeck[openvino]'`"
)


class Said:
    """Keeps what is said."""

    def __init__(self):
        self.lines = []

    def say(self, message):
        self.lines.append(message)

    def task(self, label, total):
        return nullcontext(lambda count: None)


class ByLength(torch.nn.Module):
    """A layer that a trace gets wrong: Python reads the number of tokens, so the graph has that of the traced batch."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, states):
        return self.inner(states) * (1 + 0.1 * int(states.shape[1]))


class Short(torch.nn.Module):
    """A layer whose graph has a branch less than it has: that for long texts."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, states):
        return self.inner(states) if int(states.shape[1]) <= 100 else 1.1 * self.inner(states)


class Undecided(torch.nn.Module):
    """A layer that has no graph."""

    def forward(self, states):
        return torch.linalg.eigvals(states.transpose(1, 2) @ states).real.unsqueeze(1).expand_as(states)


def encoder_of(matcher):
    return matcher.tower.transformer("query").model


def test_made_up_batches_are_padded_on_the_right_and_hold_no_padding_in_between(family_folder):
    encoder = encoder_of(load(family_folder("bert")))
    given = made_up(encoder, NAMES, 6, 9)
    real = given["attention_mask"].bool()
    assert real[0].all() and not real.all()
    assert (real.long().diff(dim=1) <= 0).all()
    assert (given["input_ids"][real] > 0).all() and (given["input_ids"][~real] == 0).all()
    assert given["input_ids"].max() < encoder.config.vocab_size
    with pytest.raises(CannotExport, match="it reads pixels"):
        made_up(encoder, Signature((("pixels", 2),)), 2, 3)


def test_a_graph_that_differs_from_torch_is_refused_and_the_layer_named(family_folder):
    matcher = load(family_folder("bert"))
    dense = encoder_of(matcher).encoder.layer[1].output
    dense.dense = ByLength(dense.dense)
    with pytest.raises(
        LimbeckError, match=r"BertModel differs from torch by .*, from ByLength on; use --runtime torch"
    ):
        use_runtime(matcher, "onnx")
    assert matcher.runtime == "torch"


def test_what_cannot_be_exported_says_so_and_stays_in_torch(family_folder):
    matcher = load(family_folder("bert"))
    dense = encoder_of(matcher).encoder.layer[1].output
    dense.dense = torch.nn.Sequential(dense.dense, Undecided())
    before = matcher.encode_document(TEXTS)
    said = Said()
    with reporting(said):
        use_runtime(matcher, "int8")
    assert len(said.lines) == 1
    assert said.lines[0].startswith("--runtime int8: BertModel cannot be exported (")
    assert said.lines[0].endswith("; it runs in torch")
    assert matcher.runtime == "torch" and "computed" not in matcher.identity()
    assert np.array_equal(matcher.encode_document(TEXTS), before)


def graphs(folder):
    return sorted(folder.glob("graphs/*/graph.onnx"))


def test_a_graph_is_traced_once_and_a_damaged_one_again(family_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    traced = []
    original = trace._traced
    monkeypatch.setattr(trace, "_traced", lambda *given: traced.append(1) or original(*given))
    folder = family_folder("bert")
    exact = use_runtime(load(folder), "onnx").encode_document(TEXTS)
    (graph,) = graphs(tmp_path)
    assert use_runtime(load(folder), "onnx").runtime == "onnx"
    assert len(traced) == 1
    graph.write_bytes(graph.read_bytes()[:-200] + b"0" * 200)
    said = Said()
    with reporting(said):
        again = use_runtime(load(folder), "onnx").encode_document(TEXTS)
    assert len(traced) == 2 and len(said.lines) == 1 and "graph.onnx: is damaged" in said.lines[0]
    assert np.array_equal(again, exact)
    use_runtime(load(folder), "int8")
    assert len(traced) == 2 and len(graphs(tmp_path)) == 2


def test_other_weights_have_another_graph(family_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    use_runtime(load(family_folder("bert")), "onnx")
    other = load(family_folder("bert"))
    with torch.no_grad():
        encoder_of(other).encoder.layer[0].output.dense.bias += 0.5
    exact = other.encode_document(TEXTS)
    assert np.abs(use_runtime(other, "onnx").encode_document(TEXTS) - exact).max() < 1e-4
    assert len(graphs(tmp_path)) == 2


def test_without_a_cache_a_graph_is_made_in_memory(family_folder, monkeypatch):
    monkeypatch.setattr(graph_cache, "cache_directory", lambda part: None)
    matcher = load(family_folder("bert"))
    exact = matcher.encode_document(TEXTS)
    assert np.abs(use_runtime(matcher, "int8").encode_document(TEXTS) - exact).max() > 0


def test_a_layer_that_cannot_be_traced_apart_is_named_by_its_model(family_folder, monkeypatch):
    matcher = load(family_folder("bert"))
    dense = encoder_of(matcher).encoder.layer[1].output
    dense.dense = ByLength(dense.dense)
    original, traced = trace._traced, []

    def once(*given):
        traced.append(given)
        if len(traced) > 1:
            raise RuntimeError("no graph of layers")
        return original(*given)

    monkeypatch.setattr(trace, "_traced", once)
    with pytest.raises(LimbeckError, match=r"differs from torch by .*, from BertModel on; use --runtime torch"):
        use_runtime(matcher, "onnx")
    assert len(traced) == 2


@needs_openvino
def test_what_differs_in_openvino_is_refused_and_the_layer_named(family_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    run = sessions.OpenVinoSession.run
    monkeypatch.setattr(sessions.OpenVinoSession, "run", lambda *given: [1.01 * each for each in run(*given)])
    matcher = load(family_folder("bert"))
    problem = "in OpenVINO BertModel differs from torch by .*, from Embedding on; use --runtime torch"
    for _ in range(2):  # a graph that failed is not remembered as checked
        with pytest.raises(LimbeckError, match=problem):
            use_runtime(matcher, "openvino")
        assert matcher.runtime == "torch"
    assert use_runtime(matcher, "onnx").runtime == "onnx"


@needs_openvino
def test_openvino_is_compared_with_torch_once(family_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    checked = []
    original = compiled.require_same
    monkeypatch.setattr(compiled, "require_same", lambda *given: checked.append(1) or original(*given))
    for _ in range(2):
        assert use_runtime(load(family_folder("bert")), "openvino").runtime == "openvino"
    assert len(checked) == 1
    monkeypatch.setattr(compiled, "processor_name", lambda: "another")
    use_runtime(load(family_folder("bert")), "openvino")
    assert len(checked) == 2 and len(graphs(tmp_path)) == 1


def test_a_full_cache_is_said_and_the_graph_is_used(family_folder, tmp_path, monkeypatch):
    @contextmanager
    def full(path):
        with original(path) as made:
            yield made
            raise OSError(errno.ENOSPC, "No space left on device")

    original = graph_cache.directory_atomically
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    monkeypatch.setattr(graph_cache, "directory_atomically", full)
    matcher, said = load(family_folder("bert")), Said()
    exact = matcher.encode_document(TEXTS)
    with reporting(said):
        use_runtime(matcher, "onnx")
    assert len(said.lines) == 1 and said.lines[0].startswith("the cache cannot keep a graph ([Errno 28] No space left")
    assert np.abs(matcher.encode_document(TEXTS) - exact).max() < 1e-4
    assert list((tmp_path / "graphs").iterdir()) == []


def test_of_two_processes_that_make_a_graph_the_second_uses_that_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))

    def second():
        assert graph_cache.cached_graph({"of": "both"}, lambda: b"first") == b"first"
        monkeypatch.setattr(graph_cache, "directory_atomically", failing)
        return b"second"

    @contextmanager
    def failing(path):
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        yield

    said = Said()
    with reporting(said):
        assert graph_cache.cached_graph({"of": "both"}, second) == b"first"
    assert said.lines == []


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_another_version_of_a_library_has_another_graph(library, family_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    use_runtime(load(family_folder("bert")), "onnx")
    original = choice.version
    monkeypatch.setattr(choice, "version", lambda name: "99" if name == library else original(name))
    use_runtime(load(family_folder("bert")), "onnx")
    assert len(graphs(tmp_path)) == 2


def test_a_graph_is_compared_on_long_texts_too(tmp_path):
    """A layer that goes wrong beyond 100 tokens is right in all shorter batches."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=40, max_position_embeddings=512, **sizes), add_pooling_layer=False)
    model.encoder.layer[0].output.dense = Short(model.encoder.layer[0].output.dense)
    with pytest.raises(LimbeckError, match="differs from torch by .*, from Short on"):
        trace.float32_graph(model, model.forward, NAMES)
