"""The result of a run: rows with their times, the front, the recommendation and the verdict, in `metrics.json`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from limbeck.errors import bad_input
from limbeck.evaluation.significance import randomisation_test
from limbeck.files import directory_atomically
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.recipe.files import load_recipe
from limbeck.runs.card_results import machine
from limbeck.runs.compress.advice import Use, advice
from limbeck.runs.compress.front import Offer, front, meets, recommend
from limbeck.runs.compress.limits import Limits
from limbeck.runs.compress.verdict import Level, Verdict, judge
from limbeck.runs.results import Measured, ResultRow, rows_as_json
from limbeck.runs.run_folder import METRICS, write_results
from limbeck.runs.student_card import KeptStudent, write_card
from limbeck.runs.task import Task
from limbeck.runtimes.choice import RUNTIMES
from limbeck.sealed import read_if_whole, read_sealed, write_sealed

TIMINGS = "timings.json"


@dataclass(frozen=True)
class Timings:
    """Milliseconds per query of all rows, timed in turns."""

    ms: dict[str, float]
    threads: int
    queries: int
    search_ms: float | None = None  # an exact search of the document vectors, which every dense row needs besides


def read_timings(folder: Path) -> Timings | None:
    found = read_if_whole(folder / TIMINGS)
    return None if found is None else Timings(**found)


def write_timings(folder: Path, timings: Timings) -> None:
    write_sealed(folder / TIMINGS, asdict(timings))


@dataclass(frozen=True)
class Compressed:
    """A finished run of `compress`."""

    folder: Path
    rows: list[ResultRow]
    recommended: str  # the row of the student to take
    student_name: str  # without the runtime
    meets: bool  # whether it is what was asked for
    verdict: Verdict
    front: list[str]
    next_steps: list[str]
    notes: dict[str, str]  # candidates that were stopped or not tried, and why
    seconds: float
    threads: int  # that queries were timed on
    warnings: list[str] = field(default_factory=list)

    @property
    def student(self) -> Matcher:
        """The recommended student, loaded from the run's folder."""
        return load_matcher(self.folder / "student")

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def row(self) -> ResultRow:
        """The recommended student's row."""
        return next(row for row in self.rows if row.name == self.recommended)

    def as_json(self) -> dict[str, Any]:
        verdict = asdict(self.verdict) | {"level": self.verdict.level.name, "line": str(self.verdict)}
        own = {name: getattr(self, name) for name in ("recommended", "meets", "front", "next_steps", "notes")}
        rows = rows_as_json(self.rows)
        folder = {"folder": str(self.folder), "seconds": self.seconds, "threads": self.threads}
        return {**folder, **own, "verdict": verdict, "rows": rows, "warnings": self.warnings}


@dataclass(frozen=True)
class Known:
    """What a table is made from."""

    task: Task
    folder: Path
    measured: Sequence[Measured]
    timings: Timings
    measure: str  # the one that decides
    students: Mapping[str, Path]  # the folders of students, by name
    keeping: frozenset[str]  # students that keep the teacher's document vectors
    notes: Mapping[str, str]  # on candidates that were stopped or not tried
    seconds: float
    searches: bool  # otherwise they re-rank
    final: bool = True  # whether nothing else will be measured
    whole: float = 1.0  # the teacher's value of the deciding measure


def write_table(known: Known, limits: Limits) -> Compressed:
    """Relate the rows to the teacher, recommend, judge, and write everything."""
    rows = _related(known)
    offers = [offer for row in rows if (offer := _offer(row, known)) is not None]
    chosen = recommend(offers, limits)
    assert chosen is not None
    results = {one.row.name: one.result for one in known.measured}

    def p_value(one: Offer, other: Offer) -> float | None:
        ours, theirs = (results[each.name].per_query[known.measure] for each in (one, other))  # type: ignore[attr-defined]
        return randomisation_test(ours - theirs) if len(ours) > 1 else None

    row = next(row for row in rows if row.name == chosen.name)
    verdict = judge(chosen, [one for one in offers if one.kind != "student"], limits, row.speedup, p_value)
    best, right = front(offers), meets(chosen, limits)
    name, _, runtime = chosen.name.rpartition(", ") if chosen.name not in known.students else (chosen.name, "", "torch")
    recipe = known.task.recipe
    use = _use(known, name, runtime)
    steps = advice(chosen, right, use, verdict, limits, known.notes)
    told = {
        "recommended": chosen.name, "student": name, "runtime": runtime, "meets": right, "limits": str(limits),
        "verdict": asdict(verdict) | {"level": verdict.level.name, "line": str(verdict)},
        "front": [one.name for one in best], "next": steps, "notes": dict(known.notes), "unfinished": not known.final,
        "threads": known.timings.threads, "timed_queries": known.timings.queries, "search_ms": known.timings.search_ms,
    }  # fmt: skip
    _keep(known.students[name], known.folder)
    if known.final:
        _write_card(known, rows, chosen.name, name, runtime, verdict.baseline)
    assert recipe.teacher is not None
    title = f"Students of {Path(recipe.teacher.model or recipe.teacher.scores or '').name}"
    warnings = known.task.warnings
    write_results(known.task, known.folder, rows, known.seconds, title, warnings=warnings, compression=told)
    return read_compressed(known.folder)


def read_compressed(folder: Path) -> Compressed:
    """The result in a folder, also of a run that was killed after its first student."""
    place = folder / METRICS
    found = read_sealed(place)
    try:
        told: dict[str, Any] = found["compression"]
        given = {key: value for key, value in told["verdict"].items() if key not in ("level", "line")}
        return Compressed(
            folder,
            [ResultRow(**row) for row in found["rows"]],
            told["recommended"],
            told["student"],
            told["meets"],
            Verdict(Level[told["verdict"]["level"]], **given),
            told["front"],
            told["next"],
            told["notes"],
            float(found["seconds"]),
            int(told["threads"]),
            list(found["warnings"]),
        )
    except (TypeError, KeyError, ValueError) as error:
        raise bad_input(place, "is not a result of compress", "remove it and run the command again") from error


def _related(known: Known) -> list[ResultRow]:
    """The rows with their times and what they keep: the teacher, then baselines, then students, from fast to slow."""
    kinds = ("teacher", "baseline", "student")
    rows = [replace(one.row, ms_per_query=known.timings.ms.get(one.row.name)) for one in known.measured]
    teacher, whole = next((row for row in rows if row.kind == "teacher"), None), known.whole
    found = []
    for row in rows:
        kept = row.measures[known.measure] / whole if whole else None
        base = teacher.ms_per_query if teacher is not None else None
        speedup = base / row.ms_per_query if base and row.ms_per_query else None
        found.append(replace(row, kept=kept, speedup=speedup))
    return sorted(found, key=lambda row: (kinds.index(row.kind), row.ms_per_query or 0.0))


def _offer(row: ResultRow, known: Known) -> Offer | None:
    if row.ms_per_query is None:
        return None
    beside = known.timings.search_ms if known.searches else known.timings.ms.get("BM25")
    total = row.ms_per_query + (0.0 if row.name == "BM25" else beside or 0.0)
    quality = row.measures[known.measure]
    return Offer(row.name, row.kind, quality, row.ms_per_query, total, row.bytes_per_document, row.kept)


def _timed(known: Known, runtime: str) -> str:
    """How times were measured, for the student's card, and how to run the student as fast."""
    until = "its vector is there" if known.searches else "its candidates are in order"
    threads = f"{known.timings.threads} {'thread' if known.timings.threads == 1 else 'threads'}"
    told = f"ms/query is the median time of single queries until {until}, tokenising included, on {threads}"
    told += f" of {machine(threads=False)}. Rows that name no runtime ran in PyTorch."
    return told if runtime == "torch" else f"{told} Run it with `--runtime {runtime}` of Limbeck's commands."


def _use(known: Known, name: str, runtime: str) -> Use:
    task = known.task
    data, teacher = task.recipe.data, task.recipe.teacher
    assert teacher is not None
    queries, labels = task.facts()["queries_train"], getattr(task.data, "qrels", {})
    keeps = name in known.keeping
    return Use(
        known.folder,
        data.source,
        runtime,
        known.searches,
        keeps,
        queries,
        len(labels.get(data.train, {})),
        teacher.vectors,
        teacher.length,
    )


def _write_card(
    known: Known, rows: Sequence[ResultRow], chosen: str, name: str, runtime: str, baseline: str | None
) -> None:
    """The card of the recommended student, next to its other runtimes and tested against the verdict's baseline."""
    results = {one.row.name: one.result for one in known.measured}
    tested = None
    if baseline is not None and len(results[chosen]) > 1:
        found = results[chosen].compare(results[baseline], known.measure)
        p = list(found.p_values.values())[-1]
        tested = {"against": baseline, "p": p, "difference": found.difference, "low": found.low, "high": found.high}
    shown = [replace(row, significance=tested) if row.name == chosen else row for row in rows]
    variants = [name, *(f"{name}, {each}" for each in RUNTIMES)]
    own = KeptStudent(chosen, load_recipe(known.folder / "recipe.yaml"), known.task, variants, len(results[chosen]))
    write_card(known.folder / "student", own, shown, known.task.warnings, _timed(known, runtime))


def _keep(student: Path, folder: Path) -> None:
    """Copy the recommended student, and its recipe, to the places of a run's own."""
    with directory_atomically(folder / "student") as place:
        shutil.copytree(student, place, dirs_exist_ok=True)
    shutil.copyfile(student.parent / "recipe.yaml", folder / "recipe.yaml")
