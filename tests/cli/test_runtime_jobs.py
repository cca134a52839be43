# ruff: noqa: F811 (fixtures of another file)
"""Each command runs its model in the runtime that fits its work, and the user can ask for another."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import limbeck as lb
from limbeck.processor import weight_bits
from limbeck.runtimes import auto, compiled, sessions
from limbeck.runtimes.choice import CALIBRATED, installed_runtimes, measuring_on
from limbeck.runtimes.measure import Measured
from limbeck.scoring.plan import JOB
from limbeck.search.exact import comparable
from limbeck.search.index import SearchIndex
from tests.cli.test_cli import assert_one_line_about
from tests.cli.test_runtimes import _own_cache, models, watched  # noqa: F401  (fixtures)
from tests.runtimes.test_job_size import write_list


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

    def open_session(runtime, graph, threads, *option):
        opened.append(threads)
        return sessions.open_session(runtime, graph, threads, *option)

    monkeypatch.setattr(auto, "measure", measure)
    monkeypatch.setattr(compiled, "open_session", open_session)
    pairs = write_list(tmp_path / "pairs.csv", 3)
    done = lb.score(models["cross_encoder"], pairs, tmp_path / "cross", workers=1, runtime="auto")
    assert measured == [("cross_encoder", [1])] and json.loads((done.folder / JOB).read_text())["runtime"] == "onnx"
    assert opened == [1, 1]  # here, and in the worker
    lb.score(models["dual_encoder"], pairs, tmp_path / "dual", workers=1, runtime="auto")
    assert measured[1:] == [("dual_encoder", [2])]  # texts are encoded on all threads


@pytest.mark.usefixtures("two_threads")
def test_pairs_are_scored_in_what_limbeck_runtimes_found_on_one_thread(limbeck, models, beir, tmp_path, watched):
    assert limbeck("runtimes", models["cross_encoder"], beir).code == 0
    pairs = write_list(tmp_path / "pairs.csv", 3)
    done = lb.score(models["cross_encoder"], pairs, tmp_path / "scores", workers=1)
    assert json.loads((done.folder / JOB).read_text())["runtime"] == "onnx" and len(watched.asked) == 1


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


def test_a_command_counts_what_its_model_runs(limbeck, models, beir, tmp_path, watched, monkeypatch):
    dual, cross = models["dual_encoder"], models["cross_encoder"]
    monkeypatch.setattr(auto, "is_long", lambda _, size: size >= 60)
    assert limbeck("evaluate", dual, beir, "--split", "dev", "--task", "rerank", "--depth", "3").code == 0
    assert limbeck("annotate", cross, beir, "--split", "dev", "--depth", "3", "--out", tmp_path / "few").code == 0
    assert watched.asked == []
    assert limbeck("annotate", cross, beir, "--split", "dev", "--depth", "10", "--out", tmp_path / "many").code == 0
    assert limbeck("evaluate", dual, beir, "--split", "dev", "--depth", "3").code == 0  # it searches 60 documents
    assert len(watched.asked) == 2


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


def test_added_texts_count_and_are_what_is_measured_on(limbeck, models, beir, tmp_path, watched, monkeypatch):
    out, few, many = tmp_path / "index", tmp_path / "few.jsonl", tmp_path / "many.jsonl"
    for file, count in ((few, 3), (many, 4)):
        lines = [json.dumps({"_id": f"{file.stem} {at}", "text": f"copy one more file {at}"}) for at in range(count)]
        file.write_text("\n".join(lines) + "\n")
    assert limbeck("index", models["dual_encoder"], beir, "--out", out, "--runtime", "torch").code == 0
    monkeypatch.setattr(auto, "is_long", lambda _, size: size >= 4)
    assert limbeck("index", "--out", out, "--add", few).code == 0 and watched.asked == []
    assert limbeck("index", "--out", out, "--add", many).code == 0
    assert [source for source, _ in watched.asked] == [str(many)]


@pytest.mark.parametrize("there", [True, False])
def test_a_choice_from_other_texts_is_calibrated_on_these_or_not_taken(models, tmp_path, monkeypatch, there):
    """A command without texts takes what was measured last; docstrings would calibrate a graph that nobody measured."""
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"_id": "a", "text": "copy the file"}\n{"_id": "b", "text": "sort the list"}\n')
    rates = {"torch": 1.0, "onnx": 2.0, "int8": 3.0, CALIBRATED: 4.0}
    rows = [Measured(name, torch.get_num_threads(), 1 / rate, rate, 1.0) for name, rate in rates.items()]
    found = auto.Choice.of(rows, str(texts), torch.get_num_threads(), tried=list(rates))
    assert found.batch == CALIBRATED
    monkeypatch.setattr(auto, "remembered", lambda *_: found)
    used = []
    monkeypatch.setattr(auto, "use_runtime", lambda _, runtime, sample: used.append((runtime, sample)))
    matcher = lb.load(models["dual_encoder"])
    if not there:
        texts.unlink()
    auto.use_best(matcher, single=False)
    [(runtime, sample)] = used
    assert (runtime, sample and sample.documents) == (
        (CALIBRATED, ["copy the file", "sort the list"]) if there else ("int8", None)
    )
    with measuring_on(str(texts)):
        auto.use_best(matcher, single=False)  # the command's own texts
    assert used[1] == (CALIBRATED, None)
