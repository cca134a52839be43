from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from limbeck.matchers import build, matcher_config
from limbeck.runtimes import auto
from limbeck.runtimes.auto import Choice
from limbeck.runtimes.measure import Measured
from limbeck.search.index import SearchIndex
from limbeck.stores import ScoreStore
from tests.cli.test_cli import assert_one_line_about


@pytest.fixture
def models(tiny_bert: str, tmp_path: Path) -> dict[str, Path]:
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 16, "layers": 1}
    for kind in ("dual_encoder", "cross_encoder"):
        build(matcher_config(kind=kind, **lengths)).save_pretrained(tmp_path / kind)
    return {kind: tmp_path / kind for kind in ("dual_encoder", "cross_encoder")}


def test_the_table_has_every_runtime_and_the_choice(limbeck, models, beir):
    done = limbeck("runtimes", models["dual_encoder"], beir, "--threads", "1")
    assert done.code == 0, done
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if "kept" in line or "below" in line}
    assert {"torch", "onnx", "int8"} <= set(rows)
    assert rows["torch"][4] == "1.0000" and float(rows["onnx"][4]) > 0.9999 and float(rows["int8"][4]) > 0.9
    assert rows["onnx"][5] == rows["torch"][5] and rows["onnx"][6:] == ["0.0%", "kept"]
    assert "nDCG@10: 6 dev queries with 10 candidates each; a runtime may lose 0.5% of torch's" in done.out
    assert "--runtime auto: " in done.out
    found = json.loads(limbeck("runtimes", models["cross_encoder"], "--threads", "1", "--json").out)
    assert found["judged"] is None and found["rows"][0]["ndcg"] is None  # labels of built-in texts do not count
    assert found["source"] == "pydocs" and {row["threads"] for row in found["rows"]} == {1}
    assert found["single"] in ("torch", "onnx", "int8", "openvino")


def test_mistakes_are_one_line(limbeck, models, beir, tmp_path):
    wrong = limbeck("runtimes", models["dual_encoder"], beir, "--threads", "none")
    assert_one_line_about(wrong, "--threads none", "e.g. 1,4")
    wrong = limbeck("index", models["dual_encoder"], beir, "--out", tmp_path / "i", "--runtime", "onxx")
    assert_one_line_about(wrong, "--runtime onxx: no such runtime", "did you mean 'onnx'")
    assert not (tmp_path / "i").exists()


def test_an_index_of_eight_bit_vectors_takes_no_others(limbeck, models, beir, tmp_path):
    out, model = tmp_path / "index", models["dual_encoder"]
    assert limbeck("index", model, beir, "--out", tmp_path / "plain").code == 0
    assert limbeck("index", model, beir, "--out", out, "--runtime", "int8").code == 0
    rounded, exact = (SearchIndex.open(place).dense.vectors.take(np.arange(60)) for place in (out, tmp_path / "plain"))
    assert 0 < np.abs(rounded - exact).max() < 1
    for runtime in ("torch", "onnx", "int8"):
        done = limbeck("search", out, "copy the file", "--runtime", runtime, "--k", "3")
        assert done.code == 0 and done.out, done
    more = tmp_path / "more.jsonl"
    more.write_text('{"_id": "new", "text": "copy one more file"}\n')
    refused = limbeck("index", "--out", out, "--add", more)
    assert_one_line_about(refused, "another precision", "--runtime int8")
    refused = limbeck("index", "--out", tmp_path / "plain", "--add", more, "--runtime", "int8")
    assert_one_line_about(refused, "another precision", "--runtime torch")
    assert limbeck("index", "--out", out, "--add", more, "--runtime", "int8").code == 0
    assert limbeck("index", "--out", tmp_path / "plain", "--add", more, "--runtime", "onnx").code == 0


def test_teacher_scores_of_eight_bits_are_not_mixed_with_others(limbeck, models, beir, tmp_path):
    command = ("annotate", models["cross_encoder"], beir, "--depth", "3", "--out")
    assert limbeck(*command, tmp_path / "plain").code == 0
    assert limbeck(*command, tmp_path / "rounded", "--runtime", "int8").code == 0
    plain, rounded = (ScoreStore.read(tmp_path / name) for name in ("plain", "rounded"))
    assert len(plain) == len(rounded) and rounded.identity["computed"]["runtime"] == "int8"
    assert limbeck(*command, tmp_path / "plain", "--runtime", "onnx").code == 0
    refused = limbeck(*command, tmp_path / "plain", "--runtime", "int8")
    assert refused.code == 2 and len(refused.err.strip().splitlines()) == 1


def test_pairs_are_scored_in_a_runtime_by_workers(limbeck, models, tmp_path):
    pairs = tmp_path / "pairs.csv"
    texts = ["copy a file", "sort a list", "read the first line", "open a new page"]
    rows = [f"{left},{right}" for left in texts for right in texts]
    pairs.write_text("\n".join(["text_a,text_b", *rows]) + "\n")
    scores = {}
    for runtime in ("torch", "onnx", "int8"):
        out = tmp_path / runtime
        done = limbeck("score", models["cross_encoder"], pairs, "--out", out, "--workers", "1", "--runtime", runtime)
        assert done.code == 0, done
        scores[runtime] = np.array(pq.read_table(out / "scores").column("score"))
        assert json.loads((out / "_job" / "job.json").read_text())["runtime"] == runtime
    assert np.abs(scores["onnx"] - scores["torch"]).max() < 1e-4
    assert 0 < np.abs(scores["int8"] - scores["torch"]).max() < 0.3 * np.ptp(scores["torch"])
    refused = limbeck("score", models["cross_encoder"], pairs, "--out", tmp_path / "torch", "--runtime", "int8")
    assert_one_line_about(refused, "contains another job", "choose another --out")


def test_auto_uses_what_was_measured(limbeck, models, beir, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    asked = []

    def measured(matcher, sample, threads):
        asked.append(sample.source)
        fast = {"torch": (9.0, 10.0), "onnx": (3.0, 30.0), "int8": (1.0, 20.0)}
        return [Measured(name, threads[-1], *speed, 0.995) for name, speed in fast.items()]

    monkeypatch.setattr(auto, "measure", measured)
    used = []
    use = auto.use_runtime
    monkeypatch.setattr(auto, "use_runtime", lambda matcher, name: used.append(name) or use(matcher, name))
    out = tmp_path / "index"
    assert limbeck("index", models["dual_encoder"], beir, "--out", out, "--runtime", "auto").code == 0
    assert asked == [str(beir)] and used[-1] == "onnx"  # the best in batches, on the texts at hand
    assert limbeck("search", out, "copy the file", "--runtime", "auto").code == 0
    assert asked == [str(beir)] and used[-1] == "int8"  # the best for one query, without measuring again
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "another"))
    assert limbeck("search", out, "copy the file", "--runtime", "auto").code == 0
    assert asked == [str(beir), "pydocs"]  # a search reads no data set


def test_what_eight_bits_cost_is_printed_with_a_verdict(limbeck, models, beir, tmp_path):
    command = ("export", models["dual_encoder"], "--data", beir, "--int8", "--out")
    done = limbeck(*command, tmp_path / "a", "--max-loss", "100")
    assert done.code == 0 and "on 6 dev queries with 10 candidates each" in done.out, done
    assert done.out.splitlines()[-1] == "the quality is above the limit you set"
    plain = limbeck("export", models["dual_encoder"], "--data", beir, "--out", tmp_path / "b", "--json")
    facts = json.loads(plain.out)
    assert facts["ndcg@10"] == facts["ndcg@10 of the model"] > 0
    assert_one_line_about(
        limbeck(*command, tmp_path / "c", "--max-loss", "1", "--gate", "0.5"), "leave one of them out"
    )
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text_a,text_b,label\ncopy a file,sort a list,1\n")
    refused = limbeck(
        "export", models["dual_encoder"], "--data", pairs, "--int8", "--out", tmp_path / "d", "--max-loss", 1
    )
    assert_one_line_about(refused, "pairs.csv: has no judged queries", "--gate instead of --max-loss")
    assert not (tmp_path / "c").exists() and not (tmp_path / "d").exists()


def row(
    runtime: str, single: float, batch: float, closeness: float, threads: int = 2, ndcg: float | None = None
) -> Measured:
    return Measured(runtime, threads, single, batch, closeness, ndcg)


def test_the_choice_is_the_fastest_above_the_gate():
    rows = [row("torch", 10, 100, 1.0), row("onnx", 4, 90, 1.0), row("int8", 2, 300, 0.98)]
    assert (Choice.of(rows, "x").single, Choice.of(rows, "x").batch) == ("onnx", "torch")
    rows[2] = row("int8", 2, 300, 0.991)
    assert (Choice.of(rows, "x").single, Choice.of(rows, "x").batch) == ("int8", "int8")
    rows.append(row("onnx", 1, 900, 1.0, threads=1))  # fewer threads than models will run on
    assert Choice.of(rows, "x").single == "int8"
    assert Choice.of([row("torch", 9, 9, float("nan")), row("int8", 1, 99, float("nan"))], "x").single == "torch"


@pytest.mark.parametrize(("ndcg", "chosen"), [(0.3981, "int8"), (0.3979, "torch"), (0.41, "int8")])
def test_with_judged_queries_half_a_percent_of_ndcg_decides(ndcg, chosen):
    rows = [row("torch", 10, 100, 1.0, ndcg=0.4), row("int8", 2, 300, 0.9, ndcg=ndcg)]
    assert Choice.of(rows, "x", "dev").single == chosen
    rows = [row("torch", 10, 100, 1.0, ndcg=0.0), row("int8", 2, 300, 0.9, ndcg=0.0)]  # nothing found, nothing known
    assert Choice.of(rows, "x", "dev").single == "torch"
