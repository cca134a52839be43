"""Quality and cost of a model in a runtime, measured in the same way for teacher, baselines and students."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limbeck.data import RankingData, Run, ranked
from limbeck.errors import LimbeckError
from limbeck.evaluation import rerank, retrieve
from limbeck.evaluation.evaluate import size_in_mb
from limbeck.evaluation.latency import measure_interleaved
from limbeck.evaluation.speed import one_query_ranker
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.encoders import encoders
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.progress import reporting, say
from limbeck.runs.compress.exam import TOP, Exam
from limbeck.runs.reference import has_one_vector
from limbeck.runs.results import Measured, ResultRow, RowKind
from limbeck.runs.task import Task
from limbeck.runtimes.choice import installed_runtimes
from limbeck.runtimes.measure import on_threads
from limbeck.runtimes.use import TORCH, use_runtime
from limbeck.search.exact import exact_search
from limbeck.training.stored_outputs import stored_embeddings

RUNTIMES = (TORCH, "onnx", "int8")
BLOCK, MOST_BLOCKS = 8, 6
SAMPLE = 64  # documents whose encodings are measured in bytes
MOST_BYTES = 2**30  # of vectors to time a search with


@dataclass(frozen=True)
class Search:
    """A search to time, and how many times as many vectors there are."""

    call: Callable[[str], object]
    factor: float


class CompressBench:
    """Models on the held-out queries of one task."""

    def __init__(self, task: Task, data: RankingData, threads: int) -> None:
        self.task, self.data, self.threads = task, data, threads

    def runtimes_of(self, matcher: Matcher) -> list[str]:
        """The runtimes that can run a model here."""
        if matcher.device.type != "cpu" or not encoders(matcher):
            return [TORCH]
        return [name for name in RUNTIMES if name in installed_runtimes()]

    def load(self, folder: str | Path, documents: Path) -> Matcher:
        """A student in torch. Its document vectors are computed once, in float32, and kept in `documents`."""
        return self.ready(load_matcher(folder), documents)

    def ready(self, matcher: Matcher, documents: Path) -> Matcher:
        use_runtime(matcher, TORCH)
        self.serve(matcher, documents)
        return matcher

    def serve(self, matcher: Any, documents: Path) -> None:
        """Take document vectors from disk, whatever runtime encodes the queries: an index has them already."""
        self.task.reference.serve_documents(matcher)
        if has_one_vector(matcher) and matcher.encoded is None and hasattr(matcher, "read_outputs_from"):
            matcher.read_outputs_from(stored_embeddings(matcher, documents))

    def in_runtime(self, matcher: Matcher, runtime: str) -> bool:
        """Run the model there from now on; False if it cannot."""
        try:
            use_runtime(matcher, runtime)
        except LimbeckError as error:  # its outputs are not torch's
            say(str(error))
            use_runtime(matcher, TORCH)
        return matcher.runtime == runtime

    def ranking(self, matcher: Matcher, exam: Exam) -> Run:
        """The model's ranking of an exam's queries."""
        if exam.candidates is None:
            return retrieve(matcher, self.data, exam.queries, TOP)
        return rerank(matcher, self.data, exam.candidates)

    def bm25(self, exam: Exam) -> Run:
        """BM25's search, or its order of the candidates that the other models order, too."""
        task: Any = self.task
        if exam.candidates is None:
            return dict(task.bm25(exam.queries, TOP))
        corpus, run = self.data.corpus, dict[str, dict[str, float]]()
        for query, documents in exam.candidates.items():
            allowed = np.zeros(len(corpus), dtype=bool)
            allowed[corpus.rows(documents)] = True
            rows, scores = task.sparse.search(self.data.queries[query], len(documents), allowed)
            found = dict(zip(corpus.ids_at(rows), scores.tolist(), strict=True))
            run[query] = dict.fromkeys(documents, 0.0) | found
        return run

    def measured(self, name: str, kind: RowKind, matcher: Matcher, exam: Exam, run: Run | None = None) -> Measured:
        """A row of the table without its times, which are measured for all rows together; `run` is its ranking if it is
        known already.
        """
        run = self.ranking(matcher, exam) if run is None else run
        result = exam.judge(run)
        best = {query: {key: scores[key] for key in ranked(scores)[:TOP]} for query, scores in run.items()}
        size = size_in_mb(matcher)
        row = ResultRow(name, kind, result.means, size_mb=size, bytes_per_document=self.bytes_per_document(matcher))
        return Measured(row, result, best)

    def bytes_per_document(self, matcher: Matcher) -> float:
        """Bytes of what is kept of a document, as float32."""
        if not encodes_apart(matcher):
            return 0.0
        rows = np.unique(np.linspace(0, len(self.data.corpus) - 1, SAMPLE).astype(np.int64))
        found: Any = matcher.encode(self.data.corpus.take(rows), 1)
        return float(getattr(found, "vectors", found).size * 4 / len(rows))

    def call(self, matcher: Matcher, exam: Exam) -> Callable[[str], object]:
        """The work at query time, given a query's id: encode the query, or re-rank its candidates."""
        queries = self.data.queries
        if exam.candidates is None:
            encoder: Any = matcher
            return lambda query: encoder.encode([queries[query]], 0)
        return one_query_ranker(matcher, self.data, {query: exam.candidates[query] for query in self.timed(exam)})

    def timed(self, exam: Exam) -> list[str]:
        """The queries that are timed, spread over the exam."""
        known = [query for query in exam.queries if exam.candidates is None or exam.candidates.get(query)]
        return [known[at] for at in np.unique(np.linspace(0, len(known) - 1, BLOCK * MOST_BLOCKS).astype(int))]

    def times(
        self, calls: Mapping[str, Callable[[str], object]], exam: Exam, queries: int | None = None
    ) -> dict[str, float]:
        """Milliseconds per query (the median) of all models, timed in turns on the stated number of threads.

        Without a number of `queries` it takes all those that are timed.
        """
        if len(calls) > 1:
            say(f"Timing {len(calls)} models in turns")
        with reporting(None), on_threads(self.threads), torch.inference_mode():  # drawing progress would disturb it
            found = measure_interleaved(calls, self.timed(exam)[:queries], BLOCK)
        return {name: latency.p50_ms for name, latency in found.items()}

    def search(self, dim: int) -> Search:
        """An exact search of as many vectors as there are documents, or of a part of them that fits into memory."""
        documents = len(self.data.corpus)
        rows = min(documents, MOST_BYTES // (4 * dim))
        drawn = np.random.default_rng(0)
        vectors = drawn.standard_normal((rows, dim), dtype=np.float32)
        query = drawn.standard_normal((1, dim), dtype=np.float32)
        return Search(lambda _: exact_search(query, [vectors], TOP), documents / rows)
