from __future__ import annotations

import errno
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import limbeck as lb
from limbeck.matchers import build, matcher_config
from limbeck.processor import weight_bits
from limbeck.runtimes import auto, trace
from limbeck.runtimes.auto import Choice
from limbeck.runtimes.choice import FLOAT32, RUNTIMES, installed_runtimes, missing_package
from limbeck.runtimes.measure import Measured
from limbeck.search.index import SearchIndex
from limbeck.stores import ScoreStore
from tests.cli.test_cli import assert_one_line_about


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured here would be the default of other tests."""
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))


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
    assert "--runtime auto on 1 thread: " in done.out
    assert re.search(r"^padding: \d+\.\d% of the tokens in batches$", done.out, re.M)
    found = json.loads(limbeck("runtimes", models["cross_encoder"], "--threads", "1", "--json").out)
    assert found["judged"] is None and found["rows"][0]["ndcg"] is None  # labels of built-in texts do not count
    assert found["source"] == "pydocs" and {row["threads"] for row in found["rows"]} == {1}
    assert found["single"] in RUNTIMES and found["threads"] == 1
    assert [row["verdict"] for row in found["rows"]][:2] == ["kept", "kept"]
    assert all(row["lost"] is None and 0 <= row["padding"] < 1 for row in found["rows"])


def test_one_pair_is_enough_to_measure_on(limbeck, models, tmp_path):
    """One score has no correlation: float32 has to be the same, and 8 bits are not."""
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text_a,text_b,label\ncopy a file,how to sort a list,1\n")
    found = json.loads(limbeck("runtimes", models["cross_encoder"], pairs, "--json").out)
    verdicts = {row["runtime"]: (row["closeness"], row["verdict"]) for row in found["rows"]}
    assert verdicts["onnx"] == (1.0, "kept") and verdicts["int8"] == (0.0, "below the gate")
    command = ("export", models["cross_encoder"], "--data", pairs, "--out")
    assert limbeck(*command, tmp_path / "exact").code == 0
    assert_one_line_about(limbeck(*command, tmp_path / "rounded", "--int8"), "closeness 0.0000", "leave out --int8")


def test_a_runtime_that_differs_is_left_out_of_the_table(limbeck, models, beir, monkeypatch):
    monkeypatch.setattr(trace, "difference", lambda *_: 0.25)
    done = limbeck("runtimes", models["dual_encoder"], beir)
    assert done.code == 0 and "onnx " not in done.out and "torch " in done.out
    assert "differs from torch by 0.25, from BertModel on; it is left out\n" in done.err


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
    bits = f"int8, with weights of {weight_bits()} bits"
    assert_one_line_about(refused, f"another precision ({bits}) than these (float32)", "use --runtime int8")
    refused = limbeck("index", "--out", tmp_path / "plain", "--add", more, "--runtime", "int8")
    assert_one_line_about(refused, f"another precision (float32) than these ({bits})", "use --runtime torch")
    refused = limbeck("index", model, beir, "--out", out)
    assert_one_line_about(refused, f"its vectors were computed in {bits}, not float32", "use --runtime int8, or name")
    assert limbeck("index", "--out", out, "--add", more, "--runtime", "int8").code == 0
    assert limbeck("index", "--out", tmp_path / "plain", "--add", more, "--runtime", "onnx").code == 0


CALIBRATED = "openvino-int8"
can_calibrate = pytest.mark.skipif(
    missing_package(CALIBRATED) is not None, reason="needs `pip install 'limbeck[openvino]'`"
)


@can_calibrate
def test_an_index_of_calibrated_vectors_can_be_searched_but_not_grow(limbeck, models, beir, tmp_path):
    out, model = tmp_path / "index", models["dual_encoder"]
    assert limbeck("index", model, beir, "--out", out, "--runtime", CALIBRATED).code == 0
    for runtime in ("torch", CALIBRATED):
        done = limbeck("search", out, "copy the file", "--runtime", runtime, "--k", "3")
        assert done.code == 0 and done.out, done
    more = tmp_path / "more.jsonl"
    more.write_text('{"_id": "new", "text": "copy one more file"}\n')
    refused = limbeck("index", "--out", out, "--add", more, "--runtime", CALIBRATED)
    assert_one_line_about(refused, "calibrated on the texts that it was built from", "build the index again")


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
    for runtime in installed_runtimes():
        out = tmp_path / runtime
        done = limbeck("score", models["cross_encoder"], pairs, "--out", out, "--workers", "1", "--runtime", runtime)
        assert done.code == 0, done
        scores[runtime] = np.array(pq.read_table(out / "scores").column("score"))
        assert json.loads((out / "_job" / "job.json").read_text())["runtime"] == runtime
    assert np.abs(scores["onnx"] - scores["torch"]).max() < 1e-4
    for runtime in set(scores) - set(FLOAT32):
        assert 0 < np.abs(scores[runtime] - scores["torch"]).max() < 0.3 * np.ptp(scores["torch"])
    refused = limbeck("score", models["cross_encoder"], pairs, "--out", tmp_path / "torch", "--runtime", "int8")
    assert_one_line_about(refused, "another job (the model or --runtime, which was torch, differs)", "another --out")


class Watched(NamedTuple):
    asked: list[tuple[str, list[str]]]  # the data and the runtimes of each measurement
    used: list[str]  # the runtimes that models were put in
    threads: list[list[int]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Measurements take no time here: onnx is the fastest float32 runtime, int8 the fastest for single texts."""
    seen = Watched([], [], [])

    def measured(matcher, sample, threads, runtimes):
        seen.asked.append((sample.source, list(runtimes)))
        seen.threads.append(list(threads))
        fast = {"torch": (9.0, 10.0), "onnx": (3.0, 30.0), "int8": (1.0, 20.0)}
        return [Measured(name, count, *fast[name], 0.995) for name in runtimes if name in fast for count in threads]

    monkeypatch.setattr(auto, "measure", measured)
    use = auto.use_runtime
    monkeypatch.setattr(auto, "use_runtime", lambda it, name, *more: seen.used.append(name) or use(it, name, *more))
    return seen


def test_auto_uses_what_was_measured(limbeck, models, beir, tmp_path, watched, monkeypatch):
    out, every = tmp_path / "index", installed_runtimes()
    assert limbeck("index", models["dual_encoder"], beir, "--out", out, "--runtime", "auto").code == 0
    assert watched.asked == [(str(beir), every)] and watched.used[-1] == "onnx"  # best in batches, on the texts at hand
    assert limbeck("search", out, "copy the file", "--runtime", "auto").code == 0
    assert len(watched.asked) == 1 and watched.used[-1] == "int8"  # the best for one query, without measuring again
    assert limbeck("evaluate", models["dual_encoder"], beir, "--runtime", "auto").code == 0
    assert len(watched.asked) == 1
    other = tmp_path / "other"
    shutil.copytree(beir, other)
    assert limbeck("evaluate", models["dual_encoder"], other, "--runtime", "auto").code == 0
    assert watched.asked[1:] == [(str(other), every)]  # other data may have other losses
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "another"))
    assert limbeck("search", out, "copy the file", "--runtime", "auto").code == 0
    assert watched.asked[2:] == [("pydocs", every)]  # a search reads no data set


def test_a_short_job_measures_nothing_by_default_and_runs_in_torch(limbeck, models, beir, tmp_path, watched):
    assert limbeck("index", models["dual_encoder"], beir, "--out", tmp_path / "index").code == 0
    assert limbeck("evaluate", models["dual_encoder"], beir).code == 0
    assert limbeck("annotate", models["cross_encoder"], beir, "--out", tmp_path / "scores", "--depth", "3").code == 0
    assert watched == Watched([], [], [])


def test_a_long_job_measures_float32_runtimes_once_by_default(limbeck, models, beir, tmp_path, watched, monkeypatch):
    monkeypatch.setattr(auto, "is_long", lambda _, size: size >= 60)  # documents of the set
    float32 = [name for name in installed_runtimes() if name in FLOAT32]
    out, model = tmp_path / "index", models["dual_encoder"]
    assert limbeck("index", model, beir, "--out", out).code == 0
    assert watched.asked == [(str(beir), float32)] and watched.used[-1] == "onnx"
    assert SearchIndex.open(out).manifest.dense.computed is None  # torch may add to it
    assert limbeck("evaluate", model, beir, "--depth", "3").code == 0  # the choice is known
    assert len(watched.asked) == 1 and watched.used[-1] == "onnx"
    assert limbeck("evaluate", model, beir, "--runtime", "auto").code == 0
    assert watched.asked[1:] == [(str(beir), installed_runtimes())]  # 8 bits were not measured yet
    assert limbeck("index", model, beir, "--out", tmp_path / "again").code == 0
    assert len(watched.asked) == 2 and watched.used[-1] == "onnx"


def test_one_query_runs_in_torch_and_many_in_what_is_known(limbeck, models, beir, tmp_path, watched):
    out, queries = tmp_path / "index", tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "copy the file"}\n')
    assert limbeck("index", models["dual_encoder"], beir, "--out", out, "--runtime", "auto").code == 0
    del watched.used[:]
    assert limbeck("search", out, "copy the file").code == 0
    assert watched.used == []  # another runtime takes longer to open than a query takes
    assert limbeck("search", out, "--queries", queries, "--run", tmp_path / "run.trec").code == 0
    assert watched.used == ["onnx"]  # 8 bits are faster, and only for those who ask
    assert limbeck("search", out, "--queries", queries, "--timings").code == 0
    assert watched.used == ["onnx", "onnx"]
    index = lb.open_index(out)
    exact = lb.load(models["dual_encoder"]).encode_query("copy the file")
    assert np.abs(index.dense.matcher.encode_query("copy the file") - exact).max() < 1e-4
    assert index.dense.matcher.runtime == "onnx" and len(watched.asked) == 1
    assert lb.open_index(out, runtime="torch").dense.matcher.runtime == "torch"


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "measured"), [(None, [1, 2]), ("1", [1, 2]), ("4", [2, 4])])
def test_what_is_printed_is_what_auto_uses(asked, measured, limbeck, models, beir, watched, two_threads):
    model = models["dual_encoder"]
    done = limbeck("runtimes", model, beir, *([] if asked is None else ["--threads", asked]))
    assert watched.threads == [measured]
    assert done.out.splitlines()[-1] == "--runtime auto on 2 threads: int8 for single texts, onnx for batches"
    assert limbeck("evaluate", model, beir, "--runtime", "auto").code == 0
    assert len(watched.asked) == 1 and watched.used[-1] == "onnx"


def test_another_processor_and_edited_data_are_measured_again(limbeck, models, beir, tmp_path, watched, monkeypatch):
    data = tmp_path / "mine"
    shutil.copytree(beir, data)
    command = ("evaluate", models["dual_encoder"], data, "--runtime", "auto")
    for _ in range(2):
        assert limbeck(*command).code == 0
    assert len(watched.asked) == 1
    with (data / "qrels" / "dev.tsv").open("a") as handle:
        handle.write(next(line for line in (data / "qrels" / "dev.tsv").read_text().splitlines()[1:]) + "\n")
    assert limbeck(*command).code == 0
    assert len(watched.asked) == 2
    monkeypatch.setattr(auto, "processor_name", lambda: "another")
    assert limbeck(*command).code == 0
    assert len(watched.asked) == 3


def test_a_full_cache_is_said_and_the_command_goes_on(limbeck, models, beir, tmp_path, watched, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(auto, "write_sealed", full)
    done = limbeck("evaluate", models["dual_encoder"], beir, "--runtime", "auto")
    assert done.code == 0 and watched.used[-1] == "onnx"
    assert "the cache cannot keep the measurement ([Errno 28] No space left on device); set LIMBECK_CACHE" in done.err


def test_a_run_stays_in_torch_where_the_best_runtime_fails(limbeck, models, beir, tmp_path, watched, monkeypatch):
    monkeypatch.setattr(auto, "is_long", lambda _, size: size >= 60)
    differs = "in onnxruntime BertModel differs from torch by 0.25, from BertModel on"
    monkeypatch.setattr(trace, "difference", lambda *_: 0.25)
    for name, choice in (("a", []), ("b", ["--runtime", "auto"])):
        done = limbeck("index", models["dual_encoder"], beir, "--out", tmp_path / name, *choice)
        assert done.code == 0, done
        assert f"the model stays in torch: {differs}\n" in done.err


def test_a_graph_that_differs_from_torch_is_one_line(limbeck, models, beir, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "difference", lambda *_: 0.25)
    model, out = models["dual_encoder"], tmp_path / "out"
    differs = "in onnxruntime BertModel differs from torch by 0.25, from BertModel on"
    refused = limbeck("index", model, beir, "--out", out, "--runtime", "onnx")
    assert_one_line_about(refused, differs, "use --runtime torch")
    refused = limbeck("export", model, "--data", beir, "--out", out)
    assert_one_line_about(refused, differs, "run the model itself, in torch")
    assert not out.exists()


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_a_missing_package_is_one_line(package, limbeck, models, beir, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    out, install = tmp_path / "out", f"{package} is not installed; run `pip install 'limbeck[onnx]'`"
    refused = limbeck("index", models["dual_encoder"], beir, "--out", out, "--runtime", "onnx")
    assert_one_line_about(refused, f"--runtime onnx: {install}", "or use --runtime torch")
    refused = limbeck("export", models["dual_encoder"], "--data", beir, "--out", out)
    assert_one_line_about(refused, install)
    assert "--runtime" not in refused.err and not out.exists()
    done = limbeck("runtimes", models["dual_encoder"], beir, "--threads", "1")
    assert done.code == 0 and f"onnx: {package} is not installed" in done.out


def test_what_eight_bits_cost_is_printed_with_a_verdict(limbeck, models, beir, tmp_path):
    command = ("export", models["dual_encoder"], "--data", beir, "--int8", "--out")
    done = limbeck(*command, tmp_path / "a", "--max-loss", "100")
    assert done.code == 0 and "on 6 dev queries with 10 candidates each" in done.out, done
    assert done.out.splitlines()[-1] == "the quality is above the limit you set"
    plain = limbeck("export", models["dual_encoder"], "--data", beir, "--out", tmp_path / "b", "--json")
    facts = json.loads(plain.out)
    assert facts["ndcg@10"] == facts["ndcg@10 of the model"] > 0
    assert facts["verdict"] == "the quality is kept" and facts["lost"] == 0 and facts["largest_difference"] < 1e-4
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
    assert (Choice.of(rows, "x", 2).single, Choice.of(rows, "x", 2).batch) == ("onnx", "torch")
    rows[2] = row("int8", 2, 300, 0.991)
    assert (Choice.of(rows, "x", 2).single, Choice.of(rows, "x", 2).batch) == ("int8", "int8")
    rows.append(row("onnx", 1, 900, 1.0, threads=1))  # fewer threads than models will run on
    assert Choice.of(rows, "x", 2).single == "int8"
    assert Choice.of([row("torch", 9, 9, float("nan")), row("int8", 1, 99, float("nan"))], "x", 2).single == "torch"


@pytest.mark.parametrize(("ndcg", "chosen"), [(0.3981, "int8"), (0.3979, "torch"), (0.41, "int8")])
def test_with_judged_queries_half_a_percent_of_ndcg_decides(ndcg, chosen):
    rows = [row("torch", 10, 100, 1.0, ndcg=0.4), row("int8", 2, 300, 0.9, ndcg=ndcg)]
    assert Choice.of(rows, "x", 2, "dev").single == chosen
    rows = [row("torch", 10, 100, 1.0, ndcg=0.0), row("int8", 2, 300, 0.9, ndcg=0.0)]  # nothing found, nothing known
    assert Choice.of(rows, "x", 2, "dev").single == "torch"
