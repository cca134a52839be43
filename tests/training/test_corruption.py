"""What is hidden from a student: how much, which tokens, and that it depends on nothing but the seed and the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.matchers import build, matcher_config
from limbeck.matchers.chunks import texts_of_chunks
from limbeck.training.batches import Collator
from tests.training.toy import ToyLists, tiny_student

EXAMPLES = [(2, index) for index in range(9)]


def rows_of(part: dict, name: str) -> list[list[int]]:
    """A field of the prepared texts, text by text, without padding."""
    found = {}
    for chunk, texts in zip(part.passes, texts_of_chunks(part), strict=True):
        for row, text in enumerate(texts):
            found[text] = chunk[name][row, chunk["input_ids"][row] != 0].tolist()  # [PAD] is 0
    return [found[text] for text in range(len(found))]


def parts_of(batch: dict) -> list[dict]:
    student = batch.student
    return [part for part, _ in student.tokenised]


def hidden(collator: Collator, examples: list[tuple[int, int]] = EXAMPLES) -> list[list[list[int]]]:
    return [rows_of(part, "attention_mask") for part in parts_of(collator(examples))]


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder"])
def test_token_dropout_hides_so_many_tokens_and_never_the_first(tiny_bert, kind):
    plain = Collator(ToyLists(), tiny_student(tiny_bert, kind))
    dropping = Collator(ToyLists(), tiny_student(tiny_bert, kind), token_dropout=0.3)
    kept = []
    for epoch in range(8):
        examples = [(epoch, index) for index in range(24)]
        whole, cut = parts_of(plain(examples)), parts_of(dropping(examples))
        for before, after in zip(whole, cut, strict=True):
            for one, two in zip(before.passes, after.passes, strict=True):
                assert torch.equal(one["input_ids"], two["input_ids"])
                assert (two["attention_mask"] <= one["attention_mask"]).all()
                text, real = one["token_type_ids"], one["attention_mask"] == 1
                first = torch.nn.functional.pad(text[:, 1:] != text[:, :-1], (1, 0), value=True)
                assert two["attention_mask"][first & real].all()
                kept.append(two["attention_mask"][~first & real])
    assert torch.cat(kept).float().mean().item() == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize("pooling", ["mean", "segments"])
def test_a_text_is_never_dropped_altogether(tiny_bert, pooling):
    student = tiny_student(tiny_bert, "cross_encoder", pooling=pooling)
    batch = Collator(ToyLists(), student, token_dropout=0.999)(EXAMPLES)
    for chunk in batch.student.pairs.passes:
        seen, second = chunk["attention_mask"] == 1, chunk["token_type_ids"] == 1
        assert (seen & second).any(dim=1).all() and (seen & ~second).any(dim=1).all()
    assert torch.isfinite(student(batch.student).scores).all()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("dual_encoder", {"pooling": "mean"}),
        ("dual_encoder", {"pooling": "cls"}),
        ("dual_encoder", {"separate": True}),
        ("cross_encoder", {"pooling": "mean"}),
        ("cross_encoder", {"pooling": "segments"}),
        ("cross_encoder", {"pooling": "weighted"}),
    ],
)
def test_no_token_sees_a_dropped_token(tiny_bert, kind, options):
    student = tiny_student(tiny_bert, kind, **options).eval()
    batch = Collator(ToyLists(), student, token_dropout=0.4)(EXAMPLES)
    before = student(batch.student).scores
    for part in parts_of(batch):
        for chunk in part.passes:
            chunk["input_ids"] = torch.where(chunk["attention_mask"] == 1, chunk["input_ids"], 7)
    torch.testing.assert_close(student(batch.student).scores, before)
    whole = student(Collator(ToyLists(), student)(EXAMPLES).student).scores
    assert (whole - before).abs().max() > 1e-3


def test_a_live_teacher_sees_the_whole_text(tiny_bert):
    student, teacher = tiny_student(tiny_bert), tiny_student(tiny_bert, "cross_encoder")
    batch = Collator(ToyLists(), student, teacher, token_dropout=0.9)(EXAMPLES)
    for chunk in batch.live.pairs.passes:
        assert torch.equal(chunk["attention_mask"], (chunk["input_ids"] != 0).long())


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder"])
def test_dropped_tokens_depend_only_on_seed_and_batch(tiny_bert, kind):
    student = tiny_student(tiny_bert, kind)

    def collator(**options: object) -> Collator:
        return Collator(ToyLists(), student, **{"token_dropout": 0.3, "seed": 4, **options})

    first = hidden(collator())
    assert hidden(collator()) == first
    assert hidden(collator(chunk=2)) == first
    shares = [hidden(collator(rank=rank, world=2)) for rank in range(2)]
    assert [one + two for one, two in zip(*shares, strict=True)] == first
    assert hidden(collator(seed=5)) != first
    assert hidden(collator(), [(3, index) for index in range(9)]) != first


def test_in_a_batch_of_equal_texts_each_loses_other_tokens(tiny_bert):
    lists = ToyLists()
    lists.documents = ["copy move open close read write file folder list sort"] * len(lists.documents)
    _, documents = hidden(Collator(lists, tiny_student(tiny_bert), token_dropout=0.5))
    assert len({tuple(row) for row in documents}) > len(documents) / 2


def restoring(start: str, **options: object) -> Collator:
    student = tiny_student(start)
    student.add_token_head(seed=0)
    return Collator(ToyLists(), student, restore_tokens=True, **options)


def test_fifteen_per_cent_of_the_ordinary_tokens_are_masked_and_one_at_least(tiny_bert):
    batch = restoring(tiny_bert)(EXAMPLES)
    special = set(restoring(tiny_bert).student.vocabulary.special.tolist())
    for part, masked in zip(parts_of(batch), batch.student.masked, strict=True):
        for text, chosen in zip(rows_of(part, "input_ids"), rows_of(masked, "chosen"), strict=True):
            ordinary = [token not in special for token in text]
            assert sum(chosen) == max(1, round(0.15 * sum(ordinary)))
            assert all(able for able, picked in zip(ordinary, chosen, strict=True) if picked)


def test_eight_in_ten_become_the_mask_one_a_random_token_and_one_stays(tiny_bert):
    collator = restoring(tiny_bert)
    vocabulary = collator.student.vocabulary
    shown, meant = [], []
    for epoch in range(60):
        batch = collator([(epoch, index) for index in range(24)])
        for part in batch.student.masked:
            shown += [chunk["input_ids"][chunk["chosen"]] for chunk in part.passes]
        meant.append(batch.targets.tokens.ids)
    shown, meant = torch.cat(shown), torch.cat(meant)
    assert len(meant) > 3000
    assert np.isin(meant, vocabulary.ordinary).all()
    as_mask, kept = shown == vocabulary.mask, shown == meant
    assert as_mask.float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert kept.float().mean().item() == pytest.approx(0.1, abs=0.02)  # a random one is the same once in a hundred
    assert np.isin(shown[~as_mask], vocabulary.ordinary).all()
    assert len(shown[~as_mask & ~kept].unique()) > 50


def test_the_ranking_pass_keeps_its_texts_and_the_restoring_pass_keeps_its_attention(tiny_bert):
    plain = Collator(ToyLists(), tiny_student(tiny_bert))(EXAMPLES)
    batch = restoring(tiny_bert, token_dropout=0.3)(EXAMPLES)
    for before, part, masked in zip(parts_of(plain), parts_of(batch), batch.student.masked, strict=True):
        assert rows_of(part, "input_ids") == rows_of(before, "input_ids")
        assert rows_of(masked, "attention_mask") == rows_of(before, "attention_mask")
        assert rows_of(part, "attention_mask") != rows_of(before, "attention_mask")


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_querys_texts_count_evenly_and_the_processes_add_up_to_the_whole(tiny_bert, in_batch):
    whole = restoring(tiny_bert, in_batch=in_batch)(EXAMPLES).targets.tokens
    lists = ToyLists()
    rows = np.unique(np.concatenate([lists.pick(index, 2) for index in range(9)]))
    for query in range(9):
        wanted = np.ones(len(rows)) if in_batch else np.isin(rows, lists.pick(query, 2)).astype(float)
        wanted = np.concatenate([np.arange(9) == query, wanted])
        np.testing.assert_allclose(whole.shares[query], wanted / wanted.sum(), rtol=1e-6)
    shares, tokens = [], {"query": [], "document": []}
    for rank in range(2):
        part = restoring(tiny_bert, in_batch=in_batch, rank=rank, world=2)(EXAMPLES).targets.tokens
        own = [4, 5][rank]  # of nine queries
        assert len(part.shares) == own
        total = part.shares.sum(0)
        shares.append((total[:own], total[own:]))
        for side, mine in (("query", part.texts < own), ("document", part.texts >= own)):
            tokens[side].append(part.ids[mine].sort().values)
    weights = torch.cat([torch.cat(side) for side in zip(*shares, strict=True)])
    torch.testing.assert_close(weights, whole.shares.sum(0))
    for side, mine in (("query", whole.texts < 9), ("document", whole.texts >= 9)):
        assert torch.equal(torch.cat(tokens[side]).sort().values, whole.ids[mine].sort().values)


def test_texts_without_a_word_have_nothing_to_restore(tiny_bert):
    collator = restoring(tiny_bert)
    collator.lists.queries = [""] * 24
    collator.lists.documents = [""] * 40
    batch = collator(EXAMPLES)
    signals = collator.student(batch.student, frozenset({"token_logits"}))
    assert signals.token_logits.shape[0] == len(batch.targets.tokens.ids) == 0
    signals.token_logits.sum().backward()
    assert all(parameter.grad is not None for parameter in collator.student.heads["token_head"].parameters())


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("chunk", [None, 2])
def test_token_logits_are_those_of_each_text_by_itself(tiny_bert, separate, chunk):
    student = tiny_student(tiny_bert, separate=separate).eval()
    student.add_token_head(seed=0)
    with torch.no_grad():  # apart from each other, and with biases that show
        for parameter in student.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    batch = Collator(ToyLists(), student, restore_tokens=True, chunk=chunk)(EXAMPLES)
    signals = student(batch.student, frozenset({"token_logits", "scores"}), recompute=chunk is not None)
    head, logits, ids, texts = student.heads["token_head"], [], [], []
    for side, part, masked in zip(("query", "document"), parts_of(batch), batch.student.masked, strict=True):
        bert = student.tower.transformer(side).model
        shown, chosen = rows_of(masked, "input_ids"), rows_of(masked, "chosen")
        for text, (tokens, gaps) in enumerate(zip(shown, chosen, strict=True)):
            states = bert(torch.tensor([tokens])).last_hidden_state[0][torch.tensor(gaps)]
            hidden = torch.nn.functional.gelu(states @ head.dense.weight.T + head.dense.bias)
            hidden = (hidden - hidden.mean(-1, keepdim=True)) / (
                hidden.var(-1, unbiased=False, keepdim=True) + 1e-5
            ).sqrt()
            hidden = hidden * head.norm.weight + head.norm.bias
            logits.append(hidden @ bert.embeddings.word_embeddings.weight.T + head.bias)
            ids.append(torch.tensor(rows_of(part, "input_ids")[text])[torch.tensor(gaps)])
            texts += [len(logits) - 1] * len(ids[-1])
    order = torch.argsort(batch.targets.tokens.texts, stable=True)
    assert torch.equal(batch.targets.tokens.texts[order], torch.tensor(texts))
    assert torch.equal(batch.targets.tokens.ids[order], torch.cat(ids))
    torch.testing.assert_close(signals.token_logits[order], torch.cat(logits), rtol=1e-4, atol=1e-4)
    assert signals.scores.shape == (9, 5)


def test_a_wider_or_narrower_embedding_table_decides_the_size_of_the_head(tiny_bert):
    student = build(matcher_config(start=tiny_bert, layers=1, dim=8, query_length=8, document_length=16))
    student.add_token_head(seed=0)
    assert student.heads["token_head"].dense.weight.shape == (32, 32)  # of the transformer, not of the projection
    assert len(student.heads["token_head"].bias) == len(student.tower.token_embeddings("query"))
