"""x' = Dec(Enc(x) + eps) with masked tokens, on a BART and a T5 that were made for these tests."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.generation.neighbours import Neighbours, Perturbation
from limbeck.generation.seq2seq import Seq2Seq
from tests.search.seq2seq import FILLERS, write_bart, write_t5

ROWS = [(f"q{number}", "", " ".join(random.Random(number).sample(FILLERS, 3))) for number in range(30)]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Seq2Seq]:
    bart, t5 = write_bart(tmp_path_factory.mktemp("bart")), write_t5(tmp_path_factory.mktemp("t5"))
    return {"bart": Seq2Seq.load(str(bart)), "t5": Seq2Seq.load(str(t5))}


def written(model: Seq2Seq, rows=ROWS, **how) -> list[list[str]]:
    return Neighbours(model, Perturbation(**how)).write(rows)


def seen_states(model: Seq2Seq, monkeypatch, rows=ROWS, **how):
    """What the encoder read and what the decoder was given: ids, mask, clean states, noisy states."""
    kept = {}

    def encode(ids, mask):
        kept["ids"], kept["mask"] = ids, mask
        kept["clean"] = Seq2Seq.encode(model, ids, mask)
        return kept["clean"]

    def decode(states, mask, *_):
        kept["noisy"] = states
        return [""] * len(states)

    monkeypatch.setattr(model, "encode", encode, raising=False)
    monkeypatch.setattr(model, "decode", decode, raising=False)
    Neighbours(model, Perturbation(**how)).write(rows)
    monkeypatch.undo()
    return kept["ids"], kept["mask"], kept["clean"], kept["noisy"]


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_without_noise_and_masks_it_writes_what_the_model_writes(models, kind):
    model = models[kind]
    inputs = model.tokenizer([row[2] for row in ROWS], padding=True, return_tensors="pt")
    ids = model.model.generate(
        inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        num_beams=1,
        do_sample=False,
        max_new_tokens=8,
        max_length=None,
    )
    expected = model.tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert written(model, noise=0.0, mask=0.0, max_length=8) == [[text, text] for text in expected]


def test_more_noise_leaves_fewer_queries_unchanged(models):
    same = []
    for noise in (0.1, 1.0, 3.0):
        lists = written(models["bart"], noise=noise, mask=0.0)
        same.append(sum(query == row[2] for row, queries in zip(ROWS, lists, strict=True) for query in queries))
    assert same[0] >= 55 and same[0] > same[1] > same[2] and same[2] < 15


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_noise_is_gaussian_of_the_size_asked_for_and_the_same_in_all_directions(models, monkeypatch, kind):
    rows = [*ROWS, ("long", "", " ".join(FILLERS))]  # so that the others are padded
    _, mask, clean, noisy = seen_states(models[kind], monkeypatch, rows, noise=0.5, mask=0.0)
    eps = (noisy - clean).numpy()
    for place in (0, 1, 17, 61):
        own, state = eps[place][mask[place].bool().numpy()], clean[place][mask[place].bool()].numpy()
        size = np.sqrt((state**2).mean())
        assert own.std() == pytest.approx(0.5 * size, rel=0.2)
        assert not eps[place][~mask[place].bool().numpy()].any()
    scaled = np.concatenate(
        [
            (eps[place] / np.sqrt((clean[place][mask[place].bool()].numpy() ** 2).mean()))[mask[place].bool().numpy()]
            for place in range(len(eps))
        ]
    )
    assert abs(scaled.mean()) < 0.01 and scaled.std() == pytest.approx(0.5, rel=0.03)
    by_direction = scaled.std(axis=0)  # [dim], from some 250 tokens each
    assert by_direction.min() > 0.4 and by_direction.max() < 0.6
    assert not np.allclose(eps[0], eps[1])  # the two of a query


def test_a_model_with_a_mask_token_reads_it_in_place_of_some_tokens(models, monkeypatch):
    model = models["bart"]
    rows = [(f"r{number}", "", " ".join(FILLERS)) for number in range(60)]
    ids, mask, _, _ = seen_states(model, monkeypatch, rows, noise=0.0, mask=0.3)
    plain = model.tokenizer([row[2] for row in rows], return_tensors="pt")["input_ids"].repeat_interleave(2, dim=0)
    changed = ids != plain
    assert (ids[changed] == model.tokenizer.mask_token_id).all() and mask.all()
    assert not changed[:, -1].any()  # </s> is never masked
    share = changed[:, :-1].float().mean().item()  # of 1,200 tokens
    assert share == pytest.approx(0.3, abs=0.05)
    assert not torch.equal(changed[0], changed[1])


def test_a_model_without_a_mask_token_does_not_see_them(models, monkeypatch):
    model = models["t5"]
    assert model.tokenizer.mask_token_id is None
    rows = [(f"r{number}", "", " ".join(FILLERS)) for number in range(60)]
    ids, mask, clean, noisy = seen_states(model, monkeypatch, rows, noise=0.3, mask=0.3)
    assert (ids[:, -1] == 1).all() and mask[:, -1].all()
    assert 1 - mask[:, :-1].float().mean().item() == pytest.approx(0.3, abs=0.05)
    assert torch.equal(clean[mask == 0], noisy[mask == 0])
    other = ids.masked_fill(mask == 0, 5)  # whatever stood there, what is seen has the same states
    assert torch.allclose(Seq2Seq.encode(model, other, mask)[mask == 1], clean[mask == 1], atol=1e-5)


def test_one_token_of_a_query_always_stays(models, monkeypatch):
    for kind in ("bart", "t5"):
        rows = [(f"r{number}", "", "copy file") for number in range(40)]
        ids, mask, _, _ = seen_states(models[kind], monkeypatch, rows, noise=0.0, mask=0.95)
        gone = (mask == 0) | (ids == (models[kind].tokenizer.mask_token_id or -1))
        assert (gone[:, :2].sum(dim=1) == 1).float().mean() > 0.9 and gone[:, :2].sum(dim=1).max() == 1


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_generated_queries_depend_only_on_seed_id_and_number(models, kind):
    how = {"noise": 1.5, "mask": 0.2}
    whole = written(models[kind], **how)
    assert written(models[kind], ROWS[4:5], **how) == whole[4:5]
    assert written(models[kind], ROWS[::-1], **how) == whole[::-1]
    assert [queries[:2] for queries in written(models[kind], per_query=3, **how)] == whole
    assert written(models[kind], seed=1, **how) != whole


def test_new_queries_have_a_longest_length(models):
    for queries in written(models["bart"], noise=2.0, max_length=2):
        assert all(len(query.split()) <= 2 for query in queries)


def test_a_model_that_is_not_seq2seq_is_refused(tiny_bert):
    with pytest.raises(LimbeckError, match="a bert is not a seq2seq model; give a model like T5 or BART"):
        Seq2Seq.load(tiny_bert)
