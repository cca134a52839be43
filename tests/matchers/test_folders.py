"""Folders go both ways: what we save loads in sentence-transformers and scores the same, and theirs loads here."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as TheirCrossEncoder
from sentence_transformers import SentenceTransformer

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import CrossEncoder, DualEncoder, build, load, matcher_config
from limbeck.matchers.base import TextBatch

QUERIES = ["how do I copy a file", "sort a list in place", "open a network socket"]
DOCUMENTS = ["Copy data from src to dst. " * 9, "Sort the items of the list in place.", "Create a socket object."]
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]

DUAL = {
    "mean": {},
    "cls and layer norm": {"pooling": "cls", "layer_norm": True, "dropout": 0.1},
    "projection": {"dim": 64},
    "cosine": {"similarity": "cosine"},
    "learnt scale": {"scale": 20.0},
    "separate towers": {"separate": True, "dim": 32},
    "separate towers, learnt scale": {"separate": True, "scale": 10.0},
}
CROSS = {"cls": {"pooling": "cls", "layer_norm": True}, "mean": {}, "three outputs": {"outputs": 3}}


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal to 1e-5; a dot product of several hundred has less than that in float32, so 1e-6 of it is let through."""
    return np.allclose(left, right, atol=1e-5, rtol=1e-6)


def disturb(matcher):
    """Weights that no constructor would give, so that a part which is not saved shows."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in matcher.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    return matcher.eval()


def their_dual_scores(model: SentenceTransformer) -> np.ndarray:
    queries, documents = model.encode_query(QUERIES), model.encode_document(DOCUMENTS)
    return model.similarity(queries, documents).numpy().reshape(-1)


@pytest.mark.parametrize("options", DUAL.values(), ids=DUAL)
def test_a_saved_dual_encoder_scores_the_same_in_sentence_transformers(minilm, tmp_path, options):
    ours = disturb(build(matcher_config(start=minilm, layers=2, query_length=16, document_length=32, **options)))
    ours.save_pretrained(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"))
    assert same(their_dual_scores(theirs), ours.score(PAIRS))
    assert same(load(tmp_path / "model").score(PAIRS), ours.score(PAIRS))


@pytest.mark.parametrize("options", CROSS.values(), ids=CROSS)
def test_a_saved_cross_encoder_scores_the_same_in_sentence_transformers(minilm, tmp_path, options):
    spec = matcher_config(kind="cross_encoder", start=minilm, layers=2, query_length=16, document_length=32, **options)
    ours = disturb(build(spec))
    ours.save_pretrained(tmp_path / "model")
    theirs = TheirCrossEncoder(str(tmp_path / "model"))
    assert same(theirs.predict(PAIRS), ours.score(PAIRS))
    assert same(load(tmp_path / "model").score(PAIRS), ours.score(PAIRS))


def test_their_dual_encoder_scores_the_same_here(minilm):
    ours = load(minilm)
    assert isinstance(ours, DualEncoder)
    assert ours.similarity == "cosine"
    assert same(their_dual_scores(SentenceTransformer(minilm)), ours.score(PAIRS))


def test_a_plain_classification_folder_loads_as_a_cross_encoder_with_raw_logits(tiny_bert, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=1).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert isinstance(ours, CrossEncoder)
    theirs = TheirCrossEncoder(str(tmp_path)).predict(PAIRS, activation_fn=torch.nn.Identity())
    assert same(theirs, ours.score(PAIRS))
    assert (ours.score(PAIRS) < 0).any() or (ours.score(PAIRS) > 1).any()


def test_prompts_are_part_of_the_score_and_of_the_identity(minilm, tmp_path):
    theirs = SentenceTransformer(minilm, prompts={"query": "search: ", "document": "text: "})
    theirs.save_pretrained(str(tmp_path))
    ours, plain = load(tmp_path), load(minilm)
    assert same(their_dual_scores(theirs), ours.score(PAIRS))
    assert np.abs(ours.score(PAIRS) - plain.score(PAIRS)).max() > 1e-3
    assert ours.identity()["weights"] == plain.identity()["weights"]
    assert ours.identity() != plain.identity()


def test_first_layers_are_those_of_the_start(minilm):
    whole, part = build(matcher_config(start=minilm)), build(matcher_config(start=minilm, layers=2))
    theirs, ours = dict(whole.named_parameters()), dict(part.named_parameters())
    assert {name.split("layer.")[1][0] for name in ours if "layer." in name} == {"0", "1"}
    assert all(torch.equal(theirs[name], parameter) for name, parameter in ours.items())


def test_more_layers_than_there_are_is_refused(tiny_bert):
    with pytest.raises(LimbeckError, match="layers=4 is more than .* has; ask for at most 3"):
        build(matcher_config(start=tiny_bert, layers=4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "cross_encoder", "dim": 8}, "dim belongs to a dual_encoder"),
        ({"outputs": 2}, "outputs belongs to a cross_encoder"),
        ({"offset": -10.0}, "offset belongs to a cross_encoder"),
        ({"kind": "cross_encoder", "offset": -10.0}, "offset needs pooling: segments"),
        ({"scale": 2.0, "similarity": "cosine"}, "scale needs similarity: dot"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        matcher_config(**options)


def test_a_folder_without_a_pooler_is_the_same_model_at_every_load(tiny_bert, tmp_path):
    """The library makes the pooler up, at random, and no score has it."""
    from safetensors.torch import load_file, save_file

    build(matcher_config(start=tiny_bert, query_length=8, document_length=16)).save_pretrained(tmp_path)
    weights = {name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "pooler" not in name}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / MANIFEST).unlink()
    assert load(tmp_path).identity() == load(tmp_path).identity()


def test_identity_changes_with_weights_and_lengths_and_nothing_else(tiny_bert, tmp_path):
    spec = matcher_config(start=tiny_bert, query_length=8, document_length=16)
    matcher = build(spec)
    before = matcher.identity()
    matcher.score(PAIRS)  # tokenisers remember the padding of their last call
    assert matcher.identity() == before
    matcher.save_pretrained(tmp_path / "model")
    assert load(tmp_path / "model").identity() == before
    assert build(spec.model_copy(update={"document_length": 17})).identity() != before
    assert disturb(matcher).identity() != before
    json.dumps(before)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "a/b/c"])
def test_a_missing_folder_is_named(name):
    with pytest.raises(LimbeckError, match="no such folder"):
        load(name)


def test_a_folder_that_is_not_a_model_is_named(tmp_path):
    with pytest.raises(LimbeckError, match="cannot be loaded as a model .no config.json."):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(LimbeckError, match="tokenizer.json: no such file, nor any other vocabulary"):
        load(tmp_path)


def test_rank_orders_by_score_and_keeps_the_order_of_equals(tiny_bert):
    matcher = build(matcher_config(start=tiny_bert, query_length=8, document_length=16))
    documents = ["sort a list", "copy a file", "sort a list", "open a folder"]
    ranked = matcher.rank("copy a file", documents)
    scores = matcher.score([("copy a file", document) for document in documents])
    assert [score for _, score in ranked] == sorted(scores.tolist(), reverse=True)
    positions = [position for position, _ in ranked]
    assert positions.index(0) < positions.index(2)
    assert matcher.rank("copy a file", documents, top_k=2) == ranked[:2]
    classes = build(
        matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16, outputs=3)
    )
    with pytest.raises(LimbeckError, match="rank needs one score per pair, and this cross_encoder gives 3"):
        classes.rank("copy a file", documents)


def test_a_cross_encoder_with_separate_pooling_ranks_before_training_and_loads_again(minilm, tmp_path):
    spec = matcher_config(kind="cross_encoder", start=minilm, pooling="segments", query_length=16, document_length=48)
    ours = build(spec)
    assert [ours.rank(query, DOCUMENTS)[0][0] for query in QUERIES] == [0, 1, 2]
    disturb(ours).save_pretrained(tmp_path / "model")
    assert same(load(tmp_path / "model").score(PAIRS), ours.score(PAIRS))
    assert ours.outputs == load(tmp_path / "model").outputs == 1


def test_with_the_way_between_the_texts_closed_it_is_the_dual_encoder(minilm):
    lengths = {"start": minilm, "query_length": 8, "document_length": 24}
    joint = build(matcher_config(kind="cross_encoder", pooling="segments", **lengths))
    apart = build(matcher_config(similarity="cosine", **lengths)).score(PAIRS)
    open_way = joint.score(PAIRS)
    joint.model[0].across = -1e4
    closed = joint.score(PAIRS)
    assert np.allclose(closed / 20, apart, atol=1e-5)
    assert np.abs(open_way - closed).max() > 0.01
    mixed = joint.prepare(TextBatch(QUERIES, DOCUMENTS, None))  # in chunks of similar length, in any order
    assert np.allclose(joint(mixed).scores.detach().numpy().ravel(), closed, atol=1e-4)


def test_a_model_whose_positions_cannot_be_given_is_refused(tiny_bert, monkeypatch):
    from limbeck.matchers import segments

    monkeypatch.setattr(segments, "FAMILIES", ("electra",))
    with pytest.raises(LimbeckError, match="needs a model of electra's kind, not bert; use pooling: mean"):
        build(matcher_config(kind="cross_encoder", start=tiny_bert, pooling="segments"))


def test_separately_pooled_texts_have_the_cosine_of_their_token_means(tiny_bert):
    from limbeck.matchers.segments import SegmentPooling

    torch.manual_seed(0)
    tokens = torch.randn(2, 6, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    segment = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]])
    features = {"token_embeddings": tokens, "attention_mask": mask, "token_type_ids": segment}
    scores = SegmentPooling(20.0)(features)["scores"].detach().numpy()
    for row, (first, second) in enumerate([(slice(0, 2), slice(2, 6)), (slice(0, 1), slice(1, 4))]):
        u, v = (tokens[row, part].numpy().astype(float).mean(axis=0) for part in (first, second))
        assert scores[row, 0] == pytest.approx(20 * u @ v / np.linalg.norm(u) / np.linalg.norm(v), rel=1e-5)
    assert np.allclose(SegmentPooling(20.0, -10)(features)["scores"].detach().numpy(), scores - 10)


def test_an_offset_is_learnt_and_loads_again(tiny_bert, tmp_path):
    spec = {"kind": "cross_encoder", "start": tiny_bert, "pooling": "segments", "document_length": 24}
    plain, ours = build(matcher_config(**spec)), build(matcher_config(**spec, offset=-10))
    assert np.allclose(ours.score(PAIRS), plain.score(PAIRS) - 10, atol=1e-5)
    ours.train()(ours.prepare(TextBatch(QUERIES, DOCUMENTS, None))).scores.sum().backward()
    assert ours.model[1].offset.grad.item() == len(QUERIES) * len(DOCUMENTS)
    with torch.no_grad():
        ours.model[1].offset.fill_(-7.5)
    ours.eval().save_pretrained(tmp_path / "model")
    assert np.allclose(load(tmp_path / "model").score(PAIRS), plain.score(PAIRS) - 7.5, atol=1e-5)


def test_a_folder_without_an_offset_is_as_it_was_before_there_were_offsets(tiny_bert, tmp_path):
    ours = build(matcher_config(kind="cross_encoder", start=tiny_bert, pooling="segments", document_length=24))
    assert ours.configuration()["modules"][1] == "SegmentPooling({'scale_start': 20.0})"  # key of score stores
    ours.save_pretrained(tmp_path / "model")
    (config,) = tmp_path.glob("model/1_*/config.json")
    assert json.loads(config.read_text()) == {"scale_start": 20.0}
    again = load(tmp_path / "model")
    assert same(again.score(PAIRS), ours.score(PAIRS)) and again.identity() == ours.identity()


def normed(vectors: np.ndarray, norm) -> np.ndarray:
    """Layer norm by hand."""
    centred = vectors - vectors.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * norm.weight.detach().numpy() + norm.bias.detach().numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_layer_norm_is_on_the_pooled_output(tiny_bert, pooling):
    lengths = {"start": tiny_bert, "query_length": 16, "document_length": 32, "pooling": pooling}
    plain, ours = build(matcher_config(**lengths)), build(matcher_config(**lengths, layer_norm=True))
    norm = next(module for module in ours.modules() if type(module).__module__.endswith("layer_norm")).norm
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 32)), norm.bias.copy_(torch.linspace(-1, 1, 32))
    wanted = normed(plain.encode_document(DOCUMENTS).astype(np.float64), norm)
    assert np.allclose(ours.encode_document(DOCUMENTS), wanted, atol=1e-4)
    batch = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, None))).scores.detach().numpy()
    assert np.allclose(batch, normed(plain.encode_query(QUERIES), norm) @ wanted.T, atol=1e-2)


def test_a_cross_encoders_head_reads_the_norm_of_the_pooled_output(tiny_bert):
    spec = matcher_config(kind="cross_encoder", start=tiny_bert, query_length=16, document_length=32, layer_norm=True)
    ours = disturb(build(spec))
    features = ours.model.preprocess(PAIRS[:2])
    with torch.no_grad():
        states = ours.model[0](dict(features))["token_embeddings"].double().numpy()
    mask = features["attention_mask"].unsqueeze(-1).numpy()
    pooled = (states * mask).sum(axis=1) / mask.sum(axis=1)
    norm = next(module for module in ours.model if type(module).__name__ == "LayerNorm").norm
    head = ours.model[-1].linear
    wanted = normed(pooled, norm) @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    assert np.allclose(ours.score(PAIRS[:2]), wanted[:, 0], atol=1e-4)
