"""Search over token vectors: exactly as by comparing everything, and by candidates that miss little."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.data.dataset import RankingData, Texts
from limbeck.errors import LimbeckError
from limbeck.evaluation.rank import rerank, retrieve, search_tokens, token_index
from limbeck.matchers import build, matcher_config
from limbeck.matchers.interactions.maxsim import max_similarities
from limbeck.search.late import TokenIndex, exact_late_search
from limbeck.stores import EncodingStore
from limbeck.stores.ragged import Ragged


class Late:
    """The part of a ColBERT that search needs."""

    @staticmethod
    def match(queries: Ragged, documents: Ragged) -> np.ndarray:
        return max_similarities(queries, documents)


def some_texts(count: int, seed: int, longest: int = 9, dim: int = 16) -> Ragged:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest + 1, size=count)
    vectors = generator.normal(size=(int(lengths.sum()), dim)).astype(np.float32)
    return Ragged(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), lengths)


def test_exact_search_orders_the_whole_corpus_for_any_blocks():
    queries, documents = some_texts(70, 0), some_texts(50, 1)
    everything = max_similarities(queries, documents)
    order = np.argsort(-everything, axis=1, kind="stable")[:, :7]
    for size in (50, 13, 1):
        blocks = [documents.take(np.arange(start, min(start + size, 50))) for start in range(0, 50, size)]
        scores, rows = exact_late_search(Late(), queries, blocks, 7)
        assert np.array_equal(rows, order)
        assert np.allclose(scores, np.take_along_axis(everything, order, axis=1), atol=1e-5)


def test_the_token_index_finds_nearly_all_that_exact_search_finds_with_exact_scores():
    documents = some_texts(600, 2)
    queries = documents.take(np.arange(0, 600, 20))  # each is most like itself
    index = TokenIndex(documents)
    found = index.search(Late(), queries, k=5, probes=8, per_token=64)
    exact_scores, exact_rows = exact_late_search(Late(), queries, [documents], 5)
    assert [rows[0] for _, rows in found] == list(range(0, 600, 20))
    shared = np.mean([len(set(rows) & set(exact)) / 5 for (_, rows), exact in zip(found, exact_rows, strict=True)])
    assert shared > 0.8
    everything = max_similarities(queries, documents)
    for number, (scores, rows) in enumerate(found):
        assert np.allclose(scores, everything[number, rows], atol=1e-5)
        assert (np.diff(scores) <= 0).all()
    again = TokenIndex(documents).search(Late(), queries, k=5, probes=8, per_token=64)
    assert all(np.array_equal(one[1], other[1]) for one, other in zip(found, again, strict=True))
    assert exact_scores.shape == (30, 5)


def test_more_probes_find_no_fewer_documents():
    documents = some_texts(400, 3)
    index, query = TokenIndex(documents), some_texts(1, 4).vectors
    few, many = (set(index.candidates(query, probes, 32).tolist()) for probes in (1, index.index.nlist))
    assert len(few) < len(many)


def test_nothing_to_index_is_refused():
    with pytest.raises(LimbeckError, match="no token vectors to index"):
        TokenIndex(Ragged(np.zeros((0, 4), np.float32), np.zeros(0, np.int64)))


@pytest.fixture(scope="module")
def colbert(tiny_bert):
    return build(matcher_config(kind="colbert", start=tiny_bert, query_length=8, document_length=16, dim=16)).eval()


@pytest.fixture(scope="module")
def data() -> RankingData:
    words = "copy move open close read write file folder list sort".split()
    generator = np.random.default_rng(5)
    corpus = {f"d{number}": " ".join(generator.choice(words, size=6)) for number in range(90)}
    queries = {f"q{number}": " ".join(generator.choice(words, size=3)) for number in range(5)}
    return RankingData("toy", Texts.from_dict(corpus), Texts.from_dict(queries), {})


def test_a_colbert_searches_re_ranks_and_scores_alike(colbert, data, tmp_path):
    ids = list(data.queries)
    everything = colbert.score([(data.queries[q], text) for q in ids for _, text in data.corpus.items()]).reshape(5, 90)
    store = EncodingStore.open(tmp_path / "store", {"model": "tiny"}, colbert.dim, tokens="ragged")
    for run in (retrieve(colbert, data, ids, 10), retrieve(colbert, data, ids, 10, store)):
        for number, query in enumerate(ids):
            best = np.sort(everything[number])[::-1][:10]
            assert np.allclose(list(run[query].values()), best, atol=1e-4)
    lists = {query: data.corpus.ids_at(range(number, 60 + number)) for number, query in enumerate(ids)}
    ranked = rerank(colbert, data, lists)
    for number, query in enumerate(ids):
        rows = data.corpus.rows(list(ranked[query]))
        assert np.allclose(list(ranked[query].values()), everything[number, rows], atol=1e-4)
    by_tokens = search_tokens(token_index(colbert, data), colbert, data, ids, 10)
    exact = retrieve(colbert, data, ids, 10)
    assert np.mean([len(set(by_tokens[q]) & set(exact[q])) / 10 for q in ids]) > 0.7


def test_candidates_by_tokens_need_token_vectors(tiny_bert, data):
    with pytest.raises(LimbeckError, match="candidates: tokens requires a ColBERT"):
        token_index(build(matcher_config(start=tiny_bert, document_length=16)), data)
