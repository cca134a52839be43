"""Judged queries with a few candidates each, to measure what a runtime costs in nDCG@10.

The candidates of a query are its relevant documents and those that BM25 finds in a sample of the corpus: a whole corpus
would take too long, and random documents are too easy to show a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.data.dataset import Qrels, RankingData, Run, positives

SPLITS = ("dev", "validation", "valid", "train", "test")  # the first of these that is judged
QUERIES = 100
CANDIDATES = 10  # of a query; at most half of them relevant
CORPUS = 5_000  # documents that BM25 searches
SEED = 0


@dataclass(frozen=True)
class Judged:
    """Queries of a split, their candidates, and the grades of these."""

    split: str
    queries: dict[str, str]  # texts by id
    documents: dict[str, str]
    qrels: Qrels
    candidates: dict[str, list[str]]

    def __str__(self) -> str:
        pairs = sum(map(len, self.candidates.values()))
        return f"{len(self.queries)} {self.split} queries with {pairs / len(self.queries):.0f} candidates each"

    def ndcg(self, score: Callable[[Sequence[tuple[str, str]]], np.ndarray]) -> float:
        """The mean nDCG@10 of the candidates in the order of their scores."""
        import ir_measures

        named = [(query, document) for query, own in self.candidates.items() for document in own]
        scores = np.asarray(score([(self.queries[query], self.documents[document]) for query, document in named]))
        run: Run = {query: {} for query in self.queries}
        for (query, document), value in zip(named, scores.ravel().tolist(), strict=True):
            run[query][document] = value
        return float(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], self.qrels, run)[ir_measures.nDCG @ 10])


def judged_of(data: RankingData, queries: int = QUERIES, seed: int = SEED) -> Judged | None:
    """A sample of the judged queries of a set, by seed; None if no query has a relevant document."""
    generator = np.random.default_rng(seed)
    splits = dict.fromkeys(split for split in (*SPLITS, *data.qrels) if split in data.qrels)
    drawn = ((split, _drawn(data, data.qrels[split], queries, generator)) for split in splits)
    split, right = next(((split, found) for split, found in drawn if found), ("", {}))
    if not right:
        return None
    texts = dict(zip(right, data.queries.take(data.queries.rows(right).tolist()), strict=True))
    pool = _pool(data, right, generator)
    names, grades = list(pool), data.qrels[split]
    candidates = {}
    for query, rows in zip(right, _bm25(list(texts.values()), list(pool.values())), strict=True):
        others = [names[row] for row in rows if grades[query].get(names[row], 0) < 1]
        candidates[query] = [*right[query], *others][:CANDIDATES]
    used = {document: pool[document] for own in candidates.values() for document in own}
    qrels = {query: {name: grades[query][name] for name in own} for query, own in right.items()}
    return Judged(split, texts, used, qrels, candidates)


def _drawn(data: RankingData, judged: Qrels, most: int, generator: np.random.Generator) -> dict[str, list[str]]:
    """Some queries of a split, and some of their relevant documents; what the data lack is passed over."""
    ids, found = sorted(judged), dict[str, list[str]]()
    for row in generator.permutation(len(ids)).tolist():
        names = [name for name in positives(judged[ids[row]]) if name in data.corpus][: CANDIDATES // 2]
        if names and ids[row] in data.queries:
            found[ids[row]] = names
        if len(found) == most:
            break
    return found


def _pool(data: RankingData, right: dict[str, list[str]], generator: np.random.Generator) -> dict[str, str]:
    """The relevant documents and a sample of the others: texts by id, in the order of the corpus."""
    count = len(data.corpus)
    drawn = generator.choice(count, size=min(CORPUS, count), replace=False).tolist()
    rows = sorted({*drawn, *(data.corpus.row(name) for names in right.values() for name in names)})
    return dict(zip(data.corpus.ids_at(rows), data.corpus.take(rows), strict=True))


def _bm25(queries: list[str], documents: list[str]) -> np.ndarray:
    """Rows of the best documents for each query: [queries, k]."""
    import bm25s

    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index(bm25s.tokenize(documents, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(queries, return_ids=False, show_progress=False)
    most = min(2 * CANDIDATES, len(documents))
    return np.asarray(index.retrieve(tokens, k=most, show_progress=False, n_threads=1).documents)
