"""`evaluation` in a recipe: how the result is measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from limbeck.errors import LimbeckError
from limbeck.evaluation.measure_names import canonical_name
from limbeck.evaluation.pairs import PAIR_MEASURES
from limbeck.matchers.calibration import check_criterion
from limbeck.recipe.part import Part
from limbeck.report.analyses.registry import AnalysisName, default_names


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

    attention_layer: int | None = Field(
        None, ge=0, description="the students' layer that `attention_maps` draws, from 0; the last by default"
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
