"""The card of a student: the hub's client parses it, its numbers are those of the run, and its code runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

import limbeck as lb
from limbeck.matchers import build, matcher_config
from limbeck.matchers.folder_checks import check_folder
from limbeck.matchers.names import MINILM_HUB_NAME, hub_name
from limbeck.runs.card_loading import loading_of
from limbeck.runs.student_card import add_runtimes
from limbeck.runtimes.measure import Measured

KINDS: dict[str, dict[str, Any]] = {
    "dual_encoder": {},
    "static": {"kind": "dual_encoder", "encoder": "static"},
    "untied": {"kind": "dual_encoder", "untied": True},
    "colbert": {"dim": 8},
    "cross_encoder": {},
    "classes": {"kind": "cross_encoder", "outputs": 3},
    "segments": {"kind": "cross_encoder", "pooling": "segments"},
    "dipair": {"tokens": [2, 2], "dim": 16},
    "dipair of three": {"kind": "dipair", "tokens": [2, 2, 2], "dim": 16},
    "poly_encoder": {"tokens": [2, 1]},
}
ONLY_HERE = {"segments", "dipair", "dipair of three", "poly_encoder"}


def card_of(folder: Path) -> ModelCard:
    return ModelCard.load(folder / "README.md")


def rows_of(card: str) -> dict[str, dict[str, str]]:
    """The first table of a card: the cells of each row by its name."""
    lines = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("|")]
    head = lines[0]
    found = [[cell.strip("* ") for cell in line] for line in lines[2:]]
    return {cells[0]: dict(zip(head, cells, strict=False)) for cells in found}


def python_in(card: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


@pytest.mark.parametrize("name", KINDS)
def test_the_code_for_every_kind_of_model_runs_in_its_folder(name, tiny_bert, tmp_path, monkeypatch, capsys):
    lengths = {"init_from": tiny_bert, "query_length": 8, "document_length": 8}
    model = build(matcher_config(**{"kind": name, **lengths, **KINDS[name]}))
    model.save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    loading = loading_of(tmp_path, model.outputs, model.texts)
    assert loading.library == ("limbeck" if name in ONLY_HERE else "sentence-transformers")
    assert loading.pipeline == {"classes": "text-classification"}.get(name, loading.pipeline)
    assert list(loading.code) == (["Limbeck"] if name in ONLY_HERE else ["Limbeck", "sentence-transformers"])
    for code in loading.code.values():
        exec(code, {})
    assert len(capsys.readouterr().out.strip().splitlines()) >= len(loading.code)


def test_the_card_of_a_run_has_its_numbers_and_its_folder_is_still_whole(recipe, tmp_path, monkeypatch):
    result = lb.distill(recipe, tmp_path / "run")
    place = tmp_path / "run" / "student"
    card, row = card_of(place), result.rows[-1]
    assert card.data.library_name == "sentence-transformers" and card.data.pipeline_tag == "sentence-similarity"
    assert {"limbeck", "knowledge-distillation", "sentence-transformers"} <= set(card.data.tags)
    found = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert found == {name: pytest.approx(value, abs=5e-5) for name, value in row.measures.items()}
    assert card.data.eval_results[0].dataset_name == "beir" and card.data.eval_results[0].dataset_split == "test"
    shown = rows_of(card.text)
    assert list(shown) == ["teacher", "BM25", "student"]
    for each in result.rows:
        assert shown[each.name]["nDCG@10"] == f"{each.measures['ndcg@10']:.3f}"
    assert float(shown["student"]["kept"].rstrip("%")) == pytest.approx(100 * row.kept, abs=0.5)
    assert float(shown["student"]["ms/query"].replace(",", "")) == pytest.approx(row.ms_per_query, rel=0.01)
    assert f"differs by {row.significance['difference']:+.3f} from that of teacher" in card.text
    assert "6 test queries of beir" in card.text and "18 training queries of beir, 60 documents" in card.text
    assert "`softmax_ce`" in card.text and all(line in card.text for line in result.warnings)
    check_folder(place)
    assert "README.md" not in json.loads((place / "limbeck-files.json").read_text())["files"]
    monkeypatch.chdir(place)
    for code in python_in(card.text):
        exec(code, {})


def test_a_card_names_no_path_of_the_machine(recipe, tmp_path):
    lb.distill(recipe, tmp_path / "run", ["stages.0.steps=1"])
    text = (tmp_path / "run" / "student" / "README.md").read_text()
    assert str(tmp_path) not in text and str(Path(recipe["student"]["init_from"]).parent) not in text
    assert Path(recipe["student"]["init_from"]).name in text and "base_model" not in text


def test_a_model_of_the_hub_is_the_base_model_and_a_folder_is_not(tmp_path, monkeypatch):
    assert hub_name("minilm") == MINILM_HUB_NAME
    assert hub_name("cross-encoder/ms-marco-MiniLM-L6-v2") == "cross-encoder/ms-marco-MiniLM-L6-v2"
    (tmp_path / "my" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert [hub_name(name) for name in ("my/model", "/my/model", "./my", "~/my", "a/b/c", "name", None)] == [None] * 7


def test_a_student_that_was_not_measured_has_a_card_without_numbers(recipe, tmp_path):
    recipe["data"]["test"] = None
    assert lb.distill(recipe, tmp_path / "run").rows == []
    card = card_of(tmp_path / "run" / "student")
    assert card.data.eval_results is None and "was not measured" in card.text and "|" not in card.text
    assert len(python_in(card.text)) == 2


def test_the_card_of_a_sweep_is_about_its_best_student(recipe, tmp_path):
    result = lb.sweep(recipe, ["student.layers=1,2"], seeds=2, out=tmp_path / "sweep")
    best = json.loads((tmp_path / "sweep" / "best.json").read_text())
    layers = "1" if "layers-1" in best else "2"
    card = card_of(tmp_path / "sweep" / "student").text
    shown = rows_of(card)
    students = [row for row in result.rows if row.kind == "student"]
    (row,) = [row for row in students if row.name in shown]
    assert len(students) == 2 and row.name.endswith(layers)
    assert f"layers {layers}\n" in card and "means over 2 seeds" in card
    assert shown[row.name]["nDCG@10"] == f"{row.measures['ndcg@10']:.3f} ± {row.spread['ndcg@10']:.3f}"
    assert f"Seed: {int(best[-1])};" in card


def test_speed_by_runtime_is_added_once_and_the_rest_of_the_card_stays(tiny_bert, tmp_path):
    build(matcher_config(init_from=tiny_bert, layers=1, query_length=8, document_length=8)).save_pretrained(tmp_path)
    card = tmp_path / "README.md"
    text = "---\nlibrary_name: limbeck\n---\n\n# small\n\n## Use it\n\ncode\n\n## How it was made\n\n- by hand\n"
    card.write_text(text)
    for milliseconds in (3.25, 1.75):
        add_runtimes(tmp_path, [Measured("onnx", 1, milliseconds, 812.4, 0.99991)], "my-data")
    found = card.read_text()
    assert "| onnx | 1 | 1.75 | 812 | 0.9999 |" in found and "3.25" not in found and "texts of my-data" in found
    before, section = found.split("## Speed by runtime")
    assert before + section[section.index("## Use it") :] == text


def test_the_card_of_a_model_from_elsewhere_is_not_touched(tmp_path):
    (tmp_path / "README.md").write_text("theirs")
    add_runtimes(tmp_path, [Measured("torch", 1, 1.0, 1.0, 1.0)], "my-data")
    assert (tmp_path / "README.md").read_text() == "theirs"


def test_measuring_runtimes_of_a_student_adds_them_to_its_card(recipe, beir, tmp_path):
    lb.distill(recipe, tmp_path / "run", ["stages.0.steps=1"])
    found = lb.measure_runtimes(tmp_path / "run", beir, threads=[1])
    card = (tmp_path / "run" / "student" / "README.md").read_text()
    for row in found.rows:
        assert f"| {row.runtime} | 1 | " in card
    assert np.isfinite(lb.load(tmp_path / "run").score([("copy a file", "sort a list")])).all()
