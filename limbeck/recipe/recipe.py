"""A recipe: data + teacher + student + stages, as one YAML file or its Python twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name
from limbeck.evaluation.pairs import PAIR_MEASURES
from limbeck.matchers.calibration import check_criterion
from limbeck.matchers.config import TEACHER, AnyMatcherConfig, matcher_config
from limbeck.matchers.device_choice import check_device_name
from limbeck.objectives import Objective, parse
from limbeck.report.analyses.registry import AnalysisName, default_names
from limbeck.search.manifest import is_an_index
from limbeck.signals import PAIR_SIGNALS, TOKEN_SIGNALS

SOURCES = ("bm25", "uniform", "given", "scored")
LONGEST_NAME = 100  # bytes; file names have at most 255, and a sweep appends to it
EMBEDDINGS = frozenset({"queries", "documents"})  # without a teacher, those of the student's start
READERS = {"token_logits": "dual_encoder", "seen_token_logits": "cross_encoder"}  # who can be asked for tokens
POOLINGS = {  # what makes a cross-encoder show a signal of pairs
    "query_proxies": "pooling: weighted, special or segments",
    "document_proxies": "pooling: weighted, special or segments",
    "pair_embeddings": "pooling: cls or mean",
}


class Part(BaseModel):
    """A part of a recipe: no unknown keys, no change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSpec(Part):
    """Which texts to use, and how many."""

    source: str = Field(description="a BEIR folder, MS MARCO files, a hub name, ... or `pydocs`")
    train: str = Field("train", description="split to train on")
    dev: str | None = Field("dev", description="split for early stopping and the choice of weights")
    test: str | None = Field("test", description="split to report on")
    train_queries: int | None = Field(
        None, ge=1, description="train on this many queries (or pairs), drawn with the seed"
    )
    dev_queries: int | None = Field(100, ge=1)
    test_queries: int | None = Field(None, ge=1)
    labelled_queries: int | None = Field(
        None, ge=0, description="keep the labels of this many training queries or pairs; the others count as unlabelled"
    )
    min_positives: int = Field(1, ge=1, description="train only on labelled queries with at least this many positives")
    keep_positives: int | None = Field(
        None,
        ge=1,
        description="keep this many positives of each training query, drawn with the seed; the others become unjudged "
        "and may be drawn as negatives: labels as sparse as MS MARCO's",
    )
    unlabelled: str | None = Field(None, description="a file with more queries (or pairs), without labels")
    unlabelled_documents: str | None = Field(
        None, description="a file with more documents, for objectives that match the embeddings of documents"
    )
    spans: int = Field(
        0,
        ge=0,
        le=100,
        description="add this many spans of each document (sentences, or a few consecutive words) as training "
        "queries without labels, for objectives that match embeddings and for `student.align`",
    )
    seed: int | None = Field(
        None, ge=0, lt=2**31, description="seed for drawing queries and negatives; the recipe's seed by default"
    )


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
        """Whether the choice of documents needs the teacher's scores."""
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
    """What is trained, on what, by which objectives, for how long."""

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

    def weighted_objectives(self) -> list[tuple[float, Objective]]:
        return [parse(text) for text in self.objectives]

    @property
    def needs_teacher(self) -> bool:
        return bool(self.teacher_signals)

    @property
    def teacher_signals(self) -> frozenset[str]:
        """What the objectives need of the teacher."""
        return frozenset[str]().union(*(each.needs_teacher for _, each in self.weighted_objectives()))

    @property
    def student_signals(self) -> frozenset[str]:
        """What the objectives need of the student."""
        return frozenset[str]().union(*(each.needs_student for _, each in self.weighted_objectives()))

    @property
    def takes_texts(self) -> bool:
        """Whether its objectives learn from texts that are in no list, so that every text is an example."""
        return all(each.takes_texts for _, each in self.weighted_objectives()) or self.student_signals <= {"queries"}

    @property
    def restores_tokens(self) -> bool:
        """Whether the student needs a head that restores masked tokens, or names those that it sees."""
        return any(objective.needs_student & TOKEN_SIGNALS for _, objective in self.weighted_objectives())

    @property
    def only_restores_tokens(self) -> bool:
        """Whether nothing behind the token states, such as a projection, has a part in the loss."""
        return all(objective.needs_student <= TOKEN_SIGNALS for _, objective in self.weighted_objectives())

    @property
    def uses_unscored(self) -> bool:
        """Whether some objective learns from labels alone, and so from documents that the teacher did not score."""
        return any(each.needs_labels and not each.needs_teacher for _, each in self.weighted_objectives())

    @property
    def needs_labels(self) -> bool:
        return any(objective.needs_labels for _, objective in self.weighted_objectives())

    @property
    def only_labels(self) -> bool:
        """Whether no objective learns anything from an unlabelled query."""
        return all(objective.needs_labels for _, objective in self.weighted_objectives())


class TeacherSpec(Part):
    """Who teaches: a model, one that is trained first, or scores that were made elsewhere."""

    model: str | None = Field(None, description="a folder or a hub name")
    revision: str | None = None
    train: AnyMatcherConfig | None = Field(None, description="a matcher to fine-tune first, with `stages`")
    stages: list[Stage] = []
    scores: str | None = Field(None, description="scores on disk: an annotated directory, a TREC run or a jsonl file")
    length: int | None = Field(
        None, ge=4, description="read at most so many tokens of a text; its own limit by default"
    )
    bf16: bool = Field(False, description="score in bfloat16: faster on GPUs and on some CPUs")
    live: bool = Field(False, description="run the teacher inside every step instead of storing its scores")
    standardise: Literal["auto", "none", "list", "global"] = Field(
        "auto",
        description="shift and scale the teacher's scores to mean 0 and deviation 1, per list or over all; auto "
        "multiplies a dual encoder's cosines by 20 (for pairs: global) and leaves other scores as they are",
    )
    seed: int | None = Field(
        None, ge=0, lt=2**31, description="seed for a teacher that is trained; the recipe's seed by default"
    )

    @property
    def only_scores(self) -> bool:
        return self.model is None and self.train is None

    @model_validator(mode="after")
    def _one_source(self) -> TeacherSpec:
        if self.model is not None and self.train is not None:
            raise ValueError("give either model (used as it is) or train (fine-tuned first), not both")
        if self.only_scores and self.scores is None:
            raise ValueError("give a model, a matcher to train, or scores")
        if self.train is not None and self.train.init_from == TEACHER:
            raise ValueError("train.init_from: a teacher cannot start from itself; name a model")
        if self.train is not None and not self.stages:
            raise ValueError("a teacher to train needs stages")
        if self.train is None and self.stages:
            raise ValueError("stages are for a teacher to train; give train, or drop the stages")
        if any(stage.needs_teacher or stage.lists.asks_teacher for stage in self.stages):
            problem = "a teacher's own stages learn from labels; use one_hot or binary_ce"
            raise ValueError(f"{problem}, pick: sample and no false_negative_margin")
        if self.revision is not None and self.model is None:
            raise ValueError("revision belongs to a model on the hub; give model, or drop revision")
        if self.length is not None and self.model is None:
            raise ValueError("length limits a model that is used as it is; give model, or set lengths in train")
        if self.bf16 and self.only_scores:
            raise ValueError("bf16 requires a teacher's model, and there are only scores; drop bf16")
        if self.live and self.scores is not None:
            raise ValueError("a live teacher uses no stored scores; drop scores, or live")
        if self.live and self.only_scores:
            raise ValueError("a live teacher needs a model, not only scores")
        if self.live and self.standardise == "global":
            raise ValueError("standardise: global needs stored scores; use list, or a teacher that is not live")
        return self


def teacher_of(run: Path, source: Any) -> dict[str, Any]:
    """`teacher: NAME` in full: the teacher of a run, as it was used there, with its scores if the data are the same and
    it was not live; or else a model.
    """
    place = run / "recipe.yaml"
    if not place.is_file():
        return {"model": str(run)}
    try:
        told = yaml.safe_load(place.read_text(encoding="utf-8"))
        theirs, same = told["teacher"] or {}, told["data"]["source"] == source
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ValueError(f"teacher: {place} cannot be read; name a whole run, or a model") from error
    kept = {name: theirs[name] for name in ("live", "standardise", "bf16") if name in theirs}
    if theirs.get("train"):
        if (run / "shared").is_dir():
            raise ValueError(f"teacher: {run} has several; name the model of one, {run}/shared/*/teacher/model")
        if not (run / "teacher" / "model").is_dir():
            raise ValueError(f"teacher: {run} has not trained its teacher yet; run it first")
        theirs = {"model": str(run / "teacher" / "model")}
    if not theirs.get("model"):
        raise ValueError(f"teacher: {run} has no teacher's model; name another run, or a model")
    found = {"model": theirs["model"], "revision": theirs.get("revision"), **kept}
    return found | (
        {"scores": theirs.get("scores") or str(run / "teacher" / "scores")} if same and not kept.get("live") else {}
    )


class EvaluationSpec(Part):
    """How the result is measured."""

    task: Literal["rerank", "retrieve", "both"] = Field(
        "rerank", description="order given candidates, search the whole corpus, or both in one table"
    )
    candidates: str = Field("bm25", description="bm25, given, or a TREC run file")
    dev_candidates: str | None = Field(None, description="candidates of dev and training queries, if they differ")
    depth: int = Field(100, ge=1, description="candidates per query")
    dev_depth: int = Field(30, ge=1, description="candidates per dev query, while training")
    random: int = Field(0, ge=0, description="more candidates per test query, drawn uniformly from the corpus")
    bf16: bool = Field(False, description="measure rankings in bfloat16")
    add_judged: bool = Field(False, description="add judged positives to the candidates, as Defense does for NQ")
    measures: list[str] = Field(["ndcg@10", "mrr@10"], min_length=1)
    train_queries: int = Field(
        0, ge=0, description="re-rank this many training queries too: capacity or generalisation?"
    )
    transfer: list[str] = Field([], description="more data sets to re-rank test queries of, e.g. BEIR folders")
    analyses: list[AnalysisName] = Field(
        default_factory=default_names, description="analyses in the report; `limbeck report --help` lists the names"
    )
    rank_queries: int = Field(
        48, ge=2, description="test queries in the matrix of `rank`; the teacher scores each with every document of it"
    )
    rank_documents: int = Field(
        96, ge=12, description="documents in that matrix; `limbeck report RUN --add rank --set ...` tries others"
    )

    @field_validator("measures")
    @classmethod
    def _measures_parse(cls, value: list[str]) -> list[str]:
        try:
            return [name if name in PAIR_MEASURES else canonical_name(name) for name in value]
        except LimbeckError as error:
            raise ValueError(str(error)) from error

    baselines: list[Literal["bm25", "start"]] = Field(
        ["bm25", "start"],
        description="more rows of the table; `start` is the model that the student starts from, untrained",
    )
    threshold: str = Field(
        "f1",
        description="threshold for binary pairs, chosen on dev, saved with the student: f1, precision=0.95, recall=0.9",
    )

    @field_validator("threshold")
    @classmethod
    def _threshold_parses(cls, value: str) -> str:
        try:
            return check_criterion(value)
        except LimbeckError as error:
            raise ValueError(str(error)) from error

    relevance_level: int = Field(1, ge=1, description="lowest grade that counts as relevant; 2 for TREC DL")


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
        """Results go to runs/NAME by default, so a name must not lead out of there."""
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
        """The student's and the teacher's stages, by the keys that a recipe has for them."""
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
        if self.student.init_from == TEACHER and (self.teacher is None or self.teacher.only_scores):
            raise ValueError("student.init_from: teacher needs a teacher with a model; name another start")
        if self.student.init_from == TEACHER and self.teacher is not None and self.teacher.revision is not None:
            raise ValueError("student.init_from: teacher takes no revision; download the teacher and name its folder")
        self._refuse_unreadable_tokens()
        self._refuse_unseen_pairs()
        every = [*self.stages, *(self.teacher.stages if self.teacher else [])]
        has_scores = self.teacher is not None and self.teacher.scores is not None
        if not has_scores and any("scored" in stage.lists.negatives.split("+") for stage in every):
            raise ValueError("negatives: scored needs teacher.scores; use bm25")
        return self

    def _refuse_unreadable_tokens(self) -> None:
        """Name models that cannot show the tokens that their objectives ask for."""
        trained = {"student": (self.student, self.stages)}
        if self.teacher is not None and self.teacher.train is not None:
            trained["teacher.train"] = (self.teacher.train, self.teacher.stages)
        for who, (spec, stages) in trained.items():
            for objective in (each for stage in stages for _, each in stage.weighted_objectives()):
                for signal in objective.needs_student & TOKEN_SIGNALS - spec.shows:
                    problem = f"{objective.name} needs a {READERS[signal]}, and {who} is a {spec.kind}"
                    raise ValueError(f"{problem}; change it, or drop it")

    def _refuse_unseen_pairs(self) -> None:
        """A teacher's embeddings of pairs are not stored, and not every cross-encoder has them."""
        for number, stage in enumerate(self.stages):
            for _, objective in stage.weighted_objectives():
                wanted = sorted(objective.needs_teacher & PAIR_SIGNALS)
                if not wanted or self.teacher is None:
                    continue
                place = f"stages.{number}: {objective.name}"
                if not self.teacher.live:
                    raise ValueError(
                        f"{place} reads the teacher's embeddings of pairs, which are not stored; set teacher.live: true"
                    )
                spec = self.teacher.train
                if spec is not None and not spec.shows >= set(wanted):
                    problem = f"needs {' and '.join(wanted)}, which teacher.train (a {spec.kind}) does not show"
                    raise ValueError(f"{place} {problem}; use a cross_encoder with {POOLINGS[wanted[0]]}")
