"""A tower without a transformer: the average of token vectors, alone and as the query side of a router."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import DualEncoder, build, load, matcher_config
from limbeck.matchers.base import TextBatch
from limbeck.matchers.lengths import shorten
from limbeck.objectives import parse
from limbeck.recipe.stage import Stage
from limbeck.training.corruption import Draws, drop_tokens
from limbeck.training.stages import Fit, fit, frozen
from tests.matchers.test_folders import DOCUMENTS, PAIRS, QUERIES, disturb, same, their_dual_scores
from tests.training.toy import ToyLists, gradients, weights

ODD = ["", " ", "\u4e00\u4e01 \u2603", "copy " * 50, "how do i copy a file", "[CLS]"]
KINDS = {
    "one table": {},
    "cosine": {"similarity": "cosine"},
    "two tables": {"untied": True},
    "learnt scale": {"scale": 20.0},
    "dropout, norm, fewer dimensions": {"dropout": 0.1, "layer_norm": True, "dim": 8},
    "prompts": {"prompts": {"query": "how to: ", "document": "text: "}},
}


def static(start: str, **options) -> DualEncoder:
    torch.manual_seed(0)
    lengths = {"query_length": 8, "document_length": 16}
    matcher = build(matcher_config(start=start, encoder="static", **(lengths | options)))
    assert isinstance(matcher, DualEncoder)
    return matcher


def routed(start: str) -> SentenceTransformer:
    """Their model: a static query side, a transformer for documents."""
    transformer = Transformer(start, max_seq_length=16)
    tokenizer = Tokenizer.from_str(transformer.tokenizer.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    query = [StaticEmbedding(tokenizer, embedding_dim=32), Normalize()]
    document = [transformer, Pooling(32), Normalize()]
    return SentenceTransformer(modules=[Router.for_query_document(query, document)], device="cpu")


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_saved_static_encoder_scores_the_same_in_sentence_transformers(tiny_bert, tmp_path, options):
    ours = disturb(static(tiny_bert, **options))
    ours.save_pretrained(tmp_path / "model")
    theirs, again = SentenceTransformer(str(tmp_path / "model"), device="cpu"), load(tmp_path / "model")
    assert same(their_dual_scores(theirs), ours.score(PAIRS)) and same(again.score(PAIRS), ours.score(PAIRS))
    assert again.identity() == ours.identity()
    for encode, texts in ((again.encode_query, theirs.encode_query), (again.encode_document, theirs.encode_document)):
        assert np.allclose(encode(ODD), texts(ODD), atol=1e-6)


def test_their_router_with_a_static_query_side_loads_here(tiny_bert, tmp_path):
    theirs = routed(tiny_bert)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    ours = load(tmp_path / "theirs")
    assert np.allclose(ours.encode_query(ODD), theirs.encode_query(ODD), atol=1e-6)
    assert np.allclose(ours.encode_document(DOCUMENTS), theirs.encode_document(DOCUMENTS), atol=1e-5)
    assert same(ours.score(PAIRS), their_dual_scores(theirs)) and ours.scores_are_cosines
    ours.save_pretrained(tmp_path / "ours")
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert same(their_dual_scores(again), ours.score(PAIRS))


def test_training_and_inference_give_the_same_vectors(tiny_bert):
    matcher = static(tiny_bert)
    batch = matcher.prepare(TextBatch(ODD, QUERIES, None), chunk=2)
    signals = matcher.eval()(batch, frozenset({"queries", "documents"}))
    assert np.allclose(signals.queries.detach(), matcher.encode_query(ODD), atol=1e-6)
    assert np.allclose(signals.documents.detach(), matcher.encode_document(QUERIES), atol=1e-6)


def test_one_text_is_encoded_as_among_many_and_as_by_hand(tiny_bert):
    matcher = static(tiny_bert, prompts={"query": "the "})
    many = matcher.encode_query(ODD)
    assert np.allclose([matcher.encode_query(text) for text in ODD], many, atol=1e-6)
    vocabulary = (Path(tiny_bert) / "vocab.txt").read_text().split()
    rows = matcher.tower.token_embeddings("query").detach().numpy()
    total = sum(rows[vocabulary.index(word)] for word in "the how do i copy a file".split())
    assert np.allclose(many[4], total / np.linalg.norm(total), atol=1e-6)


def test_a_text_without_tokens_is_zero_and_unknown_ones_are_those_of_unk(tiny_bert):
    matcher = static(tiny_bert)
    vectors = matcher.encode_query(ODD)
    assert not vectors[:2].any() and np.isfinite(vectors).all()
    rows = matcher.tower.token_embeddings("query").detach().numpy()
    assert np.allclose(vectors[2], rows[1] / np.linalg.norm(rows[1]), atol=1e-6)
    assert np.isfinite(matcher.score([("", ""), ("copy", "")])).all()


def test_it_reads_as_many_words_as_a_transformer_of_the_same_length(tiny_bert):
    words = "copy move open close read write file folder list sort number text return object value error".split()
    matcher = static(tiny_bert, query_length=6, document_length=6)
    assert np.allclose(matcher.encode_query(" ".join(words)), matcher.encode_query(" ".join(words[:4])), atol=1e-6)
    two = static(tiny_bert, query_length=6, document_length=8, untied=True)
    for shorter, lengths in ((two, (4, 6)), (matcher, (4, 4))):
        before = shorter.identity()
        shorten(shorter, *lengths)
        for encode, length in zip((shorter.encode_query, shorter.encode_document), lengths, strict=True):
            read = " ".join(words[: length - 2])
            assert np.allclose(encode(" ".join(words)), encode(read), atol=1e-6)
        assert shorter.identity() != before
    two.limit_tokens(3)
    assert np.allclose(two.encode_document("copy move"), two.encode_document("copy"), atol=1e-6)
    tokenizer, room = matcher.tower.words("document")
    assert room == 2 and tokenizer.tokenize("copy files") == ["copy", "file", "##s"]


def test_the_identity_changes_with_the_weights(tiny_bert):
    matcher = static(tiny_bert)
    before = matcher.identity()
    with torch.no_grad():
        matcher.tower.token_embeddings("query")[7, 3] += 1e-3
    assert matcher.identity()["weights"] != before["weights"]


def test_gradients_reach_the_tokens_of_the_batch_and_no_others(tiny_bert):
    matcher = static(tiny_bert)
    assert gradients(matcher, parse("softmax_ce")[1], in_batch=True, chunk=3, recompute=True).abs().sum() > 0
    used = set()
    lists = ToyLists()
    rows = {row for index in range(6) for row in lists.pick(index, 0)}
    for text in [*lists.queries[:6], *(lists.documents[row] for row in rows)]:
        used |= set(matcher.tower.transformer("query").tokenizer.encode(text, add_special_tokens=False).ids)
    touched = matcher.tower.token_embeddings("query").grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert set(touched) <= used and len(touched) > len(used) // 2


def test_a_stage_trains_it(tiny_bert, tmp_path):
    stage = Stage(objectives=["softmax_ce(tau=2)"], steps=6, batch_size=6, lr=1e-2, token_dropout=0.2)
    matcher = static(tiny_bert)
    before = weights(matcher)
    fit(matcher, [stage], lambda _: ToyLists(), Fit("student", tmp_path, tmp_path / "log.jsonl", seed=3))
    assert not torch.equal(weights(matcher), before) and torch.isfinite(weights(matcher)).all()


def test_dropped_tokens_are_taken_out(tiny_bert):
    matcher = static(tiny_bert)
    batch = matcher.prepare(TextBatch(["copy a file", "", "sort"], ["read the line"], None))
    drop_tokens(batch, 0.999999, Draws(0, [(0, 0)]))
    assert torch.allclose(matcher.tower(batch.queries), torch.tensor(matcher.encode_query(["copy", "", "sort"])))
    assert torch.allclose(matcher.tower(batch.documents), torch.tensor(matcher.encode_document(["read"])))


def test_its_table_can_be_frozen_by_alias(tiny_bert):
    matcher = static(tiny_bert, scale=5.0)
    for alias in ("encoder", "token_embeddings"):
        with frozen(matcher, [alias]):
            assert not matcher.tower.token_embeddings("query").requires_grad
            assert any(parameter.requires_grad for parameter in matcher.parameters())
    with pytest.raises(LimbeckError, match="no parameter is left to train"), frozen(static(tiny_bert), ["encoder"]):
        pass


def test_a_static_model_is_a_start_for_another_and_keeps_what_it_learnt(tiny_bert, tmp_path):
    first = disturb(static(tiny_bert, scale=4.0))
    first.save_pretrained(tmp_path / "first")
    assert same(static(str(tmp_path / "first"), scale=4.0).score(PAIRS), first.score(PAIRS))
    other = {"cross_encoder": {"kind": "cross_encoder"}, "dual": {"encoder": "transformer"}}
    for options in other.values():
        with pytest.raises(LimbeckError, match=r"has no transformer; set encoder: static"):
            build(matcher_config(start=str(tmp_path / "first"), **options))
    with pytest.raises(LimbeckError, match="has learnt other modules for 32 dimensions, not 8"):
        static(str(tmp_path / "first"), dim=8)


def test_a_dense_layer_of_theirs_stays_before_the_normalisation(tiny_bert, tmp_path):
    part = static(tiny_bert).tower.transformer("query")
    theirs = SentenceTransformer(modules=[part, Dense(32, 8), Normalize()], device="cpu")
    theirs.save_pretrained(str(tmp_path / "dense"))
    for ours in (load(tmp_path / "dense"), static(str(tmp_path / "dense"))):
        assert np.allclose(ours.encode_query(ODD), theirs.encode_query(ODD), atol=1e-6)


@pytest.mark.parametrize("option", [{"layers": 2}, {"inner_dropout": 0.0}, {"pooling": "cls"}])
def test_options_of_a_transformer_are_refused(tiny_bert, option):
    with pytest.raises(ValidationError, match=f"{next(iter(option))} does not go with encoder: static"):
        matcher_config(start=tiny_bert, encoder="static", **option)


def test_masked_tokens_cannot_be_restored(tiny_bert):
    with pytest.raises(LimbeckError, match="masked_lm: a static encoder"):
        static(tiny_bert).add_token_head(0)


def fewer_rows(folder: Path) -> None:
    table = load_file(folder / "model.safetensors")
    save_file({"embedding.weight": table["embedding.weight"][:20].contiguous()}, folder / "model.safetensors")


def many_rows(folder: Path) -> None:
    save_file({"embedding.weight": torch.zeros(999, 32)}, folder / "model.safetensors")


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def other_class(folder: Path) -> None:
    entries = json.loads((folder / "modules.json").read_text())
    entries[0]["type"] = entries[0]["type"].replace("StaticEmbedding", "SparseStaticEmbedding")
    (folder / "modules.json").write_text(json.dumps(entries))


BROKEN = {
    "token ids beyond the table": (fewer_rows, "embeddings for 20"),
    "a table of another tokenizer": (many_rows, "embeddings for 999"),
    "pickled weights": (pickled, "is a pickle"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no such file"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no such file"),
    "a broken tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{]"), "is not valid JSON"),
    "an empty tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be loaded"),
    "other weights": (lambda folder: save_file({"x": torch.zeros(2, 2)}, folder / "model.safetensors"), "cannot be"),
    "another class": (other_class, "which limbeck does not know"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_damaged_folder_is_refused_in_one_line(tiny_bert, tmp_path, change, message):
    static(tiny_bert).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / MANIFEST).unlink()
    change(tmp_path / "model")
    for use in (load, lambda start: static(str(start))):
        with pytest.raises(LimbeckError, match=message) as caught:
            use(tmp_path / "model")
        assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
