"""What each student gets wrong that the teacher gets right: a few queries, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.data import ranked
from limbeck.files import write_json
from limbeck.runs.compress.setting import Setting
from limbeck.runs.results import Measured

MISTAKES = "mistakes.json"
QUERIES, RESULTS = 2, 3


def write_mistakes(setting: Setting, folder: Path, measured: Sequence[Measured]) -> None:
    """For every student, the queries on which it loses most against the teacher, with the best results of both."""
    exam, names = setting.test, {candidate.name for candidate in setting.candidates}
    teacher = exam.judge(exam.teacher)
    found: list[dict[str, Any]] = []
    for one in measured:
        if one.row.name in names and exam.teacher:
            lost = teacher.per_query[exam.measure] - one.result.per_query[exam.measure]  # type: ignore[attr-defined]
            for at in np.argsort(-lost, kind="stable")[:QUERIES].tolist():
                if lost[at] > 0:
                    found.append(_shown(setting, one, teacher.query_ids[at]))
    write_json(folder / MISTAKES, found)


def _shown(setting: Setting, student: Measured, query: str) -> dict[str, Any]:
    lists = {"teacher": setting.test.teacher[query], student.row.name: student.run[query]}
    corpus = setting.data.corpus
    return {
        "query": setting.data.queries[query],
        "lists": [
            {
                "name": name,
                "results": [
                    {"id": document, "score": run[document], "text": corpus[document]}
                    for document in ranked(run)[:RESULTS]
                ],
            }
            for name, run in lists.items()
        ],
    }
