from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import limbeck as lb
from limbeck.data import load as load_data
from limbeck.data import write_run
from limbeck.errors import LimbeckError
from limbeck.matchers import CrossEncoder
from limbeck.recipe.files import load_recipe, set_value
from limbeck.recipe.teacher_spec import teacher_of
from limbeck.runs import open_task as open_module
from limbeck.runs import ranking_bench, ranking_dev
from limbeck.runs import ranking_task as ranking_module
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.sweep import sweep
from limbeck.runs.train_student import train_student
from limbeck.stores import ScoreStore
from limbeck.training import trainer as trainer_module
from limbeck.training.annotate import annotate_data, top_by_teacher
from limbeck.training.stages import OutOfTime
from tests.training.toy import torchrun


def run(recipe: dict, out: Path, *overrides: str):
    return lb.distill(recipe, out, list(overrides))


def student_weights(folder: Path) -> bytes:
    return (folder / "student" / "model.safetensors").read_bytes()


def test_a_run_writes_exactly_the_files_of_the_contract(recipe, tmp_path):
    result = run(recipe, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"recipe.yaml", "metrics.json", "report.html", "teacher", "student", "log.jsonl", "analyses"}
    assert [row.name for row in result.rows] == ["teacher", "BM25", "student"]
    assert result.student.rank("copy a file", ["sort a list", "copy a file"])
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["rows"][2]["objective"] == "softmax_ce"
    assert 0 <= metrics["rows"][2]["measures"]["ndcg@10"] <= 1
    assert "softmax_ce" in (tmp_path / "run" / "report.html").read_text()
    models = {json.loads(line)["model"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()}
    assert models == {"teacher", "student"}


def test_a_finished_run_is_returned_without_work(recipe, tmp_path, monkeypatch):
    first = run(recipe, tmp_path / "run")
    monkeypatch.setattr(open_module, "load", lambda _: pytest.fail("read the data again"))
    assert run(recipe, tmp_path / "run").rows == first.rows


def test_another_recipe_does_not_take_over_a_run(recipe, tmp_path):
    run(recipe, tmp_path / "run")
    with pytest.raises(LimbeckError, match=r"stages.0.lr is 0.001 there and 0.5 here\); choose another --out"):
        run(recipe, tmp_path / "run", "stages.0.lr=0.5")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(LimbeckError, match="is not empty and contains no run"):
        run(recipe, tmp_path / "full")


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(6))
def test_killed_at_any_moment_it_resumes_and_ends_the_same(recipe, tmp_path, monkeypatch, moment):
    """The moments: teacher's first and second step, its saving, scoring, the student's third step, its measuring."""
    whole = tmp_path / "whole"
    run(recipe, whole)
    calls: dict[str, int] = {}

    def dies(owner, name, at):
        plain = getattr(owner, name)

        def wrapped(*args, **kwargs):
            calls[name] = calls.get(name, 0) + 1
            if calls[name] == at:
                raise Killed
            return plain(*args, **kwargs)

        patch.setattr(owner, name, wrapped)

    with monkeypatch.context() as patch:
        if moment in (0, 1, 4):
            dies(trainer_module.DistillationTrainer, "compute_loss", {0: 1, 1: 2, 4: 5}[moment])
        elif moment == 2:
            dies(CrossEncoder, "save_pretrained", 1)
        elif moment == 3:
            dies(ranking_module, "annotate", 1)
        else:
            dies(ranking_bench, "rerank", 2)
        with pytest.raises(Killed):
            run(recipe, tmp_path / "killed")
    run(recipe, tmp_path / "killed")
    assert student_weights(whole) == student_weights(tmp_path / "killed")
    assert [row.measures for row in run(recipe, whole).rows] == [
        row.measures for row in run(recipe, tmp_path / "killed").rows
    ]


def test_training_stops_at_a_deadline_and_goes_on_to_the_same_end(recipe, tmp_path):
    parsed = load_recipe(recipe)
    task = open_module.open_task(parsed, tmp_path / "task")
    with pytest.raises(OutOfTime, match="1 of 4 steps"):
        train_student(task, parsed, "student", tmp_path / "late" / "student", deadline=time.monotonic())
    assert not (tmp_path / "late" / "student").exists()
    train_student(task, parsed, "student", tmp_path / "late" / "student", deadline=time.monotonic() + 3600)
    train_student(task, parsed, "student", tmp_path / "whole" / "student")
    assert student_weights(tmp_path / "late") == student_weights(tmp_path / "whole")


def test_teacher_scores_are_the_teachers_and_made_once(recipe, tmp_path, beir):
    run(recipe, tmp_path / "run")
    store = ScoreStore.read(tmp_path / "run" / "teacher" / "scores")
    teacher, data = lb.load(tmp_path / "run" / "teacher" / "model"), load_data(beir)
    stored = store.to_run()
    assert set(stored) == {f"q{number}" for number in range(18)}
    pairs = [(query, document) for query, scores in stored.items() for document in scores]
    expected = teacher.score([(data.queries[query], data.corpus[document]) for query, document in pairs])
    assert np.allclose([stored[query][document] for query, document in pairs], expected, atol=1e-5)


def test_scores_made_elsewhere_teach_without_a_model(recipe, tmp_path, beir):
    data = load_data(beir)
    scores = {
        query: {
            document: float(len(set(data.queries[query].split()) & set(data.corpus[document].split())))
            for document in data.corpus.ids_at(range(0, 60, 3))
        }
        for query in data.qrels["train"]
    }
    write_run(scores, tmp_path / "llm.trec")
    recipe = {**recipe, "teacher": {"scores": str(tmp_path / "llm.trec")}}
    result = run(recipe, tmp_path / "run")
    assert [row.name for row in result.rows] == ["BM25", "student"]
    losses = [json.loads(line).get("loss") for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert any(loss and loss > 0 for loss in losses)


def test_scores_of_other_queries_are_refused(recipe, tmp_path, beir):
    write_run({"q24": {"d1": 1.0, "d2": 0.0}}, tmp_path / "other.trec")
    recipe = {**recipe, "teacher": {"scores": str(tmp_path / "other.trec")}}
    with pytest.raises(LimbeckError, match=r"no candidate document|none of the training pairs"):
        run(recipe, tmp_path / "run")


def test_without_any_label_the_teacher_is_followed(recipe, tmp_path, beir):
    teacher = tmp_path / "teacher"
    run(recipe, tmp_path / "first")
    lb.load(tmp_path / "first" / "teacher" / "model").save_pretrained(teacher)
    for file in (beir / "qrels").iterdir():
        file.unlink()
    (beir / "qrels").rmdir()
    result = run({**recipe, "teacher": {"model": str(teacher)}}, tmp_path / "run")
    assert result.rows == []
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    dev = [entry["dev"] for entry in log if "dev" in entry]
    assert dev and set(dev[0]) == {"spearman", "overlap@5", "kendall"}


def test_few_labels_and_many_unlabelled_queries_train_together(recipe, tmp_path):
    extra = tmp_path / "logged.tsv"
    extra.write_text(
        "".join(f"log{number}\tsort {word} file\n" for number, word in enumerate(["text", "list", "page"]))
    )
    recipe = set_value(recipe, f"data.unlabelled={extra}")
    recipe = set_value(recipe, "data.labelled_queries=5")
    session = ranking_module.RankingTask(load_recipe(recipe), tmp_path / "run")
    stage = load_recipe(recipe).teacher.stages[0]
    assert len(session.lists(stage, seed=0)) == 5  # labels alone have nothing to say of the others
    lists = session.lists(stage.model_copy(update={"objectives": ["one_hot", "masked_lm"]}), seed=0)
    labelled = [query.id for query in lists.ranked if query.labelled]
    assert len(labelled) == 5 and len(lists) == 21
    index = next(number for number, query in enumerate(lists.ranked) if query.id == "log1")
    assert np.isnan(lists.labels(index, lists.pick(index, 0))).all()
    run(recipe, tmp_path / "run")
    assert {"log0", "log1", "log2"} <= set(ScoreStore.read(tmp_path / "run" / "teacher" / "scores").query_ids())


def test_a_teacher_in_bfloat16_has_separate_scores(recipe, tmp_path):
    run(recipe, tmp_path / "exact")
    teacher = {"model": str(tmp_path / "exact" / "teacher" / "model"), "bf16": True}
    run({**recipe, "teacher": teacher}, tmp_path / "half", "evaluation.bf16=true", "evaluation.task=both")
    exact, half = (ScoreStore.read(tmp_path / name / "teacher" / "scores").to_run()["q0"] for name in ("exact", "half"))
    assert list(half) == list(exact)
    assert half != exact
    assert list(half.values()) == pytest.approx(list(exact.values()), abs=0.1)
    teacher["scores"] = str(tmp_path / "exact" / "teacher" / "scores")
    with pytest.raises(LimbeckError, match="another"):
        run({**recipe, "teacher": teacher}, tmp_path / "mixed")


@pytest.mark.parametrize("bf16", [False, True])
def test_rankings_are_measured_in_bfloat16_if_the_recipe_says_so(recipe, tmp_path, monkeypatch, bf16):
    seen = []
    for module in (ranking_dev, ranking_bench):
        plain = module.rerank

        def spied(ranker, *given, plain=plain):
            seen.append(getattr(ranker, "matcher", ranker).bf16)
            return plain(ranker, *given)

        monkeypatch.setattr(module, "rerank", spied)
    result = run(recipe, tmp_path / "run", f"evaluation.bf16={bf16}")
    assert len(seen) > 3 and set(seen) == {bf16}  # dev while both train, then teacher and student on test
    assert not result.student.bf16


def test_bfloat16_is_of_a_teachers_model(recipe):
    with pytest.raises(LimbeckError, match="only scores; drop bf16"):
        load_recipe({**recipe, "teacher": {"scores": "scores.trec", "bf16": True}})


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_live_teacher_gives_the_losses_of_a_cached_one(recipe, tmp_path, in_batch):
    run(recipe, tmp_path / "first")
    base = {**recipe, "teacher": {"model": str(tmp_path / "first" / "teacher" / "model")}}
    changes = [f"stages.0.lists.in_batch={in_batch}", "stages.0.lists.pool=60", "stages.0.lists.negatives=uniform"]
    changes += ["stages.0.objectives=[softmax_ce, 0.1 * one_hot]"]
    run(base, tmp_path / "cached", *changes)
    run(base, tmp_path / "live", *changes, "teacher.live=true")
    assert not (tmp_path / "live" / "teacher").exists()

    def losses(folder: Path) -> list[float]:
        entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return [entry["loss"] for entry in entries if "loss" in entry]

    assert losses(tmp_path / "cached") == pytest.approx(losses(tmp_path / "live"), abs=1e-4)


def test_standardised_scores_change_the_training(recipe, tmp_path):
    run(recipe, tmp_path / "none")
    for kind in ("list", "global"):
        run(recipe, tmp_path / kind, f"teacher.standardise={kind}")
        assert student_weights(tmp_path / "none") != student_weights(tmp_path / kind)


def test_a_teacher_with_three_outputs_does_not_fit_a_student_with_one(recipe, tmp_path, tiny_bert):
    from limbeck.matchers import build, matcher_config

    build(
        matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16, outputs=3)
    ).save_pretrained(tmp_path / "teacher")
    recipe = {**recipe, "teacher": {"model": str(tmp_path / "teacher")}}
    with pytest.raises(LimbeckError, match="the teacher gives 3 scores per pair"):
        run(recipe, tmp_path / "run")


def test_early_stopping_keeps_the_best_weights_on_dev(recipe, tmp_path):
    changes = ["stages.0.steps=40", "stages.0.lr=0.01", "stages.0.eval_every=2", "stages.0.patience=3"]
    run(recipe, tmp_path / "run", *changes)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    dev = [(entry["step"], entry["dev"]["ndcg@10"]) for entry in log if entry["model"] == "student" and "dev" in entry]
    best = max(value for _, value in dev)
    first_best = next(number for number, (_, value) in enumerate(dev) if value == best)
    assert dev[-1][0] < 40
    assert len(dev) - 1 - first_best == 3
    session = ranking_module.RankingTask(load_recipe(recipe, changes), tmp_path / "again")
    assert session.judged_dev(lb.load(tmp_path / "run" / "student"))["ndcg@10"] == pytest.approx(best)


def test_annotating_again_scores_only_what_is_new(recipe, tmp_path, beir):
    run(recipe, tmp_path / "run")
    teacher = str(tmp_path / "run" / "teacher" / "model")
    first = annotate_data(teacher, str(beir), tmp_path / "scores", depth=5)
    again = annotate_data(teacher, str(beir), tmp_path / "scores", depth=5)
    deeper = annotate_data(teacher, str(beir), tmp_path / "scores", depth=7)
    assert first.scored == len(first.store) > 18 * 4
    assert again.scored == 0
    assert deeper.scored == len(deeper.store) - first.scored > 0
    everything = annotate_data(teacher, str(beir), tmp_path / "scores", split="all", depth=5)
    assert len(everything.store.query_ids()) == 30


def test_an_export_covers_the_whole_store_and_problems_are_reported_first(recipe, tmp_path, beir):
    run(recipe, tmp_path / "run")
    teacher, scores = str(tmp_path / "run" / "teacher" / "model"), tmp_path / "scores"
    (tmp_path / "more.jsonl").write_text('{"_id": "new", "text": "copy a file"}\n')
    annotate_data(teacher, str(beir), scores, queries=tmp_path / "more.jsonl", depth=5)
    done = annotate_data(teacher, str(beir), scores, split="dev", depth=5, shape="trec")
    best = top_by_teacher(done.store.to_run(), done.judged, 1)
    assert all(f"d{query[1:]}" in best[query] for query in best if query != "new")  # also those of train
    with pytest.raises(LimbeckError, match="has scores of query 'new', but beir does not have its text; give its file"):
        annotate_data(teacher, str(beir), scores, depth=5, shape="flagembedding")


def test_given_lists_are_scored_for_every_split_and_without_judgements(recipe, tmp_path, beir):
    run(recipe, tmp_path / "run")
    teacher = str(tmp_path / "run" / "teacher" / "model")
    found = replace(load_data(str(beir)), runs={"logged": {"q0": {"d5": 1.0}}, "test": {"q24": {"d7": 2.0}}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("limbeck.training.annotate.load", lambda _: found)
        some = annotate_data(teacher, "", tmp_path / "a", split="logged", candidates="given")
        everything = annotate_data(teacher, "", tmp_path / "b", split="all", candidates="given")
    assert set(some.store.to_run()["q0"]) == {"d0", "d5"} and len(some.store.query_ids()) == 1
    assert set(everything.store.to_run()["q24"]) == {"d24", "d7"}


def test_a_pattern_that_freezes_nothing_is_named_before_the_teacher_is_trained(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="freeze: no parameter matches 'encodr'"):
        run(recipe, tmp_path / "run", "stages.0.freeze=[encodr]")
    with pytest.raises(LimbeckError, match="freeze: no parameter is left to train"):
        run(recipe, tmp_path / "run", "stages.0.freeze=['*']")
    assert not (tmp_path / "run" / "teacher").exists()


def test_the_teacher_of_another_run_reads_as_much_and_has_its_vectors_if_the_documents_are_the_same(tmp_path):
    (tmp_path / "recipe.yaml").write_text(
        "teacher: {model: minilm, length: 64, vectors: v.npy}\ndata: {source: mine}\n"
    )
    same, other = (teacher_of(tmp_path, source) for source in ("mine", "another"))
    assert (same["length"], same["vectors"]) == (64, "v.npy")
    assert other["length"] == 64 and "vectors" not in other


def test_the_teacher_of_another_run_is_live_if_it_was(recipe, tmp_path):
    run(recipe, tmp_path / "first", "teacher.live=true", "teacher.standardise=list", "teacher.bf16=true")
    second = load_recipe(recipe | {"teacher": str(tmp_path / "first")})
    assert second.teacher.live and second.teacher.standardise == "list" and second.teacher.scores is None
    assert second.teacher.bf16


def test_a_folder_holds_a_run_or_a_sweep(recipe, tmp_path):
    run(recipe, tmp_path / "run")
    with pytest.raises(LimbeckError, match="contains a run of `limbeck distill`; choose another --out"):
        sweep(recipe, ["student.layers=1"], out=tmp_path / "run")
    sweep(recipe, ["student.layers=1"], out=tmp_path / "sweep")
    with pytest.raises(LimbeckError, match="contains a sweep; choose another --out"):
        run(recipe, tmp_path / "sweep")


def test_the_top_by_teacher_always_keeps_positives():
    scores = {"q": {"a": 3.0, "b": 2.0, "c": 1.0, "p": -5.0}}
    assert top_by_teacher(scores, {"q": {"p": 1, "a": 0}}, 2) == {"q": {"p": -5.0, "a": 3.0}}
    assert top_by_teacher(scores, {"q": {"a": 1, "b": 1, "p": 1}}, 2) == {"q": {"a": 3.0, "b": 2.0, "p": -5.0}}


def test_a_mistake_found_late_can_be_fixed_in_the_same_folder(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="no such file or folder"):
        run(recipe, tmp_path / "run", "data.source=/no/such/folder")
    assert run(recipe, tmp_path / "run").rows


def test_labels_that_are_not_there_cannot_be_learnt_from(recipe, tmp_path, beir):
    (beir / "qrels" / "train.tsv").unlink()
    with pytest.raises(LimbeckError, match="one_hot learns from labels, and split 'train' has none"):
        run(recipe, tmp_path / "run")


def test_a_live_teacher_that_gives_nan_is_refused(recipe, tmp_path, tiny_bert):
    import torch

    from limbeck.matchers import build, matcher_config

    teacher = build(matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16))
    with torch.no_grad():
        teacher.model[-1].linear.weight.fill_(float("nan"))
    teacher.save_pretrained(tmp_path / "teacher")
    with pytest.raises(LimbeckError, match="not a finite number"):
        run({**recipe, "teacher": {"model": str(tmp_path / "teacher"), "live": True}}, tmp_path / "run")


def test_an_edited_corpus_does_not_get_the_scores_of_the_old_one(recipe, tmp_path, beir):
    run(recipe, tmp_path / "run")
    teacher = str(tmp_path / "run" / "teacher" / "model")
    annotate_data(teacher, str(beir), tmp_path / "scores", depth=3)
    corpus = (beir / "corpus.jsonl").read_text()
    (beir / "corpus.jsonl").write_text(corpus.replace("copy", "move"))
    with pytest.raises(LimbeckError, match="documents"):
        annotate_data(teacher, str(beir), tmp_path / "scores", depth=3)


def test_an_edited_query_does_not_get_the_scores_of_the_old_one_and_a_new_one_is_welcome(recipe, tmp_path, beir):
    run(recipe, tmp_path / "run")
    teacher, scores = str(tmp_path / "run" / "teacher" / "model"), tmp_path / "scores"
    first = annotate_data(teacher, str(beir), scores, depth=3)
    with open(scores / "queries.jsonl", "a") as handle:
        handle.write('{"_id": "cut sh')  # as a kill leaves it
    (tmp_path / "more.jsonl").write_text('{"_id": "new", "text": "copy a file"}\n')
    assert annotate_data(teacher, str(beir), scores, queries=tmp_path / "more.jsonl", depth=3).scored == 3
    assert annotate_data(teacher, str(beir), scores, queries=tmp_path / "more.jsonl", depth=3).scored == 0
    (tmp_path / "more.jsonl").write_text('{"_id": "new", "text": "move a file"}\n')
    with pytest.raises(LimbeckError, match="query 'new' has changed since it was scored"):
        annotate_data(teacher, str(beir), scores, queries=tmp_path / "more.jsonl", depth=3)
    assert first.scored


@pytest.mark.full
def test_a_whole_run_in_two_processes_ends_as_in_one(recipe, tmp_path):
    run(recipe, tmp_path / "one")
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    torchrun(2, "limbeck", "distill", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "two"))
    one, two = (json.loads((tmp_path / name / "metrics.json").read_text())["rows"] for name in ("one", "two"))
    assert [row["name"] for row in one] == [row["name"] for row in two]
    assert one[-1]["measures"] == pytest.approx(two[-1]["measures"], abs=0.2)  # of a few queries, and sums differ
    assert (tmp_path / "two" / "report.html").exists()


def test_random_candidates_are_drawn_only_for_test(recipe, tmp_path):
    recipe["evaluation"] |= {"random": 20, "add_judged": True}
    session = RankingTask(load_recipe(recipe), tmp_path)
    test, dev = session.candidates(["q25"], "test", 5)["q25"], session.candidates(["q20"], "dev", 5)["q20"]
    assert 20 <= len(test) <= 26 and len(dev) <= 6
    assert session.candidates(["q24", "q25"], "test", 5)["q25"] == test


def test_a_report_that_a_kill_left_out_is_made_on_the_next_call(recipe, tmp_path):
    result = run(recipe, tmp_path / "run")
    result.report.unlink()
    (tmp_path / "run" / "work").mkdir()
    assert run(recipe, tmp_path / "run").report.exists()
    assert not (tmp_path / "run" / "work").exists()


@pytest.mark.parametrize(
    "changes",
    [
        ["stages.0.lists.pick=top"],
        ["evaluation.task=retrieve", "evaluation.baselines=[bm25, start]"],
        ["evaluation.add_judged=true", "data.dev=null"],
        ["stages.0.workers=1"],
        ["stages.0.bf16=true", "evaluation.bf16=true"],
    ],
)
def test_other_ways_of_running_reach_the_end(recipe, tmp_path, changes):
    if any("start" in change for change in changes):
        from limbeck.matchers import build, matcher_config

        spec = matcher_config(init_from=recipe["student"]["init_from"], query_length=8, document_length=16)
        build(spec).save_pretrained(tmp_path / "start")
        recipe["student"]["init_from"] = str(tmp_path / "start")
    result = run(recipe, tmp_path / "run", *changes)
    assert result.rows[-1].name == "student"
    assert result.rows[-1].kept is not None
