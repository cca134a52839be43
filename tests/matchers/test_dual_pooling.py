"""Dual pooling against loops over the transformer's last hidden states, and folders that load again or are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoTokenizer, BertTokenizerFast, DistilBertConfig, DistilBertModel

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME
from limbeck.matchers import TextBatch, build, load, matcher_config
from limbeck.matchers.dual_pooling import Boundaries, DualPooling
from limbeck.training.corruption import Draws, drop_tokens

QUERIES = ["copy a file", "sort", "open the folder and read a line of text"]
DOCUMENTS = ["copy", "sort the list of numbers in place and return a new list", "file folder " * 20, "read a page"]
LISTS = torch.tensor([[0, 2, 1], [1, 3, 0], [3, 2, 1]])
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]
PROXIES = frozenset({"query_proxies", "document_proxies"})
LENGTHS = {"query_length": 8, "document_length": 20}


def cross_encoder(start: str, pooling: str, **options: object):
    torch.manual_seed(0)
    return build(matcher_config(kind="cross_encoder", start=start, pooling=pooling, **LENGTHS, **options)).eval()


def by_hand(start: str, pooling: str, query: str, document: str) -> tuple[np.ndarray, np.ndarray]:
    """The proxies of one pair, token by token, from a pass of transformers' own over that pair alone."""
    tokenizer, model = AutoTokenizer.from_pretrained(start), AutoModel.from_pretrained(start).eval()
    inputs = tokenizer(query, document, truncation=True, max_length=28, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state[0].double().numpy()
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    first, last = tokens.index("[SEP]"), len(tokens) - 1
    assert tokens[0] == "[CLS]" and tokens[last] == "[SEP]" and tokens.count("[SEP]") == 2
    if pooling == "special":
        return states[0], states[last]
    query_sum, document_sum = np.zeros(states.shape[1]), np.zeros(states.shape[1])
    for place, state in enumerate(states):
        if 0 < place < first:
            query_sum += state / np.sqrt(first - 1)
        elif first < place < last:
            document_sum += state / np.sqrt(last - first - 1)
    return query_sum, document_sum


@pytest.fixture(scope="module")
def tiny_distilbert(tiny_bert, tmp_path_factory) -> str:
    """A model without token types, whose tokenizer gives none."""
    folder = tmp_path_factory.mktemp("tiny-distilbert")
    tokenizer = BertTokenizerFast.from_pretrained(tiny_bert, model_input_names=["input_ids", "attention_mask"])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=64
    )
    DistilBertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("pooling", ["special", "weighted"])
@pytest.mark.parametrize("model", ["tiny_bert", "tiny_distilbert"])
@pytest.mark.parametrize("chunk", [None, 2])
def test_proxies_depend_only_on_their_pair(request, model, pooling, chunk):
    """Padding, chunks and lists change nothing; the long document is cut by the tokenizer."""
    start = request.getfixturevalue(model)
    ours = cross_encoder(start, pooling)
    with torch.no_grad():
        shown = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), chunk), PROXIES | {"scores"})
    assert shown.query_proxies.shape == shown.document_proxies.shape == (3, 3, 32)
    for row, query in enumerate(QUERIES):
        for place, column in enumerate(LISTS[row].tolist()):
            proxies = by_hand(start, pooling, query, DOCUMENTS[column])
            np.testing.assert_allclose(shown.query_proxies[row, place], proxies[0], atol=1e-4)
            np.testing.assert_allclose(shown.document_proxies[row, place], proxies[1], atol=1e-4)
            assert float(shown.scores[row, place]) == pytest.approx(proxies[0] @ proxies[1], abs=1e-3)
            assert ours.score([(query, DOCUMENTS[column])])[0] == pytest.approx(proxies[0] @ proxies[1], abs=1e-3)


@pytest.mark.parametrize("pooling", ["special", "weighted"])
def test_special_tokens_of_texts_read_together_are_in_no_sum(tiny_bert, pooling):
    """[CLS] query [SEP] [CLS] document [SEP], by `across`."""
    ours = cross_encoder(tiny_bert, pooling, across=-4.0)
    features = ours.model.preprocess(PAIRS[:6])
    with torch.no_grad():
        made = ours.model(dict(features))
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    for row, ids in enumerate(features["input_ids"]):
        real = int(features["attention_mask"][row].sum())
        tokens, states = tokenizer.convert_ids_to_tokens(ids[:real]), made["token_embeddings"][row].double().numpy()
        middle = tokens.index("[SEP]")
        assert tokens[middle + 1] == "[CLS]"
        if pooling == "special":
            wanted = states[0], states[real - 1]
        else:
            parts = states[1:middle], states[middle + 2 : real - 1]
            wanted = tuple(part.sum(axis=0) / len(part) ** 0.5 for part in parts)
        np.testing.assert_allclose(made["query_proxies"][row], wanted[0], atol=1e-4)
        np.testing.assert_allclose(made["document_proxies"][row], wanted[1], atol=1e-4)


def test_segments_show_proxies_whose_inner_product_is_the_score(tiny_bert):
    ours = cross_encoder(tiny_bert, "segments", offset=-3.0)
    with torch.no_grad():
        shown = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS)), PROXIES | {"scores"})
    products = (shown.query_proxies * shown.document_proxies).sum(-1) - 3
    torch.testing.assert_close(products, shown.scores, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(shown.query_proxies.norm(dim=-1), torch.full((3, 3), 20**0.5))


def test_gradients_of_the_score_are_the_other_proxy(tiny_bert):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    inputs = tokenizer(["copy a file"], ["sort the list now"], return_tensors="pt")  # 1 + 3 + 1 + 4 + 3 pieces + 1
    torch.manual_seed(0)
    states = torch.randn(1, inputs["input_ids"].shape[1], 5, requires_grad=True)
    first, last = 4, inputs["input_ids"].shape[1] - 1
    for pooling in ("special", "weighted"):
        pool = DualPooling(pooling, Boundaries.of(tokenizer, pooling, tiny_bert))
        made = pool({**inputs, "token_embeddings": states})
        (gradient,) = torch.autograd.grad(made["scores"].sum(), states)
        query, document = made["query_proxies"][0].detach(), made["document_proxies"][0].detach()
        wanted = torch.zeros_like(states[0])
        if pooling == "special":
            wanted[0], wanted[last] = document, query
        else:
            wanted[1:first] = document / 3**0.5
            wanted[first + 1 : last] = query / (last - first - 1) ** 0.5
        torch.testing.assert_close(gradient[0], wanted)


def test_a_text_without_tokens_has_a_proxy_of_zeros(tiny_bert):
    ours = cross_encoder(tiny_bert, "weighted")
    assert ours.score([("", "copy a file"), ("copy", "")]).tolist() == [0.0, 0.0]


def test_a_separator_that_is_hidden_in_training_is_still_the_one_that_is_pooled(tiny_bert):
    ours = cross_encoder(tiny_bert, "special")
    inputs = ours.prepare(TextBatch(["copy a file"], ["sort the list"], None))
    drop_tokens(inputs, 0.999, Draws(0, [(0, 0)]))
    (features,) = inputs.pairs.passes
    assert features["attention_mask"].sum() < 4  # the separator is hidden from the others
    with torch.no_grad():
        made = ours.model(dict(features))
    assert torch.equal(made["document_proxies"][0], made["token_embeddings"][0, -1])
    assert torch.equal(made["query_proxies"][0], made["token_embeddings"][0, 0])


@pytest.mark.parametrize("options", [{}, {"across": -2.5}])
@pytest.mark.parametrize("pooling", ["special", "weighted"])
def test_a_folder_loads_again_with_the_same_scores(tiny_bert, tmp_path, pooling, options):
    ours = cross_encoder(tiny_bert, pooling, **options)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    ours.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.score(PAIRS), ours.score(PAIRS), atol=1e-5)
    assert again.identity() == ours.identity() and again.shows == ours.shows >= PROXIES
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]
    on = build(
        matcher_config(kind="cross_encoder", start=str(tmp_path / "model"), pooling=pooling, **LENGTHS, **options)
    )
    np.testing.assert_allclose(on.eval().score(PAIRS), ours.score(PAIRS), atol=1e-5)


def test_poolings_and_across_are_part_of_who_a_model_is(tiny_bert):
    models = [
        cross_encoder(tiny_bert, pooling, **options)
        for pooling in ("special", "weighted")
        for options in ({}, {"across": -1.0}, {"across": -2.0})
    ]
    told = [json.dumps(model.configuration(), sort_keys=True) for model in models]
    assert len(set(told)) == 6
    assert not np.allclose(models[1].score(PAIRS), models[2].score(PAIRS))


def test_an_unknown_pooling_is_refused_with_its_file(tiny_bert, tmp_path):
    cross_encoder(tiny_bert, "weighted").save_pretrained(tmp_path / "model")
    (place,) = tmp_path.glob("model/1_DualPooling/config.json")
    place.write_text(json.dumps({"pooling": "everything"}))
    (tmp_path / "model" / NAME).unlink()
    with pytest.raises(LimbeckError) as caught:
        load(tmp_path / "model")
    assert "has a pooling 'everything' that is neither special nor weighted" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "pooling", "problem"),
    [
        ("[CLS] $A $B", "weighted", "puts no token such as [SEP] behind each text"),
        ("[CLS] $A $B [SEP]", "weighted", "puts no token such as [SEP] behind each text"),
        ("[CLS] $A $B", "special", "puts no token such as [SEP] behind each text"),
        ("$A [SEP] $B [SEP]", "special", "puts no token such as [CLS] before the first text"),
    ],
)
def test_a_tokenizer_without_such_tokens_is_named(tiny_bert, template, pooling, problem):
    tokenizer = BertTokenizerFast.from_pretrained(tiny_bert)
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", pair=template, special_tokens=special)
    with pytest.raises(LimbeckError) as caught:
        Boundaries.of(tokenizer, pooling, "a-model")
    assert str(caught.value).startswith(f"pooling: {pooling}: the tokenizer of a-model {problem}; use pooling: mean")


def test_weighted_needs_no_token_before_the_first_text(tiny_bert):
    tokenizer = BertTokenizerFast.from_pretrained(tiny_bert)
    special = [("[SEP]", tokenizer.convert_tokens_to_ids("[SEP]"))]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A", pair="$A [SEP] $B [SEP]", special_tokens=special
    )
    assert Boundaries.of(tokenizer, "weighted", "a-model").start is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "special", "outputs": 3}, "pooling: special has one output and no head"),
        ({"pooling": "weighted", "dropout": 0.1}, "pooling: weighted has one output and no head"),
        ({"pooling": "weighted", "offset": -1.0}, "offset needs pooling: segments"),
        ({"pooling": "cls", "across": -4.0}, "across needs pooling: segments, special, weighted"),
        ({"pooling": "weighted", "across": 1.0}, "less than or equal to 0"),
        ({"pooling": "sep"}, "Input should be 'mean', 'cls', 'segments', 'special' or 'weighted'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tiny_bert, options, message):
    with pytest.raises(ValueError, match=message):
        matcher_config(kind="cross_encoder", start=tiny_bert, **options)


def test_what_a_cross_encoder_shows_depends_on_its_pooling(tiny_bert):
    for pooling in ("mean", "cls", "segments", "special", "weighted"):
        ours = cross_encoder(tiny_bert, pooling)
        config = matcher_config(kind="cross_encoder", start=tiny_bert, pooling=pooling)
        assert ours.shows == config.shows and ours.embedding_dim == 32
        assert (ours.shows >= PROXIES) == (pooling not in ("mean", "cls"))
        assert ("pair_embeddings" in ours.shows) == (pooling in ("mean", "cls"))


def test_the_embedding_of_a_pair_is_what_the_head_reads(tiny_bert):
    ours = cross_encoder(tiny_bert, "cls", layer_norm=True)
    with torch.no_grad():
        shown = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), 2), frozenset({"pair_embeddings", "scores"}))
        head = ours.model[-1].linear
        torch.testing.assert_close(head(shown.pair_embeddings).squeeze(-1), shown.scores, atol=1e-5, rtol=1e-4)
    assert shown.query_proxies is None and shown.pair_embeddings.shape == (3, 3, 32)
