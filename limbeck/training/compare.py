"""Several students of one teacher, side by side: the same data, start and steps, other objectives."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.data import Texts, ranked
from limbeck.evaluation import rerank, retrieve
from limbeck.evaluation.rank import encodes_ahead
from limbeck.files import alone_in, write_json
from limbeck.matchers import Matcher
from limbeck.search.sparse import bm25_candidates
from limbeck.training.recipe import Recipe
from limbeck.training.results import Bench, finish
from limbeck.training.run import (
    METRICS,
    Result,
    claim_folder,
    finished_run,
    measure_references,
    train_student,
    write_results,
)
from limbeck.training.session import Session

EXAMPLE_RESULTS = 3


def compare(
    recipe: Recipe,
    variants: Mapping[str, Sequence[str]],
    folder: Path,
    against: str | None = None,
    questions: Sequence[str] = (),
    note: str = "",
) -> Result:
    """Train a student for each of `variants` (name -> objectives of its last stage) and measure all of them.

    `against` names the variant that the others are tested against. The best on dev becomes the run's `student`, and
    answers `questions` beside the teacher, for the report.
    """
    claim_folder(folder, recipe)
    if (folder / METRICS).exists():
        return finished_run(folder)
    with alone_in(folder):
        began = time.monotonic()
        session = Session(recipe, folder)
        students: dict[str, Matcher] = {}
        for name, objectives in variants.items():
            stages = [*recipe.stages[:-1], recipe.stages[-1].model_copy(update={"objectives": list(objectives)})]
            students[name] = train_student(session, recipe.student, stages, name, folder / "students" / slug(name))
        bench = Bench(session)
        measured = measure_references(session, bench)
        measured += [bench.model(name, "student", students[name], " + ".join(variants[name])) for name in students]
        rows = finish(measured, against)
        dev = session.judged_dev
        best = max(students, key=lambda name: next(iter(dev(students[name]).values()))) if dev else next(iter(students))
        students[best].save_pretrained(folder / "student")
        if questions and session.teacher is not None:
            examples = answer(session, session.teacher, best, students[best], questions)
            write_json(folder / "examples.json", examples)
        seconds = time.monotonic() - began
        write_results(session, rows, seconds, title=recipe.name, note=note)
        return Result(folder, rows, seconds)


def answer(
    session: Session, teacher: Matcher, name: str, student: Matcher, questions: Sequence[str]
) -> list[dict[str, Any]]:
    """What teacher and student put first for questions in somebody's own words.

    The student searches the whole corpus, as it can; the teacher re-ranks what the student and BM25 found.
    """
    depth = session.recipe.evaluation.depth
    asked = Texts.from_dict({str(number): question for number, question in enumerate(questions)})
    data = replace(session.data, queries=asked)
    found = bm25_candidates(data, list(asked), depth, session.sparse)
    ahead = encodes_ahead(student)
    searched = retrieve(student, data, list(asked), depth) if ahead else rerank(student, data, found)
    both = {key: list(dict.fromkeys([*found[key], *searched[key]])) for key in asked}
    runs = {"teacher": rerank(teacher, data, both), name: searched}
    return [
        {
            "query": asked[key],
            "lists": [
                {
                    "name": who,
                    "results": [
                        {"id": document, "score": run[key][document], "text": data.corpus[document]}
                        for document in ranked(run[key])[:EXAMPLE_RESULTS]
                    ],
                }
                for who, run in runs.items()
            ],
        }
        for key in asked
    ]


def slug(name: str) -> str:
    """A name as a folder's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
