from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from limbeck.data.dataset import RankingData, Texts
from limbeck.errors import LimbeckError
from limbeck.progress import reporting
from limbeck.search import sparse
from limbeck.search.analyzer import Words
from limbeck.search.sparse import SparseIndex, bm25_candidates, bm25_index

DOCUMENTS = {
    "d0": "Copying files: shutil.copy_file copies one file to another place.",
    "d1": "Sort a list in place.",
    "d2": "",
    "d3": "The list of open files, and how to close a file.",
    "d4": "Sort a list in place.",
    "d5": "of the and",
    "d6": "Sorting sorted sorts: a list sorts lists.",
}


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> RankingData:
    monkeypatch.setattr(sparse, "_BLOCK", 3)
    queries = {"q0": "how do I copy a file", "q1": "sort lists", "none": "of the", "unknown": "xylophone", "empty": ""}
    return RankingData("tiny", Texts.from_dict(DOCUMENTS), Texts.from_dict(queries), {})


def by_hand(query: str, k1: float, b: float) -> dict[str, float]:
    """Lucene's BM25, straight from the formula."""
    words = Words()
    counts = {key: Counter(words.stems(text)) for key, text in DOCUMENTS.items()}
    mean = np.mean([count.total() for count in counts.values()])
    scores = {}
    for key, count in counts.items():
        norm = k1 * (1 - b + b * count.total() / mean)
        score = 0.0
        for word in words.stems(query):
            df = sum(word in other for other in counts.values())
            idf = math.log(1 + (len(counts) - df + 0.5) / (df + 0.5))
            score += idf * count[word] / (count[word] + norm)
        if score > 0:
            scores[key] = score
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75)])
def test_scores_are_lucenes_formula(data: RankingData, k1: float, b: float) -> None:
    run = bm25_candidates(data, ["q0", "q1"], 10, bm25_index(data.corpus, k1=k1, b=b))
    for query, scores in run.items():
        assert scores == pytest.approx(by_hand(data.queries[query], k1, b), rel=1e-5)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)


def test_equal_scores_keep_the_order_of_the_corpus_for_any_k(data: RankingData) -> None:
    full = list(bm25_candidates(data, ["q1"], 10)["q1"])
    assert full.index("d1") + 1 == full.index("d4")
    for k in range(1, len(full) + 1):
        assert list(bm25_candidates(data, ["q1"], k)["q1"]) == full[:k]


def test_queries_without_a_known_word_give_an_empty_list(data: RankingData) -> None:
    assert bm25_candidates(data, ["none", "unknown", "empty"], 10) == {"none": {}, "unknown": {}, "empty": {}}


def test_a_saved_index_is_memory_mapped_and_finds_the_same(data: RankingData, tmp_path: Path) -> None:
    index = bm25_index(data.corpus)
    index.save(tmp_path / "bm25")
    again = SparseIndex.load(tmp_path / "bm25")
    assert isinstance(again._bm25.scores["data"], np.memmap)
    assert (len(again), again.language) == (7, "english")
    queries = list(data.queries)
    assert bm25_candidates(data, queries, 5, again) == bm25_candidates(data, queries, 5, index)
    assert sorted(file.suffix for file in (tmp_path / "bm25").iterdir()) == [".json"] * 3 + [".npy"] * 5


def test_a_damaged_index_is_named_and_not_used(data: RankingData, tmp_path: Path) -> None:
    bm25_index(data.corpus).save(tmp_path / "bm25")
    victim = tmp_path / "bm25" / "data.csc.index.npy"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    with pytest.raises(LimbeckError, match=r"data\.csc\.index\.npy: is missing or damaged; .*build the index again"):
        SparseIndex.load(tmp_path / "bm25")
    victim.unlink()
    with pytest.raises(LimbeckError, match=r"data\.csc\.index\.npy: is missing or damaged"):
        SparseIndex.load(tmp_path / "bm25")
    with pytest.raises(LimbeckError, match="no such file"):
        SparseIndex.load(tmp_path / "absent")
    (tmp_path / "limbeck.json").write_text("{}")
    with pytest.raises(LimbeckError, match="is not a BM25 index"):
        SparseIndex.load(tmp_path)


@pytest.mark.parametrize("gone", [[], ["d0"], ["d3", "d6"], list(DOCUMENTS)[:6]])
@pytest.mark.parametrize("new", [{}, {"n0": "copy a xylophone", "n1": "", "n2": "sorted lists of xylophones"}])
def test_a_changed_index_is_as_fresh(data: RankingData, gone: list[str], new: dict[str, str], tmp_path: Path) -> None:
    bm25_index(data.corpus, k1=1.2).save(tmp_path / "bm25")
    left = {key: text for key, text in DOCUMENTS.items() if key not in gone}
    whole = Texts.from_dict(left | new)
    keep = np.array([key not in gone for key in DOCUMENTS])
    changed = SparseIndex.load(tmp_path / "bm25").changed(keep, Texts.from_dict(new), whole)
    changed.save(tmp_path / "changed")
    fresh = bm25_index(whole, k1=1.2)
    for index in (changed, SparseIndex.load(tmp_path / "changed")):
        index.require_corpus(whole)
        assert len(index) == len(whole)
        for query in ("copy a file", "sort lists", "xylophone", "of the", "copying open copying files"):
            rows, scores = index.search(query, 10)
            expected = fresh.search(query, 10)
            assert rows.tolist() == expected[0].tolist() and scores == pytest.approx(expected[1], rel=1e-6)
            assert index.knows(query) == fresh.knows(query)
            for row in rows.tolist():
                assert index.terms(query, row) == pytest.approx(fresh.terms(query, row), rel=1e-6)


def test_an_index_of_another_corpus_is_refused(data: RankingData) -> None:
    index = bm25_index(data.corpus)
    renamed = Texts.from_dict({f"other {key}": text for key, text in DOCUMENTS.items()})
    fewer = Texts.from_dict({"d0": "one"})
    for corpus in (renamed, fewer):
        with pytest.raises(LimbeckError, match="another corpus"):
            bm25_candidates(RankingData("other", corpus, data.queries, {}), ["q0"], 5, index)


def test_a_corpus_without_words_and_an_unknown_language_are_refused() -> None:
    with pytest.raises(LimbeckError, match="no words to index"):
        bm25_index(Texts.from_dict({"a": "", "b": "of the"}))
    with pytest.raises(LimbeckError, match="unknown language 'klingon'"):
        bm25_index(Texts.from_dict({"a": "word"}), language="klingon")
    with pytest.raises(LimbeckError, match="did you mean 'german'"):
        Words("germn")


def test_building_shows_progress_to_the_end(data: RankingData) -> None:
    class Counter:
        def __init__(self) -> None:
            self.seen: dict[str, list[int]] = {}

        def task(self, label: str, total: int | None):  # type: ignore[no-untyped-def]
            from contextlib import contextmanager

            @contextmanager
            def opened():  # type: ignore[no-untyped-def]
                self.seen[label] = [0, total or 0]

                def advance(units: int) -> None:
                    self.seen[label][0] += units

                yield advance

            return opened()

        def say(self, message: str) -> None: ...

    counter = Counter()
    with reporting(counter):
        bm25_index(data.corpus)
    assert counter.seen == {"Reading words": [7, 7], "Counting words": [3, 3], "Weighting words": [1, 1]}


@pytest.mark.parametrize(
    ("language", "document", "query"),
    [
        ("english", "copy_file copies", "copying"),
        ("german", "Die Häuser der Stadt", "häuser"),
        ("french", "les chevaux mangeaient", "manger"),
        ("russian", "красивые дома", "дом"),
        ("hindi", "लड़कियाँ किताबें पढ़ती हैं", "किताबें"),
        ("finnish", "talossa on kissoja", "kissoja"),
        ("arabic", "الكُتُبُ على الطاولة", "الكُتُبُ"),
    ],
)
def test_other_languages_are_stemmed_and_found(language: str, document: str, query: str) -> None:
    corpus = Texts.from_dict({"other": "zzz yyy", "wanted": document})
    rows, scores = bm25_index(corpus, language).search(query, 5)
    assert rows.tolist() == [1]
    assert scores[0] > 0


def test_words_are_lowered_split_at_underscores_stemmed_and_stop_words_dropped() -> None:
    assert Words().stems("The Copy_Files are COPYING, x = 2 of 42!") == ["copi", "file", "copi", "42"]
    assert Words("hindi").stems("किताब") == Words("hindi").stems("किताब ")
    assert len(Words("hindi").stems("हिन्दी")) == 1  # vowel signs do not part a word


def test_an_index_without_its_counts_is_refused_even_unchecked(data: RankingData, tmp_path: Path) -> None:
    bm25_index(data.corpus).save(tmp_path / "bm25")
    (tmp_path / "bm25" / "times.npy").unlink()
    with pytest.raises(
        LimbeckError,
        match=r"times\.npy: is missing: an earlier version of limbeck did not store counts; remove the folder",
    ):
        SparseIndex.load(tmp_path / "bm25", check=False)
