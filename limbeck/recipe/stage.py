"""A stage of training: what is trained, on which lists, with which objectives, for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from limbeck.errors import LimbeckError
from limbeck.objectives import Objective, parse
from limbeck.recipe.part import Part
from limbeck.search.manifest import is_an_index
from limbeck.signals import TEXT_ATTENTION, TOKEN_SIGNALS

SOURCES = ("bm25", "uniform", "given", "scored")


class ListSpec(Part):
    """Which documents a query is trained on."""

    size: int = Field(8, ge=1, description="K: documents in a query's list, including positives")
    pool: int = Field(32, ge=1, description="candidates per query, from which lists are drawn")
    negatives: str = Field(
        "auto",
        description="bm25, uniform, given (by the data), scored (by the teacher), or several joined by +; "
        "a TREC run file; or the folder of an index, to mine the nearest documents; "
        "auto: scored if the teacher is only scores, else bm25",
    )
    pick: Literal["sample", "top"] = Field(
        "sample",
        description="sample: draw again each epoch; top: the K with the highest teacher score; positives always stay",
    )
    in_batch: bool = Field(False, description="put every document of the batch in every query's list")
    false_negative_margin: float | None = Field(
        None,
        description="leave out candidates unless the teacher scores them at least this much below the query's best "
        "positive; mined negatives contain many positives that nobody judged",
    )

    @property
    def asks_teacher(self) -> bool:
        """Whether choosing the documents requires the teacher's scores."""
        return self.pick == "top" or self.false_negative_margin is not None

    @model_validator(mode="after")
    def _pool_is_large_enough(self) -> ListSpec:
        if self.pool < self.size - 1:
            raise ValueError(f"pool ({self.pool}) is smaller than the lists drawn from it (size {self.size})")
        names = self.negatives.split("+") if not Path(self.negatives).exists() else [self.negatives]
        unknown = next((name for name in names if name not in SOURCES and not _minable(name)), None)
        if unknown is not None and self.negatives != "auto":
            problem = f"{unknown!r} is not a run file and not an index"
            raise ValueError(f"negatives: {problem}; use {', '.join(SOURCES)}, a TREC run, or an index's folder")
        return self


def _minable(name: str) -> bool:
    return Path(name).is_file() or is_an_index(name)


class Stage(Part):
    """What is trained, on what, with which objectives, for how long."""

    objectives: list[str] = Field(min_length=1, description="e.g. `softmax_ce(tau=2)` or `0.1 * one_hot`")
    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0, description="passes over the training queries; used if steps is not set")
    batch_size: int = Field(16, ge=1, description="queries per step, over all processes and accumulated parts")
    lr: float = Field(5e-5, gt=0, le=1)
    warmup: float = Field(0.1, ge=0, le=1, description="share of the steps in which the learning rate warms up")
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    weight_decay: float = Field(0.01, ge=0)
    max_grad_norm: float = Field(1.0, ge=0, description="0 turns clipping off")
    lists: ListSpec = ListSpec()
    group_by_text: bool = Field(
        False,
        description="pair data only: batch pairs that share texts, so each text is encoded once per step",
    )
    freeze: list[str] = Field([], description="`encoder`, `token_embeddings`, or patterns of parameter names")
    token_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="hide each token but a text's first from the student with this probability, in training only; "
        "dropout on the embedding is `student.dropout`",
    )
    eval_every: int | None = Field(None, ge=1, description="steps between two evaluations on dev; an epoch by default")
    patience: int | None = Field(None, ge=1, description="stop after this many evaluations on dev without a new best")
    bf16: bool = False
    accumulate: int = Field(1, ge=1, description="split a step into this many parts (gradient accumulation)")
    chunk: int | None = Field(
        None, ge=1, description="gradient caching: texts in memory at once; exact, but a third more computation"
    )
    workers: int = Field(0, ge=0, description="number of processes that tokenise")
    checkpoint_seconds: float = Field(60, ge=0, description="time between two checkpoints")

    @field_validator("objectives")
    @classmethod
    def _objectives_parse(cls, value: list[str]) -> list[str]:
        for text in value:
            try:
                parse(text)
            except LimbeckError as error:
                raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _length_is_given(self) -> Stage:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size ({self.batch_size}) is not a multiple of accumulate ({self.accumulate})")
        return self

    @model_validator(mode="after")
    def _attention_is_of_whole_texts(self) -> Stage:
        if self.student_signals & TEXT_ATTENTION and self.token_dropout:
            raise ValueError("token_dropout hides tokens from the student that virt compares; drop one of them")
        if self.student_signals & TEXT_ATTENTION and "encoder" in self.freeze:
            raise ValueError("freeze: virt trains the encoder; drop encoder from freeze, or virt from this stage")
        return self

    def weighted_objectives(self) -> list[tuple[float, Objective]]:
        return [parse(text) for text in self.objectives]

    @property
    def needs_teacher(self) -> bool:
        return bool(self.teacher_signals)

    @property
    def teacher_signals(self) -> frozenset[str]:
        """The signals that the objectives need from the teacher."""
        return frozenset[str]().union(*(each.needs_teacher for _, each in self.weighted_objectives()))

    @property
    def student_signals(self) -> frozenset[str]:
        """The signals that the objectives need from the student."""
        return frozenset[str]().union(*(each.needs_student for _, each in self.weighted_objectives()))

    @property
    def takes_texts(self) -> bool:
        """Whether the objectives learn from texts instead of lists, so that every text is an example."""
        return all(each.takes_texts for _, each in self.weighted_objectives()) or self.student_signals <= {"queries"}

    @property
    def restores_tokens(self) -> bool:
        """Whether the student needs a head that predicts masked or visible tokens."""
        return any(objective.needs_student & TOKEN_SIGNALS for _, objective in self.weighted_objectives())

    @property
    def only_inside_the_encoder(self) -> bool:
        """Whether the loss uses the encoder only, and not a projection or anything else after it."""
        inside = TOKEN_SIGNALS | TEXT_ATTENTION
        return all(objective.needs_student <= inside for _, objective in self.weighted_objectives())

    @property
    def uses_unscored(self) -> bool:
        """Whether some objective learns from labels only, and so also from documents that the teacher did not score."""
        return any(each.needs_labels and not each.needs_teacher for _, each in self.weighted_objectives())

    @property
    def needs_labels(self) -> bool:
        return any(objective.needs_labels for _, objective in self.weighted_objectives())

    @property
    def only_labels(self) -> bool:
        """Whether no objective learns anything from an unlabelled query."""
        return all(objective.needs_labels for _, objective in self.weighted_objectives())
