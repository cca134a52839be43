"""An exported folder gives the model's vectors without torch, in sentence-transformers too, and damage is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.matchers import build, load, matcher_config
from limbeck.runtimes.export import export_model
from limbeck.runtimes.exported import Exported
from limbeck.runtimes.gate import Gate
from limbeck.runtimes.judged import Judged
from limbeck.runtimes.sample import Sample
from tests.runtimes.conftest import QUERIES, TEXTS

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
    export_model(model, tmp_path / "export", SAMPLE)
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
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(exported), backend="onnx", device="cpu", local_files_only=True)
    assert np.abs(theirs.encode_document(TEXTS) - load(model).encode_document(TEXTS)).max() < 1e-4
    assert np.abs(theirs.encode_query(QUERIES) - load(model).encode_query(QUERIES)).max() < 1e-4


def test_eight_bits_are_gated_and_a_refusal_writes_nothing(model, tmp_path):
    with pytest.raises(LimbeckError, match=r"below 1; leave out --int8, or accept it with --gate 0\.\d+"):
        export_model(model, tmp_path / "refused", SAMPLE, int8=True, gate=Gate(1.0))
    assert not (tmp_path / "refused").exists()
    done = export_model(model, tmp_path / "rounded", SAMPLE, int8=True, gate=Gate(0.9))
    found = Exported.load(tmp_path / "rounded", threads=1)
    exact = load(model).encode_document(TEXTS)
    assert done.runtime == found.runtime == "int8" and 0.9 <= done.cosine < 1
    assert 0 < np.abs(found.encode_document(TEXTS) - exact).max() < 0.5


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_scores_are_those_of_the_model(similarity, tiny_bert, tmp_path):
    build(matcher_config(start=tiny_bert, similarity=similarity, **SIZES)).save_pretrained(tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "export", SAMPLE)
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
    done = export_model(model, tmp_path / "kept", sample, int8=True, gate=Gate(1.0, 0.0))
    assert np.isclose(done.exact_ndcg, 1 / np.log2(3)) and done.ndcg == done.exact_ndcg and done.lost == 0
    assert done.cosine < 1 and done.judged == "1 dev queries with 5 candidates each"
    with pytest.raises(LimbeckError, match=r"0.0% lost, more than -1.0%; leave out --int8, or accept it with --max-l"):
        export_model(model, tmp_path / "refused", sample, int8=True, gate=Gate(0.0, -0.01))
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("name", ["onnx/model.onnx", "limbeck-tail.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_named(name, exported):
    file = exported / name
    file.write_bytes(file.read_bytes()[:-8] + b"--------")
    with pytest.raises(LimbeckError, match=f"{name}: is damaged.*; export the model again"):
        Exported.load(exported)


def test_another_version_and_another_folder_are_named(model, exported):
    facts = json.loads((exported / "limbeck-export.json").read_text())
    (exported / "limbeck-export.json").write_text(json.dumps({**facts, "format": 2}))
    with pytest.raises(LimbeckError, match=r"limbeck-export.json: was written by a newer limbeck .format 2, .*update"):
        Exported.load(exported)
    with pytest.raises(
        LimbeckError, match="contains no limbeck-export.json; give a folder that `limbeck export` wrote"
    ):
        Exported.load(model)


def test_what_is_more_than_a_tower_is_refused(tiny_bert, tmp_path):
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 8}
    for kind, own in (("cross_encoder", {}), ("dual_encoder", {"untied": True}), ("colbert", {"dim": 8})):
        build(matcher_config(kind=kind, **lengths, **own)).save_pretrained(tmp_path / kind)
        with pytest.raises(LimbeckError, match="; use --runtime onnx instead"):
            export_model(tmp_path / kind, tmp_path / "out", SAMPLE)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(LimbeckError, match="name a folder that does not exist"):
        export_model(tmp_path / "dual_encoder", tmp_path / "full", SAMPLE)
