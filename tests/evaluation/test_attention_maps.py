"""Maps of attention for pictures: a cross-encoder's against the eager model, virtual ones and distances by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.evaluation.attention_maps import layer_pairs, lengths_of, map_distances, token_maps
from limbeck.matchers import build, matcher_config
from limbeck.objectives import virt

PAIR = ("copy a file", "open the new folder")
PAIRS = [PAIR, ("sort", "sort the list"), ("read the first line of text", "a page")]
LENGTHS = {"query_length": 8, "document_length": 16}


def made(start: str, kind: str = "dual_encoder", seed: int = 0, **options: object):
    torch.manual_seed(seed)
    return build(matcher_config(kind=kind, init_from=start, **LENGTHS, **options)).eval()


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def eager_block(model, first: int, second: int, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """The two blocks [heads, rows, columns] of the eager model's map of PAIR: [CLS] first [SEP] second [SEP]."""
    transformer = model.model[0]
    eager = copy.deepcopy(transformer.model)
    eager.set_attn_implementation("eager")
    inputs = transformer.tokenizer(*PAIR, return_tensors="pt")
    with torch.no_grad():
        whole = eager(**inputs, output_attentions=True).attentions[layer][0].numpy()
    x, y = slice(1, 1 + first), slice(2 + first, 2 + first + second)
    return whole[:, x, y], whole[:, y, x]


@pytest.mark.parametrize("layer", [0, None])
def test_a_cross_encoders_map_is_its_own_softmax_averaged_over_heads(tiny_bert, layer):
    model = made(tiny_bert, "cross_encoder")
    (found,) = token_maps(model, [PAIR], layer, (6, 14))
    assert (found.first, found.second) == (("copy", "a", "file"), ("open", "the", "new", "folder"))
    there, back = eager_block(model, 3, 4, 2 if layer is None else layer)
    means = there.mean(0), back.mean(0)
    np.testing.assert_allclose(found.there, means[0] / means[0].sum(1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(found.back, means[1] / means[1].sum(1, keepdims=True), rtol=1e-4)
    assert found.share == pytest.approx(np.concatenate([mean.sum(1) for mean in means]).mean(), rel=1e-4)


def states_of(model, text: str, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys [heads, tokens, d] of a text's own tokens, out of the weights and the states below."""
    bert, tokenizer = model.tower.model[0].model, model.tower.model[0].tokenizer
    with torch.no_grad():
        below = bert(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[layer][0, 1:-1]
        attention = bert.encoder.layer[layer].attention.self
        return tuple(
            part(below).numpy().reshape(len(below), 2, 16).transpose(1, 0, 2)
            for part in (attention.query, attention.key)
        )


def virtual(model, layer: int, pair: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    (q_x, k_x), (q_y, k_y) = (states_of(model, text, layer) for text in pair)
    return softmax(q_x @ k_y.transpose(0, 2, 1) / 4), softmax(q_y @ k_x.transpose(0, 2, 1) / 4)


@pytest.mark.parametrize("layer", [0, 2])
def test_a_virtual_map_is_made_of_one_texts_queries_and_the_others_keys(tiny_bert, layer):
    model = made(tiny_bert)
    for pair, found in zip(PAIRS, token_maps(model, PAIRS, layer), strict=True):
        there, back = virtual(model, layer, pair)
        np.testing.assert_allclose(found.there, there.mean(0), rtol=1e-4)
        np.testing.assert_allclose(found.back, back.mean(0), rtol=1e-4)
        assert found.share == 1


@pytest.mark.parametrize("block", ["whole", "renormalised"])
def test_distances_are_those_of_eq_4_one_layer_at_a_time(tiny_bert, block):
    student, teacher = made(tiny_bert), made(tiny_bert, "cross_encoder", seed=1)
    found = map_distances(student, teacher, [PAIR], virt(block=block))
    assert found.shape == (1, 3)
    for layer in range(3):
        ours, theirs = virtual(student, layer, PAIR), eager_block(teacher, 3, 4, layer)
        if block == "renormalised":
            theirs = tuple(each / each.sum(-1, keepdims=True) for each in theirs)
        norms = [
            np.sqrt(((own - other) ** 2).sum((1, 2))).mean() / own.shape[1]
            for own, other in zip(ours, theirs, strict=True)
        ]
        assert found[0, layer] == pytest.approx(sum(norms) / 2, rel=1e-4)


def test_a_student_of_fewer_layers_is_compared_as_its_objective_says(tiny_bert):
    student, teacher = made(tiny_bert, layers=2), made(tiny_bert, "cross_encoder")
    assert layer_pairs(student, teacher) == [(0, 1), (1, 2)]
    assert layer_pairs(student, teacher, virt(map="first", layers="last:1")) == [(0, 0), (1, 1)]
    first, spread = (map_distances(student, teacher, PAIRS, virt(map=name)) for name in ("first", "spread"))
    assert first.shape == spread.shape == (3, 2) and not np.allclose(first, spread)


def test_reading_attention_leaves_a_model_as_it_was(tiny_bert):
    student, teacher = made(tiny_bert), made(tiny_bert, "cross_encoder")
    before = teacher.score(PAIRS)
    map_distances(student, teacher, PAIRS)
    np.testing.assert_array_equal(teacher.score(PAIRS), before)
    assert student.attention_layers is None and teacher.attention_layers is None
    with pytest.raises(LimbeckError, match="layer 3"):
        token_maps(teacher, PAIRS, 3)
    np.testing.assert_array_equal(teacher.score(PAIRS), before)


def test_a_cross_encoder_reads_as_much_of_both_texts_as_it_can(tiny_bert):
    model = made(tiny_bert, "cross_encoder")
    first, second = lengths_of(model)
    long = " ".join(["file"] * 60)
    (found,) = token_maps(model, [(long, long)])
    assert (len(found.first), len(found.second)) == (first, second)
    assert first + second + 3 <= LENGTHS["query_length"] + LENGTHS["document_length"]
    joint = made(tiny_bert, "cross_encoder", pooling="segments")
    assert lengths_of(joint) == (6, 14)


def test_what_cannot_be_compared_is_refused(tiny_bert, tmp_path):
    from tests.matchers.families import write_family

    student = made(tiny_bert)
    with pytest.raises(LimbeckError, match="layer 7: the model has layers 0 to 2; give one of these"):
        token_maps(student, PAIRS, 7)
    other = made(write_family("roberta", tmp_path), "cross_encoder")
    with pytest.raises(LimbeckError, match="cut texts into different tokens"):
        map_distances(student, other, PAIRS)


def test_pairs_without_words_have_no_distance(tiny_bert):
    student, teacher = made(tiny_bert), made(tiny_bert, "cross_encoder")
    assert len(map_distances(student, teacher, [*PAIRS, ("", "copy")])) == len(PAIRS)
    empty = token_maps(student, [("", "copy")])[0]
    assert empty.is_empty and empty.there.shape == (0, 1)
