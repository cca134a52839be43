"""The sample of judged queries: hard candidates, the same for a seed, and nDCG@10 by hand."""

from __future__ import annotations

import numpy as np

from limbeck.data.dataset import RankingData, Texts
from limbeck.runtimes.judged import CANDIDATES, Judged, judged_of

COLOURS = ["red", "green", "blue", "white", "black", "grey"]


def data(**qrels: dict[str, dict[str, int]]) -> RankingData:
    """Documents of two colours each; the query of a document is its first colour."""
    names = [f"{first} {second}" for first in COLOURS for second in COLOURS]
    corpus = Texts.from_dict({f"d{at}": f"{text} paint number {at}" for at, text in enumerate(names)})
    queries = Texts.from_dict({f"q{at}": text.split()[0] for at, text in enumerate(names)})
    return RankingData("toy", corpus, queries, qrels)


def test_ndcg_by_hand():
    """Grades 2 and 1 at ranks 2 and 3 of one query; the other query's document comes first."""
    judged = Judged(
        "dev",
        {"a": "A", "b": "B"},
        {"x": "X", "y": "Y", "z": "Z"},
        {"a": {"y": 2, "z": 1}, "b": {"x": 1}},
        {"a": ["x", "y", "z"], "b": ["x", "y"]},
    )
    scores = {("A", "X"): 3.0, ("A", "Y"): 2.0, ("A", "Z"): 1.0, ("B", "X"): 0.5, ("B", "Y"): -1.0}
    found = judged.ndcg(lambda pairs: np.array([[scores[pair]] for pair in pairs]))
    gain = (2 / np.log2(3) + 1 / np.log2(4)) / (2 / np.log2(2) + 1 / np.log2(3))
    assert np.isclose(found, (gain + 1) / 2)


def test_candidates_are_the_relevant_ones_and_the_nearest_by_words():
    found = judged_of(data(dev={"q0": {"d0": 1, "d9": 0}, "q7": {"d7": 1}}))
    assert found is not None and set(found.queries) == {"q0", "q7"} and found.queries["q0"] == "red"
    own = found.candidates["q0"]
    assert own[0] == "d0" and len(own) == len(set(own)) == CANDIDATES
    red = {f"d{at}" for at in range(36) if "red" in found.documents.get(f"d{at}", "")}
    assert len(red & set(own)) >= 9
    assert found.qrels == {"q0": {"d0": 1}, "q7": {"d7": 1}}


def test_dev_comes_before_other_splits_and_a_seed_draws_the_same():
    many = {f"q{at}": {f"d{at}": 1} for at in range(36)}
    both = data(test=many, train=many, dev={"q1": {"d1": 1}})
    assert judged_of(both).split == "dev"
    assert judged_of(data(test=many, train=many)).split == "train"
    assert judged_of(data(own=many)).split == "own"
    first, again, other = (judged_of(data(train=many), 5, seed) for seed in (3, 3, 4))
    assert first == again and len(first.queries) == 5
    assert list(first.queries) != list(other.queries)


def test_what_the_data_lack_is_passed_over():
    """Judgements may name queries and documents that are not in the files."""
    missing = {"q0": {"nowhere": 1}, "unknown": {"d1": 1}, "q2": {"d2": 0}}
    assert judged_of(data(dev=missing)) is None
    assert judged_of(data()) is None
    assert judged_of(data(dev=missing, train={"q3": {"d3": 1, "nowhere": 1}})).qrels == {"q3": {"d3": 1}}


def test_many_relevant_documents_leave_room_for_others():
    found = judged_of(data(dev={"q0": {f"d{at}": 1 for at in range(30)}}))
    right = set(found.qrels["q0"])
    assert len(right) == CANDIDATES // 2 and right < set(found.candidates["q0"])
    assert all(int(name[1:]) >= 30 for name in set(found.candidates["q0"]) - right)  # no other relevant one
