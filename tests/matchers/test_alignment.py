"""The closed-form map against other solutions of the same problem, and as a part of towers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.matchers.alignment import fit_map, mean_cosine
from limbeck.matchers.layer_choice import choose_layers, wanted_layers

WORDS = "copy move sort open read write close list file line folder text value key name path".split()


def texts(count: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=6)) for _ in range(count)]


def test_the_map_is_ridge_regression_with_an_intercept():
    generator = np.random.default_rng(0)
    inputs, targets = generator.normal(size=(60, 5)) + 3, generator.normal(size=(60, 4))
    found = fit_map(inputs, targets, strengths=[0.1])
    # As least squares on centred data with sqrt(lambda) * I as further rows, and targets of 0 there.
    x, t = inputs - inputs.mean(0), targets - targets.mean(0)
    penalty = 0.1 * np.trace(x.T @ x) / 5
    longer = np.concatenate([x, np.sqrt(penalty) * np.eye(5)]), np.concatenate([t, np.zeros((5, 4))])
    weight = np.linalg.lstsq(*longer, rcond=None)[0].T
    assert np.allclose(found.weight, weight, atol=1e-5)
    assert np.allclose(found.bias, targets.mean(0) - weight @ inputs.mean(0), atol=1e-5)


def test_a_linear_map_is_found():
    generator = np.random.default_rng(1)
    inputs, truth = generator.normal(size=(300, 8)), generator.normal(size=(6, 8))
    exact = fit_map(inputs, inputs @ truth.T + 2.0)
    assert np.allclose(exact.weight, truth, atol=1e-3) and exact.cosine > 0.9999


def test_the_strength_is_chosen_on_texts_that_were_held_out():
    generator = np.random.default_rng(2)
    inputs = generator.normal(size=(40, 30))  # nearly as many numbers as texts: no ridge fits the noise
    targets = inputs @ generator.normal(size=(30, 4)) * 0.05 + generator.normal(size=(40, 4)) + 1.0
    weak, strong = (fit_map(inputs, targets, strengths=[strength]) for strength in (1e-5, 1.0))
    assert strong.cosine > weak.cosine
    assert fit_map(inputs, targets).cosine == max(
        fit_map(inputs, targets, strengths=[strength]).cosine for strength in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    )


def test_few_texts_are_refused():
    with pytest.raises(LimbeckError, match="needs at least 20 texts, and there are 5"):
        fit_map(np.ones((5, 2)), np.ones((5, 2)))


@pytest.fixture
def reference(tiny_bert, tmp_path):
    """A dual encoder of 24 numbers that ends in a Normalize."""
    torch.manual_seed(1)
    made = build(matcher_config(init_from=tiny_bert, dim=24, query_length=16, document_length=16))
    made.save_pretrained(tmp_path / "reference")
    folder = tmp_path / "normal"
    model = SentenceTransformer(str(tmp_path / "reference"), device="cpu")
    from sentence_transformers.base.modules import Normalize

    model.append(Normalize())
    model.save(str(folder), create_model_card=False)
    return folder


def test_an_aligned_student_has_nearly_the_vectors_of_its_reference_and_keeps_them_when_saved(
    tiny_bert, reference, tmp_path
):
    model, some, new = lb.load(reference), texts(200), texts(30, seed=9)
    student = build(matcher_config(init_from=tiny_bert, layers=1, query_length=16, document_length=16))
    target = model.encode_query(some)
    before = mean_cosine(student.encode_query(new)[:, :24], model.encode_query(new))
    (cosine,) = student.align([some, texts(5, seed=3)], [target, model.encode_document(texts(5, seed=3))], model)
    after = mean_cosine(student.encode_query(new), model.encode_query(new))
    assert after > 0.9 > before and cosine > 0.9
    student.save_pretrained(tmp_path / "student")
    vectors = student.encode_document(new)
    assert np.allclose(lb.load(tmp_path / "student").encode_document(new), vectors, atol=1e-5)
    assert np.allclose(SentenceTransformer(str(tmp_path / "student")).encode_document(new), vectors, atol=1e-5)


def test_the_map_comes_before_a_scale(tiny_bert, reference):
    model, some = lb.load(reference), texts(200)
    lengths = {"query_length": 16, "document_length": 16}
    student = build(matcher_config(init_from=tiny_bert, layers=1, scale=9, **lengths))
    with pytest.raises(LimbeckError, match="have 24 numbers, the student's 32; set student.dim to 24, or drop scale"):
        student.align([some, []], [model.encode_query(some), np.zeros((0, 24), np.float32)], model)
    student = build(matcher_config(init_from=tiny_bert, layers=1, scale=9, dim=24, **lengths))
    student.align([some, []], [model.encode_query(some), np.zeros((0, 24), np.float32)], model)
    assert [type(module).__name__ for module in student.tower.model] == [
        "Transformer", "Pooling", "Dense", "Dense", "Normalize", "Dense"
    ]  # fmt: skip
    lengths = np.linalg.norm(student.encode_query(some), axis=1)
    assert lengths == pytest.approx(3.0, abs=1e-4)  # so dots are 9 times a cosine


def test_a_student_takes_the_document_tower_of_another_model_as_it_is(tiny_bert, reference, tmp_path):
    model, some, new = lb.load(reference), texts(200), texts(20, seed=4)
    student = build(
        matcher_config(init_from=tiny_bert, layers=1, document=str(reference), query_length=8, document_length=16)
    )
    assert student.encoding(0).dim == student.encoding(1).dim == 24
    assert np.allclose(student.encode_document(new), model.encode_document(new), atol=1e-6)
    assert student.identity(1) == model.identity(1) and student.identity(0) != model.identity(0)
    student.align([some, []], [model.encode_query(some), np.zeros((0, 24), np.float32)], model)
    student.save_pretrained(tmp_path / "student")
    loaded, theirs = lb.load(tmp_path / "student"), SentenceTransformer(str(tmp_path / "student"))
    assert loaded.identity(1) == model.identity(1)
    assert np.allclose(theirs.encode_query(new), student.encode_query(new), atol=1e-5)
    assert np.allclose(theirs.encode_document(new), model.encode_document(new), atol=1e-5)
    scores = theirs.similarity_pairwise(theirs.encode_query(new), theirs.encode_document(new)).numpy()
    assert loaded.score([(text, text) for text in new]) == pytest.approx(scores, abs=1e-5)


def test_another_models_document_tower_is_never_trained_and_has_no_dropout(tiny_bert, reference):
    student = build(matcher_config(init_from=tiny_bert, layers=1, document=str(reference), document_length=16)).train()
    trained = [name for name, parameter in student.named_parameters() if parameter.requires_grad]
    assert trained and not any(".document." in name for name in trained)
    modes = {name: module.training for name, module in student.named_modules() if "LayerNorm" in name}
    assert all(mode != (".document." in name) for name, mode in modes.items())


def test_stored_vectors_replace_documents(tiny_bert, reference):
    from limbeck.matchers.base import TextBatch

    student = build(matcher_config(init_from=tiny_bert, layers=1, document=str(reference), document_length=16)).eval()
    batch = TextBatch(texts(3), texts(4, seed=2), torch.tensor([[0, 1], [2, 3], [1, 1]]))
    live = student(student.prepare(batch)).scores
    seen = []

    def stored(some, position):
        seen.append((len(some), position))
        return lb.load(reference).encode_document(some)

    student.read_outputs_from(stored)
    assert torch.allclose(student(student.prepare(batch)).scores, live, atol=1e-5)
    assert seen == [(4, 1)]
    assert np.allclose(student.encode_document(texts(2)), lb.load(reference).encode_document(texts(2)), atol=1e-6)


@pytest.mark.parametrize("key", ["similarity: cosine", "scale: 20", "dim: 8", "untied: true"])
def test_what_the_document_tower_decides_cannot_be_set(key):
    name, value = key.split(": ")
    with pytest.raises(ValueError, match=f"{name}: with document, the document tower decides it; drop {name}"):
        matcher_config(document="minilm", **{name: {"cosine": "cosine", "true": True}.get(value) or int(value)})


def test_of_few_subsets_the_best_is_found_and_of_many_layers_are_dropped_one_by_one():
    worth = np.array([5.0, 0.1, 0.2, 3.0, 0.3, 4.0, 1.0, 0.0, 0.5, 0.4, 0.6, 2.0])
    asked = []

    def judge(layers):
        asked.append(layers)
        return float(worth[list(layers)].sum())

    assert choose_layers(6, 2, judge)[0] == (0, 5) and len(asked) == 15
    asked.clear()
    assert choose_layers(12, 4, judge)[0] == (0, 3, 5, 11)
    assert len(asked) == sum(range(5, 13))


def test_how_many_layers_auto_asks_for():
    assert [wanted_layers(text, 6, "minilm") for text in ("auto", "auto:1", "auto:3", "auto:6")] == [2, 1, 3, 6]
    with pytest.raises(LimbeckError, match="layers=auto:9: minilm has 6 layers; ask for at most auto:6"):
        wanted_layers("auto:9", 6, "minilm")
