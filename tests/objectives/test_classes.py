"""Several scores per pair: losses and gradients of the classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.objectives import class_ce, soft_binary_ce, soft_class_ce
from limbeck.signals import Signals, Targets

from .reference import EXPECTED_OF_CLASSES

each = pytest.mark.parametrize("objective", EXPECTED_OF_CLASSES, ids=str)


@pytest.fixture
def batch():
    generator = np.random.default_rng(0)
    labels = np.array([[0.0], [2.0], [1.0], [np.nan]])
    return generator.normal(size=(4, 1, 3)), generator.normal(size=(4, 1, 3)), labels


def targets_of(labels) -> Targets:
    return Targets(mask=torch.ones(labels.shape[:2], dtype=torch.bool), labels=torch.as_tensor(labels))


@each
def test_losses_equal_the_formulas_and_gradients_pass_gradcheck(objective, batch):
    student, teacher, labels = batch
    told, targets = Signals(scores=torch.tensor(teacher)), targets_of(labels)
    found = objective(Signals(scores=torch.tensor(student)), told, targets).numpy()
    np.testing.assert_allclose(found, EXPECTED_OF_CLASSES[objective](objective, *batch), atol=1e-12)
    scores = torch.tensor(student, requires_grad=True)
    assert torch.autograd.gradcheck(lambda some: objective(Signals(scores=some), told, targets), (scores,))


def test_a_soft_label_for_each_class_is_a_teacher_without_temperature(batch):
    student, teacher, labels = batch
    shown, told = Signals(scores=torch.tensor(student)), Signals(scores=torch.tensor(teacher))
    soft = told.scores.softmax(-1)
    assert torch.allclose(class_ce()(shown, None, targets_of(soft)), soft_class_ce()(shown, told, targets_of(labels)))


def test_two_classes_are_one_logit():
    """softmax(0, z) is sigmoid(z): both losses are the same."""
    z, t = torch.randn(5, 1, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    both = [Signals(scores=torch.stack([torch.zeros_like(x), x], dim=-1)) for x in (z, t)]
    targets = targets_of(torch.full((5, 1), float("nan")))
    one = soft_binary_ce(tau=3)(Signals(scores=z), Signals(scores=t), targets)
    assert torch.allclose(soft_class_ce(tau=3)(*both, targets), one)


@pytest.mark.parametrize("label", [3.0, -1.0])
def test_a_label_that_is_not_a_class_is_named(batch, label):
    student, _, labels = batch
    labels[1, 0] = label
    with pytest.raises(LimbeckError, match=f"label {label:.0f} is not one of 3 classes; set outputs"):
        class_ce()(Signals(scores=torch.tensor(student)), None, targets_of(labels))


def test_teacher_and_student_have_the_same_classes(batch):
    student, teacher, labels = batch
    with pytest.raises(LimbeckError, match="the teacher has 2 classes, but the student has 3"):
        soft_class_ce()(
            Signals(scores=torch.tensor(student)), Signals(scores=torch.tensor(teacher[..., :2])), targets_of(labels)
        )


def test_one_output_is_not_a_class(batch):
    student, _, labels = batch
    with pytest.raises(LimbeckError, match="not .pairs, 1, classes.; use a student with an output for each class"):
        class_ce()(Signals(scores=torch.tensor(student[..., 0])), None, targets_of(labels))
