"""Embedding matching against loops in numpy, in lists and on texts alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.objectives import parse
from limbeck.signals import Signals, Targets

GENERATOR = np.random.default_rng(5)
QUERIES, DOCUMENTS, DIM = 3, 5, 4
OBJECTIVE = parse("match_embeddings")[1]
LISTS = np.array([[0, 2, 4], [1, 3, 0], [2, 0, 0]])
MASK = np.array([[True, True, True], [True, True, False], [True, False, False]])


def vectors(count: int) -> np.ndarray:
    return GENERATOR.normal(size=(count, DIM))


OURS = {"queries": vectors(QUERIES), "documents": vectors(DOCUMENTS)}
THEIRS = {"queries": vectors(QUERIES), "documents": vectors(DOCUMENTS)}


def signals(values: dict[str, np.ndarray], gradient: bool = False) -> Signals:
    return Signals(**{name: torch.tensor(value, requires_grad=gradient) for name, value in values.items()})


def targets(texts: slice | None = None) -> Targets:
    mask = torch.from_numpy(MASK) if texts is None else torch.zeros(QUERIES, 0, dtype=torch.bool)
    lists = torch.from_numpy(LISTS) if texts is None else torch.zeros(QUERIES, 0, dtype=torch.long)
    return Targets(mask=mask, labels=torch.full(mask.shape, torch.nan), lists=lists, texts=texts)


def apart(one: np.ndarray, other: np.ndarray, distance: str, unit: bool = False) -> float:
    if unit:
        one, other = one / np.sqrt(np.sum(one**2)), other / np.sqrt(np.sum(other**2))
    if distance == "cosine":
        return 1 - float(one @ other) / float(np.sqrt((one @ one) * (other @ other)))
    squared = float(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
    return squared if distance == "squared" else squared**0.5


def by_hand(row: int, of: str, distance: str, unit: bool) -> float:
    query = apart(OURS["queries"][row], THEIRS["queries"][row], distance, unit)
    listed = [
        apart(OURS["documents"][document], THEIRS["documents"][document], distance, unit)
        for document, real in zip(LISTS[row], MASK[row], strict=True)
        if real
    ]
    return (query if of != "documents" else 0.0) + (sum(listed) / len(listed) if of != "queries" else 0.0)


@pytest.mark.parametrize("of", ["both", "queries", "documents"])
@pytest.mark.parametrize(("distance", "unit"), [("norm", False), ("squared", False), ("cosine", False), ("norm", True)])
def test_a_query_has_its_own_distance_and_the_mean_of_its_list(of, distance, unit):
    _, objective = parse(f"match_embeddings(of={of}, distance={distance}, unit={unit})")
    wanted = {name: value for name, value in OURS.items() if of in ("both", name)}
    found = objective(signals(wanted), signals(THEIRS), targets())
    assert found.tolist() == pytest.approx([by_hand(row, of, distance, unit) for row in range(QUERIES)])


def test_without_lists_every_text_counts_once_and_documents_of_other_processes_do_not():
    _, objective = parse("match_embeddings")
    found = objective(signals(OURS), signals(THEIRS), targets(texts=slice(1, 4)))
    queries = [apart(OURS["queries"][row], THEIRS["queries"][row], "norm") for row in range(QUERIES)]
    documents = [apart(OURS["documents"][row], THEIRS["documents"][row], "norm") for row in (1, 2, 3)]
    assert found.tolist() == pytest.approx([*queries, *documents])


def test_the_gradient_of_the_norm_has_length_one_and_is_zero_for_equal_vectors():
    values = {"queries": OURS["queries"].copy()}
    values["queries"][1] = THEIRS["queries"][1]
    ours = signals(values, gradient=True)
    _, objective = parse("match_embeddings(of=queries)")
    objective(ours, signals(THEIRS), targets()).sum().backward()
    lengths = ours.queries.grad.norm(dim=-1)
    assert lengths.tolist() == pytest.approx([1, 0, 1])
    direction = (OURS["queries"][0] - THEIRS["queries"][0]) / apart(OURS["queries"][0], THEIRS["queries"][0], "norm")
    assert ours.queries.grad[0].tolist() == pytest.approx(direction.tolist())


def test_no_gradient_reaches_the_teacher():
    teacher = signals(THEIRS, gradient=True)
    _, objective = parse("match_embeddings")
    objective(signals(OURS, gradient=True), teacher, targets()).sum().backward()
    assert teacher.queries.grad is None and teacher.documents.grad is None


def test_a_size_that_differs_is_named():
    smaller = {name: value[:, :2] for name, value in OURS.items()}
    _, objective = parse("match_embeddings")
    with pytest.raises(LimbeckError, match=r"have shape \[3, 2\], the teacher's \[3, 4\]; set student.dim"):
        objective(signals(smaller), signals(THEIRS), targets())


@pytest.mark.parametrize("text", ["match_embeddings(of=left)", "match_embeddings(distance=l1)"])
def test_an_argument_that_means_nothing_is_refused(text):
    with pytest.raises(LimbeckError, match="is not allowed; give"):
        parse(text)


def test_unit_and_cosine_together_are_refused():
    with pytest.raises(LimbeckError, match="unit has no effect"):
        parse("match_embeddings(distance=cosine, unit=True)")
