"""A recipe: data + teacher + student + stages, as a YAML file or a Python object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from limbeck.errors import LimbeckError
from limbeck.matchers.config import AnyMatcherConfig, architecture_of, matcher_config
from limbeck.matchers.device_choice import check_device_name
from limbeck.recipe.data_spec import DataSpec
from limbeck.recipe.evaluation_spec import EvaluationSpec
from limbeck.recipe.part import Part
from limbeck.recipe.stage import Stage
from limbeck.recipe.teacher_spec import TeacherSpec, teacher_of
from limbeck.signals import CROSS_ATTENTION, PAIR_SIGNALS, TEXT_ATTENTION, TOKEN_SIGNALS

LONGEST_NAME = 100  # bytes; file names have at most 255, and a sweep appends to it
EMBEDDINGS = frozenset({"queries", "documents"})  # without a teacher, the student's initial model provides them
READERS = {"token_logits": "dual_encoder", "seen_token_logits": "cross_encoder"}  # which kind has each signal
POOLINGS = {  # the pooling that a cross-encoder needs for each signal of pairs
    "query_proxies": "pooling: weighted, special or segments",
    "document_proxies": "pooling: weighted, special or segments",
    "pair_embeddings": "pooling: cls or mean",
    "cross_attention": "any pooling",
}


class Recipe(Part):
    """All settings of a run."""

    name: str = Field("run", description="the run's directory is runs/NAME unless you give --out")
    description: str = Field("", description="one line for `limbeck recipes`")
    data: DataSpec = Field(description="which texts")
    teacher: TeacherSpec | None = Field(
        None, description="the teacher; a single name is a model, or a run to take the teacher from"
    )
    student: AnyMatcherConfig = Field(default_factory=matcher_config, description="what is trained")
    stages: list[Stage] = Field(
        description="how it is trained, one stage after the other; [] for a student that `align` finishes"
    )
    evaluation: EvaluationSpec = Field(EvaluationSpec(), description="how the result is measured")
    seed: int = Field(0, ge=0, lt=2**31, description="random seed; parts of the recipe may have their own")
    device: str | None = Field(
        None,
        description="cpu, cuda, cuda:1 or mps; by default a GPU if there is one. --device on the command line wins",
    )

    @field_validator("device")
    @classmethod
    def _device_is_one(cls, value: str | None) -> str | None:
        try:
            return None if value is None else check_device_name(value)
        except LimbeckError as error:
            raise ValueError(str(error)) from error

    @field_validator("name")
    @classmethod
    def _name_is_a_folder_name(cls, value: str) -> str:
        """A name must not lead out of runs/, because results go to runs/NAME by default."""
        if not value.strip() or value.startswith(".") or not value.isprintable() or set(value) & set("/\\"):
            raise ValueError(f"{value!r} cannot name a folder in runs/; use letters, digits and hyphens")
        if len(value.encode()) > LONGEST_NAME:
            raise ValueError(f"is longer than {LONGEST_NAME} bytes; use a shorter one")
        return value

    @model_validator(mode="before")
    @classmethod
    def _teacher_by_name(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("teacher"), str):
            data = values.get("data")
            source = data.get("source") if isinstance(data, dict) else None
            return {**values, "teacher": teacher_of(Path(values["teacher"]), source)}
        return values

    @property
    def data_seed(self) -> int:
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def teacher_seed(self) -> int:
        return self.seed if self.teacher is None or self.teacher.seed is None else self.teacher.seed

    def every_stage(self) -> dict[str, Stage]:
        """The student's and the teacher's stages, by their keys in a recipe."""
        teachers = self.teacher.stages if self.teacher else []
        students = {f"stages.{number}": stage for number, stage in enumerate(self.stages)}
        return students | {f"teacher.stages.{number}": stage for number, stage in enumerate(teachers)}

    @model_validator(mode="after")
    def _objectives_have_a_teacher(self) -> Recipe:
        if not self.stages and not getattr(self.student, "align", False):
            raise ValueError("stages: there are none, so nothing is trained; add one, or set student.align")
        for number, stage in enumerate(self.stages):
            if stage.teacher_signals - EMBEDDINGS and self.teacher is None:
                raise ValueError(f"stages.{number} distils, but there is no teacher; add one, or use one_hot")
            if stage.lists.pick == "top" and (self.teacher is None or self.teacher.live):
                raise ValueError(f"stages.{number}.lists.pick: top needs a teacher with stored scores")
            if stage.token_dropout and not self.student.hides_tokens:
                problem = f"stages.{number}.token_dropout: a {self.student.kind} needs its first tokens"
                raise ValueError(f"{problem}; drop it, or use student.dropout")
            if stage.lists.false_negative_margin is not None and self.teacher is None:
                raise ValueError(f"stages.{number}.lists.false_negative_margin needs a teacher; add one, or drop it")
            if stage.lists.in_batch and not stage.uses_unscored and self.teacher is not None and not self.teacher.live:
                problem = f"stages.{number}.lists.in_batch: stored scores do not cover documents of other queries"
                raise ValueError(f"{problem}; set teacher.live, or add one_hot")
        for name in self.student.taken_from_teacher:
            if self.teacher is None or self.teacher.only_scores:
                raise ValueError(f"student.{name}: teacher needs a teacher with a model; name another one")
            if self.teacher.revision is not None:
                raise ValueError(f"student.{name}: teacher takes no revision; download the teacher and name its folder")
            trained = self.teacher.train
            if name == "document" and trained is not None and not architecture_of(trained.kind).shows >= EMBEDDINGS:
                problem = f"student.document: the teacher is a {trained.kind}, which does not keep one vector of a text"
                raise ValueError(f"{problem}; train a dual_encoder, or drop document")
        self._refuse_unused_texts()
        self._refuse_unreadable_tokens()
        self._refuse_unseen_pairs()
        every = [*self.stages, *(self.teacher.stages if self.teacher else [])]
        has_scores = self.teacher is not None and self.teacher.scores is not None
        if not has_scores and any("scored" in stage.lists.negatives.split("+") for stage in every):
            raise ValueError("negatives: scored needs teacher.scores; use bm25")
        return self

    def _refuse_unused_texts(self) -> None:
        """Refuse extra texts that no part of the recipe would read."""
        fits = self.student.fits_to_reference
        for key, side in (("spans", "queries"), ("unlabelled_documents", "documents")):
            read = any(stage.takes_texts and side in stage.student_signals for stage in self.stages)
            if getattr(self.data, key) and not read and not fits:
                problem = f"data.{key}: no stage matches embeddings of {side}, so it changes nothing"
                raise ValueError(f"{problem}; add a stage with match_embeddings, set student.align, or drop it")

    def _refuse_unreadable_tokens(self) -> None:
        """Refuse models that cannot provide the embeddings or tokens that their objectives need."""
        trained = {"student": (self.student, self.stages)}
        if self.teacher is not None and self.teacher.train is not None:
            trained["teacher.train"] = (self.teacher.train, self.teacher.stages)
        for who, (spec, stages) in trained.items():
            for objective in (each for stage in stages for _, each in stage.weighted_objectives()):
                if objective.needs_student & EMBEDDINGS - architecture_of(spec.kind).shows:
                    problem = f"{objective.name} needs one embedding of a text, and {who} is a {spec.kind}"
                    raise ValueError(f"{problem}; use a dual_encoder, or other objectives")
                if objective.needs_student & TEXT_ATTENTION - architecture_of(spec.kind).shows:
                    problem = f"{objective.name} needs a model that encodes texts apart, and {who} is a {spec.kind}"
                    raise ValueError(f"{problem}; use a dual_encoder, or drop {objective.name}")
                for signal in objective.needs_student & TOKEN_SIGNALS - spec.shows:
                    problem = f"{objective.name} needs a {READERS[signal]}, and {who} is a {spec.kind}"
                    raise ValueError(f"{problem}; change it, or drop it")

    def _refuse_unseen_pairs(self) -> None:
        """Refuse objectives on embeddings or attention of pairs that the teacher cannot provide: they are not stored,
        and not every cross-encoder has them.
        """
        for number, stage in enumerate(self.stages):
            for _, objective in stage.weighted_objectives():
                wanted = sorted(objective.needs_teacher & PAIR_SIGNALS)
                if not wanted or self.teacher is None:
                    continue
                place = f"stages.{number}: {objective.name}"
                if not self.teacher.live:
                    what = "attention" if CROSS_ATTENTION & set(wanted) else "embeddings"
                    stored = "which is" if what == "attention" else "which are"
                    problem = f"{place} reads the teacher's {what} of pairs, {stored} not stored"
                    raise ValueError(f"{problem}; set teacher.live: true")
                spec = self.teacher.train
                if spec is not None and not spec.shows >= set(wanted):
                    problem = f"needs {' and '.join(wanted)}, which teacher.train (a {spec.kind}) does not show"
                    raise ValueError(f"{place} {problem}; use a cross_encoder with {POOLINGS[wanted[0]]}")
