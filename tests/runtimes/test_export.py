"""An exported folder gives the model's vectors without torch, in sentence-transformers too, and damage is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from sentence_transformers import SentenceTransformer
from transformers.modeling_outputs import BaseModelOutput

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.file_list import NAME, write_list
from limbeck.matchers import build, load, matcher_config
from limbeck.runtimes import export_routes, trace
from limbeck.runtimes import exported as exported_module
from limbeck.runtimes.export import export_model
from limbeck.runtimes.exported import Exported
from limbeck.runtimes.gate import Gate
from limbeck.runtimes.judged import Judged
from limbeck.runtimes.sample import Sample
from limbeck.runtimes.use import in_runtime
from tests.runtimes.conftest import FAMILIES, QUERIES, TEXTS

SAMPLE = Sample(QUERIES, TEXTS, "texts of the test")
SIZES = {"query_length": 9, "document_length": 24, "dim": 8, "layer_norm": True, "prompts": {"query": "read "}}
LONG = "how do i " * 20


@pytest.fixture(scope="module")
def model(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "dual"
    build(matcher_config(start=tiny_bert, **SIZES)).save_pretrained(folder)
    return folder


@pytest.fixture
def exported(model: Path, tmp_path: Path) -> Path:
    export_model(model, tmp_path / "export", lambda: SAMPLE)
    return tmp_path / "export"


def test_vectors_are_those_of_the_model(model, exported):
    original, found = load(model), Exported.load(exported, threads=1)
    texts = [*TEXTS, LONG]
    assert np.abs(found.encode_document(texts) - original.encode_document(texts)).max() < 1e-4
    assert np.abs(found.encode_query(texts) - original.encode_query(texts)).max() < 1e-4
    assert np.abs(found.encode_query(LONG) - original.encode_query([LONG])[0]).max() < 1e-4
    assert found.encode_query([]).shape == (0, 8)


def test_it_runs_where_torch_cannot_be_imported(model, exported):
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sentence_transformers', 'onnx'): sys.modules[name] = None\n"
        "from limbeck.runtimes.exported import Exported\n"
        f"print(Exported.load({str(exported)!r}, 1).encode_query({QUERIES!r}).tolist())"
    )
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=place)
    assert done.returncode == 0, done.stderr
    assert np.abs(np.array(json.loads(done.stdout)) - load(model).encode_query(QUERIES)).max() < 1e-4


def test_sentence_transformers_loads_it(model, exported):
    try:  # sentence-transformers' ONNX backend
        from optimum.onnxruntime import ORTModelForFeatureExtraction  # noqa: F401
    except ImportError:
        pytest.skip("needs an optimum-onnx that knows this version of transformers")
    theirs = SentenceTransformer(str(exported), backend="onnx", device="cpu", local_files_only=True)
    assert np.abs(theirs.encode_document(TEXTS) - load(model).encode_document(TEXTS)).max() < 1e-4
    assert np.abs(theirs.encode_query(QUERIES) - load(model).encode_query(QUERIES)).max() < 1e-4


class Opened:
    """Stands for optimum's class, which reads one file and runs it; sentence-transformers' part is its own."""

    read: tuple[str, str, bool]

    def __init__(self, file: Path, config: Any) -> None:
        self.session, self.config, self.device = InferenceSession(str(file)), config, torch.device("cpu")

    @classmethod
    def from_pretrained(
        cls, name: str, config: Any, export: bool, subfolder: str, file_name: str, **rest: Any
    ) -> Opened:
        cls.read = subfolder, file_name, export
        return cls(Path(name) / subfolder / file_name, config)

    def _save_pretrained(self, folder: Path) -> None:
        raise AssertionError("nothing is saved")

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, **rest: Any
    ) -> Any:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        names = [each.name for each in self.session.get_inputs()]
        (states,) = self.session.run(["last_hidden_state"], {name: given[name].numpy() for name in names})
        return BaseModelOutput(last_hidden_state=torch.from_numpy(states))

    __call__ = forward


def test_sentence_transformers_finds_the_graph_and_all_that_comes_behind_it(model, exported, monkeypatch):
    optimum = ModuleType("optimum.onnxruntime")
    optimum.ONNX_WEIGHTS_NAME = "model.onnx"
    for task in ("CausalLM", "FeatureExtraction", "MaskedLM", "SequenceClassification"):
        setattr(optimum, f"ORTModelFor{task}", Opened)
    monkeypatch.setitem(sys.modules, "optimum", ModuleType("optimum"))
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", optimum)
    theirs = SentenceTransformer(str(exported), backend="onnx", device="cpu", local_files_only=True)
    assert Opened.read == ("onnx", "model.onnx", False)
    texts = [*TEXTS, LONG]
    assert np.abs(theirs.encode_document(texts) - load(model).encode_document(texts)).max() < 1e-4
    assert np.abs(theirs.encode_query(texts) - load(model).encode_query(texts)).max() < 1e-4


def test_eight_bits_are_gated_and_a_refusal_writes_nothing(model, tmp_path):
    with pytest.raises(LimbeckError, match=r"below 1; leave out --int8, or accept it with --gate 0\.\d+"):
        export_model(model, tmp_path / "refused", lambda: SAMPLE, int8=True, gate=Gate(1.0))
    assert not (tmp_path / "refused").exists()
    done = export_model(model, tmp_path / "rounded", lambda: SAMPLE, int8=True, gate=Gate(0.9))
    found = Exported.load(tmp_path / "rounded", threads=1)
    exact = load(model).encode_document(TEXTS)
    assert done.runtime == found.runtime == "int8" and 0.9 <= done.cosine < 1
    assert 0 < np.abs(found.encode_document(TEXTS) - exact).max() < 0.5


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_scores_are_those_of_the_model(similarity, tiny_bert, tmp_path):
    build(matcher_config(start=tiny_bert, similarity=similarity, **SIZES)).save_pretrained(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "export", lambda: SAMPLE)
    pairs = [(query, text) for query in QUERIES for text in TEXTS]
    found = Exported.load(tmp_path / "export", threads=1).score(pairs)
    assert np.abs(found - load(tmp_path / "model").score(pairs)).max() < 1e-4


def judged_by(model: Path, best: int) -> Judged:
    """One query, whose relevant document is the one that the model ranks at place `best`."""
    texts = dict(enumerate(dict.fromkeys(TEXTS)))
    scores = load(model).score([(QUERIES[0], text) for text in texts.values()])
    right = str(np.argsort(-scores)[best])
    names = {str(at): text for at, text in texts.items()}
    return Judged("dev", {"q": QUERIES[0]}, names, {"q": {right: 1}}, {"q": list(names)})


def test_with_judged_queries_the_loss_of_ndcg_decides(model, tmp_path):
    """Rank 2 of 5 is worth 1 / log2(3) before and after, so nothing is lost, whatever the cosine."""
    sample = Sample(QUERIES, TEXTS, "texts of the test", judged_by(model, 1))
    done = export_model(model, tmp_path / "kept", lambda: sample, int8=True, gate=Gate(1.0, 0.0))
    assert np.isclose(done.exact_ndcg, 1 / np.log2(3)) and done.ndcg == done.exact_ndcg and done.lost == 0
    assert done.cosine < 1 and done.judged == "1 dev queries with 5 candidates each"
    with pytest.raises(LimbeckError, match=r"0.0% lost, more than -1.0%; leave out --int8, or accept it with --max-l"):
        export_model(model, tmp_path / "refused", lambda: sample, int8=True, gate=Gate(0.0, -0.01))
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("name", ["onnx/model.onnx", "limbeck-tail.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_named(name, exported):
    file = exported / name
    file.write_bytes(file.read_bytes()[:-8] + b"--------")
    with pytest.raises(LimbeckError, match=f"{name}: is damaged.*; export the model again"):
        Exported.load(exported)


def test_another_version_and_another_folder_are_named(model, exported):
    facts = json.loads((exported / "limbeck-export.json").read_text())
    (exported / "limbeck-export.json").write_text(json.dumps({**facts, "format": 3}))
    with pytest.raises(LimbeckError, match=r"limbeck-export.json: was written by a newer limbeck .format 3, .*update"):
        Exported.load(exported)
    (exported / "limbeck-export.json").write_text(json.dumps({**facts, "format": 1}))
    with pytest.raises(LimbeckError, match=r"was written by an older limbeck .format 1, .*; export the model again"):
        Exported.load(exported)
    with pytest.raises(
        LimbeckError, match="contains no limbeck-export.json; give a folder that `limbeck export` wrote"
    ):
        Exported.load(model)


def test_loading_it_as_a_model_names_what_opens_it(exported):
    for use in (load, lambda folder: build(matcher_config(start=str(folder))), lambda folder: lb.export(folder, "new")):
        with pytest.raises(LimbeckError, match=r"export: was written by `limbeck export`.*exported\.Exported\.load"):
            use(exported)


def test_it_runs_on_the_cores_of_this_process(exported, monkeypatch):
    opened = []
    monkeypatch.setattr(exported_module, "open_session", lambda runtime, graph, threads: opened.append(threads))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    Exported.load(exported)
    Exported.load(exported, threads=2)
    assert opened == [3, 2]


def test_limits_of_a_gate_without_a_gate_are_refused(model, tmp_path):
    for limit in ({"gate": 0.9}, {"max_loss": 0.1}):
        with pytest.raises(LimbeckError, match=f"{next(iter(limit))} requires int8; leave it out"):
            lb.export(model, tmp_path / "new", **limit)
    with pytest.raises(LimbeckError, match="gate and max_loss are two limits of one gate; leave one of them out"):
        lb.export(model, tmp_path / "new", int8=True, gate=0.9, max_loss=0.1)
    assert not (tmp_path / "new").exists()


LENGTHS = {"query_length": 9, "document_length": 24}
KINDS = {
    "cross-encoder": {"kind": "cross_encoder", "pooling": "mean", "layer_norm": True},
    "cross-encoder with classes": {"kind": "cross_encoder", "pooling": "cls", "outputs": 3},
    "colbert": {"kind": "colbert", "dim": 8},
    "colbert by the mean": {"kind": "colbert", "dim": 8, "similarity": "meanmaxsim"},
    "two towers": {"untied": True, "dim": 8, "prompts": {"query": "read "}},
    "static": {"encoder": "static", "dim": 16},
}


@pytest.fixture(scope="module")
def every_kind(tiny_bert: str, model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from transformers import AutoTokenizer, BertForSequenceClassification

    home = tmp_path_factory.mktemp("kinds")
    torch.manual_seed(0)
    for name, own in KINDS.items():
        build(matcher_config(start=tiny_bert, **LENGTHS, **own)).save_pretrained(home / name)
    teacher = matcher_config(start=tiny_bert, encoder="static", document=str(model), query_length=9, document_length=24)
    build(teacher).save_pretrained(home / "static queries")
    BertForSequenceClassification.from_pretrained(tiny_bert, num_labels=1).save_pretrained(home / "classifier")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(home / "classifier")
    return {name: home / name for name in (*KINDS, "static queries", "classifier")}


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_exported(family, kind, family_folder, tmp_path):
    torch.manual_seed(0)
    build(matcher_config(kind=kind, start=family_folder(family), **LENGTHS)).save_pretrained(tmp_path / "model")
    done = export_model(tmp_path / "model", tmp_path / "export", lambda: SAMPLE)
    original, found = load(tmp_path / "model"), Exported.load(tmp_path / "export", threads=1)
    exact = original.score(PAIRS)
    assert done.cosine > 0.9999 and np.ptp(exact) > 1e-3
    assert np.abs(found.score(PAIRS) - exact).max() < 1e-4
    with in_runtime(original, "onnx"):
        assert original.runtime == "onnx" and np.abs(original.score(PAIRS) - exact).max() < 1e-4


PAIRS = [(query, text) for query in [*QUERIES, LONG, ""] for text in [*TEXTS[:5], "read, the. line!", LONG]]


@pytest.mark.parametrize("name", [*KINDS, "static queries", "classifier"])
def test_every_kind_scores_as_the_model_does(name, every_kind, tmp_path):
    done = export_model(every_kind[name], tmp_path / "export", lambda: SAMPLE)
    original, found = load(every_kind[name]), Exported.load(tmp_path / "export", threads=1)
    exact = original.score(PAIRS)
    assert done.cosine > 0.9999 and found.outputs == original.outputs and np.ptp(exact) > 1e-3
    assert found.score(PAIRS).shape == exact.shape
    assert np.abs(found.score(PAIRS) - exact).max() < 1e-4
    assert found.score([]).shape[0] == 0
    weights = [file for file in (tmp_path / "export").rglob("model.safetensors") if file.stat().st_size > 100_000]
    assert not weights  # the graph has them
    if original.encoding(0) is None:
        with pytest.raises(LimbeckError, match="reads both texts of a pair together, and encodes none; use score"):
            found.encode_query(QUERIES)
        return
    for mine, theirs in zip(found.encode_document(TEXTS), original.encode_document(TEXTS), strict=True):
        assert mine.shape == theirs.shape and np.abs(mine - theirs).max() < 1e-4


def test_every_kind_runs_where_torch_cannot_be_imported(every_kind, tmp_path):
    names = ["cross-encoder", "colbert", "static queries", "classifier"]
    for name in names:
        export_model(every_kind[name], tmp_path / name, lambda: SAMPLE)
    folders = [str(tmp_path / name) for name in names]
    program = (
        "import json, sys\n"
        "for name in ('torch', 'transformers', 'sentence_transformers', 'onnx'): sys.modules[name] = None\n"
        "from limbeck.runtimes.exported import Exported\n"
        f"print(json.dumps([Exported.load(each, 1).score({PAIRS[:9]!r}).tolist() for each in {folders!r}]))"
    )
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=place)
    assert done.returncode == 0, done.stderr
    for name, scores in zip(names, json.loads(done.stdout), strict=True):
        assert np.abs(np.array(scores) - load(every_kind[name]).score(PAIRS[:9])).max() < 1e-4, name


@pytest.mark.parametrize("name", ["cross-encoder", "colbert", "classifier"])
def test_eight_bits_of_every_kind_are_near(name, every_kind, tmp_path):
    done = export_model(every_kind[name], tmp_path / "export", lambda: SAMPLE, int8=True, gate=Gate(0.5))
    found, exact = Exported.load(tmp_path / "export", threads=1).score(PAIRS), load(every_kind[name]).score(PAIRS)
    assert 0.5 < done.cosine < 1 and 0 < np.abs(found - exact).max() < 0.3 * np.ptp(exact)


REFUSED = {
    "dipair": ({"kind": "dipair", "tokens": (2, 4), "dim": 16, "head_width": 32}, "reads more than vectors, in torch"),
    "segments": ({"kind": "cross_encoder", "pooling": "segments"}, "its pairs are not made by a fast tokenizer alone"),
    "special": ({"kind": "cross_encoder", "pooling": "special"}, "it has DualPooling, of which some need torch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_torch_is_refused_with_the_reason(name, tiny_bert, tmp_path):
    own, reason = REFUSED[name]
    build(matcher_config(start=tiny_bert, **LENGTHS, **own)).save_pretrained(tmp_path / "model")
    with pytest.raises(
        LimbeckError, match=f"model: cannot be exported: .*{reason}; run the model itself with --runtime onnx$"
    ):
        export_model(tmp_path / "model", tmp_path / "out", lambda: SAMPLE)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_is_not_overwritten(model, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(LimbeckError, match="name a folder that does not exist"):
        export_model(model, tmp_path, lambda: SAMPLE)


@pytest.mark.parametrize("name", ["static", "classifier"])
def test_eight_bits_of_what_has_nothing_to_round_are_refused(name, every_kind, tmp_path, monkeypatch):
    monkeypatch.setattr(export_routes, "with_int8_weights", lambda graph, bits: (graph, 0))
    with pytest.raises(LimbeckError, match=f"{name}: cannot be exported: it has no product .*; leave out --int8$"):
        export_model(every_kind[name], tmp_path / "out", lambda: SAMPLE, int8=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["colbert", "cross-encoder", "classifier"])
def test_what_cannot_be_traced_is_refused_with_the_reason(name, every_kind, tmp_path, monkeypatch):
    def failing(*_: object) -> bytes:
        raise RuntimeError("no operator\nof that name")

    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    monkeypatch.setattr(trace, "_traced", failing)
    problem = r"cannot be exported: it has no graph \(no operator\); run the model itself, in torch$"
    with pytest.raises(LimbeckError, match=problem):
        export_model(every_kind[name], tmp_path / "out", lambda: SAMPLE)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["colbert", "cross-encoder", "classifier"])
def test_a_graph_that_differs_from_torch_is_refused(name, every_kind, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path))
    monkeypatch.setattr(trace, "difference", lambda *_: 0.25)
    kind = "BertForSequenceClassification" if name == "classifier" else "BertModel"
    problem = f"cannot be exported: in onnxruntime {kind} differs from torch by 0.25, from {kind} on"
    with pytest.raises(LimbeckError, match=f"{problem}; run the model itself, in torch$"):
        export_model(every_kind[name], tmp_path / "out", lambda: SAMPLE)
    assert not (tmp_path / "out").exists()


def test_a_graph_with_the_right_checksum_that_cannot_be_read_is_named(exported):
    (exported / "onnx/model.onnx").write_bytes(b"no graph")
    (exported / NAME).unlink()
    write_list(exported)
    with pytest.raises(
        LimbeckError, match=r"export: is damaged \(the graph cannot be opened \(.*\)\); export the model again$"
    ):
        Exported.load(exported)


def test_without_onnxruntime_one_line_says_what_to_install(model, exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    missing = r"^onnxruntime is not installed; run `pip install 'limbeck\[onnx\]'`$"
    with pytest.raises(LimbeckError, match=missing):
        Exported.load(exported)
    with pytest.raises(LimbeckError, match=missing):
        export_model(model, exported.parent / "again", lambda: SAMPLE)


def test_a_float32_export_that_is_off_in_scale_is_refused(model, tmp_path, monkeypatch):
    """The cosine of vectors that are 1.001 times too long is 1."""
    encode = Exported.encode_document
    monkeypatch.setattr(Exported, "encode_document", lambda *given: 1.001 * encode(*given))
    problem = "dual: an output is off by 0.001 of the largest one on texts of texts of the test, more than 0.0001"
    with pytest.raises(LimbeckError, match=f"{problem}; run the model itself, in torch$"):
        export_model(model, tmp_path / "out", lambda: SAMPLE)
    assert not (tmp_path / "out").exists()
