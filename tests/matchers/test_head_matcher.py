"""What all matchers with an encoder and a head do alike: batches as pairs, folders, empty texts, padding, lengths."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.base import TextBatch
from limbeck.matchers.encoding import TokenVectors
from limbeck.matchers.head_matcher import pool
from limbeck.stores.ragged import Ragged
from tests.matchers.test_folders import DOCUMENTS, PAIRS, QUERIES, disturb, same

KINDS = {
    "siamese": {"kind": "siamese"},
    "siamese, cls, linear": {"kind": "siamese", "pooling": "cls", "classifier": "linear"},
    "siamese, own encoders, three classes": {"kind": "siamese", "untied": True, "outputs": 3},
    "sentence-t5": {"kind": "sentence_t5", "outputs": 2},
    "virt": {"kind": "virt"},
    "virt, own encoders, three classes": {"kind": "virt", "untied": True, "outputs": 3},
    "virt without adapted interaction": {"kind": "virt", "adapted": False},
    "deformer": {"kind": "deformer"},
    "deformer, own encoders, three classes": {"kind": "deformer", "untied": True, "outputs": 3, "split_layers": 1},
}
EACH = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def made(start, **options):
    torch.manual_seed(0)
    lengths = {"layers": 2, "query_length": 16, "document_length": 32}
    return disturb(build(matcher_config(start=start, **{**lengths, **options})))


@EACH
def test_a_saved_model_scores_the_same_and_a_batch_as_its_pairs(tiny_bert, tmp_path, options):
    ours = made(tiny_bert, **options)
    ours.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.kind == options["kind"] and again.identity() == ours.identity()
    alone = ours.score(PAIRS)
    assert alone.shape == ((9,) if ours.outputs == 1 else (9, ours.outputs))
    assert np.ptp(alone) > 1e-3 and same(again.score(PAIRS), alone)
    for chunk in (None, 1):
        batch = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, None), chunk)).scores.detach().numpy()
        assert same(batch.reshape(alone.shape), alone)
    lists = torch.tensor([[2, 0], [1, 1], [0, 2]])
    listed = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, lists))).scores.detach().numpy()
    wanted = alone.reshape(3, 3, -1)[np.arange(3)[:, None], lists.numpy()]
    assert same(listed.reshape(wanted.shape), wanted)


@EACH
def test_the_rest_of_the_batch_does_not_change_encodings_and_scores(tiny_bert, options):
    ours = made(tiny_bert, **options)
    together = ours.score(PAIRS)
    assert same(np.concatenate([ours.score([pair]) for pair in PAIRS]).reshape(together.shape), together)


@EACH
def test_an_empty_text_gives_finite_scores_and_gradients(tiny_bert, options):
    ours = made(tiny_bert, **options)
    pairs = [("", "copy a file"), ("copy a file", ""), ("", ""), ("  ", "\n")]
    assert np.isfinite(ours.score(pairs)).all()
    scores = ours(ours.prepare(TextBatch(["", "copy"], ["", "sort a list"], None))).scores
    scores.sum().backward()
    gradients = [parameter.grad for parameter in ours.parameters() if parameter.grad is not None]
    assert torch.isfinite(scores).all() and all(torch.isfinite(gradient).all() for gradient in gradients)


@EACH
def test_gradient_caching_gives_the_same_gradients(tiny_bert, options):
    ours = made(tiny_bert, **options)
    batch = TextBatch(QUERIES, DOCUMENTS, None)
    weights = [weight for weight in ours.parameters() if weight.requires_grad]
    found = []
    for recompute in (False, True):
        scores = ours(ours.prepare(batch, 1), recompute=recompute).scores
        found.append(torch.autograd.grad((scores**2).sum(), weights, allow_unused=True))
    for one, other in zip(*found, strict=True):
        assert (one is None and other is None) or torch.allclose(one, other, atol=1e-5)
    named = [name for name, weight in ours.named_parameters() if weight.requires_grad]
    trained = {name for name, gradient in zip(named, found[0], strict=True) if gradient is not None}
    assert {name for name, _ in ours.head.named_parameters(prefix="head")} <= trained


@EACH
def test_a_store_holds_what_the_table_says(tiny_bert, options):
    ours = made(tiny_bert, **options)
    ragged = options["kind"] == "deformer" or (options["kind"] == "virt" and options.get("adapted", True))
    for position, texts in enumerate((QUERIES, DOCUMENTS)):
        kept, encoding = ours.encode(texts, position), ours.encoding(position)
        assert encoding.tokens == ("ragged" if ragged else None) and encoding.dim == 32
        assert len(ours.encode([], position)) == 0
        if not ragged:
            assert kept.shape == (3, 32)
            continue
        assert isinstance(kept, Ragged)
        features = ours._preprocess(texts, position)
        assert kept.lengths.tolist() == features["attention_mask"].sum(dim=1).tolist()
        assert same(ours.encode([texts[1]], position).vectors, list(kept)[1])


def test_a_mean_is_over_real_tokens_and_cls_is_the_first_of_them():
    states = torch.arange(1, 13, dtype=torch.float32).view(2, 3, 2)
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]]).bool()
    assert pool(states, mask, "mean").tolist() == [[2.0, 3.0], [10.0, 11.0]]
    assert pool(states, mask, "cls").tolist() == [[1.0, 2.0], [9.0, 10.0]]
    assert pool(states, torch.zeros(2, 3).bool(), "mean").tolist() == [[0.0, 0.0]] * 2


@pytest.mark.parametrize(("kind", "shared"), [("siamese", 3), ("virt", 3), ("deformer", 5)])
def test_a_text_on_both_sides_is_encoded_once_unless_sides_differ(tiny_bert, kind, shared):
    ours = made(tiny_bert, kind=kind, document_length=16)
    queries, documents = ["copy file", "sort list"], ["copy file", "open folder", "sort list"]
    prepared = ours.prepare(TextBatch(queries, documents, None))
    assert sum(len(chunk["input_ids"]) for some in prepared.texts for chunk in some.passes) == shared
    alone = ours.score([(query, document) for query in queries for document in documents])
    assert same(ours(prepared).scores.detach().numpy().reshape(-1), alone)


def test_further_texts_are_joined_to_the_second(tiny_bert):
    ours = made(tiny_bert, kind="virt")
    assert same(ours.score([("copy", "a file", "to a folder")]), ours.score([("copy", "a file to a folder")]))
    batch = ours(ours.prepare(TextBatch(["copy"], [("a file", "to a folder")], None))).scores.detach().numpy()
    assert same(batch[0], ours.score([("copy", "a file to a folder")]))


@pytest.mark.parametrize("kind", ["siamese", "sentence_t5", "virt", "deformer"])
@pytest.mark.parametrize("damage", ["a weight less", "another shape", "other arguments", "no head", "an unknown head"])
def test_a_damaged_folder_is_refused_in_one_line(tiny_bert, tmp_path, kind, damage):
    made(tiny_bert, kind=kind).save_pretrained(tmp_path / "model")
    folder = tmp_path / "model"
    (folder / MANIFEST).unlink()
    weights, facts = load_file(folder / "head.safetensors"), json.loads((folder / "limbeck.json").read_text())
    name = next(name for name in weights if name.endswith("weight"))
    if damage == "a weight less":
        save_file({key: value for key, value in weights.items() if key != name}, folder / "head.safetensors")
    elif damage == "another shape":
        save_file(weights | {name: torch.zeros(3, 3)}, folder / "head.safetensors")
    elif damage == "other arguments":
        facts["head"]["arguments"]["color"] = "red"
    elif damage == "no head":
        facts["head"] = {}
    else:
        facts["head"]["interaction"] = "telepathy"
    (folder / "limbeck.json").write_text(json.dumps(facts))
    with pytest.raises(LimbeckError) as caught:
        load(folder)
    assert "\n" not in str(caught.value) and ";" in str(caught.value)
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["siamese", "sentence_t5", "virt", "deformer"])
def test_layers_can_be_a_list_and_auto_is_refused(tiny_bert, kind):
    one, other = (made(tiny_bert, kind=kind, layers=layers).score(PAIRS) for layers in ([0, 2], [0, 1]))
    assert not np.allclose(one, other, atol=1e-4)
    with pytest.raises(ValueError, match="give the layers as a list"):
        matcher_config(kind=kind, layers="auto:2")


def test_a_process_without_documents_still_takes_part_in_the_gradient(tiny_bert):
    for kind, tokens in (("siamese", False), ("virt", True)):
        ours = made(tiny_bert, kind=kind)
        kept = ours._kept(ours._tokenised([], 1, None), 1, False)
        vectors = kept.vectors if tokens else kept
        assert isinstance(kept, TokenVectors) == tokens and len(vectors) == 0 and vectors.requires_grad
