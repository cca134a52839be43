"""Read and check the files of a run directory that its report uses.

    metrics.json   measurements: one row per model (`Metrics`)
    log.jsonl      one line per logging or evaluation step (`LogLine`)
    recipe.yaml    the resolved recipe, shown without changes
    examples.json  a few queries with the results of each model (`Example`)
    mistakes.json  queries that a student gets wrong and its teacher right, in the same form

Only metrics.json is required.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from limbeck.errors import bad_input
from limbeck.files import read_json
from limbeck.report.colours import TEACHER, Colours
from limbeck.sealed import opened, read_sealed

REMEDY = "remove it and run the command that made this directory again"
T = TypeVar("T")


class Significance(BaseModel):
    """A paired test of one row against another: the difference with its confidence interval and p-value."""

    against: str
    p: float
    difference: float
    low: float
    high: float
    p_holm: float | None = None  # corrected for the number of tests in the table


class ModelRow(BaseModel):
    """The measurements of one model. `kept` and `speedup` are relative to the teacher."""

    model_config = ConfigDict(allow_inf_nan=False)

    name: str
    kind: Literal["teacher", "baseline", "student"]
    objective: str | None = None
    measures: dict[str, float] = {}
    spread: dict[str, float] | None = None
    runs: int = 1
    failed: list[str] | None = None
    chosen: str | None = None
    logged: str | None = None  # prefix of its students in the log, if it is not name and chosen
    kept: float | None = None
    ms_per_query: float | None = None
    pairs_per_second: float | None = None
    size_mb: float | None = None
    bytes_per_document: float | None = None
    query_ms: float | None = None
    query_parameters: int | None = None
    speedup: float | None = None
    significance: Significance | None = None


class DataFacts(BaseModel):
    """The amount of data."""

    name: str = ""
    queries_train: int | None = None
    queries_dev: int | None = None
    queries_test: int | None = None
    documents: int | None = None


class VerdictFacts(BaseModel):
    """Whether a recommended student is better than what its user could have had anyway."""

    level: Literal["WIN", "MARGINAL", "REGRESSION"]
    line: str
    reason: str


class CompressionFacts(BaseModel):
    """The choice of `limbeck compress`."""

    recommended: str
    student: str
    runtime: str
    limits: str
    verdict: VerdictFacts
    front: list[str]
    next: list[str]
    notes: dict[str, str] = {}
    unfinished: bool = False
    threads: int
    timed_queries: int
    search_ms: float | None = None


class Metrics(BaseModel):
    """metrics.json. Headlines and plots use the first measure of the first row."""

    title: str = "Distillation run"
    data: DataFacts = DataFacts()
    task: Literal["rerank", "retrieve", "both", "pairs"] | None = None
    rows: list[ModelRow] = []
    seconds: float | None = None
    versions: dict[str, str] = {}
    note: str = ""
    warnings: list[str] = []  # notes on the rows
    compression: CompressionFacts | None = None

    @property
    def measure(self) -> str | None:
        return next((name for row in self.rows for name in row.measures), None)


class LogLine(BaseModel):
    """One step of training: its loss, or the measures on dev, or both."""

    model: str
    step: int
    stage: int = 0
    loss: float | None = None
    objectives: dict[str, float] = {}
    lr: float | None = None
    dev: dict[str, float] = {}


class Found(BaseModel):
    """A document that a model found."""

    id: str
    score: float
    text: str = ""


class FoundList(BaseModel):
    """The results of one model, best first."""

    name: str
    results: list[Found]


class Example(BaseModel):
    """A query and the results of the models; the others are compared with the first list."""

    query: str
    lists: list[FoundList]


@dataclass(frozen=True)
class RunFiles:
    """All files of a run."""

    metrics: Metrics
    log: list[LogLine]
    recipe: str
    examples: list[Example]
    mistakes: list[Example] = field(default_factory=list)  # queries that students of compress get wrong
    colours: Colours = field(default_factory=Colours)


def read_run(run_dir: str | Path) -> RunFiles:
    """Read a run directory; an error names what is damaged."""
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise bad_input(run_dir, "no such directory", "name the directory that `limbeck distill --out` wrote")
    metrics_path, examples_path, recipe_path = (run_dir / n for n in ("metrics.json", "examples.json", "recipe.yaml"))
    not_finished = "wait until the run has finished, or name the directory that `limbeck distill --out` wrote"
    metrics = read_sealed(metrics_path, REMEDY if metrics_path.exists() else not_finished)
    examples = read_json(examples_path, REMEDY) if examples_path.exists() else []
    mistakes_path = run_dir / "mistakes.json"
    mistakes = read_json(mistakes_path, REMEDY) if mistakes_path.exists() else []
    checked = _checked(Metrics, metrics, metrics_path)
    kinds = ("teacher", "student", "baseline")
    in_order = sorted(checked.rows, key=lambda row: (kinds.index(row.kind), row.name == "BM25"))  # BM25 is never drawn
    return RunFiles(
        metrics=checked,
        log=_read_log(run_dir / "log.jsonl"),
        recipe=_read_text(recipe_path),
        examples=_checked(list[Example], examples, examples_path),
        mistakes=_checked(list[Example], mistakes, mistakes_path),
        colours=Colours([TEACHER, *(row.name for row in in_order)]),
    )


def _checked(shape: type[T], value: Any, path: Path, line: int | None = None) -> T:
    try:
        return TypeAdapter(shape).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise bad_input(path, f"{place}: {first['msg'].lower()}", REMEDY, line) from error


def _read_text(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(path, f"cannot be read ({error})", REMEDY) from error


def _read_log(path: Path) -> list[LogLine]:
    """The lines of a log. A last line without a newline is incomplete after a kill and is left out.

    A resumed run logs the steps after its checkpoint again: for each step, the last line counts.
    """
    steps: dict[tuple[str, int, int], LogLine] = {}
    for number, line in enumerate(_read_text(path).split("\n")[:-1], start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise bad_input(path, f"is not valid JSON ({error.msg})", REMEDY, number) from error
        if (record := opened(value)) is None:
            raise bad_input(path, "is damaged", REMEDY, number)
        entry = _checked(LogLine, record, path, number)
        key = (entry.model, entry.stage, entry.step)
        earlier = steps.get(key)
        if earlier is not None and (earlier.loss is None or entry.loss is None):
            present = entry.model_dump(exclude_unset=True)
            entry = earlier.model_copy(update={k: getattr(entry, k) for k in present})
        steps[key] = entry
    return list(steps.values())
