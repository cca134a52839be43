"""Candidate lists that stay columnar: a run of forty million entries in a few hundred megabytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from limbeck.data.texts import Texts


class CandidateLists(Mapping[str, Mapping[str, float]]):
    """A read-only run on arrays: row numbers instead of ids, one list after the other.

    It reads like a nested dict (`lists[query][document]`, `items()`, `in`). The dict of a query is made on access, in
    list order. An entry takes 8 bytes (12 with scores in double precision).
    """

    def __init__(
        self,
        queries: Texts,
        corpus: Texts,
        query_rows: np.ndarray,  # [Q] rising rows of the queries that have a list
        starts: np.ndarray,  # [Q + 1] where each list starts
        document_rows: np.ndarray,  # [N]
        scores: np.ndarray,  # [N]
    ) -> None:
        self.queries, self.corpus = queries, corpus
        self.query_rows, self.starts = query_rows, starts
        self.document_rows, self.scores = document_rows, scores

    @classmethod
    def scored(
        cls, queries: Texts, corpus: Texts, query_rows: np.ndarray, document_rows: np.ndarray, scores: np.ndarray
    ) -> CandidateLists:
        """Lists from (query row, document row, score) in any order; if a pair is repeated, the first one counts."""
        pairs = query_rows.astype(np.int64) * max(len(corpus), 1) + document_rows
        _, first = np.unique(pairs, return_index=True)
        first.sort()
        kept = first[np.argsort(query_rows[first], kind="stable")]
        listed, starts = np.unique(query_rows[kept], return_index=True)
        rows = document_rows[kept].astype(np.int32 if len(corpus) < 2**31 else np.int64)
        return cls(queries, corpus, listed, np.append(starts, len(kept)), rows, scores[kept])

    @classmethod
    def ordered(
        cls, queries: Texts, corpus: Texts, query_rows: np.ndarray, document_rows: np.ndarray
    ) -> CandidateLists:
        """Lists of which only the order is known: the score of rank r is -r."""
        return cls.scored(queries, corpus, query_rows, document_rows, np.zeros(len(query_rows), np.float32)).by_order()

    def by_order(self) -> CandidateLists:
        """The same lists with the score of rank r set to -r."""
        ranks = np.arange(1, len(self.document_rows) + 1) - np.repeat(self.starts[:-1], np.diff(self.starts))
        scores = (-ranks).astype(np.float32)
        return CandidateLists(self.queries, self.corpus, self.query_rows, self.starts, self.document_rows, scores)

    def __getitem__(self, query: str) -> dict[str, float]:
        place = self._place(query)
        if place < 0:
            raise KeyError(query)
        inside = slice(self.starts[place], self.starts[place + 1])
        documents = self.corpus.ids_at(self.document_rows[inside])
        return dict(zip(documents, self.scores[inside].tolist(), strict=True))

    def __contains__(self, query: object) -> bool:
        return isinstance(query, str) and self._place(query) >= 0

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self.query_rows), 8192):
            yield from self.queries.ids_at(self.query_rows[start : start + 8192])

    def __len__(self) -> int:
        return len(self.query_rows)

    def _place(self, query: str) -> int:
        row = self.queries.row_or_none(query)
        if row is None:
            return -1
        place = int(self.query_rows.searchsorted(row))
        return place if place < len(self) and self.query_rows[place] == row else -1
