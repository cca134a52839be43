"""The documents that teacher and student score most differently ("In defense of dual-encoders", Table 3, App. C.4).

The paper shows pairs that a cross-encoder scores low and a dual encoder high: they share many words with the query
but are not relevant. So this analysis counts and marks the words that query and document share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from limbeck.data.dataset import Candidates, Qrels, RankingData, ranked
from limbeck.errors import LimbeckError
from limbeck.progress import track
from limbeck.report.analyses.base import Result, finite_scores
from limbeck.report.analyses.measured_run import MeasuredRun
from limbeck.report.analyses.registry import Analysis, analysis
from limbeck.report.analyses.terms import marked, shared_part, shared_stems
from limbeck.report.blocks import Block, Passage, Section, Text
from limbeck.report.colours import Colours
from limbeck.report.formatting import cut, signed
from limbeck.search.analyzer import Words

LONGEST_TEXT = 1600  # characters on the page: about as much as a student of 256 tokens reads
TOKENS_A_WORD = 1.5  # including special tokens and punctuation: 1.5 in medical questions, 1.6 in abstracts
USUAL_DOCUMENTS = 50  # documents of a list, to estimate the usual share of a query's words in a candidate
ROUNDING = 1e-6  # standard deviations: smaller gaps do not count


class Disagreement(Result):
    """A document with the scores of both models: raw, as ranks, and in standard deviations from the mean."""

    query_id: str
    query: str
    document_id: str
    text: str  # its beginning, as much as the student reads
    grade: int | None  # None: nobody judged it
    teacher_score: float
    student_score: float
    teacher_rank: int
    student_rank: int
    candidates: int  # documents that both models scored
    teacher_standard: float
    student_standard: float
    shared: float  # share of the query's words in the part of the document that the student reads

    @property
    def gap(self) -> float:
        """Positive if the student scores the document higher than the teacher does."""
        return self.student_standard - self.teacher_standard


@analysis
class Disagreements(Analysis):
    """The documents that the student overrates and underrates, largest gap first, one document per query in each.

    `usual` is the average share of the query's words in the candidates of these queries.
    """

    name = "disagreements"
    title = "Disagreements"
    about = "the documents that teacher and student judge most differently"
    place = 80
    by_default = True

    queries: int
    overrated: tuple[Disagreement, ...]
    underrated: tuple[Disagreement, ...]
    usual: float
    language: str
    at_least: int = 1  # lowest relevant grade
    words_read: int | None = None  # words of a document that the student reads; None: all

    def is_relevant(self, grade: int | None) -> bool:
        return grade is not None and grade >= self.at_least

    @classmethod
    def of(cls, run: MeasuredRun) -> Disagreements:
        teacher, student = run.scores(run.teacher), run.scores(run.best_student)
        level, read = run.relevance_level, run.document_length
        return disagreements(teacher, student, run.labels, run.data, at_least=level, tokens_read=read)

    def section(self, colours: Colours) -> Section:
        return disagreements_section(self)


class _Common(NamedTuple):
    """The documents of one query that both models scored."""

    query: str
    documents: list[str]
    teacher: np.ndarray  # [documents] scores
    student: np.ndarray  # [documents] scores


def disagreements(
    teacher_run: Candidates,
    student_run: Candidates,
    qrels: Qrels,
    data: RankingData,
    count: int = 10,
    language: str = "english",
    at_least: int = 1,
    tokens_read: int | None = None,
) -> Disagreements:
    """The `count` documents that the student overrates most, and the `count` that it underrates most.

    Scores of two models cannot be compared directly. So the query's mean is subtracted from each model's scores, and
    they are divided by the standard deviation of all centred scores of that model. The gap is the difference of these
    standardised scores. There is one deviation per model, not per query: a list in which a model sees no difference
    must not show large differences. Only documents that both models scored count, and only the largest gap of each
    query.

    With `tokens_read`, only words in the first tokens of a document count, because the student reads no more; tokens
    are converted to words, three tokens for two words. `at_least` is the lowest relevant grade.
    """
    if count < 1:
        raise LimbeckError(f"{count} disagreements are too few; ask for 1 or more")
    lists = _common(teacher_run, student_run)
    teacher = _standardised("teacher", [each.teacher for each in lists])
    student = _standardised("student", [each.student for each in lists])
    words = Words(language)
    words_read = None if tokens_read is None else max(1, round(tokens_read / TOKENS_A_WORD))

    def largest(sign: int) -> tuple[Disagreement, ...]:
        gaps = [
            np.where((sign * liked > 0) & (sign * wanted < 0), sign * (liked - wanted), 0.0)
            for liked, wanted in zip(student, teacher, strict=True)
        ]
        places = [int(gap.argmax()) for gap in gaps]
        most = sorted(range(len(lists)), key=lambda at: -gaps[at][places[at]])[:count]
        return tuple(
            _disagreement(lists[at], places[at], (teacher[at], student[at]), qrels, data, words, words_read)
            for at in most
            if gaps[at][places[at]] > ROUNDING
        )

    overrated, underrated = largest(1), largest(-1)
    shown = {each.query_id for each in (*overrated, *underrated)}
    usual = _usual_part([each for each in lists if each.query in shown], data, words, words_read)
    return Disagreements(
        queries=len(lists),
        overrated=overrated,
        underrated=underrated,
        usual=usual,
        language=language,
        at_least=at_least,
        words_read=words_read,
    )


def _read(text: str, words: int | None) -> str:
    """The first words of a text, on one line."""
    return " ".join(text.split()[:words])


def _common(teacher_run: Candidates, student_run: Candidates) -> list[_Common]:
    for name, run in (("teacher", teacher_run), ("student", student_run)):
        if not run:
            raise LimbeckError(f"the {name}'s run is empty; score the candidates of some queries first")
    lists = []
    for query in track(teacher_run, "Comparing scores"):
        teacher, student = teacher_run[query], student_run.get(query, {})
        both = [document for document in teacher if document in student]
        if len(both) > 1:
            scores = finite_scores("teacher", query, {document: teacher[document] for document in both})
            others = finite_scores("student", query, {document: student[document] for document in both})
            lists.append(_Common(query, both, scores, others))
    if not lists:
        raise LimbeckError(
            "teacher and student have no two documents of a query in common; score the same candidates with both"
        )
    return lists


def _standardised(name: str, lists: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Scores minus the query's mean, in standard deviations of the model: [documents] for each list."""
    centred = [scores - scores.mean() for scores in lists]
    deviation = float(np.concatenate(centred).std())
    if deviation == 0:
        raise LimbeckError(f"the {name} gives every document of a query the same score; use a model that ranks them")
    return [scores / deviation for scores in centred]


def _disagreement(
    common: _Common,
    place: int,
    standardised: tuple[np.ndarray, np.ndarray],
    qrels: Qrels,
    data: RankingData,
    words: Words,
    words_read: int | None,
) -> Disagreement:
    document = common.documents[place]
    query, text = data.queries[common.query], _read(data.corpus[document], words_read)
    return Disagreement(
        query_id=common.query,
        query=" ".join(query.split()),
        document_id=document,
        text=cut(text, LONGEST_TEXT),
        grade=qrels.get(common.query, {}).get(document),
        teacher_score=float(common.teacher[place]),
        student_score=float(common.student[place]),
        teacher_rank=_rank(common.documents, common.teacher, document),
        student_rank=_rank(common.documents, common.student, document),
        candidates=len(common.documents),
        teacher_standard=float(standardised[0][place]),
        student_standard=float(standardised[1][place]),
        shared=shared_part(words, query, text),
    )


def _rank(documents: Sequence[str], scores: np.ndarray, document: str) -> int:
    return ranked(dict(zip(documents, scores.tolist(), strict=True))).index(document) + 1


def _usual_part(lists: Sequence[_Common], data: RankingData, words: Words, words_read: int | None) -> float:
    """The mean share of the query's words in some candidates of each query, taken evenly from its list."""
    parts = []
    for each in track(lists, "Shared words"):
        documents = each.documents[:: -(-len(each.documents) // USUAL_DOCUMENTS)]
        query = data.queries[each.query]
        parts += [shared_part(words, query, _read(data.corpus[document], words_read)) for document in documents]
    return float(np.mean(parts)) if parts else 0.0


def disagreements_section(result: Disagreements) -> Section:
    """The passages, with the words marked that they share with their queries."""
    words = Words(result.language)
    blocks: list[Block] = [Text(_finding(result))]
    if result.overrated:
        blocks.append(
            Text("Overrated by the student: above its average of the query's candidates, and below the teacher's.")
        )
        blocks += [_passage(result, each, words) for each in result.overrated]
    if result.underrated:
        blocks.append(
            Text("Underrated by the student: below its average of the query's candidates, and above the teacher's.")
        )
        blocks += [_passage(result, each, words) for each in result.underrated]
    return Section(
        "Where teacher and student disagree",
        blocks,
        "Scores are compared in standard deviations from the mean of the query's candidates, one deviation for each "
        f"model; {result.queries:,} queries, one document of each. Words of the query are marked in the document. "
        f"{_extent(result)}",
    )


def _extent(result: Disagreements) -> str:
    if result.words_read is None:
        return "They are counted in the whole document."
    return f"They are counted in its first {result.words_read:,} words, about as much as the student reads."


def _finding(result: Disagreements) -> str:
    if not result.overrated:
        return "No document is above average for the student and below it for the teacher."
    overrated = float(np.mean([each.shared for each in result.overrated]))
    relevant = sum(result.is_relevant(each.grade) for each in result.overrated)
    verdict = (
        "it seems to rely on shared words"
        if overrated > result.usual + 0.1
        else "so shared words alone do not explain it"
    )
    return (
        f"What the student overrates has {overrated:.0%} of the query's words, the average candidate of the "
        f"queries below {result.usual:.0%}: {verdict}. {_count(relevant, result.overrated)} judged relevant."
    )


def _count(relevant: int, shown: Sequence[Disagreement]) -> str:
    return f"{relevant} of {len(shown)} {'is' if relevant == 1 else 'are'}"


def _passage(result: Disagreements, each: Disagreement, words: Words) -> Passage:
    shared = shared_stems(words, each.query, each.text)
    relevant = result.is_relevant(each.grade)
    notes = [_judgement(each.grade, relevant), *_ranks(each), f"gap {signed(each.gap, 1)}"]
    notes.append(f"{each.shared:.0%} of the query's words")
    heading, text = marked(words, each.query, shared), marked(words, each.text, shared)
    return Passage(heading, each.document_id, text, notes, good=relevant)


def _ranks(each: Disagreement) -> Iterable[str]:
    yield f"teacher #{each.teacher_rank} of {each.candidates} ({signed(each.teacher_standard, 1)})"
    yield f"student #{each.student_rank} ({signed(each.student_standard, 1)})"


def _judgement(grade: int | None, relevant: bool) -> str:
    if grade is None:
        return "not judged"
    return f"relevant ({grade})" if relevant else f"judged not relevant{f' ({grade})' if grade > 0 else ''}"
