"""Token vectors in closed form, against dense solutions in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder, build, load, matcher_config
from limbeck.matchers.ridge import linear_map, ridge
from limbeck.matchers.static_fit import StaticFit, _solve, counts, fit_static, fit_towers, token_outputs
from tests.conftest import WORDS
from tests.matchers.test_static import routed, static


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, T and a prior: 60 rows, 25 features of very different frequency, one of which never occurs; 7 columns."""
    generator = np.random.default_rng(0)
    design = (generator.random((60, 25)) < np.geomspace(0.9, 0.02, 25)) * generator.random((60, 25))
    design[:, 11] = 0
    return design.astype(np.float32), generator.normal(size=(60, 7)), generator.normal(size=(25, 7))


@pytest.mark.parametrize("strength", [1.0, 0.03])
@pytest.mark.parametrize("with_prior", [False, True])
def test_conjugate_gradients_find_the_dense_ridge_solution(problem, strength, with_prior):
    design, targets, prior = problem
    prior = prior * with_prior
    exact = np.float64(design)
    wanted = np.linalg.solve(exact.T @ exact + strength * np.eye(25), exact.T @ targets + strength * prior)
    for start in (None, np.ones_like(prior)):
        found = ridge(csr_matrix(design), targets, strength, prior, start, tolerance=1e-7)
        assert np.allclose(found, wanted, atol=1e-5)
    assert np.allclose(found[11], prior[11], atol=1e-6)


def test_without_a_ridge_it_is_least_squares(problem):
    design, targets, prior = problem
    kept = np.delete(design, 11, axis=1)[:, :15]  # what is rare is hardly determined
    wanted = np.linalg.lstsq(np.float64(kept), targets, rcond=None)[0]
    found = ridge(csr_matrix(kept), targets, 0.0, prior[:15], tolerance=1e-9, steps=1000)
    assert np.allclose(found, wanted, atol=1e-3)


def test_the_linear_map_is_ridge_regression(problem):
    design, targets, _ = problem
    square = np.float64(design.T @ design)
    wanted = np.linalg.solve(square + 0.5 * np.trace(square) / 25 * np.eye(25), design.T @ targets)
    assert np.allclose(linear_map(design, targets, 0.5), wanted, atol=1e-4)


def sentences(count: int, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS[:30], size=generator.integers(1, 6))) for _ in range(count)]


def test_counts_are_divided_by_the_root_of_the_length(tiny_bert):
    part = static(tiny_bert).tower.transformer("query")
    found = counts(part.tokenizer, ["copy copy file", "", "sort"], part.num_embeddings).toarray()
    ids = {word: part.tokenizer.token_to_id(word) for word in ("copy", "file", "sort")}
    assert found.shape == (3, part.num_embeddings)
    assert np.allclose([found[0, ids["copy"]], found[0, ids["file"]]], [2 / 3**0.5, 1 / 3**0.5])
    assert found[1].sum() == 0 and found[2, ids["sort"]] == 1 and np.count_nonzero(found) == 3


def test_a_table_that_made_the_targets_is_found_again(tiny_bert):
    """Single words decide each row's direction, so that a small ridge leaves little to be missed."""
    teacher, student = static(tiny_bert), static(tiny_bert)
    with torch.no_grad():
        teacher.tower.token_embeddings("query").normal_(generator=torch.Generator().manual_seed(5))
    texts = sentences(600)
    report = fit_static(student, "query", texts, teacher.encode_query(texts), strengths=(1.0, 0.01))
    others = sentences(50, seed=1)
    cosines = (student.encode_query(others) * teacher.encode_query(others)).sum(axis=1)
    assert report.strength == 0.01 and report.texts == 600 and report.tokens == 30 and not report.from_teacher
    assert cosines.mean() > 0.97 and abs(report.cosine - cosines.mean()) < 0.02


@pytest.fixture
def fitting(tiny_bert) -> tuple[list[str], csr_matrix, np.ndarray, np.ndarray]:
    """80 texts, their counts, the vectors of single tokens, and targets of unit length that depend on the words."""
    part = static(tiny_bert).tower.transformer("query")
    texts = sentences(80, seed=2)
    design = counts(part.tokenizer, texts, part.num_embeddings)
    generator = np.random.default_rng(7)
    targets = design @ generator.normal(size=(part.num_embeddings, 32)) + 0.5 * generator.normal(size=(80, 32))
    features = part.embedding.weight.detach().numpy()
    return texts, design, features, (targets / np.linalg.norm(targets, axis=1, keepdims=True)).astype(np.float32)


def test_a_fit_is_ridge_with_a_prior_after_texts_are_divided_by_the_length_of_their_sums(fitting):
    """Everything written out in float64 with dense matrices; the first solution only serves for the lengths."""
    _, design, features, targets = fitting

    def solved(rows: np.ndarray, strength: float) -> np.ndarray:
        inputs = rows @ features
        square = inputs.T @ inputs
        wide = np.linalg.solve(square + 1e-3 * np.trace(square) / len(square) * np.eye(len(square)), inputs.T @ targets)
        prior, seen = features @ wide, rows.any(axis=0)
        some = rows[:, seen]
        table = prior.copy()
        ridged = some.T @ some + strength * np.eye(some.shape[1])
        table[seen] = np.linalg.solve(ridged, some.T @ targets + strength * prior[seen])
        return table

    rows = design.toarray().astype(np.float64)
    lengths = np.maximum(np.linalg.norm(rows @ solved(rows, 0.3), axis=1), 0.2)
    wanted = solved(rows / lengths[:, None], 0.1)
    found = next(_solve(design, targets, features, [0.1]))
    off = [np.linalg.norm(table - wanted) / np.linalg.norm(wanted) for table in (found, solved(rows, 0.1))]
    assert off[0] < 0.02 and off[1] > 0.1  # the second: without the lengths


def test_the_cosine_is_that_of_texts_that_were_held_out(tiny_bert, fitting):
    texts, design, features, targets = fitting
    report = fit_static(static(tiny_bert), "query", texts, targets, strengths=(0.1,), seed=3)
    order = np.random.default_rng(3).permutation(80)
    held, rest = order[:8], order[8:]
    table = next(_solve(design[rest], targets[rest], features, [0.1]))
    sums = design[held] @ table
    cosines = (sums * targets[held]).sum(axis=1) / np.linalg.norm(sums, axis=1)
    assert report.cosine == pytest.approx(cosines.mean(), abs=1e-5)


def test_a_teacher_at_hand_helps_with_words_that_no_text_has(tiny_bert, tmp_path):
    teacher = build(matcher_config(start=tiny_bert, similarity="cosine", query_length=16, document_length=16))
    texts = sentences(300)
    unseen = [f"{word} {other}" for word in WORDS[30:40] for other in WORDS[40:]]
    wanted = teacher.encode_query(unseen)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    cosines = {}
    for known in (None, teacher):
        student = static(tiny_bert)
        report = fit_static(student, "query", texts, teacher.encode_query(texts), reference=known)
        assert isinstance(report, StaticFit) and report.from_teacher == (known is not None)
        cosines[known] = (student.encode_query(unseen) * wanted).sum(axis=1).mean()
        student.save_pretrained(tmp_path / str(known is None))
        assert np.array_equal(load(tmp_path / str(known is None)).encode_query(unseen), student.encode_query(unseen))
    assert cosines[teacher] > cosines[None] + 0.02


def test_outputs_of_single_tokens_are_those_of_texts_of_one_word(tiny_bert):
    teacher, student = build(matcher_config(start=tiny_bert, document_length=16)), static(tiny_bert)
    part = student.tower.transformer("query")
    found = token_outputs(teacher.tower, "query", part)
    rows = [part.tokenizer.token_to_id(word) for word in WORDS]
    assert np.allclose(found[rows], teacher.encode_query(WORDS), atol=1e-5)
    assert token_outputs(student.tower, "query", part) is None  # no transformer
    part.tokenizer.add_tokens(["another"])
    assert token_outputs(teacher.tower, "query", part) is None  # other tokens


def test_a_query_side_is_fitted_to_documents_as_far_as_the_teacher_reads_them(tiny_bert):
    """A word that stands behind what the tower reads of a query has its vector from there all the same."""
    teacher = build(matcher_config(start=tiny_bert, similarity="cosine", query_length=16, document_length=16))
    texts = [f"{text} copy move open close read {word}" for word in WORDS[30:] for text in sentences(8)]
    targets = teacher.encode_document(texts)
    student = DualEncoder(routed(tiny_bert))
    part = student.tower.transformer("query")
    part.tokenizer.enable_truncation(4)
    documents = student.encode_document(texts)
    wanted = teacher.encode_query(WORDS[30:])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    cosines = []
    for reads in (None, teacher):  # without the teacher, only what the tower itself reads is counted
        assert len(fit_towers(student, (0,), [[], texts], [np.zeros((0, 32)), targets], reads)) == 1
        cosines.append((student.encode_query(WORDS[30:]) * wanted).sum(axis=1).mean())
    assert cosines[1] > cosines[0] + 0.1
    assert part.tokenizer.truncation["max_length"] == 4
    assert np.array_equal(student.encode_document(texts), documents)


def test_two_tables_are_fitted_each_to_its_own_texts(tiny_bert):
    student, texts = static(tiny_bert, untied=True), [sentences(40), sentences(30, seed=1)]
    targets = [np.random.default_rng(seed).normal(size=(len(texts[seed]), 32)) for seed in (0, 1)]
    assert len(fit_towers(student, (0, 1), texts, targets, None)) == 2
    alone = static(tiny_bert, untied=True)
    fit_static(alone, "document", texts[1], targets[1])
    assert np.array_equal(alone.encode_document(texts[0]), student.encode_document(texts[0]))
    assert not np.allclose(student.encode_query(texts[0]), student.encode_document(texts[0]), atol=0.01)


def test_the_dimensions_become_the_teachers(tiny_bert):
    student, texts = static(tiny_bert), sentences(40)
    fit_static(student, "query", texts, np.random.default_rng(0).normal(size=(40, 9)))
    assert student.encode_query(texts).shape == (40, 9) and student.dim == 9


def test_the_same_texts_give_the_same_table(tiny_bert):
    texts, tables = sentences(40), []
    for _ in range(2):
        student = static(tiny_bert)
        fit_static(student, "query", texts, np.random.default_rng(0).normal(size=(40, 32)))
        tables.append(student.identity()["weights"])
    assert tables[0] == tables[1]


def test_what_cannot_be_fitted_is_refused(tiny_bert):
    with pytest.raises(LimbeckError, match="30 texts and 29 embeddings cannot be fitted"):
        fit_static(static(tiny_bert), "query", sentences(30), np.ones((29, 32)))
    with pytest.raises(LimbeckError, match="at least 20 texts"):
        fit_static(static(tiny_bert), "query", sentences(3), np.ones((3, 32)))
    with pytest.raises(LimbeckError, match="needs encoder: static"):
        fit_static(
            build(matcher_config(start=tiny_bert, document_length=16)), "document", sentences(30), np.ones((30, 32))
        )
