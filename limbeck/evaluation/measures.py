"""Ranking measures: names as users write them, values from ir-measures.

The conventions (trec_eval, BEIR's scripts and ir-measures agree on these):

- The mean is over the judged queries. A query that the run misses counts as 0; an unjudged query is left out.
- A judged query without any relevant document counts as 0 in every measure. (The tables of `distill` and `sweep` leave
  such queries out, because they cannot distinguish models.)
- nDCG uses the grades as linear gains with a log2 discount. The other measures are binary: a document is relevant if
  its grade is at least `relevance_level`, 1 by default and 2 for TREC Deep Learning. nDCG ignores that level.
- On equal scores the document with the greater id comes first, as in trec_eval. ir-measures computes MRR@k with a
  program that has the opposite rule, so we sort here, and every measure sees the same ranking. Different scores are
  never treated as equal, while trec_eval compares them in single precision.
- `answer_recall@k` looks for answer strings instead of judged documents (`answers.py`). A query without answers counts
  as 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from limbeck.data.dataset import Candidates, Qrels, RankingData, Run, ranked
from limbeck.errors import LimbeckError
from limbeck.evaluation.answers import answer_recalls
from limbeck.evaluation.measure_names import canonical_name, needs_answers, parse_measure
from limbeck.evaluation.ranking_result import RankingResult

DEFAULT_MEASURES = ("ndcg@10", "mrr@10", "recall@100")


def evaluate_run(
    run: Candidates,
    qrels: Qrels,
    measures: Sequence[str] = DEFAULT_MEASURES,
    relevance_level: int = 1,
    data: RankingData | None = None,
) -> RankingResult:
    """Measure a run against judgements, by the conventions at the top of this file. Answer recall needs `data`."""
    if not qrels:
        raise LimbeckError("there are no judged queries; give qrels, or compare with a teacher instead")
    if relevance_level < 1:
        raise LimbeckError(
            f"relevance level {relevance_level} would make every judged document relevant; use 1 or more"
        )
    names = list(dict.fromkeys(canonical_name(name) for name in measures))
    query_ids = tuple(sorted(qrels))
    ranked = {query: run[query] for query in query_ids if run.get(query)}
    if any(query in run for query in query_ids) and not ranked:
        raise LimbeckError(
            "no judged query has any candidate; check the candidates, or whether queries and documents share words"
        )
    if run and not ranked:
        raise LimbeckError(
            f"none of the run's queries is judged (the run has {next(iter(run))!r}, the qrels have {query_ids[0]!r}); "
            "use the qrels of the split that the run was made from"
        )
    by_answer = {name: int(name.partition("@")[2]) for name in names if needs_answers(name)}
    values = _judged([name for name in names if name not in by_answer], query_ids, qrels, ranked, relevance_level)
    if by_answer:
        if data is None:
            raise LimbeckError(f"{next(iter(by_answer))}: needs data with answers, and none are given; use recall@k")
        found = answer_recalls(ranked, query_ids, list(by_answer.values()), data)
        values |= {name: found[cutoff] for name, cutoff in by_answer.items()}
    per_query = {name: values[name] for name in names}
    without = sum(not _has_relevant(qrels[query].values(), relevance_level) for query in query_ids)
    return RankingResult(query_ids, per_query, len(query_ids) - len(ranked), without)


def _judged(
    names: list[str], query_ids: Sequence[str], qrels: Qrels, run: Candidates, level: int
) -> dict[str, np.ndarray]:
    """The values from ir-measures: name -> [queries]."""
    if not names:
        return {}
    import ir_measures

    values = {name: np.zeros(len(query_ids)) for name in names}
    parsed = {parse_measure(name, level): name for name in names}
    place = {query: row for row, query in enumerate(query_ids)}
    for metric in ir_measures.iter_calc(list(parsed), qrels, _by_rank(run)):
        values[parsed[metric.measure]][place[metric.query_id]] = metric.value
    return values


def _has_relevant(grades: Iterable[int], relevance_level: int) -> bool:
    return any(grade >= relevance_level for grade in grades)


def _by_rank(run: Candidates) -> Run:
    """The same rankings with scores that cannot be tied or rounded: minus the rank."""
    ranks: Run = {}
    for query, scores in run.items():
        for document, score in scores.items():
            if math.isnan(score):
                raise LimbeckError(
                    f"the score of query {query!r}, document {document!r} is not a number; score it again"
                )
        ranks[query] = {document: -float(rank) for rank, document in enumerate(ranked(scores))}
    return ranks
