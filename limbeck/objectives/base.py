"""The base class of objectives: an objective turns the signals of student and teacher into one loss per query.

It has no model and no state, declares what it needs, and has one name, which is the same in a recipe, in Python and
in the log: `softmax_ce(tau_teacher=0.25)`. That is why the class names are in lower case.

Rules for all objectives:

- The result is `[B]`, one loss per query. The caller averages over all B queries, including those without information,
  so that the parts of a batch add up to the batch.
- If an objective has no information about a query, its loss and gradient are 0.
- Within a query, losses are the *sums* that the papers print, over the valid documents (a cross-entropy is a sum
  too, weighted by probabilities). Padding adds nothing, but a longer list has more weight. If objectives are mixed, or
  lists differ much in length, choose the weights in the recipe accordingly.
- Missing is NaN: a document without a teacher score is ignored by objectives that read teacher scores, a document
  without a label by objectives that read labels. A sampled negative is labelled 0 by its sampler.
- An infinite score is not missing; it makes the loss non-finite, so that it is noticed.
- If a batch has texts without lists (`Targets.texts`), the result has one loss per text: the queries first, then this
  process's documents.
- The teacher is a constant: no gradient reaches it.
- Arithmetic is in float32, or float64 if the student's scores are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, TypeGuard, TypeVar, dataclass_transform

from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.signals import AttentionSizes, Signals, Sizes, Targets

NOTHING: frozenset[str] = frozenset()
SCORES: frozenset[str] = frozenset({"scores"})

LARGEST = 1e12  # maximum of arguments: scores divided by it or squared stay within float32


class Objective(ABC):
    """One loss per query, from student signals, teacher signals and targets."""

    needs_student: ClassVar[frozenset[str]] = SCORES  # fields of Signals
    needs_teacher: ClassVar[frozenset[str]] = NOTHING
    takes_texts: ClassVar[bool] = False  # whether it also learns from texts that are in no list
    folds: ClassVar[tuple[str, ...]] = ()  # names of heads: linear maps that are folded into the student at the end

    @property
    def has_heads(self) -> bool:
        """Whether it has trainable heads."""
        return type(self).heads is not Objective.heads

    def heads(self, sizes: Sizes) -> dict[str, nn.Module]:
        """Its trainable heads by name; `__call__` gets them as `heads`. They are dropped at the end, or folded."""
        return {}

    def attended_layers(self, student: AttentionSizes, teacher: AttentionSizes) -> list[tuple[int, int]]:
        """The pairs of layers (student's, teacher's), counted from 0, whose attention it compares.

        It is called before training and raises an error if the sizes do not match.
        """
        return []

    @property
    def needs_labels(self) -> bool:
        return False

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:  # [B]
        ...

    def __str__(self) -> str:
        """The name with every argument that differs from its default; `parse` reads it back."""
        given = [
            f"{field.name}={_literal(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]  # every registered objective is a dataclass
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(given)})" if given else self.name

    def __repr__(self) -> str:
        return str(self) if str(self).endswith(")") else f"{self}()"


OBJECTIVES: dict[str, type[Objective]] = {}

ObjectiveType = TypeVar("ObjectiveType", bound=Objective)


@dataclass_transform(frozen_default=True)
def objective(kind: type[ObjectiveType]) -> type[ObjectiveType]:
    """Make a class an objective that recipes can name: a frozen dataclass, known by its class name."""
    made = dataclass(frozen=True, repr=False)(kind)
    OBJECTIVES[made.__name__] = made
    return made


def is_number(value: object, low: float, high: float) -> TypeGuard[float]:
    """Whether `value` is a number within [low, high]; neither a bool nor NaN is."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def check_number(owner: Objective, argument: str, low: float = -LARGEST, high: float = LARGEST) -> None:
    """Refuse an argument that is not a number within [low, high]."""
    value = getattr(owner, argument)
    if not is_number(value, low, high):
        raise LimbeckError(f"{owner.name}: {argument}={value!r} is not allowed; give a number from {low:g} to {high:g}")


def check_tau(owner: Objective, argument: str) -> None:
    """Refuse a temperature that is not positive, or so small that scores divided by it overflow."""
    check_number(owner, argument, 1 / LARGEST)


def check_choice(owner: Objective, argument: str, choices: tuple[object, ...]) -> None:
    """Refuse a value that is not among `choices`."""
    value = getattr(owner, argument)
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        allowed = " or ".join(_literal(choice) for choice in choices)
        raise LimbeckError(f"{owner.name}: {argument}={value!r} is not allowed; give {allowed}")


def _literal(value: object) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else repr(value)
