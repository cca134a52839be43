from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from html import unescape

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.evaluation import RankingResult, holm
from limbeck.evaluation.significance import randomisation_test
from limbeck.matchers import CrossEncoder
from limbeck.progress import reporting
from limbeck.recipe.files import load_recipe
from limbeck.runs import cell_runs, teacher_step
from limbeck.runs import finish_run as finish_module
from limbeck.runs import train_student as training_module
from limbeck.runs.add_analyses import add_analyses
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.results import Measured, ResultRow, over_seeds
from limbeck.runs.run import distill
from limbeck.runs.sweep import sweep
from limbeck.training import stages as stages_module

OBJECTIVES = "objective=one_hot,softmax_ce,mse"


def results(folder):
    """The per-query values of every run, by cell and seed."""
    return {
        (path.parent.parent.name.rpartition("-")[0], path.parent.name): json.loads(path.read_text())
        for path in (folder / "students").glob("*/seed-*/result.json")
    }


def test_a_grid_is_run_over_seeds_and_gathered_in_one_table(recipe, tmp_path):
    result = sweep(recipe, [OBJECTIVES], seeds=3, out=tmp_path / "s")
    assert [row.name for row in result.rows] == ["teacher", "BM25", "one_hot", "softmax_ce", "mse"]
    found = results(tmp_path / "s")
    assert len(found) == 9
    one_hot, mse = (
        np.array([found[name, f"seed-{seed}"]["result"]["per_query"]["ndcg@10"] for seed in range(3)])
        for name in ("one-hot", "mse")
    )
    row = result.rows[4]
    assert row.runs == 3
    assert row.measures["ndcg@10"] == pytest.approx(mse.mean())
    assert row.spread["ndcg@10"] == pytest.approx(mse.mean(axis=1).std(ddof=1))
    assert row.significance["difference"] == pytest.approx((mse - one_hot).mean())
    p_values = [result.rows[at].significance["p"] for at in (3, 4)]
    assert p_values[1] == pytest.approx(randomisation_test((mse - one_hot).mean(axis=0)))
    assert [result.rows[at].significance["p_holm"] for at in (3, 4)] == pytest.approx(holm(p_values))
    assert result.rows[2].significance is None
    assert "softmax_ce" in result.report.read_text()


def test_a_rows_speed_is_the_best_of_its_seeds():
    result = RankingResult(("q",), {"ndcg@10": np.array([0.5])}, 0, 0)
    times = [(3.0, 100.0), (2.0, 90.0), (None, 120.0)]
    runs = [
        Measured(ResultRow("mse", "student", {"ndcg@10": 0.5}, ms_per_query=ms, pairs_per_second=pairs), result, {})
        for ms, pairs in times
    ]
    row = over_seeds(runs, "mse", []).row
    assert (row.ms_per_query, row.pairs_per_second) == (2.0, 120.0)
    assert over_seeds(runs[2:], "mse", []).row.ms_per_query is None


def test_seeds_differ_in_the_student_and_share_the_teacher(recipe, tmp_path):
    sweep(recipe, [], seeds=2, out=tmp_path / "s")
    weights = [
        next((tmp_path / "s" / "students").glob(f"*/seed-{seed}/student/model.safetensors")).read_bytes()
        for seed in (0, 1)
    ]
    assert weights[0] != weights[1]
    assert [path.name for path in (tmp_path / "s" / "teacher").iterdir() if path.is_dir()] == ["model", "scores"]


def test_the_report_has_the_sweep_and_its_command(recipe, tmp_path):
    (tmp_path / "tiny.yaml").write_text(json.dumps(recipe))
    over, tune, out = "objective=softmax_ce + one_hot,m3se", "stages.0.lr=1e-3,1e-2", str(tmp_path / "s")
    result = sweep(tmp_path / "tiny.yaml", [over], [tune], out=out, overrides=["student.dim=8"], against="m3se")
    told = json.loads((tmp_path / "s" / "metrics.json").read_text())["sweep"]
    words = ["limbeck", "sweep", str(tmp_path / "tiny.yaml"), "--set", "student.dim=8", "--over", over, "--tune", tune]
    assert shlex.split(told["command"]) == [*words, "--seeds", "1", "--against", "m3se", "--out", out]
    page = unescape(result.report.read_text())
    assert told["command"] in page and "run it to repeat this run" not in page
    assert "tuned on dev: stages.0.lr" in page and "1e-3, 1e-2" in page
    assert result.rows[-1].logged == f"m3se, {result.rows[-1].chosen}"


def test_the_command_of_a_sweep_from_python_has_the_recipe_that_it_left(recipe, tmp_path):
    sweep(recipe, ["objective=mse"], out=tmp_path / "s", overrides=["student.dim=8"], keep=False)
    told = json.loads((tmp_path / "s" / "metrics.json").read_text())["sweep"]
    place = str(tmp_path / "s" / "recipe.yaml")
    ends = ["--over", "objective=mse", "--seeds", "1", "--out", str(tmp_path / "s"), "--drop-students"]
    assert shlex.split(told["command"]) == ["limbeck", "sweep", place, *ends]
    assert load_recipe(place).student.dim == 8


def test_a_cells_recipe_repeats_its_run(recipe, tmp_path):
    sweep(recipe, [OBJECTIVES], seeds=2, out=tmp_path / "s")
    place = next((tmp_path / "s" / "students").glob("softmax-ce-*/seed-1"))
    distill(place / "recipe.yaml", tmp_path / "again")
    again = tmp_path / "again" / "student" / "model.safetensors"
    assert again.read_bytes() == (place / "student" / "model.safetensors").read_bytes()


def test_stages_that_runs_begin_with_are_trained_once(recipe, tmp_path, monkeypatch):
    recipe["stages"] = [recipe["stages"][0] | {"objectives": ["one_hot"], "steps": 2}, *recipe["stages"]]
    plain, ran = stages_module._run_stage, []
    monkeypatch.setattr(stages_module, "_run_stage", lambda *a: ran.append((a[5].name, a[2])) or plain(*a))
    sweep(recipe, ["objective=mse,softmax_ce"], seeds=2, out=tmp_path / "s")
    assert sorted(number for name, number in ran if name != "teacher") == [0, 0, 1, 1, 1, 1]
    for place in (tmp_path / "s" / "students").glob("*/seed-1"):
        distill(place / "recipe.yaml", tmp_path / place.parent.name)
        alone = tmp_path / place.parent.name / "student" / "model.safetensors"
        assert alone.read_bytes() == (place / "student" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("key", ["student.query_length=4,8", "stages.0.lr=1e-3,1e-4"])
def test_first_stages_that_differ_are_not_shared(recipe, tmp_path, monkeypatch, key):
    recipe["stages"] = [recipe["stages"][0] | {"objectives": ["one_hot"], "steps": 2}, *recipe["stages"]]
    plain, ran = stages_module._run_stage, []
    monkeypatch.setattr(stages_module, "_run_stage", lambda *a: ran.append(a[5].name) or plain(*a))
    sweep(recipe, [key], out=tmp_path / "s")
    assert len([name for name in ran if name != "teacher"]) == 4


def test_the_best_on_dev_becomes_the_student_and_answers(recipe, tmp_path):
    result = sweep(recipe, [OBJECTIVES], out=tmp_path / "s", questions=["how do i copy a file"], note="a note")
    examples = json.loads((tmp_path / "s" / "examples.json").read_text())
    assert [len(found["results"]) for found in examples[0]["lists"]] == [3, 3]
    page = result.report.read_text()
    assert "how do i copy a file" in page and "a note" in page
    session = RankingTask(load_recipe(recipe), tmp_path / "again")
    on_dev = {
        path.parent.parent.name: json.loads(path.read_text())["ndcg@10"]
        for path in (tmp_path / "s" / "students").glob("*/*/dev.json")
    }
    assert session.judged_dev(result.student)["ndcg@10"] == pytest.approx(max(on_dev.values()))


def test_tuning_is_by_dev_and_only_the_chosen_setting_sees_test(recipe, tmp_path):
    axis = "stages.0.lr=1e-9,1e-3,1e-2"
    result = sweep(recipe, ["objective=one_hot,mse"], tune=[axis], seeds=2, out=tmp_path / "s")
    for row in result.rows[2:]:
        folder = next((tmp_path / "s" / "students").glob(f"{row.name.replace('_', '-')}-*"))
        dev = {
            path.parent.parent.name: json.loads(path.read_text())["ndcg@10"]
            for path in folder.glob("*/seed-0/dev.json")
        }
        assert len(dev) == 3
        measured = {path.parent.parent.name for path in folder.glob("*/*/result.json")}
        assert len(measured) == 1
        assert dev[measured.pop()] == max(dev.values())
        assert row.chosen.startswith("lr=")
        assert row.runs == 2


def test_the_chosen_setting_is_named_by_what_the_objective_has(recipe, tmp_path):
    tune = ["stages.0.lr=1e-3,1e-2", "objective.tau=1,4"]
    result = sweep(recipe, ["objective=softmax_ce,m3se"], tune, out=tmp_path / "s", against="m3se")
    softmax_ce, m3se = result.rows[2:]
    assert softmax_ce.chosen.startswith("lr=1e-") and ", tau=" in softmax_ce.chosen
    assert m3se.chosen in ("lr=1e-3", "lr=1e-2")
    assert [path.name[:18] for path in sorted((tmp_path / "s" / "students").glob("m3se-*/*"))] == [
        "m3se-lr-1e-2-tau-1",
        "m3se-lr-1e-3-tau-1",
    ]


class Said:
    """A reporter that records all reports."""

    def __init__(self):
        self.lines = []

    def task(self, label, total):
        return nullcontext(lambda count: None)

    def say(self, message):
        self.lines.append(message)


class Killed(BaseException):
    pass


def test_interrupted_it_resumes_and_ends_the_same(recipe, tmp_path, monkeypatch):
    whole = sweep(recipe, [OBJECTIVES], out=tmp_path / "whole")
    plain = cell_runs.train_student
    trained = []

    def dies(session, recipe, name, *place):
        if len(trained) == 2:
            raise Killed
        trained.append(name)
        return plain(session, recipe, name, *place)

    monkeypatch.setattr(cell_runs, "train_student", dies)
    with pytest.raises(Killed):
        sweep(recipe, [OBJECTIVES], out=tmp_path / "s")
    again = []
    monkeypatch.setattr(cell_runs, "train_student", lambda *a: again.append(a[2]) or plain(*a))
    resumed = sweep(recipe, [OBJECTIVES], out=tmp_path / "s")
    assert again[:1] == ["mse"]
    assert [row.measures for row in resumed.rows] == [row.measures for row in whole.rows]


def test_more_seeds_and_values_do_only_what_is_new(recipe, tmp_path, monkeypatch):
    sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    fitted = []
    plain = training_module.fit
    monkeypatch.setattr(training_module, "fit", lambda *a: fitted.append(a[3].name) or plain(*a))
    monkeypatch.setattr(CrossEncoder, "score", lambda *_: pytest.fail("the teacher was measured or asked again"))
    result = sweep(recipe, ["objective=one_hot,mse,binary_ce"], seeds=2, out=tmp_path / "s")
    assert sorted(fitted) == ["binary_ce, seed 0", "binary_ce, seed 1", "mse, seed 1", "one_hot, seed 1"]
    assert [row.runs for row in result.rows[2:]] == [2, 2, 2]
    fitted.clear()
    assert sweep(recipe, ["objective=one_hot,mse,binary_ce"], seeds=2, out=tmp_path / "s").rows == result.rows
    assert not fitted


def test_one_failure_among_many_is_named_and_tried_again(recipe, tmp_path, monkeypatch):
    plain = cell_runs.train_student

    def fails(session, recipe, name, *place):
        if name in ("mse, seed 1", "softmax_ce, seed 0", "softmax_ce, seed 1"):
            raise RuntimeError("out of luck")
        return plain(session, recipe, name, *place)

    monkeypatch.setattr(cell_runs, "train_student", fails)
    result = sweep(recipe, [OBJECTIVES], seeds=2, out=tmp_path / "s")
    rows = {row.name: row for row in result.rows}
    assert rows["mse"].runs == 1 and len(rows["mse"].failed) == 1
    (trace,) = (tmp_path / "s" / "students").glob("mse-*/seed-1/error.txt")
    assert rows["mse"].failed == [f"seed 1: out of luck (traceback in {trace})"]
    assert trace.read_text().startswith("Traceback") and "RuntimeError: out of luck" in trace.read_text()
    assert rows["softmax_ce"].runs == 0 and len(rows["softmax_ce"].failed) == 2
    assert rows["one_hot"].failed is None
    page = result.report.read_text()
    assert "out of luck" in page
    monkeypatch.setattr(cell_runs, "train_student", plain)
    rows = {row.name: row for row in sweep(recipe, [OBJECTIVES], seeds=2, out=tmp_path / "s").rows}
    assert [rows[name].runs for name in ("one_hot", "softmax_ce", "mse")] == [2, 2, 2]
    assert not list((tmp_path / "s" / "students").rglob("error.txt"))


def _failing(monkeypatch, objective, error):
    """Let the students of an objective fail."""
    plain = cell_runs.train_student

    def fails(session, recipe, name, *place):
        if name == objective:
            raise error
        return plain(session, recipe, name, *place)

    monkeypatch.setattr(cell_runs, "train_student", fails)


def test_a_users_mistake_has_no_traceback(recipe, tmp_path, monkeypatch):
    _failing(monkeypatch, "mse", LimbeckError("wrong; fix it"))
    result = sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    assert result.rows[-1].failed == ["seed 0: wrong; fix it"]
    assert not list((tmp_path / "s" / "students").rglob("error.txt"))


def test_without_the_row_to_test_against_nothing_is_tested_and_a_note_says_so(recipe, tmp_path, monkeypatch):
    plain = cell_runs.train_student
    _failing(monkeypatch, "one_hot", RuntimeError("out of luck"))
    result = sweep(recipe, [OBJECTIVES], out=tmp_path / "s", against="one_hot")
    assert [row.significance for row in result.rows] == [None] * 5
    assert "one_hot failed, so there is no comparison with it." in result.report.read_text()
    assert json.loads((tmp_path / "s" / "sweep.json").read_text())["against_failed"] is True
    monkeypatch.setattr(cell_runs, "train_student", plain)
    result = sweep(recipe, [OBJECTIVES], out=tmp_path / "s", against="one_hot")
    assert [row.significance["against"] for row in result.rows if row.significance] == ["one_hot", "one_hot"]
    assert "there is no comparison" not in result.report.read_text()
    assert "against_failed" not in json.loads((tmp_path / "s" / "sweep.json").read_text())


def test_tuning_without_dev_queries_is_refused_before_training(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(cell_runs, "train_student", lambda *_: pytest.fail("something was trained"))
    recipe["data"]["dev"] = None
    with pytest.raises(LimbeckError, match="--tune requires dev queries; give data.dev, or drop --tune"):
        sweep(recipe, [OBJECTIVES], ["stages.0.lr=1e-3,1e-2"], out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_data_that_cannot_be_read_are_named_once_and_leave_no_folder(recipe, tmp_path):
    said = Said()
    recipe["data"]["source"] = str(tmp_path / "nope")
    with pytest.raises(LimbeckError, match=r"^\S*nope: "), reporting(said):
        sweep(recipe, [OBJECTIVES], seeds=2, out=tmp_path / "s")
    assert not said.lines and not (tmp_path / "s").exists()


def test_a_teacher_that_fails_is_not_tried_again_for_every_run(recipe, tmp_path, monkeypatch):
    asked = []

    def fails(spec):
        asked.append(spec)
        raise RuntimeError("out of luck")

    monkeypatch.setattr(teacher_step, "build", fails)
    with pytest.raises(RuntimeError, match="out of luck"):
        sweep(recipe, ["objective=softmax_ce,mse"], seeds=2, out=tmp_path / "s")
    assert len(asked) == 1


@pytest.mark.parametrize("teacher", [{"model": "/nope"}, {"scores": "/nope"}])
def test_a_missing_teacher_is_named_before_training(recipe, tmp_path, teacher):
    said, recipe["teacher"] = Said(), teacher
    with pytest.raises(LimbeckError, match="^/nope: "), reporting(said):
        sweep(recipe, [OBJECTIVES], seeds=2, out=tmp_path / "s")
    assert not said.lines and not (tmp_path / "s").exists()


def test_without_test_queries_nothing_is_trained(recipe, tmp_path):
    recipe["data"]["test"] = None
    with pytest.raises(LimbeckError, match="no labelled split None, but a sweep compares on it; give data.test"):
        sweep(recipe, [OBJECTIVES], out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_the_table_has_the_other_settings_if_one_teacher_fails(recipe, tmp_path, monkeypatch):
    plain = cell_runs.train_student

    def fails(session, recipe, name, *place):
        if name == "steps=1":
            raise RuntimeError("out of luck")
        return plain(session, recipe, name, *place)

    monkeypatch.setattr(cell_runs, "train_student", fails)
    result = sweep(recipe, ["teacher.stages.0.steps=1,2"], out=tmp_path / "s")
    assert [row.name for row in result.rows] == ["teacher of steps=2", "BM25, with steps=2", "steps=2", "steps=1"]


@pytest.mark.parametrize(
    ("over", "tune"),
    [(["student.dim=8,16", "student.dim=4"], []), (["student.dim=8,16"], ["student.dim=4,8"])],
)
def test_a_key_that_occurs_twice_is_refused(recipe, tmp_path, over, tune):
    with pytest.raises(LimbeckError, match="student.dim: is named twice in --over and --tune; give all"):
        sweep(recipe, over, tune, out=tmp_path / "s")


def test_if_all_fail_the_reason_is_the_error(recipe, tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(cell_runs, "train_student", fails)
    with pytest.raises(LimbeckError, match="every run failed, the first with: out of luck"):
        sweep(recipe, [OBJECTIVES], out=tmp_path / "s")


def test_settings_of_the_teacher_have_separate_sessions(recipe, tmp_path):
    result = sweep(recipe, ["teacher.stages.0.steps=1,2"], out=tmp_path / "s")
    assert len(list((tmp_path / "s" / "shared").iterdir())) == 2
    rows = {row.name: row for row in result.rows}
    teachers = [row for row in result.rows if row.kind == "teacher"]
    assert [row.name for row in teachers] == ["teacher of steps=1", "teacher of steps=2"]
    assert rows["steps=2"].kept == pytest.approx(
        rows["steps=2"].measures["ndcg@10"] / rows["teacher of steps=2"].measures["ndcg@10"]
    )
    assert result.report.exists() and (tmp_path / "s" / "metrics.json").exists()


def test_results_older_than_the_plan_do_not_pass_for_finished(recipe, tmp_path, monkeypatch):
    sweep(recipe, ["objective=one_hot"], out=tmp_path / "s")

    def dies(*_, **__):
        raise Killed

    monkeypatch.setattr(finish_module, "write_results", dies)
    with pytest.raises(Killed):
        sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    monkeypatch.undo()
    assert [row.name for row in sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s").rows][-1] == "mse"


def test_students_can_be_dropped_and_the_best_is_kept(recipe, tmp_path):
    result = sweep(recipe, [OBJECTIVES], out=tmp_path / "s", keep=False)
    assert not list((tmp_path / "s" / "students").rglob("*.safetensors"))
    assert result.student.rank("copy", ["copy", "move"])


def test_a_best_student_whose_own_weights_were_dropped_is_not_trained_again(recipe, tmp_path, monkeypatch):
    axis = "stages.0.lr=1e-2,1e-9"
    sweep(recipe, [axis], out=tmp_path / "s", keep=False)
    first = next((tmp_path / "s" / "students").glob("lr-1e-2-*/seed-0/dev.json"))
    first.write_text(json.dumps({"ndcg@10": 2.0}))  # better than any other can be
    sweep(recipe, [f"{axis},1e-8"], out=tmp_path / "s", keep=False)  # trained again if it was not the best before
    weights = (tmp_path / "s" / "student" / "model.safetensors").read_bytes()
    trained, plain = [], training_module.fit
    monkeypatch.setattr(training_module, "fit", lambda *a: trained.append(a[3].name) or plain(*a))
    result = sweep(recipe, [f"{axis},1e-8,1e-7"], out=tmp_path / "s", keep=False)
    assert trained == ["lr=1e-7"]
    assert (tmp_path / "s" / "student" / "model.safetensors").read_bytes() == weights
    assert result.student.rank("copy", ["copy", "move"])


def test_both_tasks_training_queries_and_transfer_are_columns(recipe, beir, tmp_path):
    recipe["evaluation"] |= {"task": "both", "train_queries": 4, "transfer": [str(beir)]}
    result = sweep(recipe, ["objective=mse"], out=tmp_path / "s")
    first = ["ndcg@10", "mrr@10"]
    besides = ["train ndcg@10", "beir ndcg@10"]
    rows = {row.name: list(row.measures) for row in result.rows}
    assert rows["mse"] == rows["BM25"] == [*first, *(f"search {name}" for name in first), *besides]
    assert rows["teacher"] == [*first, *besides]
    # the transfer set is the data itself: its test split, re-ranked to the same depth
    assert result.rows[2].measures["beir ndcg@10"] == pytest.approx(result.rows[2].measures["ndcg@10"])
    assert "Train nDCG@10" in result.report.read_text() or "train nDCG@10" in result.report.read_text()


def test_a_row_to_test_against_has_to_be_there(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="--against on_hot: this sweep has no such row; .*one_hot"):
        sweep(recipe, [OBJECTIVES], out=tmp_path / "s", against="on_hot")
    assert not (tmp_path / "s").exists()


def test_a_recipe_that_only_the_axes_complete_is_swept_and_resumes(recipe, tmp_path, monkeypatch):
    axis, overrides = "objective=one_hot,focal", ["stages.0.lists.in_batch=true"]
    result = sweep(recipe, [axis], out=tmp_path / "s", overrides=overrides)
    assert [row.name for row in result.rows[2:]] == ["one_hot", "focal"]
    trained, plain = [], training_module.fit
    monkeypatch.setattr(training_module, "fit", lambda *a: trained.append(a[3].name) or plain(*a))
    sweep(recipe, [axis], seeds=2, out=tmp_path / "s", overrides=overrides)
    assert trained == ["one_hot, seed 1", "focal, seed 1"]


def test_no_seeds_are_refused(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="0 seeds are too few"):
        sweep(recipe, [OBJECTIVES], seeds=0, out=tmp_path / "s")


def test_an_argument_that_no_objective_has_is_refused(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="objective.tua: no objective here has 'tua'; .*tau"):
        sweep(recipe, [OBJECTIVES], ["objective.tua=1,4"], out=tmp_path / "s")
    with pytest.raises(LimbeckError, match="objective.gamma0: no objective here has 'gamma0'"):
        sweep(recipe, ["objective.gamma0=1,4"], out=tmp_path / "s")


def test_snapshots_of_a_sweep_are_the_best_students_and_old_pictures_go(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = ["snapshots", "wins"]
    sweep(recipe, ["student.dim=8,16"], out=tmp_path / "s")
    kept = tmp_path / "s" / "analyses"
    assert "missing" not in json.loads((kept / "snapshots.json").read_text())
    assert (kept / "sensitivity.json").exists()
    assert json.loads((kept / "wins.json").read_text())["names"][1].startswith("dim=")  # not the teacher
    sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    assert not (kept / "sensitivity.json").exists()


def test_work_that_sessions_share_is_gone_in_the_end(recipe, tmp_path):
    sweep(recipe, ["teacher.stages.0.steps=1,2"], out=tmp_path / "s")
    assert not list((tmp_path / "s" / "shared").glob("*/work"))
    with pytest.raises(LimbeckError, match="several; name the model of one"):
        load_recipe(recipe | {"teacher": str(tmp_path / "s")})
    with pytest.raises(LimbeckError, match="is a sweep over data or teachers"):
        add_analyses(tmp_path / "s", ["wins"])
