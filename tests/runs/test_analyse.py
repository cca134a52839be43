"""A run's report looks into its models; what it lacks is named there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.report.analyses import registry
from limbeck.report.run import run_report
from limbeck.runs.add_analyses import add_analyses
from limbeck.runs.sweep import sweep

MAPS = ["pair_map", "attention_maps"]
ALL = ["scores", "snapshots", "margins", "rank", "wins", "disagreements", "top_lists", "query_cost", "distances", *MAPS]


def analyses(folder):
    return {path.stem: json.loads(path.read_text()) for path in (folder / "analyses").glob("*.json")}


def test_every_analysis_of_a_run_is_stored_and_shown(recipe, tmp_path):
    recipe["evaluation"] |= {"analyses": ALL, "baselines": ["bm25", "start"]}  # `distances` compares with the start
    recipe["stages"][0]["eval_every"] = 1
    result = lb.distill(recipe, tmp_path / "run")
    found = analyses(tmp_path / "run")
    assert set(found) == set(ALL)
    assert not [name for name, result in found.items() if set(result) == {"missing"}]
    assert [model["name"] for model in found["snapshots"]["models"]] == ["start", "midway", "end"]
    start = f"{recipe['student']['init_from']}, as it is"
    assert [model["name"] for model in found["scores"]["models"]] == ["teacher", start, "student"]
    page = result.report.read_text()
    assert "Scores while training" in page
    assert page.count("<section") >= len(ALL)


def test_disagreements_are_of_what_the_student_reads_and_of_the_level_of_relevance(recipe, tmp_path):
    recipe["evaluation"] |= {"analyses": ["disagreements"], "relevance_level": 2}
    recipe["student"]["document_length"] = 8
    beir = Path(recipe["data"]["source"])
    for path in (beir / "qrels").glob("*.tsv"):
        path.write_text(path.read_text().replace("\t1\n", "\t2\n"))
    lb.distill(recipe, tmp_path / "run")
    found = analyses(tmp_path / "run")["disagreements"]
    assert (found["words_read"], found["at_least"]) == (5, 2)
    assert all(len(each["text"].split()) <= 5 for each in (*found["overrated"], *found["underrated"]))


def test_the_default_leaves_out_what_costs(recipe, tmp_path):
    lb.distill(recipe, tmp_path / "run")
    assert set(analyses(tmp_path / "run")) == {"scores", "margins", "wins", "disagreements", "top_lists"}


def test_what_a_run_lacks_is_named_in_its_report(recipe, tmp_path):
    del recipe["teacher"]
    recipe["stages"][0]["objectives"] = ["one_hot"]
    recipe["evaluation"]["analyses"] = ["rank", "disagreements", "scores"]
    result = lb.distill(recipe, tmp_path / "run")
    found = analyses(tmp_path / "run")
    assert "no model to score a full matrix" in found["rank"]["missing"]
    assert "there is no teacher" in found["disagreements"]["missing"]
    assert "Left out: there is no teacher to compare with" in result.report.read_text()
    assert found["scores"]["models"]


def test_an_unknown_analysis_is_refused(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = ["ranks"]
    with pytest.raises(LimbeckError, match=r"evaluation.analyses.0: .*no analysis 'ranks'; did you mean 'rank'\?"):
        lb.distill(recipe, tmp_path / "run")
    recipe["evaluation"]["analyses"] = ["sensitivity"]
    with pytest.raises(LimbeckError, match="sensitivity cannot be asked for: a sweep over one number makes it"):
        lb.distill(recipe, tmp_path / "run")


def test_a_damaged_analysis_is_named(recipe, tmp_path):
    lb.distill(recipe, tmp_path / "run")
    (tmp_path / "run" / "analyses" / "scores.json").write_text('{"models": 3}')
    with pytest.raises(LimbeckError, match=r"scores.json: is not the result of an analysis"):
        run_report(tmp_path / "run")


def test_a_numeric_axis_gives_a_curve_and_train_against_test(recipe, tmp_path):
    recipe["evaluation"]["train_queries"] = 4
    result = sweep(recipe, ["objective=one_hot,mse", "student.dim=4,8"], seeds=2, out=tmp_path / "s")
    found = analyses(tmp_path / "s")
    rows = {row.name: row for row in result.rows}
    lines = {line["name"]: line["results"] for line in found["sensitivity"]["lines"]}
    assert set(lines) == {"one_hot", "mse"}
    assert [point["value"] for point in lines["mse"]] == [4, 8]
    assert lines["mse"][1]["quality"]["mean"] == pytest.approx(rows["mse, dim=8"].measures["ndcg@10"])
    curves = {model["name"]: model["sizes"] for model in found["generalisation"]["models"]}
    assert list(curves) == ["teacher", "one_hot", "mse"]
    assert curves["mse"][0]["train"]["mean"] == pytest.approx(rows["mse, dim=4"].measures["train ndcg@10"])
    assert found["generalisation"]["setting"] == "student.dim"
    assert "as student.dim grows" in result.report.read_text()
    assert curves["mse"][0]["verdict"] == "undecided"  # by four training queries
    log = [json.loads(line) for line in (tmp_path / "s" / "log.jsonl").read_text().splitlines()]
    assert any("train ndcg@10" in line.get("dev", {}) for line in log)


def test_a_grid_without_a_numeric_axis_has_no_curve_and_still_an_answer(recipe, tmp_path):
    recipe["evaluation"]["train_queries"] = 4
    sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    found = analyses(tmp_path / "s")
    assert "sensitivity" not in found
    assert [model["name"] for model in found["generalisation"]["models"]] == ["teacher", "one_hot", "mse"]
    result = lb.distill(recipe, tmp_path / "run")
    (_, student) = analyses(tmp_path / "run")["generalisation"]["models"]
    assert student["sizes"][0]["verdict"] and "Capacity or generalisation?" in result.report.read_text()


def test_training_queries_are_kept_one_by_one_for_the_verdict(recipe, tmp_path):
    recipe["evaluation"] |= {"train_queries": 4, "analyses": []}
    result = sweep(recipe, ["objective=one_hot,mse"], seeds=2, out=tmp_path / "s")
    places = json.loads((tmp_path / "s" / "measured.json").read_text())
    kept = {
        name: [json.loads((tmp_path / "s" / place / "result.json").read_text())["result"]["besides"] for place in some]
        for name, some in places.items()
    }
    values = {name: [one["train ndcg@10"] for one in some] for name, some in kept.items()}
    (teacher,), students = values["teacher"], values["mse"]
    assert len(teacher) == 4
    rows = {row.name: row for row in result.rows}
    mean = np.mean([*students[0].values(), *students[1].values()])
    assert rows["mse"].measures["train ndcg@10"] == pytest.approx(mean)
    (_, _, mse) = analyses(tmp_path / "s")["generalisation"]["models"]
    gap = np.mean([*teacher.values()]) - mean
    assert mse["sizes"][0]["on_train"]["mean"] == pytest.approx(gap)


def test_scores_are_of_training_queries_too_where_some_are_measured(recipe, tmp_path):
    recipe["evaluation"] |= {"train_queries": 4, "analyses": ["scores"]}
    result = sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    found = analyses(tmp_path / "s")["scores"]
    assert [model["name"] for model in found["train"]] == ["teacher", "one_hot", "mse"]
    for side, most in (("models", 6), ("train", 4)):
        assert all(0 < model["queries"] <= most for model in found[side])
    assert "On training queries." in result.report.read_text()
    add_analyses(tmp_path / "s", ["scores", "margins"])
    again = analyses(tmp_path / "s")
    assert again["scores"] == found
    assert all(model["queries"] <= 6 for model in again["margins"]["models"])  # test queries alone


def test_what_an_earlier_version_measured_has_no_verdict_and_says_why(recipe, tmp_path):
    recipe["evaluation"] |= {"train_queries": 4, "analyses": []}
    folder = tmp_path / "s"
    sweep(recipe, ["objective=one_hot,mse"], out=folder)
    for path in folder.rglob("result.json"):
        told = json.loads(path.read_text())
        del told["result"]["besides"], told["checksum"]
        path.write_text(json.dumps(told))
    (folder / "sweep.json").unlink()
    again = sweep(recipe, ["objective=one_hot,mse"], out=folder)
    assert "kept no values of single training queries" in analyses(folder)["generalisation"]["missing"]
    assert "Left out: an earlier version measured this" in again.report.read_text()
    (folder / "analyses" / "generalisation.json").write_text('{"measure": "ndcg@10", "tolerance": 0.05, "models": []}')
    assert "Left out: an earlier version measured this" in run_report(folder).read_text()


def test_recipes_and_the_report_take_their_names_from_the_registry():
    assert set(registry.requested()) == set(ALL)
    assert set(registry.analyses()) == set(ALL) | {"sensitivity", "generalisation"}
    assert registry.default_names() == ["scores", "margins", "wins", "disagreements", "top_lists"]


def test_an_analysis_of_a_plugin_that_is_missing_is_named_in_the_report(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = []
    lb.distill(recipe, tmp_path / "run")
    (tmp_path / "run" / "analyses").mkdir(exist_ok=True)
    (tmp_path / "run" / "analyses" / "foreign.json").write_text('{"share": 1}')
    page = run_report(tmp_path / "run").read_text()
    assert "foreign is an analysis from a plugin that is not loaded; give --plugin FILE" in page


def test_a_finished_run_can_be_looked_into_further(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = []
    lb.distill(recipe, tmp_path / "run")
    add_analyses(tmp_path / "run", ["rank", "wins"])
    assert set(analyses(tmp_path / "run")) == {"rank", "wins"}
    sweep(recipe, ["objective=one_hot,mse"], seeds=2, out=tmp_path / "s", against="mse")
    add_analyses(tmp_path / "s", ["wins", "scores"])
    found = analyses(tmp_path / "s")
    assert "mse" in found["wins"]["names"]
    assert [model["name"] for model in found["scores"]["models"]] == ["teacher", "one_hot", "mse"]


def test_a_sweep_without_its_list_of_measurements_writes_it_again(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = []
    sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    (tmp_path / "s" / "measured.json").unlink()
    with pytest.raises(LimbeckError, match="no such file; run the same `limbeck sweep` again to write it"):
        add_analyses(tmp_path / "s", ["wins"])
    sweep(recipe, ["objective=one_hot,mse"], out=tmp_path / "s")
    add_analyses(tmp_path / "s", ["wins"])


def test_a_choice_that_changed_is_not_mixed_with_the_one_before(recipe, tmp_path):
    """More values to tune may change what is chosen; the older choice's results still lie there."""
    recipe["evaluation"]["analyses"] = []
    for values in ("1e-3", "1e-3,1e-2,5e-2"):
        result = sweep(recipe, ["objective=one_hot,mse"], [f"stages.0.lr={values}"], out=tmp_path / "s")
    told = json.loads((tmp_path / "s" / "measured.json").read_text())
    for row in result.rows:
        if row.kind == "student":
            (place,) = told[row.name]
            lr = json.loads((tmp_path / "s" / place / "result.json").read_text())["row"]["measures"]
            assert lr == row.measures
    add_analyses(tmp_path / "s", ["wins"])
    means = dict(zip(*(analyses(tmp_path / "s")["wins"][key] for key in ("names", "means")), strict=True))
    assert means == pytest.approx({row.name: row.measures["ndcg@10"] for row in result.rows if row.name in means})


def test_without_a_teacher_nothing_is_said_about_capacity(recipe, tmp_path):
    del recipe["teacher"]
    recipe["stages"][0]["objectives"] = ["one_hot"]
    recipe["evaluation"]["train_queries"] = 4
    sweep(recipe, ["student.dim=4,8"], out=tmp_path / "s")
    assert "sensitivity" in analyses(tmp_path / "s") and "generalisation" not in analyses(tmp_path / "s")


def test_a_sweep_says_why_it_has_no_curve_and_no_verdict(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = []
    result = sweep(recipe, ["student.dim=4,8", "stages.0.steps=1,2", "student.query_length=8"], out=tmp_path / "s")
    found = analyses(tmp_path / "s")
    assert "student.dim and stages.0.steps vary at once" in found["sensitivity"]["missing"]
    assert "no training queries were measured; set evaluation.train_queries" in found["generalisation"]["missing"]
    assert result.report.read_text().count("Left out: ") == 2
    recipe["evaluation"]["train_queries"] = 4
    sweep(recipe, ["data.train_queries=8,10"], out=tmp_path / "t")
    assert "different data or teachers" in analyses(tmp_path / "t")["generalisation"]["missing"]


def test_a_single_value_of_another_number_does_not_hide_the_curve(recipe, tmp_path):
    recipe["evaluation"]["analyses"] = []
    sweep(recipe, ["student.dim=4,8", "student.query_length=8"], out=tmp_path / "s")
    assert analyses(tmp_path / "s")["sensitivity"]["setting"] == "student.dim"


def test_what_is_made_at_the_end_cannot_be_added(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="--add generalisation: cannot be added later: .*evaluation.train_queries"):
        add_analyses(tmp_path, ["generalisation"])
    with pytest.raises(LimbeckError, match="--add sensitivity: cannot be added later: a sweep over one number"):
        add_analyses(tmp_path, ["sensitivity"])


def test_the_matrix_of_the_rank_has_documents_of_every_query(recipe, tmp_path, monkeypatch):
    recipe["evaluation"] |= {"analyses": ["rank"], "rank_documents": 12}
    asked = []
    module = sys.modules["limbeck.report.analyses.numerical_rank"]
    plain = module.score_matrix
    monkeypatch.setattr(module, "score_matrix", lambda run: asked.append(run) or plain(run))
    lb.distill(recipe, tmp_path / "run")
    (run,) = asked
    documents = set(next(iter(run.values())))
    assert len(documents) == 12 and {query.replace("q", "d") for query in run} <= documents  # all positives


def test_the_matrix_of_the_rank_can_be_made_larger_later(recipe, tmp_path):
    recipe["evaluation"] |= {"analyses": ["rank"], "rank_queries": 3, "rank_documents": 12}
    lb.distill(recipe, tmp_path / "run")
    small = analyses(tmp_path / "run")["rank"]
    add_analyses(tmp_path / "run", ["rank"], ["evaluation.rank_queries=5", "evaluation.rank_documents=40"])
    large = analyses(tmp_path / "run")["rank"]
    assert [(found["queries"], found["documents"]) for found in (small, large)] == [(3, 12), (5, 40)]
    with pytest.raises(LimbeckError, match="you can only change evaluation.rank_queries or"):
        add_analyses(tmp_path / "run", ["rank"], ["seed=3"])
    with pytest.raises(LimbeckError, match="with --add rank"):
        add_analyses(tmp_path / "run", ["wins"], ["evaluation.rank_queries=5"])


def test_what_cannot_be_added_is_an_error(recipe, tmp_path):
    with pytest.raises(LimbeckError, match="contains no finished run"):
        add_analyses(tmp_path, ["rank"])
    del recipe["teacher"]
    recipe["stages"][0]["objectives"] = ["one_hot"]
    lb.distill(recipe, tmp_path / "run")
    with pytest.raises(LimbeckError, match="no model to score a full matrix"):
        add_analyses(tmp_path / "run", ["rank"])
    with pytest.raises(LimbeckError, match="--add rnk: there is no such analysis; .*rank"):
        add_analyses(tmp_path / "run", ["rnk"])
    with pytest.raises(LimbeckError, match="no scores were kept while it trained"):
        add_analyses(tmp_path / "run", ["snapshots"])
