from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.data import RankingData, Texts
from limbeck.data.passages import Passages
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.recipe.data_spec import DataSpec
from limbeck.recipe.stage import ListSpec
from limbeck.search.build import build_index
from limbeck.training.batches import BatchPlan, Collator
from limbeck.training.lists import RankedQuery, RankingLists, leave_out_likely_positives
from limbeck.training.negatives import candidate_pools
from limbeck.training.queries import draw, split_queries
from tests.conftest import WORDS
from tests.training.toy import ToyLists

CORPUS = Texts.from_dict({f"d{number}": f"text {number}" for number in range(50)})
QUERIES = Texts.from_dict({"q0": "zero", "q1": "one", "q2": "two"})
RUN = {"q0": {f"d{number}": float(-number) for number in range(20)}, "q1": {"d3": 1.0, "d4": 2.0}}
DATA = RankingData("toy", CORPUS, QUERIES, qrels={"train": {"q0": {"d0": 1, "d2": 2, "d5": 0}}})


def pools(source: str, size: int = 6, seed: int = 0) -> dict[str, np.ndarray]:
    lists = {"bm25": lambda depth: RUN}
    return candidate_pools(DATA, ["q0", "q1", "q2"], DATA.qrels["train"], source, size, lists, seed)


@pytest.mark.parametrize("source", ["bm25", "uniform", "bm25+uniform"])
def test_judged_positives_are_never_candidates_for_negatives(source):
    for seed in range(20):
        pool = set(CORPUS.ids_at(pools(source, 40, seed)["q0"]))
        assert not pool & {"d0", "d2"}
        assert len(pool) > 10


def test_bm25_pools_take_the_best_that_are_left_judged_negatives_included():
    found = pools("bm25")
    assert CORPUS.ids_at(found["q0"]) == ["d1", "d3", "d4", "d5", "d6", "d7"]
    assert CORPUS.ids_at(found["q1"]) == ["d4", "d3"]
    assert len(found["q2"]) == 0


def test_uniform_pools_depend_on_the_seed_and_hold_no_repeats():
    first, second, other = pools("uniform", 20)["q1"], pools("uniform", 20)["q1"], pools("uniform", 20, seed=1)["q1"]
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert len(set(first.tolist())) == 20
    assert len(pools("uniform", 500)["q0"]) == 48


def test_a_run_file_can_be_the_source(tmp_path):
    path = tmp_path / "mine.trec"
    path.write_text("q1 Q0 d9 1 3.0 x\nq1 Q0 d8 2 2.0 x\n")
    assert CORPUS.ids_at(pools(str(path))["q1"]) == ["d9", "d8"]


def test_an_index_can_be_the_source_and_gives_its_nearest(tiny_bert, tmp_path):
    """By its vectors, though it has words too; positives stay out; half of the pool beside another source."""
    model = build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=8, similarity="cosine"))
    generator = np.random.default_rng(0)
    texts = {f"d{number}": " ".join(generator.choice(WORDS, size=4)) for number in range(50)}
    data = RankingData("toy", Texts.from_dict(texts), Texts.from_dict({"q0": "copy file"}), qrels={})
    build_index(model, Passages("toy", data.corpus), tmp_path / "index")
    scores = model.score([("copy file", text) for text in texts.values()])
    nearest = [f"d{number}" for number in np.argsort(-scores)]
    judged = {"q0": {nearest[0]: 1, nearest[3]: 1}}
    wanted = [document for document in nearest if document not in judged["q0"]]

    def mined(source: str) -> list[str]:
        return data.corpus.ids_at(candidate_pools(data, ["q0"], judged, source, 6, {"bm25": lambda _: RUN}, 0)["q0"])

    assert mined(str(tmp_path / "index")) == wanted[:6]
    both = [document for document in RUN["q0"] if document not in judged["q0"]][:3] + wanted[:3]
    assert mined(f"bm25+{tmp_path / 'index'}") == list(dict.fromkeys(both))
    assert ListSpec(negatives=f"bm25+{tmp_path / 'index'}").negatives
    with pytest.raises(ValueError, match="'nowhere' is not a run file and not an index"):
        ListSpec(negatives="bm25+nowhere")


def ranking_lists(pick: str = "sample", size: int = 4, **changes: object) -> RankingLists:
    values = {"positives": {0: 1.0, 2: 3.0}, "pool": np.arange(10, 20)} | changes
    return RankingLists(CORPUS, QUERIES, [RankedQuery("q0", **values)], size, pick, seed=0)


def test_lists_hold_positives_and_fresh_negatives_each_epoch():
    lists = ranking_lists()
    drawn = [lists.pick(0, epoch) for epoch in range(30)]
    assert all(len(set(rows.tolist())) == 4 for rows in drawn)
    assert all({0, 2} <= set(rows.tolist()) for rows in drawn)
    assert len({tuple(sorted(rows.tolist())) for rows in drawn}) > 10
    assert np.array_equal(lists.pick(0, 7), drawn[7])


def test_more_positives_than_fit_leave_room_for_a_negative():
    lists = ranking_lists(size=3, positives=dict.fromkeys(range(8), 1.0))
    for epoch in range(10):
        rows = lists.pick(0, epoch)
        assert len(rows) == 3
        assert (lists.labels(0, rows) > 0).sum() == 2


def test_top_lists_follow_the_teacher_and_put_unscored_documents_last():
    lists = ranking_lists("top", scored=np.array([11, 13, 15]), scores=np.array([1.0, 9.0, 5.0], dtype=np.float32))
    assert lists.pick(0, 0).tolist() == [0, 2, 13, 15]
    assert np.isnan(lists.teacher(0, np.array([12, 99]))).all()
    assert lists.teacher(0, np.array([15, 11])).tolist() == [5.0, 1.0]


def test_unjudged_is_negative_for_a_labelled_query_and_unknown_for_another():
    rows = np.array([0, 2, 11])
    assert ranking_lists().labels(0, rows).tolist() == [1.0, 3.0, 0.0]
    assert np.isnan(ranking_lists(labelled=False).labels(0, rows)).all()


def test_no_candidates_at_all_is_an_error():
    with pytest.raises(LimbeckError, match="no training query has any candidate"):
        ranking_lists(positives={}, pool=np.zeros(0, dtype=np.int64))


def test_a_plan_visits_every_query_once_an_epoch_and_is_fixed_by_its_seed():
    plan = list(BatchPlan(queries=10, batch_size=4, batches=10, seed=5))
    stream = [example for batch in plan for example in batch]
    for epoch in range(4):
        assert sorted(stream[epoch * 10 : epoch * 10 + 10]) == [(epoch, index) for index in range(10)]
    assert plan == list(BatchPlan(10, 4, 10, 5))
    assert plan != list(BatchPlan(10, 4, 10, 6))


def test_a_batch_encodes_each_distinct_document_once(tiny_bert):
    student = build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16))
    lists = ToyLists(documents=10)
    batch = Collator(lists, student)([(0, index) for index in range(8)])
    mentioned = {int(row) for index in range(8) for row in lists.pick(index, 0)}
    encoded = sum(len(chunk["input_ids"]) for chunk in batch.student.documents.passes)
    assert encoded == len(mentioned) == batch.student.document_count
    for number in range(8):
        assert torch.equal(batch.targets.labels[number], torch.tensor(lists.labels(number, lists.pick(number, 0))))


def test_in_batch_positives_of_a_query_are_never_its_negatives(tiny_bert):
    student = build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16))
    lists = ToyLists(documents=12)
    batch = Collator(lists, student, in_batch=True)([(0, index) for index in range(8)])
    rows = np.unique(np.concatenate([lists.pick(index, 0) for index in range(8)]))
    for number in range(8):
        positive = int(lists.pools[number][0])
        assert batch.targets.labels[number].tolist() == [float(row == positive) for row in rows]


def test_a_query_s_own_documents_differ_from_those_of_the_batch(tiny_bert):
    student = build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16))
    lists, examples = ToyLists(documents=12), [(0, index) for index in range(8)]
    batch = Collator(lists, student, in_batch=True)(examples)
    rows = np.unique(np.concatenate([lists.pick(index, 0) for index in range(8)]))
    assert batch.targets.own.tolist() == [[row in lists.pick(index, 0) for row in rows] for index in range(8)]
    assert (
        Collator(lists, student, in_batch=True, rank=1, world=3)(examples).targets.own.tolist()
        == batch.targets.own[2:5].tolist()
    )
    assert Collator(lists, student, in_batch=True, rank=0, world=12)(examples).targets.own.shape == (0, len(rows))
    assert Collator(lists, student)(examples).targets.own is None


def split(has: tuple[str, ...] = ("train", "dev", "test"), **options: object):
    qrels = {name: {f"{name}{n}": {"d1": 1} for n in range(20)} for name in has}
    qrels["train"]["train0"] = {"d1": 0}
    ids = {query: query for part in qrels.values() for query in part}
    data = RankingData("toy", CORPUS, Texts.from_dict(ids), qrels)
    return split_queries(data, DataSpec(source="toy", **options), seed=0)


def test_splits_are_what_their_names_say_and_a_query_without_positives_is_left_out():
    splits = split(train_queries=10, dev_queries=5, labelled_queries=4)
    assert len(splits.train) == 10 and all(query.startswith("train") for query in splits.train)
    assert "train0" not in splits.train
    assert len(splits.train_labels) == 4 and set(splits.train_labels) <= set(splits.train)
    assert len(splits.dev) == 5 and len(splits.test) == 20


def test_held_out_queries_are_not_trained_on_and_are_at_most_a_fifth():
    whole, splits = split(), split(held_out=3)
    assert len(splits.held_out) == 3 and set(splits.held_out) | set(splits.train) == set(whole.train)
    assert not set(splits.held_out) & {*splits.train, *splits.train_labels, *splits.dev, *splits.test}
    assert len(split(held_out=100).held_out) == round(0.2 * len(whole.train))
    assert split(held_out=3, train_queries=5).held_out == splits.held_out


def test_hidden_positives_are_unjudged_and_may_be_drawn_as_negatives():
    qrels = {"train": {"q1": {"d1": 1, "d2": 2, "d3": 0, "d4": 1}}, "dev": {}, "test": {"q2": {"d1": 1, "d2": 1}}}
    data = RankingData("toy", CORPUS, Texts.from_dict({"q1": "one", "q2": "two"}), qrels)
    kept = split_queries(data, DataSpec(source="toy", dev=None, keep_positives=1), seed=0)
    assert sum(grade > 0 for grade in kept.train_labels["q1"].values()) == 1
    assert kept.train_labels["q1"]["d3"] == 0  # what was judged not relevant stays so
    assert kept.test_labels == {"q2": {"d1": 1, "d2": 1}}  # and what is reported on is whole
    whole = split_queries(data, DataSpec(source="toy", dev=None), seed=0)
    assert whole.train_labels["q1"] == qrels["train"]["q1"]


def test_queries_with_few_positives_can_be_left_out_of_training():
    qrels = {"train": {"q0": {"d1": 1}, "q1": {"d1": 1, "d2": 2, "d3": 0}}, "test": {"q2": {"d1": 1}}}
    data = RankingData("toy", CORPUS, QUERIES, qrels)
    kept = split_queries(data, DataSpec(source="toy", dev=None, min_positives=2), seed=0)
    assert kept.train == ["q1"] and kept.test == ["q2"]
    with pytest.raises(LimbeckError, match="no training query has 3 positives; lower data.min_positives"):
        split_queries(data, DataSpec(source="toy", dev=None, min_positives=3), seed=0)


def test_a_query_of_test_is_not_looked_at_in_dev():
    """MS MARCO's dev holds its dev.small."""
    judged = {"train": range(10), "dev": range(10, 20), "dev.small": range(15, 20)}
    qrels = {name: {f"q{n}": {"d1": 1} for n in numbers} for name, numbers in judged.items()}
    data = RankingData("toy", CORPUS, Texts.from_dict({f"q{n}": str(n) for n in range(20)}), qrels)
    splits = split_queries(data, DataSpec(source="x", test="dev.small"), seed=0)
    assert set(splits.test) == {f"q{n}" for n in range(15, 20)} and set(splits.dev) == {f"q{n}" for n in range(10, 15)}
    with pytest.raises(LimbeckError, match="data.dev and data.test are both 'dev'"):
        split_queries(data, DataSpec(source="x", test="dev"), seed=0)


def test_a_missing_dev_split_is_held_out_of_the_training_queries():
    splits = split(has=("train", "test"))
    assert len(splits.dev) == 2 and not set(splits.dev) & set(splits.train)
    assert set(splits.dev_labels) == set(splits.dev)


def test_a_larger_draw_contains_the_smaller():
    ids = [str(number) for number in range(100)]
    assert set(draw(ids, 10, 3)) < set(draw(ids, 20, 3))
    assert draw(ids, 10, 3) != draw(ids, 10, 4)


def test_candidates_that_the_teacher_takes_for_positives_are_left_out():
    def query(positives, scored, scores):
        return RankedQuery("q", positives, np.array([1, 2, 3]), True, np.array(scored), np.array(scores, np.float32))

    judged = query({0: 1.0}, [0, 1, 2, 3], [5.0, 4.5, 6.0, 1.0])
    unscored_positive = query({0: 1.0}, [1, 2], [4.5, 6.0])
    unscored_candidate = query({0: 1.0}, [0, 1], [5.0, 4.5])
    assert leave_out_likely_positives([judged, unscored_positive, unscored_candidate], 1.0) == 3
    assert judged.pool.tolist() == [3]
    assert unscored_positive.pool.tolist() == [1, 2, 3]
    assert unscored_candidate.pool.tolist() == [2, 3]
    assert leave_out_likely_positives([query({0: 1.0}, [0, 1, 2, 3], [5.0, 4.5, 6.0, 1.0])], 0.0) == 1
