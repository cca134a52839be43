"""The answers of teacher and student to a user's own questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from limbeck.data import Texts, ranked
from limbeck.evaluation import rerank, retrieve
from limbeck.evaluation.rank import can_search
from limbeck.matchers import Matcher
from limbeck.runs.reference import has_one_vector
from limbeck.search.sparse import bm25_candidates

if TYPE_CHECKING:
    from limbeck.runs.ranking_task import RankingTask

RESULTS = 3


def answer(
    task: RankingTask, teacher: Matcher, name: str, student: Matcher, questions: Sequence[str]
) -> list[dict[str, Any]]:
    """The best documents of both models for every question.

    The student searches the whole corpus. So does a teacher with one vector per text; another one re-ranks the results
    of the student and of BM25.
    """
    depth = task.recipe.evaluation.depth
    asked = Texts.from_dict({str(number): question for number, question in enumerate(questions)})
    data = replace(task.data, queries=asked)
    found = bm25_candidates(data, list(asked), depth, task.sparse)
    ahead = can_search(student)
    searched = retrieve(student, data, list(asked), depth) if ahead else rerank(student, data, found)
    if has_one_vector(teacher):
        taught = retrieve(teacher, data, list(asked), depth)
    else:
        both = {key: list(dict.fromkeys([*found[key], *searched[key]])) for key in asked}
        taught = rerank(teacher, data, both)
    runs = {"teacher": taught, name: searched}
    return [
        {
            "query": asked[key],
            "lists": [
                {
                    "name": who,
                    "results": [
                        {"id": document, "score": run[key][document], "text": data.corpus[document]}
                        for document in ranked(run[key])[:RESULTS]
                    ],
                }
                for who, run in runs.items()
            ],
        }
        for key in asked
    ]
