"""Every kind of matcher gives the same numbers in every float32 runtime, and nearly the same with 8-bit weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck import processor
from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder, build, load, matcher_config
from limbeck.matchers.bf16 import use_bf16
from limbeck.matchers.encoders import encoders
from limbeck.runtimes.choice import measuring_on, missing_package, require_runtime, using_runtime
from limbeck.runtimes.sample import Sample
from limbeck.runtimes.use import in_runtime, use_runtime
from tests.runtimes.conftest import FAMILIES, QUERIES, TEXTS

LENGTHS = {"query_length": 12, "document_length": 24}
FLOAT32 = ["onnx"] + (["openvino"] if missing_package("openvino") is None else [])
CALIBRATED = "openvino-int8"
can_calibrate = pytest.mark.skipif(
    missing_package(CALIBRATED) is not None, reason="needs `pip install 'limbeck[openvino]'`"
)


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    unit = [each / np.linalg.norm(each, axis=-1, keepdims=True) for each in (left, right)]
    return (unit[0] * unit[1]).sum(axis=-1)


@pytest.mark.parametrize("runtime", FLOAT32)
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_torch(family, runtime, family_folder):
    matcher = load(family_folder(family))
    documents, queries = matcher.encode_document(TEXTS), matcher.encode_query(QUERIES)
    with in_runtime(matcher, runtime):
        assert matcher.runtime == runtime
        assert np.abs(matcher.encode_document(TEXTS) - documents).max() < 1e-4
        assert np.abs(np.stack([matcher.encode_query(text) for text in QUERIES]) - queries).max() < 1e-4
        assert set(matcher.tower.single) == {"query", "document"}
    assert matcher.runtime == "torch" and not matcher.tower.single
    assert np.array_equal(matcher.encode_query(QUERIES), queries)


@pytest.mark.parametrize("family", FAMILIES)
def test_eight_bit_vectors_are_near_and_not_equal(family, family_folder):
    matcher = load(family_folder(family))
    exact = matcher.encode_document(TEXTS)
    with in_runtime(matcher, "int8"):
        found = matcher.encode_document(TEXTS)
    assert np.abs(found - exact).max() > 1e-5
    assert cosines(found, exact).min() > 0.97


@can_calibrate
@pytest.mark.parametrize("family", FAMILIES)
def test_calibrated_vectors_are_near_and_do_not_depend_on_the_batch(family, family_folder):
    matcher = load(family_folder(family))
    exact = matcher.encode_document(TEXTS)
    use_runtime(matcher, CALIBRATED, Sample(QUERIES, TEXTS, "these texts"))
    assert matcher.runtime == CALIBRATED
    found = matcher.encode_document(TEXTS)
    alone = np.concatenate([matcher.encode_document([text]) for text in TEXTS])
    assert np.abs(found - exact).max() > 1e-5
    assert cosines(found, exact).min() > 0.97
    assert cosines(found, alone).min() > 1 - 1e-5


@can_calibrate
def test_vectors_calibrated_on_other_texts_are_another_models(family_folder, tmp_path, capfd):
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    (data / "corpus.jsonl").write_text('{"_id": "a", "title": "", "text": "a cat sat on a mat"}\n')
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "cat"}\n')
    (data / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    matcher = load(family_folder(FAMILIES[0]))
    plain = matcher.identity()
    found = []
    for source in (None, data, data):
        with measuring_on(source), in_runtime(matcher, CALIBRATED):
            found.append(matcher.identity())
    assert found[1] == found[2] and found[0] != found[1] and plain not in found
    assert matcher.identity() == plain
    assert capfd.readouterr() == ("", "")  # none of nncf's bars and warnings


KINDS = {
    "cross_encoder": {},
    "cross_encoder with a cosine of segments": {"pooling": "segments"},
    "colbert": {"dim": 16},
    "dipair": {"tokens": (2, 4), "dim": 16, "head_width": 32},
    "poly_encoder": {"tokens": (4, 1)},
    "siamese": {},
    "virt": {},
    "deformer": {"split_layers": 2},
    "dual_encoder": {"untied": True, "dim": 8, "layer_norm": True, "prompts": {"query": "read "}},
}


@pytest.mark.parametrize("named", KINDS)
def test_scores_of_every_kind_are_those_of_torch(named, tiny_bert):
    torch.manual_seed(0)
    kind = named.split()[0]
    matcher = build(matcher_config(kind=kind, start=tiny_bert, **LENGTHS, **KINDS[named]))
    pairs = [(query, text) for query in QUERIES for text in TEXTS[:5]]
    exact = matcher.score(pairs)
    for runtime in FLOAT32:
        with in_runtime(matcher, runtime):
            assert matcher.runtime == runtime
            assert np.abs(matcher.score(pairs) - exact).max() < 1e-4
            assert abs(float(matcher.score(pairs[:1])[0] - exact[0])) < 1e-4
    with in_runtime(matcher, "int8"):
        rounded = matcher.score(pairs)
    assert 0 < np.abs(rounded - exact).max() < 0.2 * np.ptp(exact)
    if missing_package(CALIBRATED) is None:
        use_runtime(matcher, CALIBRATED, Sample(QUERIES, TEXTS, "these texts"))
        assert 0 < np.abs(matcher.score(pairs) - exact).mean() < 0.2 * np.ptp(exact)


def test_a_classifier_that_reads_the_pooled_output_gets_it(tiny_bert, tmp_path):
    from transformers import AutoTokenizer, BertForSequenceClassification

    torch.manual_seed(0)
    BertForSequenceClassification.from_pretrained(tiny_bert, num_labels=1).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    matcher = load(tmp_path)
    pairs = [(query, text) for query in QUERIES for text in TEXTS[:5]]
    exact = matcher.score(pairs)
    for runtime in FLOAT32:
        with in_runtime(matcher, runtime):
            assert np.abs(matcher.score(pairs) - exact).max() < 1e-4


def test_a_prompt_and_a_length_hold_for_a_single_query(tiny_bert):
    torch.manual_seed(0)
    matcher = build(
        matcher_config(start=tiny_bert, prompts={"query": "read "}, dim=8, query_length=9, document_length=24)
    )
    long = "how do i " * 20
    exact = matcher.encode_query([long, "sort"])
    with in_runtime(matcher, "onnx"):
        assert np.abs(matcher.encode_query(long) - exact[0]).max() < 1e-4
        matcher.tower.transformer("query").query_length = 5  # as `evaluate --lengths` does
        shorter = matcher.encode_query([long, "sort"])
        assert np.abs(matcher.encode_query(long) - shorter[0]).max() < 1e-4
        assert np.abs(shorter[0] - exact[0]).max() > 1e-3


def test_gradients_are_still_those_of_torch(family_folder):
    matcher = load(family_folder("bert"))
    assert isinstance(matcher, DualEncoder)
    use_runtime(matcher, "onnx")
    matcher.tower(matcher.tower.prepare(TEXTS, "query")).sum().backward()
    table = matcher.tower.token_embeddings("query")
    assert table.grad is not None and table.grad.abs().sum() > 0


def test_only_eight_bits_change_the_identity(family_folder, monkeypatch):
    matcher = load(family_folder("bert"))
    plain = matcher.identity(1)
    with in_runtime(matcher, "onnx"):
        assert matcher.identity(1) == plain
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"flags": "avx2"})
    with in_runtime(matcher, "int8"):
        assert matcher.identity(1) == {**plain, "computed": {"runtime": "int8", "bits": 7}}
    assert matcher.identity(1) == plain


def test_threads_are_those_that_torch_has_at_the_moment(family_folder):
    matcher = use_runtime(load(family_folder("bert")), "onnx")
    (encoder,) = (each for each in [matcher.tower.transformer("query").model])
    before = torch.get_num_threads()
    matcher.encode_query("sort")
    first = [session for _, session in encoder.forward._sessions.values()]
    try:
        torch.set_num_threads(before + 1)
        matcher.encode_query("sort")
        assert [threads for threads, _ in encoder.forward._sessions.values()] == [before + 1]
        assert [session for _, session in encoder.forward._sessions.values()] != first
    finally:
        torch.set_num_threads(before)


def test_loading_uses_the_runtime_that_was_asked_for(family_folder):
    with using_runtime("int8"):
        assert load(family_folder("bert")).runtime == "int8"
    with using_runtime(None):
        assert load(family_folder("bert")).runtime == "torch"


def test_what_cannot_be_is_refused_in_one_line(family_folder, monkeypatch):
    with pytest.raises(LimbeckError, match="--runtime onxx: no such runtime; did you mean 'onnx'"):
        require_runtime("onxx")
    matcher = load(family_folder("bert"))
    with pytest.raises(LimbeckError, match="cannot compute in bfloat16; leave out --bf16"):
        use_runtime(use_bf16(matcher), "onnx")
    static = build(matcher_config(start=family_folder("bert"), encoder="static", **LENGTHS))
    with pytest.raises(LimbeckError, match="this dual_encoder has no transformer to run"):
        use_runtime(static, "onnx")
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    with pytest.raises(LimbeckError, match=r"openvino is not installed; run `pip install 'limbeck\[openvino\]'`"):
        require_runtime("openvino")


def test_a_tower_whose_vectors_are_stored_stays_in_torch(tiny_bert):
    matcher = build(matcher_config(init_from=tiny_bert, layers=1, document=tiny_bert, **LENGTHS))
    texts = ["copy a file", "open"]
    queries, documents = (matcher.encode(texts, side) for side in (0, 1))
    known = dict(zip(texts, documents, strict=True))
    matcher.read_outputs_from(lambda asked, position: np.stack([known.get(text, documents[0]) for text in asked]))
    transformers = list(encoders(matcher))
    with in_runtime(matcher, "onnx"):
        assert matcher.runtime == "onnx"
        assert sum("forward" in each.__dict__ for each in transformers) == 1
        np.testing.assert_allclose(matcher.encode(texts, 0), queries, atol=1e-4)
        assert (matcher.encode(texts, 1) == documents).all()
    assert not any("forward" in each.__dict__ for each in transformers)
