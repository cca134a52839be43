"""Pairs joined from tokens of texts are exactly those of the library, for every family of tokenizers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from limbeck.matchers import build, matcher_config
from limbeck.matchers.chunks import prepare_chunks
from limbeck.matchers.joined_pairs import cut_longest_first, joined_pairs
from limbeck.matchers.lengths import shorten

WORDS = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "a", "b", "c", "d", "file", "list", "sort"]
TEXTS = ["", "a", "sort a list", "file b c d " * 3, "a </s> b", " d  ", "list " * 30, "c " * 31, "what"]
FAMILIES = {  # how each family joins a pair, and whether its models read types of tokens
    "bert": (("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"), True),
    "roberta": (("<s> $A </s>", "<s> $A </s> </s> $B </s>"), False),
    "mpnet": (("<s> $A </s>", "<s> $A </s> </s> $B </s>"), True),
    "modernbert": (("<s> $A </s>", "<s> $A </s> $B </s>"), False),
}


def tokenizer_of(family: str, longest: int, **given: str) -> PreTrainedTokenizerFast:
    (single, pair), typed = FAMILIES[family]
    vocabulary = {word: at for at, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = [("<s>", 0), ("</s>", 1)]
    backend.post_processor = (
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
        if family == "roberta"
        else processors.TemplateProcessing(single=single, pair=pair, special_tokens=marks)
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>"}
    inputs = ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        model_input_names=inputs,
        model_max_length=longest,
        **names,
        **given,
    )


def library(tokenizer: PreTrainedTokenizerFast, longest: int) -> Callable:
    def preprocess(pairs):
        left, right = zip(*pairs, strict=True)
        told = {"padding": True, "truncation": "longest_first", "max_length": longest, "return_tensors": "pt"}
        return {**tokenizer(list(left), list(right), **told), "modality": "text"}

    return preprocess


def same(mine, theirs) -> bool:
    assert torch.equal(mine.restore, theirs.restore) and len(mine.passes) == len(theirs.passes)
    for one, other in zip(mine.passes, theirs.passes, strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert torch.equal(one[name], value) if isinstance(value, torch.Tensor) else one[name] == value
    return True


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("longest", [9, 16, 33])
@pytest.mark.parametrize("family", FAMILIES)
def test_passes_are_those_of_the_library(family, longest, side):
    tokenizer = tokenizer_of(family, longest, truncation_side=side)
    preprocess = library(tokenizer, longest)
    found = joined_pairs(tokenizer, longest, preprocess)
    assert found is not None
    pairs = [(left, right) for left in TEXTS for right in TEXTS]
    assert same(found.chunks(pairs, 200), prepare_chunks(pairs, preprocess, budget=200))


def test_the_longer_text_is_cut_first_by_hand():
    """10 tokens of room: 3 + 9 -> 3 + 7; 9 + 3 -> 7 + 3; 8 + 9 -> 5 + 5. 11: 8 + 9 -> 5 + 6, 9 + 8 -> 6 + 5."""
    first, second = np.array([3, 9, 8, 2]), np.array([9, 3, 9, 2])
    assert cut_longest_first(first, second, 10).tolist() == [[3, 7], [7, 3], [5, 5], [2, 2]]
    assert cut_longest_first(np.array([8, 9, 40]), np.array([9, 8, 41]), 11).tolist() == [[5, 6], [6, 5], [5, 6]]


def test_what_is_joined_another_way_keeps_its_own():
    tokenizer = tokenizer_of("bert", 16)
    plain = library(tokenizer, 16)
    assert joined_pairs(tokenizer, 15, plain) is None  # another length than the library cuts at
    assert joined_pairs(tokenizer, None, plain) is None
    assert joined_pairs(tokenizer, 16, lambda pairs: plain([("a " + first, second) for first, second in pairs])) is None
    assert joined_pairs(tokenizer, 16, lambda pairs: plain([(second, first) for first, second in pairs])) is None
    more = lambda pairs: {**plain(pairs), "position_ids": plain(pairs)["input_ids"]}  # noqa: E731
    assert joined_pairs(tokenizer, 16, more) is None
    left = tokenizer_of("bert", 16, padding_side="left")
    assert joined_pairs(left, 16, library(left, 16)) is None


@pytest.mark.parametrize("pooling", ["mean", "segments"])
def test_scores_are_the_same_as_without(pooling, tiny_bert, monkeypatch):
    """Pairs of segments are cut apart, so they are not joined here; `shorten` changes the length of the others."""
    torch.manual_seed(0)
    lengths = {"query_length": 12, "document_length": 24}
    matcher = build(matcher_config(kind="cross_encoder", start=tiny_bert, pooling=pooling, **lengths))
    texts = ["copy a file", "how do i sort a list " * 9, "", "read [SEP] write", "the new page is a line of text"]
    pairs = [(first, second) for first in texts for second in texts]
    for _ in range(2):
        found = matcher.score(pairs)
        assert (matcher._shared() is not None) == (pooling == "mean")
        with monkeypatch.context() as patch:
            patch.setattr(type(matcher), "_shared", lambda self: None)
            assert np.array_equal(matcher.score(pairs), found)
        shorten(matcher, 6, 9)


def test_a_text_is_tokenised_once(tiny_bert, monkeypatch):
    matcher = build(matcher_config(kind="cross_encoder", start=tiny_bert, query_length=12, document_length=24))
    shared = matcher._shared()
    seen, real = [], shared._tokenizer

    class Watching:
        def encode_batch(self, texts, **told):
            seen.extend(texts)
            return real.encode_batch(texts, **told)

    shared._tokenizer = Watching()
    shared._known.clear()
    matcher.score([("copy", "read"), ("copy", "sort"), ("sort", "read")])
    matcher.score([("copy", "read"), ("sort", "line")])
    assert sorted(seen) == ["copy", "line", "read", "sort"]
