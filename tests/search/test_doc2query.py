"""Sampling: each query has noise of its own, and with it the greedy choice is a draw from the k likeliest tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from limbeck.errors import LimbeckError
from limbeck.search.doc2query import NoisyTopK, QueryGenerator, Sampling
from tests.search.seq2seq import FILLERS, WORDS, tokenizer, write_t5

TEXTS = ["copy topic3 file", "topic7", "sort sort list list topic11 read write open close move"]


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> str:
    return str(write_t5(tmp_path_factory.mktemp("t5")))


def test_greedy_choices_with_noise_are_draws_from_the_softmax_over_the_k_likeliest() -> None:
    scores = torch.tensor([2.0, -1.0, 1.0, 0.5, 1.5])
    rows = 20_000
    noise = torch.from_numpy(np.random.default_rng(0).gumbel(size=(rows, 1, 3)).astype(np.float32))
    drawn = NoisyTopK(noise)(torch.zeros(rows, 1, dtype=torch.long), scores.expand(rows, -1)).argmax(dim=1)
    shares = torch.bincount(drawn, minlength=5) / rows
    weights = np.exp([2.0, 1.0, 1.5])
    expected = dict(zip([0, 2, 4], weights / weights.sum(), strict=True))
    for token, share in enumerate(shares.tolist()):
        chance = expected.get(token, 0.0)
        assert abs(share - chance) <= 4 * (chance * (1 - chance) / rows) ** 0.5


def test_queries_are_about_their_document_and_differ(t5) -> None:
    lists = QueryGenerator.load(t5).generate(["a", "b", "c"], TEXTS, Sampling(per_document=6, top_k=5))
    for topic, queries in zip((3, 7, 11), lists, strict=True):
        assert len(queries) == 6 and len(set(queries)) > 1
        assert sum(query.split()[0] == f"synonym{topic}" for query in queries) >= 4
        assert all(word in WORDS for query in queries for word in query.split())


def test_a_documents_queries_depend_only_on_seed_and_id(t5) -> None:
    generator = QueryGenerator.load(t5)
    whole = generator.generate(["a", "b", "c"], TEXTS, Sampling(top_k=8))
    for place, key in enumerate("abc"):
        assert generator.generate([key], [TEXTS[place]], Sampling(top_k=8)) == [whole[place]]
    assert generator.generate(["b", "a"], [TEXTS[1], TEXTS[0]], Sampling(top_k=8)) == [whole[1], whole[0]]
    assert generator.generate(["x"], [TEXTS[0]], Sampling(top_k=8)) != [whole[0]]
    assert generator.generate(["a"], [TEXTS[0]], Sampling(top_k=8, seed=1)) != [whole[0]]
    longer = generator.generate(["a"], [TEXTS[0]], Sampling(per_document=7, top_k=8))
    assert longer[0][:5] == whole[0]


def test_lengths_bound_what_is_read_and_written(t5) -> None:
    generator = QueryGenerator.load(t5)
    (queries,) = generator.generate(["a"], [TEXTS[0]], Sampling(max_length=1))
    assert all(len(query.split()) == 1 for query in queries)
    longer = "copy file read " + TEXTS[0]
    how = Sampling(document_length=4)  # three words and </s>
    assert generator.generate(["a"], [longer], how) == generator.generate(["a"], ["copy file read"], how)


def test_with_one_token_to_choose_from_it_writes_what_the_model_writes(t5) -> None:
    generator = QueryGenerator.load(t5)
    inputs = generator.tokenizer(TEXTS[:1], return_tensors="pt")
    ids = generator.model.generate(inputs["input_ids"], num_beams=1, do_sample=False, max_new_tokens=8)
    expected = generator.tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert generator.generate(["a"], TEXTS[:1], Sampling(per_document=1, top_k=1, max_length=8)) == [expected]


def test_a_bart_with_its_own_generation_settings_works(tmp_path) -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=len(tokenizer()), max_position_embeddings=16, **sizes, **heads, **ids)
    model = BartForConditionalGeneration(config)
    model.generation_config.update(num_beams=4, early_stopping=True, length_penalty=2.0, forced_eos_token_id=1)
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    generator = QueryGenerator.load(str(tmp_path))
    lists = generator.generate(["a", "b"], [" ".join(FILLERS * 5), "copy"], Sampling(per_document=3))
    assert [len(queries) for queries in lists] == [3, 3]
    assert all(len(query.split()) <= 15 for queries in lists for query in queries)


def test_a_model_that_is_not_seq2seq_is_refused(tiny_bert, tmp_path) -> None:
    with pytest.raises(LimbeckError, match="a bert is not a seq2seq model; give a model like T5 or BART"):
        QueryGenerator.load(tiny_bert)
    with pytest.raises(LimbeckError, match="no such folder"):
        QueryGenerator.load(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LimbeckError, match="empty: cannot be loaded as a model .no config.json."):
        QueryGenerator.load(str(tmp_path / "empty"))


def test_pickled_weights_are_not_read(tmp_path) -> None:
    model = T5ForConditionalGeneration(T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    model.config.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(LimbeckError, match="safetensors"):
        QueryGenerator.load(str(tmp_path))
