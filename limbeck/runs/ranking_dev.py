"""Evaluate a model on dev queries during training: with labels, or by its agreement with the teacher."""

from __future__ import annotations

from dataclasses import dataclass, field

from limbeck.data import Qrels, RankingData, Run
from limbeck.evaluation import evaluate_run, rerank
from limbeck.evaluation.agreement import agreement
from limbeck.matchers import Matcher
from limbeck.matchers.bf16 import in_bf16


@dataclass
class JudgedDev:
    """nDCG@10 and the recipe's measures on labelled dev queries, and on some training queries."""

    data: RankingData
    labels: Qrels
    candidates: dict[str, list[str]]
    measures: list[str]
    level: int
    train_labels: Qrels
    train_candidates: dict[str, list[str]]
    bf16: bool = False
    run: Run = field(default_factory=dict)  # the last one that was evaluated

    def __call__(self, matcher: Matcher) -> dict[str, float]:
        with in_bf16(matcher, self.bf16):
            return self._measured(matcher)

    def _measured(self, matcher: Matcher) -> dict[str, float]:
        self.run = rerank(matcher, self.data, self.candidates)
        found = evaluate_run(self.run, self.labels, self.measures, self.level, self.data).means
        if self.train_candidates:
            first = self.measures[0]
            trained = rerank(matcher, self.data, self.train_candidates)
            found[f"train {first}"] = evaluate_run(trained, self.train_labels, [first], self.level).means[first]
        return found


@dataclass(frozen=True)
class AgreementWithTeacher:
    """The agreement of a model and the teacher on the candidates of dev queries, if dev has no labels."""

    data: RankingData
    reference: Run  # the teacher's
    bf16: bool = False

    def __call__(self, matcher: Matcher) -> dict[str, float]:
        lists = {query: list(scores) for query, scores in self.reference.items()}
        with in_bf16(matcher, self.bf16):
            means = agreement(rerank(matcher, self.data, lists), self.reference, k=5).means
        return {"spearman": means.pop("spearman"), **means}
