"""BM25 over a corpus, with bm25s.

score(q, d) = sum over the words w of q of idf(w) * tf / (tf + k1 * (1 - b + b * |d| / mean |d|)), with Lucene's
idf(w) = log(1 + (N - df + 0.5) / (df + 0.5)), which is positive. k1 = 0.9 and b = 0.4 are Anserini's defaults.

Every (word, document) term is computed when the index is built, so a query is a sum of columns; bm25s tokenises, stores
and memory-maps the columns, and adds them up. The counts behind the terms are stored too: new or deleted documents
change every term, but only new ones have to be read. The corpus is read in blocks, and apart from the vocabulary no
Python object outlives its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import bm25s
import numpy as np
import torch

from limbeck.data.dataset import RankingData, Run
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import checksum, digest, directory_atomically, read_json, write_json
from limbeck.progress import progress, track
from limbeck.search.analyzer import Words
from limbeck.search.counts import Counts, count_words
from limbeck.search.topk import best, keys, unpack

K1, B = 0.9, 0.4
_BLOCK = 4096
_MANIFEST = "limbeck.json"
_KIND = "limbeck bm25"
_TIMES, _LENGTHS = "times.npy", "lengths.npy"


class Corpus(Protocol):
    """Numbered texts with ids: `Texts`, or some of the rows of an index."""

    def __len__(self) -> int: ...

    def take(self, rows: Iterable[int]) -> list[str]: ...

    def ids_at(self, rows: Iterable[int]) -> list[str]: ...


class SparseIndex:
    """A BM25 index; rows are those of its corpus."""

    def __init__(self, words: Words, bm25: bm25s.BM25, counts: Counts, ids_digest: str) -> None:
        self._words = words
        self._bm25 = bm25
        self._counts = counts
        self._ids_digest = ids_digest
        self._fits: Corpus | None = None

    def __len__(self) -> int:
        return int(self._bm25.scores["num_docs"])

    @property
    def language(self) -> str:
        return self._words.language

    @property
    def words(self) -> Words:
        return self._words

    def knows(self, query: str) -> bool:
        """Whether a word of the query occurs in the corpus."""
        starts = self._bm25.scores["indptr"]
        return any(starts[word + 1] > starts[word] for word in self._bm25.get_tokens_ids(self._words.stems(query)))

    def search(self, query: str, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows and scores of the k best documents that share a word with the query, best first.

        Fewer if there are not enough, none if no word is known; on equal scores the earlier row comes first. `allowed`
        [documents] bool excludes documents.
        """
        found = self._bm25.get_tokens_ids(self._words.stems(query))
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        scores = self._bm25.get_scores_from_ids(found)  # [documents]
        rows = np.flatnonzero(scores > 0 if allowed is None else (scores > 0) & allowed)
        top, places = unpack(best(keys(torch.from_numpy(scores[rows])), k))
        return rows[places.numpy()], top.numpy()

    def terms(self, query: str, row: int) -> dict[str, float]:
        """The contribution of each word of the query (by its stem) to a document's score; they sum to the score."""
        found: dict[str, float] = {}
        matrix = self._bm25.scores
        for stem in self._words.stems(query):
            for column in self._bm25.get_tokens_ids([stem]):
                start, end = matrix["indptr"][column : column + 2]
                place = np.flatnonzero(matrix["indices"][start:end] == row)
                if len(place):
                    found[stem] = found.get(stem, 0.0) + float(matrix["data"][start + place[0]])
        return found

    def require_corpus(self, corpus: Corpus) -> None:
        """Refuse a corpus with other ids, or another order, than the indexed one."""
        if self._fits is not corpus and (len(corpus) != len(self) or _ids_digest(corpus) != self._ids_digest):
            raise LimbeckError(f"the BM25 index of {len(self):,} documents belongs to another corpus; build it again")
        self._fits = corpus

    def save(self, path: str | Path) -> None:
        """Write a folder that `load` can map: arrays and JSON, no pickle."""
        with directory_atomically(path) as folder:
            self._bm25.save(folder, show_progress=False)
            np.save(folder / _TIMES, self._counts.times, allow_pickle=False)
            np.save(folder / _LENGTHS, self._counts.lengths, allow_pickle=False)
            files = {file.name: checksum(file) for file in sorted(folder.iterdir())}
            facts = {"kind": _KIND, "language": self.language, "ids": self._ids_digest, "files": files}
            write_json(folder / _MANIFEST, facts)

    @classmethod
    def load(cls, path: str | Path, check: bool = True) -> SparseIndex:
        """Open a saved index, memory-mapped, after a check of its files unless the caller has checked them."""
        path = Path(path)
        remedy = "remove the folder and build the index again"
        facts = read_json(path / _MANIFEST, remedy)
        if not isinstance(facts, dict) or facts.get("kind") != _KIND:
            raise bad_input(path, "is not a BM25 index", "name another folder")
        files = facts["files"] if check else {}
        for name, expected in track(files.items(), "Checking the BM25 index", len(files)):
            file = path / Path(name).name
            if not file.is_file() or checksum(file) != expected:
                raise bad_input(file, "is missing or damaged", remedy)
        missing = next((name for name in (_TIMES, _LENGTHS) if not (path / name).is_file()), None)
        if missing is not None:
            raise bad_input(path / missing, "is missing: an earlier version of limbeck did not store counts", remedy)
        bm25 = bm25s.BM25.load(path, mmap=True, show_progress=False)
        times, lengths = (np.load(path / name, mmap_mode="r", allow_pickle=False) for name in (_TIMES, _LENGTHS))
        counts = Counts(bm25.scores["indptr"], bm25.scores["indices"], times, lengths)
        return cls(Words(facts["language"]), bm25, counts, facts["ids"])

    def changed(self, keep: np.ndarray, added: Corpus, whole: Corpus) -> SparseIndex:
        """The index of `whole`: the documents in `keep` [documents] bool, then `added`; only these are read."""
        vocabulary = dict(self._bm25.vocab_dict)
        fresh, blocks = _read(self._words, added)
        numbers = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in fresh], dtype=np.int64)
        mapped = [(numbers[words] if len(words) else words, lengths) for words, lengths in blocks]
        counts = self._counts.without(keep)
        if len(added):
            counts = counts.followed_by(count_words(mapped, len(vocabulary)))
        return _weighted(self._words, vocabulary, counts, self._bm25.k1, self._bm25.b, whole)


def require_parameters(k1: float, b: float) -> None:
    """Refuse invalid parameters of BM25."""
    if not (np.isfinite(k1) and k1 >= 0):
        raise LimbeckError(f"k1 is {k1}; give a finite number from 0 up, usually 0.9 to 2")
    if not 0 <= b <= 1:
        raise LimbeckError(f"b is {b}; give a number from 0 to 1")


def bm25_index(corpus: Corpus, language: str = "english", k1: float = K1, b: float = B) -> SparseIndex:
    """Index a corpus in memory; `SparseIndex.save` writes it to disk."""
    require_parameters(k1, b)
    words = Words(language)
    vocabulary, blocks = _read(words, corpus)
    return _weighted(words, vocabulary, count_words(blocks, len(vocabulary)), k1, b, corpus)


def _read(words: Words, corpus: Corpus) -> tuple[dict[str, int], list[tuple[np.ndarray, np.ndarray]]]:
    """The vocabulary of a corpus, and blocks of documents in the form of `count_words`."""
    tokenizer = words.tokenizer()
    blocks = []
    with progress("Reading words", len(corpus)) as advance:
        for start in range(0, len(corpus), _BLOCK):
            texts = corpus.take(range(start, min(start + _BLOCK, len(corpus))))
            documents = list(tokenizer.streaming_tokenize(texts, allow_empty=False))
            lengths = np.array([len(document) for document in documents])
            blocks.append((np.array([word for document in documents for word in document], dtype=np.int32), lengths))
            advance(len(texts))
    return tokenizer.get_vocab_dict(), blocks


def _weighted(
    words: Words, vocabulary: dict[str, int], counts: Counts, k1: float, b: float, corpus: Corpus
) -> SparseIndex:
    if not len(counts.rows):
        raise LimbeckError(f"the corpus of {len(corpus):,} documents has no words to index; check its texts")
    bm25 = bm25s.BM25(method="lucene", k1=k1, b=b)
    bm25.vocab_dict, bm25.unique_token_ids_set = vocabulary, set(vocabulary.values())  # like `load` in bm25s
    bm25.nonoccurrence_array = None
    bm25.scores = {
        "data": counts.weights(k1, b),
        "indices": counts.rows,
        "indptr": counts.starts,
        "num_docs": len(counts.lengths),
    }
    return SparseIndex(words, bm25, counts, _ids_digest(corpus))


def bm25_candidates(
    data: RankingData, query_ids: Sequence[str], k: int = 1000, index: SparseIndex | None = None
) -> Run:
    """The k best documents of each query by BM25; an empty list if no word of the query is known.

    Each list is in rank order. On equal scores the earlier document of the corpus comes first.
    """
    if index is None:
        index = bm25_index(data.corpus)
    index.require_corpus(data.corpus)
    run: Run = {}
    for query in track(query_ids, "BM25"):
        rows, scores = index.search(data.queries[query], k)
        run[query] = dict(zip(data.corpus.ids_at(rows), scores.tolist(), strict=True))
    return run


def _ids_digest(corpus: Corpus) -> str:
    """A digest of all ids in order, with one block in memory at a time."""
    whole = ""
    for start in range(0, len(corpus), _BLOCK):
        whole = digest(whole, *corpus.ids_at(range(start, min(start + _BLOCK, len(corpus)))))
    return whole
