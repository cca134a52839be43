"""Training triples (query, positive, negative): triples of ids become row numbers on disk; texts are streamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from limbeck.data.cache import cached_array, file_state
from limbeck.data.candidates import CandidateLists
from limbeck.data.columns import read_columns
from limbeck.data.dataset import Pair, PairData
from limbeck.data.lines import lines, open_binary
from limbeck.data.texts import Texts
from limbeck.errors import bad_input


class Triples:
    """Triples as an array of rows, [n, 3] int32, memory-mapped: forty million use 480 MB of disk and no memory.

    Iterating yields (query id, positive id, negative id).
    """

    def __init__(self, queries: Texts, corpus: Texts, rows: np.ndarray) -> None:
        self.queries, self.corpus, self.rows = queries, corpus, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        for start in range(0, len(self), 8192):
            query, positive, negative = self.rows[start : start + 8192].T
            yield from zip(
                self.queries.ids_at(query), self.corpus.ids_at(positive), self.corpus.ids_at(negative), strict=True
            )

    def candidates(self) -> CandidateLists:
        """A list for each query: its positives, then its negatives, in order of their first occurrence."""
        query, positive, negative = np.asarray(self.rows, dtype=np.int64).T
        return CandidateLists.ordered(
            self.queries, self.corpus, np.concatenate([query, query]), np.concatenate([positive, negative])
        )


def read_triples(path: str | Path, queries: Texts, corpus: Texts) -> Triples:
    """MS MARCO's `qidpidtriples.*.tsv`: query id, positive id, negative id."""
    path = Path(path)
    with open_binary(path):
        source = f"triples {path.resolve()}"
    state = f"{file_state(path)} {queries.fingerprint} {corpus.fingerprint}"
    rows = cached_array(source, state, lambda: _rows(path, queries, corpus))
    if len(rows) == 0:
        raise bad_input(path, "contains no triples", "write `query positive negative` ids separated by tabs")
    return Triples(queries, corpus, rows)


def load_text_triples(path: str | Path) -> PairData:
    """MS MARCO's `triples.train.small.tsv` (texts of query, positive and negative) as two labelled pairs per line."""
    path = Path(path)
    pairs = [
        Pair((query, document), label)
        for query, *documents in _text_triples(path)
        for document, label in zip(documents, (1, 0), strict=True)
    ]
    if not pairs:
        raise bad_input(path, "contains no triples", "write query, positive and negative separated by tabs")
    return PairData(path.name, {"train": list(dict.fromkeys(pairs))})


def _text_triples(path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) != 3:
            problem = f"has {len(fields)} tab-separated fields, not 3"
            raise bad_input(path, problem, "write query, positive and negative separated by tabs", number)
        empty = next((at for at, text in enumerate(fields, 1) if not text.strip()), None)
        if empty is not None:
            raise bad_input(path, f"text {empty} is empty", "write every text or leave the line out", number)
        yield fields[0], fields[1], fields[2]


def _rows(path: Path, queries: Texts, corpus: Texts) -> Iterator[np.ndarray]:
    for block in read_columns(path, ("query", "positive", "negative")):
        sides = (("query", "query", queries), ("positive", "document", corpus), ("negative", "document", corpus))
        yield np.stack([block.rows(*side) for side in sides], axis=1).astype(np.int32)
