"""Pair tasks, from labelled and unlabelled pairs to a DiPair student in two stages."""

from __future__ import annotations

import contextlib
import itertools
import json

import numpy as np
import pytest
import torch

from limbeck.data import Pair, PairData
from limbeck.errors import LimbeckError
from limbeck.evaluation.evaluate import Request, run_evaluation
from limbeck.matchers import CrossEncoder, DiPair, build, load, matcher_config
from limbeck.matchers.calibration import Calibration
from limbeck.progress import reporting
from limbeck.recipe.data_spec import DataSpec
from limbeck.recipe.files import load_recipe
from limbeck.runs import distill
from limbeck.runs import train_student as training_module
from limbeck.runs.add_analyses import add_analyses
from limbeck.runs.pair_splits import split_pairs
from limbeck.runs.pair_task import PairTask
from limbeck.runs.sweep import sweep
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.stores import ScoreStore
from limbeck.training.batches import Collator
from limbeck.training.pair_lists import PairLists, label_array
from tests.training.toy import WORDS


def write_pairs(path, count, seed, texts=2, classes=2):
    """Pairs that match where the first words are the same; a class is a count of shared words."""
    generator = np.random.default_rng(seed)
    with open(path, "w") as handle:
        for number in range(count):
            left = generator.choice(WORDS, size=5)
            right = left if number % 2 else generator.choice(WORDS, size=5)
            label = int(number % 2) if classes == 2 else int(number % classes)
            row = {"text_a": " ".join(left), "text_b": " ".join(right), "label": label}
            row |= {"text_c": WORDS[label]} if texts == 3 else {}
            handle.write(json.dumps(row) + "\n")


@pytest.fixture
def pairs(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    for seed, (split, count) in enumerate((("train", 48), ("dev", 16), ("test", 20))):
        write_pairs(folder / f"{split}.jsonl", count, seed)
    return folder


@pytest.fixture
def recipe(pairs, tiny_bert):
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 8}
    return {
        "name": "tiny-pairs",
        "data": {"source": str(pairs), "dev_queries": None},
        "teacher": {
            "train": {"kind": "cross_encoder", **lengths},
            "stages": [{"objectives": ["binary_ce"], "steps": 3, "batch_size": 8}],
        },
        "student": {"kind": "dipair", "layers": 1, "tokens": [2, 3], "dim": 8, "head_width": 16, **lengths},
        "stages": [
            {"objectives": ["soft_binary_ce"], "steps": 4, "batch_size": 8, "lr": 1e-2, "freeze": ["encoder"]},
            {"objectives": ["soft_binary_ce"], "steps": 4, "batch_size": 8, "lr": 1e-3},
        ],
        "evaluation": {"baselines": []},
    }


def parameters(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_two_stages_end_in_a_student_a_table_and_a_report(recipe, tmp_path):
    result = distill(recipe, tmp_path / "run")
    teacher, student = result.rows
    assert list(student.measures) == ["auc", "ap", "accuracy", "f1"]
    assert student.pairs_per_second and teacher.pairs_per_second and student.speedup
    assert student.significance["against"] == "teacher"
    page = result.report.read_text()
    assert "Quality against throughput" in page and "48 train / 16 dev / 20 test pairs" in page
    assert isinstance(load(tmp_path / "run"), DiPair)
    assert Calibration.load(tmp_path / "run" / "student").criterion == "f1"
    scores = ScoreStore.read(tmp_path / "run" / "teacher" / "scores")
    assert len(scores) == 48 and scores.outputs == 1


def test_the_decision_uses_the_threshold_chosen_on_dev(recipe, pairs, tmp_path):
    recipe["evaluation"]["threshold"] = "recall=0.9"
    teacher, student = distill(recipe, tmp_path / "run").rows
    rows = [json.loads(line) for line in (pairs / "test.jsonl").read_text().splitlines()]
    truth = np.array([row["label"] == 1 for row in rows])
    model = load(tmp_path / "run" / "student")
    calibration = Calibration.load(tmp_path / "run" / "student")
    scores = model.score([(row["text_a"], row["text_b"]) for row in rows])
    said = calibration.probabilities(scores) >= calibration.threshold
    assert said.sum() > 0 and not np.array_equal(said, scores > 0)  # else this could not fail
    assert student.measures["f1"] == pytest.approx(2 * (said & truth).sum() / (said.sum() + truth.sum()))
    assert student.measures["accuracy"] == pytest.approx((said == truth).mean())
    again = run_evaluation(
        Request(str(tmp_path / "run"), str(pairs), against=str(tmp_path / "run" / "teacher" / "model"))
    )
    assert again.measures == pytest.approx(student.measures)
    assert teacher.measures["f1"] > 0


@pytest.fixture
def encoded(monkeypatch):
    """(position, slots, text) of whatever a DiPair's encoder reads outside of training steps."""
    seen: list[tuple[int, int, str]] = []
    plain = DiPair.keep

    def watching(self, texts, position, batch_size=64):
        seen.extend((position, self.settings.tokens[position], text) for text in texts)
        return plain(self, texts, position, batch_size)

    monkeypatch.setattr(DiPair, "keep", watching)
    monkeypatch.setattr(PairTask, "after_training", lambda *_: None)
    return seen


def test_a_frozen_encoder_does_not_change_and_runs_once_for_each_text(recipe, tmp_path, encoded):
    recipe["stages"] = recipe["stages"][:1]
    recipe["stages"][0]["epochs"] = recipe["stages"][0].pop("steps")
    recipe["data"]["test"] = None
    distill(recipe, tmp_path / "run")
    assert len(encoded) == len(set(encoded)) > 48  # training texts and dev's, each once over four epochs
    student = load(tmp_path / "run")
    start = load(tmp_path / "run" / "teacher" / "model")  # another fine-tuned copy: only shapes are alike
    assert start.kind == "cross_encoder"
    from limbeck.matchers import build, matcher_config

    torch.manual_seed(0)
    fresh = build(matcher_config(**recipe["student"]))
    same = {
        n: torch.equal(v, parameters(fresh)[n]) for n, v in parameters(student).items() if n.startswith("encoders.")
    }
    assert same and all(same.values())
    assert not torch.equal(student.projections[0].weight, fresh.projections[0].weight)


def test_cached_outputs_train_the_head_as_the_encoder_itself_would(recipe, tmp_path, monkeypatch):
    """The same stage with and without the cache, without dropout, ends with the same head."""
    from limbeck.training import stages as stages_module

    recipe["stages"] = recipe["stages"][:1]
    distill(recipe, tmp_path / "cached")
    plain = DiPair._kept

    def undropped(self, prepared, position, recompute, *watch):
        mode = self.encoders.training
        self.encoders.eval()
        found = plain(self, prepared, position, recompute, *watch)
        self.encoders.train(mode)
        return found

    monkeypatch.setattr(DiPair, "_kept", undropped)
    monkeypatch.setattr(stages_module, "frozen_outputs", lambda *_: __import__("contextlib").nullcontext())
    distill(recipe, tmp_path / "plain")
    ours, theirs = (load(tmp_path / name).state_dict() for name in ("cached", "plain"))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in ours)


def test_document_vectors_are_refused_for_pairs(recipe, tmp_path):
    recipe["teacher"] = {"model": "absent", "vectors": "vectors.npy"}
    with pytest.raises(LimbeckError, match="teacher.vectors: pairs have no corpus, and vectors belong to one; drop"):
        distill(recipe, tmp_path / "run")


def test_measuring_in_bfloat16_is_refused_for_pairs(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="is for rankings; drop it"):
        distill(recipe | {"evaluation": {"bf16": True}}, tmp_path / "run")


def test_a_frozen_encoder_computes_in_bfloat16_if_its_stage_does(recipe, tmp_path):
    from limbeck.matchers import build, matcher_config
    from limbeck.training.frozen_cache import encoder_outputs

    matcher = build(matcher_config(**recipe["student"]))
    exact, half = (encoder_outputs(matcher, tmp_path, bf16)(["copy a file", "sort"], 0) for bf16 in (False, True))
    assert not np.array_equal(exact, half)
    assert np.allclose(exact, half, atol=0.1)
    assert np.array_equal(encoder_outputs(matcher, tmp_path)(["sort", "copy a file"], 0), exact[::-1])


def test_unlabelled_pairs_are_distilled_and_pairs_of_dev_and_test_never_trained_on(recipe, pairs, tmp_path):
    extra = tmp_path / "transfer.jsonl"
    write_pairs(extra, 30, seed=9)
    test = (pairs / "test.jsonl").read_text()
    extra.write_text(extra.read_text() + test)  # a transfer set that holds the test pairs
    recipe["data"] |= {"unlabelled": str(extra), "labelled_queries": 20}
    distill(recipe, tmp_path / "run")
    assert len(ScoreStore.read(tmp_path / "run" / "teacher" / "scores")) == 48 + 30


def test_splits_hold_out_what_is_missing_and_keep_test_pairs_out_of_training():
    rows = [Pair((f"a{n}", f"b{n}"), n % 2) for n in range(40)]
    turned = [Pair(pair.texts[::-1], pair.label) for pair in rows[:10]]
    data = PairData("toy", {"train": [*rows, *turned], "test": rows[:10]})
    splits = split_pairs(data, DataSpec(source="toy", dev_queries=5, train_queries=20, labelled_queries=8), seed=0)
    assert len(splits.test) == 10 and len(splits.train) == 20
    assert len(splits.dev) == 3  # a tenth of the thirty that are left
    texts = {part: {pair.texts for pair in getattr(splits, part)} for part in ("train", "dev", "test")}
    assert not texts["train"] & texts["test"] and not texts["train"] & texts["dev"]
    assert not texts["train"] & {pair.texts for pair in turned}
    assert sum(pair.label is not None for pair in splits.train) == 8


def test_a_dev_split_that_is_held_out_is_in_nothing_that_is_trained_on():
    rows = [Pair((f"a{n}", f"b{n}"), n % 2) for n in range(40)]
    turned = [Pair(pair.texts[::-1], pair.label) for pair in rows]
    splits = split_pairs(PairData("toy", {"train": [*rows, *turned]}), DataSpec(source="toy"), 0, [*rows, *turned])
    seen = {texts for pair in splits.dev for texts in (pair.texts, pair.texts[::-1])}
    assert len(splits.dev) == 8 and not seen & {pair.texts for pair in splits.train}
    both = PairData("toy", {"train": rows[20:], "dev": rows[:20], "test": turned[:10]})
    assert {pair.texts for pair in split_pairs(both, DataSpec(source="toy"), 0).dev} == {
        pair.texts for pair in rows[10:20]
    }


def test_several_classes_and_three_texts(recipe, pairs, tmp_path):
    for seed, (split, count) in enumerate((("train", 48), ("dev", 16), ("test", 20))):
        write_pairs(pairs / f"{split}.jsonl", count, seed, texts=3, classes=3)
    recipe["teacher"]["train"]["outputs"] = 3
    recipe["teacher"]["stages"][0]["objectives"] = ["class_ce"]
    recipe["student"] |= {"outputs": 3, "tokens": [2, 2, 1]}
    for stage in recipe["stages"]:
        stage["objectives"] = ["soft_class_ce(tau=2)", "0.5 * class_ce"]
    result = distill(recipe, tmp_path / "run")
    assert list(result.rows[-1].measures) == ["accuracy", "f1"]
    assert load(tmp_path / "run").score([("copy", "move", "open")]).shape == (1, 3)


def test_a_sweep_over_heads_compares_them_over_seeds(recipe, tmp_path):
    recipe["student"].pop("head_width")
    result = sweep(recipe, over=["student.head=transformer,ffnn"], seeds=2, out=tmp_path / "sweep")
    students = [row for row in result.rows if row.kind == "student"]
    assert [row.name for row in students] == ["head=transformer", "head=ffnn"]
    assert all(row.runs == 2 and row.spread for row in students)
    assert students[1].significance["against"] == "head=transformer" and "p_holm" in students[1].significance
    assert Calibration.load(tmp_path / "sweep" / "student") is not None  # the best one's, with its probabilities
    again = sweep(recipe, over=["student.head=transformer,ffnn"], seeds=2, out=tmp_path / "sweep")
    assert [row.measures for row in again.rows] == [row.measures for row in result.rows]


def test_students_of_a_sweep_share_what_their_frozen_encoder_computes(recipe, pairs, tmp_path, encoded):
    recipe["stages"] = recipe["stages"][:1]
    axes = ["student.dim=null,8", "student.tokens=[2,3],[2,2]"]
    sweep(recipe, over=axes, seeds=2, out=tmp_path / "sweep")
    rows = [json.loads(line) for line in (pairs / "train.jsonl").read_text().splitlines()]
    wanted = {(0, 2, row["text_a"]) for row in rows}
    wanted |= {(1, slots, row["text_b"]) for row in rows for slots in (2, 3)}
    assert sorted(seen for seen in encoded if seen in wanted) == sorted(wanted)  # each once, for eight students


def test_a_second_run_takes_the_teacher_of_the_first_and_its_scores(recipe, tmp_path, monkeypatch):
    first = distill(recipe, tmp_path / "first")
    asked = []
    plain = CrossEncoder.score
    monkeypatch.setattr(CrossEncoder, "score", lambda self, pairs: asked.append(len(pairs)) or plain(self, pairs))
    second = distill(recipe | {"teacher": str(tmp_path / "first")}, tmp_path / "second")
    assert sum(asked[:1]) == 20 and 48 not in asked  # on test only; its scores of train are there
    assert not (tmp_path / "second" / "teacher").exists()
    assert [row.measures for row in second.rows] == [row.measures for row in first.rows]


def test_lists_of_one_hold_each_pair_with_its_label_and_soft_label():
    some = [Pair(("a", "x"), 1), Pair(("b", "x"), 0), Pair(("c", "y"), None)]
    lists = PairLists(some, label_array(some), np.array([3.0, -2.0, 0.5], dtype=np.float32))
    assert lists.documents == ["x", "y"] and len(lists) == 3
    assert lists.texts(lists.pick(1, 0)) == ["x"] and lists.query(2) == "c"
    assert lists.labels(0, lists.pick(0, 0)) == [1] and np.isnan(lists.labels(2, lists.pick(2, 0))).all()
    assert lists.teacher(2, lists.pick(2, 0)) == [0.5]
    soft = [Pair(("a", "x"), (0.2, 0.8)), Pair(("b", "x"), None)]
    assert label_array(soft).shape == (2, 2)


def test_dev_is_scored_once_for_one_set_of_weights(recipe, tmp_path, monkeypatch):
    scored = []
    plain = DiPair.score

    def watched(self, pairs, *rest):
        scored.append((len(pairs), self.encoded is not None))
        return plain(self, pairs, *rest)

    monkeypatch.setattr(DiPair, "score", watched)
    distill(recipe, tmp_path / "run")  # 16 pairs of dev: at the end of either stage, and for the calibration
    assert [frozen for count, frozen in scored if count == 16] == [True, False]
    assert (tmp_path / "run" / "student" / "calibration.json").exists()
    scored.clear()  # what a frozen encoder's outputs gave is not what the student gives, with the same weights
    distill({**recipe, "stages": recipe["stages"][:1]}, tmp_path / "frozen")
    assert [frozen for count, frozen in scored if count == 16] == [True, False]


def test_pairs_among_the_neighbours_of_a_text_are_consecutive():
    """Ten circles of five texts, all pairs in each: whichever text comes first, its circle stays together."""
    some = [Pair((f"{c}{a}", f"{c}{b}"), None) for a in range(5) for b in range(a) for c in range(10)]
    some += [Pair(("00", "00"), None), Pair(("00", "01"), None)]  # with itself, and one of them turned round
    lists = PairLists(some, label_array(some))
    for seed in range(3):
        order = lists.together(np.random.default_rng(seed))
        assert sorted(order.tolist()) == list(range(len(some)))
        circles = [lists.query(index)[0] for index in order]
        assert sum(one != other for one, other in itertools.pairwise(circles)) == 9
    again = lists.together(np.random.default_rng(2))
    assert np.array_equal(order, again)
    assert not np.array_equal(order, lists.together(np.random.default_rng(0)))
    assert len(PairLists([], np.zeros(0)).together(np.random.default_rng(0))) == 0


def test_a_text_that_all_others_meet_costs_them_nothing(monkeypatch):
    """Three labels, each met by 2,000 texts: every text would look through its labels' pairs, six million in all."""
    some = [Pair((f"text {number}", f"label {label}"), None) for number in range(2000) for label in range(3)]
    lists, looked = PairLists(some, label_array(some)), []
    plain = np.arange
    monkeypatch.setattr(np, "arange", lambda *ends: looked.append(ends[-1] - ends[0]) or plain(*ends))
    order = lists.together(np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(6000))
    assert 6000 <= sum(looked) < 100_000


def test_the_order_of_pairs_together_against_sets():
    draw = np.random.default_rng(4)
    some = [Pair((f"{a}", f"{b}"), None) for a, b in draw.integers(0, 40, size=(150, 2))]
    lists = PairLists(some, label_array(some))
    left, right = lists._ends
    ends = [{int(a), int(b)} for a, b in zip(left, right, strict=True)]
    generator, wanted = np.random.default_rng(5), []
    for text in generator.permutation(np.unique([left, right])):
        near = {int(text)}.union(*(pair for pair in ends if text in pair))
        if not any(text in pair and number not in wanted for number, pair in enumerate(ends)):
            continue
        wanted += generator.permutation(
            [number for number, pair in enumerate(ends) if pair <= near and number not in wanted]
        ).tolist()
    assert lists.together(np.random.default_rng(5)).tolist() == wanted


def test_a_stage_with_pairs_together_goes_through_them_in_that_order(recipe, tmp_path, monkeypatch):
    seen = []
    plain = Collator.__call__

    def watched(self, examples):
        seen.append((self, examples))
        return plain(self, examples)

    monkeypatch.setattr(Collator, "__call__", watched)
    recipe["stages"] = [{**recipe["stages"][1], "together": True, "steps": 6}]
    distill(recipe, tmp_path / "run")
    lists = seen[-1][0].lists
    order = [index for collator, examples in seen if collator.lists is lists for _, index in examples]
    assert order == lists.together(np.random.default_rng([0, 0])).tolist()


def test_a_ranking_has_no_pairs_to_put_together(recipe, beir, tmp_path):
    stage = {"objectives": ["one_hot"], "steps": 1, "together": True}
    with pytest.raises(LimbeckError, match="stages.0.group_by_text requires pairs"):
        distill({**recipe, "data": {"source": str(beir)}, "teacher": None, "stages": [stage]}, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"stages": [{"objectives": ["binary_ce"], "steps": 1, "lists": {"size": 2}}]},
            "pairs have no li",
        ),
        ({"evaluation": {"measures": ["mrr@10"]}}, "mrr@10 is a measure for rankings; for pairs use auc"),
        ({"teacher": {"scores": "x.trec"}}, "scores of pairs that were made elsewhere must be labels"),
        ({"student": {"kind": "dipair", "tokens": [2, 2, 2]}}, "student.tokens: is for 3 texts, and pairs has 2"),
    ],
)
def test_what_does_not_fit_pairs_is_refused(recipe, tmp_path, tiny_bert, change, line):
    if "student" in change:
        change["student"] |= {"start": tiny_bert, "query_length": 8, "document_length": 8}
    with pytest.raises(LimbeckError, match=line):
        distill({**recipe, **change}, tmp_path / "run")


def test_without_labels_a_student_is_judged_by_how_it_follows_the_teacher(recipe, pairs, tmp_path):
    first = distill(recipe, tmp_path / "first")
    for split in ("train", "dev"):
        rows = [json.loads(line) for line in (pairs / f"{split}.jsonl").read_text().splitlines()]
        texts = "".join(json.dumps({key: row[key] for key in ("text_a", "text_b")}) + "\n" for row in rows)
        (pairs / f"{split}.jsonl").write_text(texts)
    recipe["teacher"] = {"model": str(first.folder / "teacher" / "model")}
    recipe["stages"][0]["patience"] = 1
    distill(recipe, tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert next(list(entry["dev"]) for entry in log if "dev" in entry) == ["spearman"]
    assert not (tmp_path / "run" / "student" / "calibration.json").exists()


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        (7, "train.jsonl:1: has the label 7, where dev has 0 and 1"),
        ([0.2, 0.8], "train.jsonl:1: has a label of 2 numb"),
    ],
)
def test_labels_that_are_not_probabilities_are_refused(recipe, pairs, tmp_path, label, problem):
    for split in ("train", "dev", "test"):
        rows = [json.loads(line) for line in (pairs / f"{split}.jsonl").read_text().splitlines()]
        rows = [row | {"label": row["label"] if isinstance(label, int) else label} for row in rows]
        rows[0]["label"] = label if split == "train" else rows[0]["label"]
        (pairs / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe["evaluation"]["measures"] = ["accuracy"]
    _refused_before_training(recipe, tmp_path / "run", problem)


def _relabelled(path, number, label):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[number - 1]["label"] = label
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _refused_before_training(recipe, folder, line):
    with pytest.raises(LimbeckError, match=line):
        distill(recipe, folder)
    assert not (folder / "work").exists() and not (folder / "teacher").exists()


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("label", [7, 0.5])
def test_one_label_among_yes_and_no_that_is_neither_is_named_before_training(recipe, pairs, tmp_path, split, label):
    _relabelled(pairs / f"{split}.jsonl", 4, label)
    line = f"{split}.jsonl:4: has the label {label}, where train has 0 and 1; correct it"
    _refused_before_training(recipe, tmp_path / "run", line)
    recipe["evaluation"]["measures"] = ["spearman"]
    assert distill(recipe, tmp_path / "run").rows


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("label", [3, -1, 0.5])
def test_a_label_that_is_not_a_class_is_named_before_training(recipe, pairs, tmp_path, split, label):
    for seed, (name, count) in enumerate((("train", 48), ("dev", 16), ("test", 20))):
        write_pairs(pairs / f"{name}.jsonl", count, seed, classes=3)
    _relabelled(pairs / f"{split}.jsonl", 4, label)
    recipe["teacher"]["train"]["outputs"] = recipe["student"]["outputs"] = 3
    recipe["teacher"]["stages"][0]["objectives"] = ["class_ce"]
    for stage in recipe["stages"]:
        stage["objectives"] = ["soft_class_ce"]
    line = f"{split}.jsonl:4: has the label {label}, but student.outputs is 3; label classes 0 to 2"
    _refused_before_training(recipe, tmp_path / "run", line)


def test_test_labels_that_leave_a_measure_undefined_are_named_before_training(recipe, pairs, tmp_path):
    for number in range(1, 21):
        _relabelled(pairs / "test.jsonl", number, 1)
    line = "all 20 labels are 1, so auc is undefined"
    _refused_before_training(recipe, tmp_path / "run", line)
    with pytest.raises(LimbeckError, match=line):  # once, and not as the failure of each run
        sweep(recipe, ["stages.0.lr=1e-2,1e-3"], out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_graded_training_labels_are_allowed_if_dev_has_only_zero_and_one(recipe, pairs, tmp_path):
    _relabelled(pairs / "train.jsonl", 4, 0.5)
    assert distill(recipe, tmp_path / "run").rows


def test_pairs_with_another_number_of_texts_are_named_before_training(recipe, pairs, tmp_path):
    (tmp_path / "more.jsonl").write_text('{"text_a": "a", "text_b": "b", "text_c": "c"}\n')
    recipe["data"]["unlabelled"] = str(tmp_path / "more.jsonl")
    _refused_before_training(
        recipe, tmp_path / "run", "more.jsonl:1: has 3 texts, others have 2; give all the same number"
    )


def test_a_teacher_with_other_outputs_is_named_before_it_is_trained(recipe, tmp_path, tiny_bert):
    recipe["teacher"]["train"]["outputs"] = 2
    recipe["teacher"]["stages"][0]["objectives"] = ["class_ce"]
    line = "teacher.train.outputs is 2 and student.outputs is 1; use the same number"
    _refused_before_training(recipe, tmp_path / "run", line)
    classes = matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=8, outputs=2)
    build(classes).save_pretrained(tmp_path / "teacher")
    recipe["teacher"] = {"model": str(tmp_path / "teacher")}
    with pytest.raises(
        LimbeckError, match="the teacher gives 2 scores per pair, but the student gives 1; set student.out"
    ):
        distill(recipe, tmp_path / "other")


def test_heads_that_cannot_share_the_encoders_width_are_named_before_training(recipe, tmp_path):
    recipe["student"] |= {"dim": None, "head_heads": 5}
    _refused_before_training(recipe, tmp_path / "run", "head_heads: 5 heads cannot share vectors of 32 numbers")


def test_a_measure_that_does_not_fit_the_labels_is_named_before_training(recipe, pairs, tmp_path):
    for split in ("train", "dev", "test"):
        rows = [json.loads(line) for line in (pairs / f"{split}.jsonl").read_text().splitlines()]
        rows = [row | {"label": 0.5 * row["label"]} for row in rows]
        (pairs / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe["evaluation"]["measures"] = ["auc"]
    with pytest.raises(LimbeckError, match="auc is not defined for graded labels"):
        distill(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "work").exists()
    recipe["evaluation"]["measures"] = ["pearson"]
    assert distill(recipe, tmp_path / "run").rows


def test_a_separator_inside_a_text_does_not_move_the_border(recipe, pairs, tmp_path):
    session = PairTask(load_recipe(recipe), tmp_path / "run")
    prepare_teacher(session)
    one, other = Pair(("a\x1fb", "c"), 1), Pair(("a", "b\x1fc"), 0)
    found = session.teacher_scores([one, other])
    assert np.allclose(found, session.teacher.score([one.texts, other.texts]), atol=1e-5)
    assert len(session.store) == 2


def test_snapshots_are_of_rankings_and_do_not_stop_a_pair_task(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = ["snapshots"]
    assert distill(recipe, tmp_path / "run").rows
    with pytest.raises(LimbeckError, match="is a run on pairs, and wins requires rankings"):
        add_analyses(tmp_path / "run", ["wins"])


def write_classes(folder, classes):
    for seed, (name, count) in enumerate((("train", 48), ("dev", 16), ("test", 20))):
        write_pairs(folder / f"{name}.jsonl", count, seed, classes=classes)


def test_the_number_of_outputs_is_that_of_the_classes_in_the_labels(recipe, pairs, tmp_path):
    write_classes(pairs, classes=3)
    recipe["teacher"]["stages"][0]["objectives"] = ["class_ce"]
    for stage in recipe["stages"]:
        stage["objectives"] = ["soft_class_ce"]
    result = distill(recipe, tmp_path / "run")
    assert result.student.outputs == 3 and list(result.rows[0].measures) == ["accuracy", "f1"]
    resolved = load_recipe(tmp_path / "run" / "recipe.yaml")
    assert resolved.student.outputs == resolved.teacher.train.outputs == 3
    assert distill(recipe, tmp_path / "run").rows == result.rows


def test_everything_that_does_not_fit_classes_is_reported_at_once(recipe, pairs, tmp_path):
    write_classes(pairs, classes=3)
    recipe["evaluation"]["measures"] = ["pearson"]
    recipe["student"] |= {"outputs": 3, "tokens": [2, 2, 2]}
    with pytest.raises(LimbeckError, match="5 problems") as caught:
        distill(recipe, tmp_path / "run")
    told = str(caught.value)
    for part in (
        "student.tokens: is for 3",
        "teacher.train.outputs is 1",
        "stages.0.obj",
        "stages.1.obj",
        "pearson is not",
    ):
        assert part in told


def test_grades_are_scaled_to_be_learnt_and_measured_as_they_are(recipe, pairs, tmp_path):
    write_classes(pairs, classes=6)
    with reporting(told := Told()):
        rows = distill(recipe, tmp_path / "run").rows
    assert list(rows[0].measures) == ["pearson", "spearman"] and all(row.kept is None for row in rows)
    assert "pairs: labels run from 0 to 5; binary_ce scales them to 0 to 1" in told.lines
    session = PairTask(load_recipe(recipe), tmp_path / "session")
    lists = session.lists(load_recipe(recipe).teacher.stages[0], 0)
    assert np.unique(lists._labels) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_a_teacher_below_its_start_is_named_before_students_learn_from_it(recipe, tmp_path, monkeypatch):
    told = Told()
    monkeypatch.setattr("limbeck.runs.references.best_on_dev", lambda *_: {"auc": 0.0})
    plain = training_module.fit
    monkeypatch.setattr(training_module, "fit", lambda *given: told.lines.append("the student learns") or plain(*given))
    del recipe["evaluation"]["baselines"]
    with reporting(told):
        result = distill(recipe, tmp_path / "run")
    line = next(line for line in told.lines if line.startswith("warning: the teacher has AUC 0.000 on dev, below"))
    assert told.lines.index(line) < told.lines.index("the student learns")
    assert line.removeprefix("warning: ") in result.warnings
    assert [row.name for row in result.rows] == ["teacher", f"{recipe['student']['start']}, as it is", "student"]
    assert "the teacher has AUC 0.000 on dev" in (tmp_path / "run" / "report.html").read_text()


class Told:
    """Keeps what is said."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)

    def task(self, label, total):
        return contextlib.nullcontext(lambda count: None)


@pytest.mark.parametrize("key", ["unlabelled_documents=more.txt", "spans=2"])
def test_texts_without_lists_are_refused_for_pairs(recipe, tiny_bert, tmp_path, key):
    recipe["student"] = {"init_from": tiny_bert, "query_length": 8, "document_length": 8}
    recipe["stages"] = [{"objectives": ["match_embeddings"], "steps": 1, "batch_size": 2}]
    with pytest.raises(LimbeckError, match=rf"data.{key.split('=')[0]}: requires a ranking set.*; drop it"):
        distill(recipe, tmp_path / "run", [f"data.{key}"])
