"""A student's card: README.md in its folder, in the format of the hub's model cards.

The card says what the student was distilled from and on, what it keeps, what it costs and how to load it. It names no
path of this machine. It is not in the folder's list of checksums, so it may be edited.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck import __version__
from limbeck.file_list import NAME as LIST
from limbeck.files import slug, write_atomically
from limbeck.matchers import Matcher
from limbeck.matchers.config import TEACHER
from limbeck.matchers.names import hub_name
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.teacher_spec import TeacherSpec
from limbeck.report.task_words import WORDS, TaskWords
from limbeck.runs.card_loading import CARD, Loading, loading_of
from limbeck.runs.card_results import RUNTIMES, in_short, results_section, runtimes_section
from limbeck.runs.results import ResultRow
from limbeck.runs.task import Task
from limbeck.runtimes.measure import Measured as RuntimeRow

LOADING = "## Use it"
ORIGIN = "## How it was made"
HUB = "https://huggingface.co"


@dataclass(frozen=True)
class KeptStudent:
    """The student in a run's `student/`: its row in the table, its recipe and its task."""

    name: str
    recipe: Recipe
    task: Task
    variants: Sequence[str] = ()  # rows of the same student in other runtimes
    tested: int | None = None  # how many queries or pairs it was measured on; by default those of the test split


def write_card(
    place: Path,
    student: KeptStudent,
    rows: Sequence[ResultRow],
    warnings: Sequence[str] = (),
    timed: str | None = None,
) -> None:
    """Write the card of the student in the folder `place`; `rows` are those of its run's table, and `timed` says how
    their times were measured.
    """
    recipe, words = student.recipe, WORDS[student.task.measured_as]
    row = next((each for each in rows if each.name == student.name and each.kind == "student"), None)
    loading = loading_of(place, recipe.student.output_count, recipe.student.text_count or 2)
    parts = [f"# {recipe.name}", " ".join([_what(recipe), *([in_short(row, words)] if row is not None else [])])]
    if row is not None:
        own = {student.name, *student.variants}
        shown = [each for each in rows if each.measures and (each.kind != "student" or each.name in own)]
        parts.append(results_section(shown, row, words, _tested_on(student, words), warnings, timed))
    else:
        parts.append("It was not measured: there are no labelled test data.")
    parts += [_loading_section(loading), _origin(student, words)]
    with write_atomically(place / CARD, "w") as handle:
        handle.write(_text(_front_matter(student, loading, row), parts))


def plain_card(place: Path, name: str, matcher: Matcher) -> str:
    """The card of a model whose run is not known: what it is and how to load it."""
    loading = loading_of(place, matcher.outputs, matcher.texts)
    return _text(_yaml(loading), [f"# {name}", "A model that Limbeck saved.", _loading_section(loading)])


def add_runtimes(place: Path, rows: Sequence[RuntimeRow], measured_on: str) -> None:
    """Add speed by runtime to the card of a student, in the place of an earlier such section.

    Cards of other models stay as they are: those that Limbeck did not write, and those in the hub's cache.
    """
    card = place / CARD
    if not card.is_file() or card.is_symlink() or not (place / LIST).is_file() or not os.access(place, os.W_OK):
        return
    before, found, rest = card.read_text(encoding="utf-8").partition(f"{RUNTIMES}\n")
    if found:
        _, heading, kept = rest.partition("\n## ")
        heading = heading.lstrip()
    else:
        before, heading, kept = before.partition(f"{LOADING}\n")
    with write_atomically(card, "w") as handle:
        handle.write(f"{before.rstrip()}\n\n{runtimes_section(rows, measured_on)}\n\n{heading}{kept}".rstrip() + "\n")


def _text(yaml: str, parts: Sequence[str]) -> str:
    return "\n\n".join([f"---\n{yaml}\n---", *parts]) + "\n"


def _front_matter(student: KeptStudent, loading: Loading, row: ResultRow | None) -> str:
    recipe, data = student.recipe, _hub_data(student.recipe.data.source)
    facts: dict[str, Any] = {"base_model": hub_name(_start(recipe)), "datasets": [data] if data else None}
    if row is not None:
        facts |= {"model_name": recipe.name, "eval_results": _eval_results(student, row, loading.pipeline)}
    return _yaml(loading, **facts)


def _yaml(loading: Loading, **facts: Any) -> str:
    """What the hub reads, as huggingface_hub writes it."""
    from huggingface_hub import ModelCardData

    tags = [*dict.fromkeys([loading.library, "limbeck", "knowledge-distillation", *loading.tags])]
    data = ModelCardData(library_name=loading.library, pipeline_tag=loading.pipeline, tags=tags, **facts)
    return str(data.to_yaml())


def _eval_results(student: KeptStudent, row: ResultRow, task: str) -> list[Any]:
    from huggingface_hub import EvalResult

    spec, name = student.recipe.data, student.task.data.name
    data = _hub_data(spec.source) or slug(name)
    return [
        EvalResult(task, data, name, measure, round(value, 4), dataset_split=spec.test)
        for measure, value in row.measures.items()
    ]


def _hub_data(source: str) -> str | None:
    """`owner/name` of a data set on the hub: `hf:owner/name:part`."""
    return source.removeprefix("hf:").partition(":")[0] if source.startswith("hf:") else None


def _start(recipe: Recipe) -> str | None:
    """The model that the student started from; if that is the teacher, what the teacher started from."""
    start, teacher = recipe.student.init_from, recipe.teacher
    if start != TEACHER or teacher is None:
        return start
    return teacher.train.init_from if teacher.train is not None else teacher.model


def _what(recipe: Recipe) -> str:
    kind = recipe.student.kind.replace("_", " ")
    if recipe.teacher is None:
        return f"A {kind}, trained with Limbeck without a teacher."
    return f"A {kind}, distilled with Limbeck from {_teacher(recipe.teacher)}."


def _teacher(spec: TeacherSpec) -> str:
    if spec.model is not None:
        return _named(spec.model)
    if spec.train is not None:
        return f"a {spec.train.kind.replace('_', ' ')} that was fine-tuned from {_named(spec.train.init_from)} first"
    return "given scores"


def _named(model: str | None) -> str:
    """A model of the hub as a link; of a model on this machine only the last part of its path."""
    name = hub_name(model)
    return f"[{name}]({HUB}/{name})" if name else f"a local model (`{Path(str(model)).name}`)"


def _tested_on(student: KeptStudent, words: TaskWords) -> str:
    task = student.task
    if student.tested is not None:
        return f"{student.tested:,} held-out {words.examples} of {task.data.name}"
    return f"{task.facts()['queries_test']:,} test {words.examples} of {task.data.name}"


def _loading_section(loading: Loading) -> str:
    blocks = [f"With {library}:\n\n```python\n{code}\n```" for library, code in loading.code.items()]
    return "\n\n".join([LOADING, *blocks])


def _origin(student: KeptStudent, words: TaskWords) -> str:
    recipe, facts = student.recipe, student.task.facts()
    spec = recipe.student
    texts = f"{facts['queries_train']:,} training {words.examples} of {student.task.data.name}"
    texts += f", {facts['documents']:,} documents" if "documents" in facts else ""
    layers = f", layers {list(spec.layers) if isinstance(spec.layers, tuple) else spec.layers}" if spec.layers else ""
    stages = [" + ".join(stage.objectives) for stage in recipe.stages]
    lines = [
        f"Start: {_named(_start(recipe))}{layers}",
        f"Teacher: {_teacher(recipe.teacher) if recipe.teacher is not None else 'none'}",
        f"Data: {texts}",
        "Objectives: " + ", then ".join(f"`{objectives}`" for objectives in stages),
        f"Tokens: {spec.query_length} of a query, {spec.document_length} of a document",
        f"Seed: {recipe.seed}; Limbeck {__version__}",
    ]
    return "\n".join([ORIGIN, "", *(f"- {line}" for line in lines)])
