from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import limbeck as lb
from limbeck.data.records import count_records
from limbeck.matchers import build, matcher_config
from limbeck.processor import weight_bits
from limbeck.runtimes import auto, compiled, sessions
from limbeck.runtimes.auto import Choice
from limbeck.runtimes.choice import FLOAT32, RUNTIMES, installed_runtimes, missing_package
from limbeck.runtimes.job_size import annotated_in, evaluated_in, listed_in, passages_in
from limbeck.runtimes.measure import Measured
from limbeck.scoring.plan import JOB
from limbeck.search.exact import comparable
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


def write_list(path: Path, count: int) -> Path:
    path.write_text("text_a,text_b,label\n" + "copy a file,sort a list,1\n" * count)
    return path


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
    assert found["single"] in RUNTIMES


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


def test_vectors_of_another_runtime_are_mixed_in_if_the_user_says_so(limbeck, models, beir, tmp_path):
    out, model = tmp_path / "index", models["dual_encoder"]
    assert limbeck("index", model, beir, "--out", out).code == 0
    files = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for file in files:
        file.write_text(json.dumps({"_id": file.stem, "text": f"copy one more file {file.stem}"}) + "\n")
    done = limbeck("index", "--out", out, "--add", files[0], "--runtime", "int8", "--mix-runtimes")
    assert done.code == 0 and f"mixed of float32 and int8, with weights of {weight_bits()} bits" in done.out, done
    assert limbeck("index", "--out", out, "--add", files[1], "--runtime", "int8").code == 0  # said once, for int8
    assert limbeck("index", "--out", out, "--add", files[2]).code == 0
    assert limbeck("index", "--out", out, "--compact").code == 0
    assert SearchIndex.open(out).manifest.dense.mixed == [{"runtime": "int8", "bits": weight_bits()}]
    matcher = lb.load(model)
    stored = SearchIndex.open(out).dense.vectors.take(np.arange(60, 63))
    exact = matcher.encode_document([f"copy one more file {file.stem}" for file in files])
    off = np.abs(stored - comparable(exact, matcher.interaction.name)).max(axis=1)
    assert (off > 1e-5).tolist() == [True, True, False]
    refused = limbeck("index", "--out", out, "--compact", "--mix-runtimes")
    assert_one_line_about(refused, "--mix-runtimes requires --add", "leave it out")


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


def test_a_model_in_memory_runs_in_the_runtime_that_is_asked_for(models, tmp_path):
    texts = {"a": "copy a file", "b": "sort a list"}
    matcher = lb.load(models["dual_encoder"])
    index = lb.index(matcher, texts, tmp_path / "rounded", runtime="int8")
    assert matcher.runtime == "int8" and index.manifest.dense.computed["runtime"] == "int8"
    index.add({"c": "move a file"})  # the same model, in the same runtime
    other = lb.load(models["dual_encoder"])
    lb.index(other, texts, tmp_path / "plain")
    assert other.runtime == "torch"
    assert lb.open_index(tmp_path / "plain", model=other, runtime="int8").dense.matcher.runtime == "int8"
    lb.open_index(tmp_path / "plain", model=other)
    assert other.runtime == "int8"  # nobody asked for another


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


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_pairs_are_scored_in_what_is_fastest_on_one_thread_as_workers_have_one(models, tmp_path, monkeypatch):
    measured, opened = [], []

    def measure(matcher, sample, threads, runtimes):
        measured.append((matcher.kind, threads))
        return [Measured(name, threads[-1], 1.0, 30.0 if name == "onnx" else 10.0, 1.0) for name in runtimes]

    def open_session(runtime, graph, threads):
        opened.append(threads)
        return sessions.open_session(runtime, graph, threads)

    monkeypatch.setattr(auto, "measure", measure)
    monkeypatch.setattr(compiled, "open_session", open_session)
    pairs = write_list(tmp_path / "pairs.csv", 3)
    done = lb.score(models["cross_encoder"], pairs, tmp_path / "cross", workers=1, runtime="auto")
    assert measured == [("cross_encoder", [1])] and json.loads((done.folder / JOB).read_text())["runtime"] == "onnx"
    assert opened == [1, 1]  # here, and in the worker
    lb.score(models["dual_encoder"], pairs, tmp_path / "dual", workers=1, runtime="auto")
    assert measured[1:] == [("dual_encoder", [2])]  # texts are encoded on all threads


class Watched(NamedTuple):
    asked: list[tuple[str, list[str]]]  # the data and the runtimes of each measurement
    used: list[str]  # the runtimes that models were put in


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Measurements take no time here: onnx is the fastest float32 runtime, int8 the fastest for single texts."""
    seen = Watched([], [])

    def measured(matcher, sample, threads, runtimes):
        seen.asked.append((sample.source, list(runtimes)))
        fast = {"torch": (9.0, 10.0), "onnx": (3.0, 30.0), "int8": (1.0, 20.0)}
        return [Measured(name, threads[-1], *fast[name], 0.995) for name in runtimes if name in fast]

    monkeypatch.setattr(auto, "measure", measured)
    use = auto.use_runtime
    monkeypatch.setattr(auto, "use_runtime", lambda matcher, name: seen.used.append(name) or use(matcher, name))
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
    assert watched == Watched([], [])


def test_a_long_job_measures_float32_runtimes_once_by_default(limbeck, models, beir, tmp_path, watched, monkeypatch):
    monkeypatch.setattr(auto, "LONG", 60)  # documents of the set
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


def test_a_file_of_queries_runs_in_the_best_for_batches_and_single_ones_in_theirs(
    limbeck, models, beir, tmp_path, watched
):
    out, queries = tmp_path / "index", tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "copy the file"}\n')
    assert limbeck("index", models["dual_encoder"], beir, "--out", out).code == 0
    command = ("search", out, "--queries", queries, "--runtime", "auto")
    assert limbeck(*command, "--run", tmp_path / "run.trec").code == 0
    assert watched.used[-1] == "onnx"  # measured on these queries, and the fastest in batches
    assert watched.asked == [(str(queries), installed_runtimes())]
    assert limbeck(*command, "--timings").code == 0
    assert watched.used[-1] == "int8" and len(watched.asked) == 1


def test_a_job_of_a_cross_encoder_is_as_long_as_its_pairs(models, beir, tmp_path):
    cross = lb.load(models["cross_encoder"])
    sizes = [evaluated_in(cross, beir, "dev", 5), evaluated_in(cross, beir, "dev", 100, limit=2)]
    assert sizes == [30, 120]  # 6 queries, 5 candidates each; 2 queries, all 60 documents
    assert evaluated_in(cross, beir, "no such split", 5) == 0
    assert listed_in(cross, None, beir, beir) == 60 * 60  # every left text with every right one
    pairs = write_list(tmp_path / "pairs.csv", 400)
    assert listed_in(cross, pairs) == 400
    assert evaluated_in(cross, pairs, "train", 100, limit=7) == 7


def test_a_job_of_a_dual_encoder_is_as_long_as_its_texts(models, beir, tmp_path):
    dual = lb.load(models["dual_encoder"])
    assert passages_in(beir) == 60
    assert evaluated_in(dual, beir, "dev", 5) == 6 + 30
    assert evaluated_in(dual, beir, "dev", 100) == 6 + 60  # each document is encoded once
    assert evaluated_in(dual, beir, "dev", 5, whole=True) == 6 + 60
    assert listed_in(dual, None, beir, beir) == 60 + 60
    pairs = write_list(tmp_path / "pairs.csv", 400)
    assert listed_in(dual, pairs) == 2
    assert listed_in(dual, pairs, beir, beir) == 120
    assert evaluated_in(dual, pairs, "train", 100) == 2


def test_annotating_is_as_long_as_all_its_pairs(beir, tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q", "text": "copy the file"}\n{"_id": "p", "text": "sort a list"}\n')
    assert annotated_in(beir, "dev", 5) == 30 and annotated_in(beir, "all", 5) == 150
    assert annotated_in(beir, "dev", 100, queries) == (6 + 2) * 60


def test_rows_of_every_kind_of_file_are_counted(tmp_path):
    columns = {"text_a": ["copy a file"] * 9, "text_b": ["sort a list"] * 9}
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet", compression="zstd")
    rows = '{"text_a": "copy a file", "text_b": "sort a list"}\n' * 9
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "pairs.jsonl").write_text(rows.rstrip("\n"))
    write_list(tmp_path / "pairs.csv", 9)
    names = ("pairs.parquet", "pairs.jsonl.gz", "pairs.jsonl", "pairs.csv")
    assert [count_records(tmp_path / name) for name in names] == [9] * 4


def test_a_command_counts_what_its_model_runs(limbeck, models, beir, tmp_path, watched, monkeypatch):
    dual, cross = models["dual_encoder"], models["cross_encoder"]
    monkeypatch.setattr(auto, "LONG", 60)
    assert limbeck("evaluate", dual, beir, "--split", "dev", "--task", "rerank", "--depth", "3").code == 0
    assert limbeck("annotate", cross, beir, "--split", "dev", "--depth", "3", "--out", tmp_path / "few").code == 0
    assert watched.asked == []
    assert limbeck("annotate", cross, beir, "--split", "dev", "--depth", "10", "--out", tmp_path / "many").code == 0
    assert limbeck("evaluate", dual, beir, "--split", "dev", "--depth", "3").code == 0  # it searches 60 documents
    assert len(watched.asked) == 2


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
