"""One run's data, candidates and teacher; each is made once and cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limbeck.data import Candidates, RankingData, Run, load, read_scores
from limbeck.data.by_kind import require_ranking
from limbeck.data.queries import read_unlabelled, text_key
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult, candidate_run, first_of, with_judged, with_random
from limbeck.evaluation.answers import require_answers
from limbeck.evaluation.measure_names import needs_answers
from limbeck.generation.spans import LENGTHS, Spans
from limbeck.matchers import Matcher
from limbeck.progress import say
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import ListSpec, Stage
from limbeck.runs.analyse import Analyst
from limbeck.runs.example_answers import answer
from limbeck.runs.ranking_bench import RankingBench
from limbeck.runs.ranking_dev import AgreementWithTeacher, JudgedDev
from limbeck.runs.results import Measured
from limbeck.runs.task import DevMeasure, Task
from limbeck.search.sparse import SparseIndex, bm25_candidates, bm25_index
from limbeck.stores import ScoreStore
from limbeck.training.annotate import annotate, teacher_identity, with_queries
from limbeck.training.lists import RankedQuery, RankingLists, TextLists, draw_rows, leave_out_likely_positives
from limbeck.training.negatives import candidate_pools
from limbeck.training.processes import is_main, main_first
from limbeck.training.queries import QuerySplits, split_queries
from limbeck.training.targets import COSINE_SCALE, scale_cosines
from limbeck.training.trainer import standardiser


class RankingTask(Task):
    """A ranking set, candidates for its queries, and the teacher's scores of them."""

    result_type = RankingResult

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        super().__init__(recipe, folder)
        for place, stage in recipe.every_stage().items():
            if stage.group_by_text:
                raise LimbeckError(f"{place}.group_by_text requires pairs; use {place}.lists.in_batch, or drop it")
        self._pools: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        self._unlabelled: list[str] = []

    @cached_property
    def data(self) -> RankingData:
        source = self.recipe.data.source
        data = require_ranking(load(source, needs_queries=not self.recipe.data.spans), source)
        tested = data.qrels.get(self.recipe.data.test or "", data.answers)
        require_answers(data, self.recipe.evaluation.measures, tested)
        if self.recipe.data.unlabelled is not None:
            data, self._unlabelled = with_queries(data, self.recipe.data.unlabelled)
        return data

    @property
    def corpus(self) -> Texts:
        return self.data.corpus

    @property
    def has_test(self) -> bool:
        return bool(self.splits.test_labels)

    def no_test(self) -> str:
        split = self.recipe.data.test
        grades = [grade for found in self.data.qrels.get(split or "", {}).values() for grade in found.values()]
        if grades:
            return f"no grade of split {split!r} is above 0 (the highest is {max(grades)}), so nothing is relevant"
        if self.data.answered.get(split or ""):
            return f"split {split!r} has answers but no judged passages (measure it with answer_recall@k alone)"
        return super().no_test()

    def facts(self) -> dict[str, int]:
        splits = self.splits
        return {
            "queries_train": len(splits.train),
            "queries_dev": len(splits.dev),
            "queries_test": len(splits.test),
            "documents": len(self.data.corpus),
        }

    @cached_property
    def splits(self) -> QuerySplits:
        data = self.data  # before its unlabelled queries are known
        by_answers = all(map(needs_answers, self.recipe.evaluation.measures))
        return split_queries(data, self.recipe.data, self.recipe.data_seed, self._unlabelled, by_answers)

    def warn_of_irrelevance(self) -> None:
        """Warn that measures are 0 because no test document has the required grade, not because models are bad."""
        labels, level = self.splits.test_labels, self.recipe.evaluation.relevance_level
        best = max((grade for grades in labels.values() for grade in grades.values()), default=level)
        if best < level:
            self.warn(f"no test document has grade {level} (the highest is {best}), so all measures except nDCG are 0")

    @property
    def measured_as(self) -> str:
        return self.recipe.evaluation.task

    @property
    def snapshot_dev(self) -> JudgedDev | None:
        return self.judged_dev

    @cached_property
    def bench(self) -> RankingBench:
        return RankingBench(self)

    def own_baselines(self) -> dict[str, tuple[str, Callable[[], Measured]]]:
        return {"bm25": ("BM25", lambda: self.bench.bm25())}

    def require_outputs(self, who: str, matcher: Matcher) -> None:
        if matcher.outputs != 1:
            problem = f"the {who} gives {matcher.outputs} scores per pair, but rankings need a single score"
            raise LimbeckError(f"{problem}; use a {who} with one output")

    def can_measure(self, matcher: Matcher) -> bool:
        return matcher.outputs == self.recipe.student.output_count

    def analyse(self, measured: Sequence[Measured], folder: Path, names: Sequence[str], strict: bool = False) -> None:
        Analyst(self, measured, folder).run(names, strict)

    def answer(self, teacher: Matcher, name: str, student: Matcher, questions: Sequence[str]) -> list[dict[str, Any]]:
        return answer(self, teacher, name, student, questions)

    def read_given_scores(self) -> None:
        _ = self.given_scores

    @cached_property
    def sparse(self) -> SparseIndex:
        return bm25_index(self.data.corpus)

    def bm25(self, query_ids: list[str], depth: int) -> Run:
        """BM25's best documents of the whole corpus."""
        return bm25_candidates(self.data, query_ids, depth, self.sparse)

    def candidates(self, query_ids: list[str], split: str, depth: int) -> dict[str, list[str]]:
        """The candidates of each query: BM25's best, or given lists."""
        spec = self.recipe.evaluation
        source = spec.candidates if split == self.recipe.data.test else spec.dev_candidates or spec.candidates
        index = self.sparse if source == "bm25" else None
        found = first_of(candidate_run(self.data, query_ids, source, split, depth, index), query_ids, depth)
        found = with_judged(found, self.data.qrels.get(split, {})) if spec.add_judged else found
        if spec.random and split == self.recipe.data.test:
            found = with_random(found, self.data.corpus, spec.random, self.recipe.data_seed)
        return found

    @property
    def dev_split(self) -> str:
        """The split of the dev queries; the training split, if dev is held out of it."""
        spec = self.recipe.data
        return spec.dev if spec.dev is not None and spec.dev in self.data.qrels else spec.train

    @cached_property
    def judged_dev(self) -> JudgedDev | None:
        """How a model is evaluated during training, if dev has labels.

        One process evaluates for all; the others need no candidates and build no BM25.
        """
        spec, splits = self.recipe.evaluation, self.splits
        if not splits.dev_labels:
            return None
        count = min(spec.train_queries, len(splits.dev_labels))
        trained = [query for query in splits.train if query in splits.train_labels][:count]
        return JudgedDev(
            self.data,
            splits.dev_labels,
            self.candidates(list(splits.dev_labels), self.dev_split, spec.dev_depth) if is_main() else {},
            list(dict.fromkeys(["ndcg@10", *spec.measures])),
            spec.relevance_level,
            {query: splits.train_labels[query] for query in trained},
            self.candidates(trained, self.recipe.data.train, spec.dev_depth) if trained and is_main() else {},
            spec.bf16,
        )

    @cached_property
    def student_dev(self) -> DevMeasure | None:
        """How a student is evaluated during training; without labels, by its agreement with the teacher."""
        if self.judged_dev is not None or not self.splits.dev:
            return self.judged_dev
        reference = self.teacher_run(self.candidates(self.splits.dev, self.dev_split, self.recipe.evaluation.dev_depth))
        if not reference:
            return None
        return AgreementWithTeacher(self.data, reference, self.recipe.evaluation.bf16)

    @cached_property
    def store(self) -> ScoreStore:
        """The teacher's scores on disk, keyed by the teacher's identity."""
        assert self.teacher is not None
        return ScoreStore.open(self.scores_place, teacher_identity(self.teacher, self.data))

    def teacher_run(self, candidates: dict[str, list[str]]) -> Run:
        """The teacher's scores of some candidates; computed and stored if it has a model, otherwise looked up."""
        spec = self.recipe.teacher
        if spec is None:
            return {}
        if self.teacher is None:
            known = self.given_scores
            found = {
                query: {document: known[query][document] for document in documents if document in known[query]}
                for query, documents in candidates.items()
                if query in known
            }
            return {query: scores for query, scores in found.items() if scores}
        store = self.store
        self.reference.serve_documents(self.teacher)  # a document is in many lists
        with main_first() as main:
            if main:
                annotate(self.teacher, self.data, candidates, store)
        store.refresh()
        return {
            query: dict(zip(documents, self.store.lookup(query, documents).tolist(), strict=True))
            for query, documents in candidates.items()
            if documents
        }

    @cached_property
    def given_scores(self) -> Candidates:
        """Scores that were made elsewhere."""
        assert self.recipe.teacher is not None and self.recipe.teacher.scores is not None
        path = Path(self.recipe.teacher.scores)
        if path.is_dir():
            return ScoreStore.read(path).to_run()
        return read_scores(path, self.data)

    @cached_property
    def standardise(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        spec = self.recipe.teacher
        if spec is None or spec.standardise == "none":
            return None
        if spec.standardise == "auto":
            return scale_cosines if self.teacher_gives_cosines(f"multiplied by {COSINE_SCALE:g}") else None
        run = self.given_scores if self.teacher is None else self.store.to_run()
        known = [score for query in self.splits.train if query in run for score in run[query].values()]
        return standardiser(spec.standardise, torch.tensor(known))

    def lists(self, stage: Stage, seed: int) -> RankingLists | TextLists:
        """The training lists of a stage, with stored teacher scores if an objective needs them.

        Objectives that only use queries train on all of them, with or without documents.
        """
        data, splits = self.data, self.splits
        if stage.takes_texts:
            most = stage.steps * stage.batch_size if stage.steps else None
            return TextLists(*self._texts(stage.student_signals, most, seed))
        if not splits.train:
            problem = f"{data.name}: there are no training queries, and {', '.join(stage.objectives)} needs some"
            raise LimbeckError(f"{problem}; add queries, or match embeddings, which spans of documents serve")
        if stage.needs_labels and not splits.train_labels:
            problem = f"{data.name}: {', '.join(stage.objectives)} learns from labels, and split"
            remedy = "add qrels, or distil from a teacher with softmax_ce"
            raise LimbeckError(f"{problem} {self.recipe.data.train!r} has none; {remedy}")
        pools = self._pool(stage.lists)
        queries = [
            RankedQuery(
                id=query,
                positives=_by_row(data, splits.train_labels.get(query, {})),
                pool=pools[query],
                labelled=query in splits.train_labels,
            )
            for query in splits.train
            if query in splits.train_labels or not stage.only_labels
        ]
        teacher = self.recipe.teacher
        cached = teacher is not None and not teacher.live and "scores" in stage.teacher_signals
        if cached or stage.lists.asks_teacher:
            self._add_scores(queries)
        if stage.lists.false_negative_margin is not None:
            dropped = leave_out_likely_positives(queries, stage.lists.false_negative_margin)
            say(f"{dropped:,} candidates left out: the teacher considers them positive")
        return RankingLists(data.corpus, data.queries, queries, stage.lists.size, stage.lists.pick, seed)

    def sample_texts(self, most: int | None, seed: int, positions: Sequence[int] = (0, 1)) -> list[list[str]]:
        """Texts of which half are queries, if there are enough."""
        queries = documents = list[str]()
        share = None if most is None else most // len(positions)
        if 0 in positions:
            queries, _ = self._texts(frozenset({"queries"}), share, seed)
        if 1 in positions:
            left = None if most is None else most - len(queries)
            _, documents = self._texts(frozenset({"documents"}), left, seed)
        return [list(dict.fromkeys(queries)), list(dict.fromkeys(documents))]

    def _texts(self, sides: frozenset[str], most: int | None, seed: int) -> tuple[list[str], list[str]]:
        """Training queries and documents of the corpus, including extra unlabelled ones; at most `most` are drawn."""
        corpus = self.data.corpus
        queries = self._queries_and_spans if "queries" in sides else []
        further = self._further_documents if "documents" in sides else []
        rows = draw_rows([len(queries), len(corpus) if "documents" in sides else 0, len(further)], most, seed)
        documents = corpus.take(rows[1]) + [further[row] for row in rows[2].tolist()]
        return [queries[row] for row in rows[0].tolist()], documents

    @cached_property
    def _queries_and_spans(self) -> list[str]:
        """The texts of all training queries, and the number of spans of each document that the recipe asks for."""
        queries, count = self.data.queries, self.recipe.data.spans
        found = queries.take(queries.rows(self.splits.train))
        if not count:
            return found
        lengths = tuple(len(text.split()) for text in found) or LENGTHS
        corpus = self.data.corpus
        records = [corpus.record_at(row) for row in range(len(corpus))]
        drawn = Spans(count, self.recipe.data_seed, lengths).write(records)
        seen = {text_key(text) for text in found} | {""}
        new = {text_key(text): text for spans in drawn for text in spans}
        return found + [text for key, text in new.items() if key not in seen]

    @cached_property
    def _further_documents(self) -> list[str]:
        path = self.recipe.data.unlabelled_documents
        return read_unlabelled(path, "document") if path is not None else []

    def _pool(self, spec: ListSpec) -> dict[str, np.ndarray]:
        scores_only = self.recipe.teacher is not None and self.recipe.teacher.only_scores
        source = ("scored" if scores_only else "bm25") if spec.negatives == "auto" else spec.negatives
        key = (source, spec.pool)
        if key not in self._pools:
            self._pools[key] = candidate_pools(
                self.data,
                self.splits.train,
                self.splits.train_labels,
                source,
                spec.pool,
                ranked_lists={
                    "bm25": lambda depth: self.bm25(self.splits.train, depth),
                    "given": lambda _: self.data.candidates(self.recipe.data.train),
                    "scored": lambda _: self.given_scores,
                },
                seed=self.recipe.data_seed,
            )
        return self._pools[key]

    def _add_scores(self, queries: list[RankedQuery]) -> None:
        corpus = self.data.corpus
        rows = {query.id: np.union1d(query.pool, np.array(list(query.positives), dtype=np.int64)) for query in queries}
        run = self.teacher_run({query: corpus.ids_at(wanted) for query, wanted in rows.items()})
        known = 0
        for query in queries:
            scores = run.get(query.id, {})
            found = corpus.rows(scores)
            order = np.argsort(found)
            query.scored = found[order]
            query.scores = np.fromiter(scores.values(), dtype=np.float32, count=len(scores))[order]
            known += len(scores)
        total = sum(map(len, rows.values()))
        if known == 0:
            raise LimbeckError("the teacher's scores contain none of the training pairs; check their ids")
        if known < total:
            say(f"{total - known:,} of {total:,} training pairs have no teacher score and are not distilled")


def _by_row(data: RankingData, grades: Mapping[str, int]) -> dict[int, float]:
    """The relevant documents of one query, by corpus row."""
    relevant = {document: float(grade) for document, grade in grades.items() if grade > 0}
    return dict(zip(data.corpus.rows(relevant).tolist(), relevant.values(), strict=True))
