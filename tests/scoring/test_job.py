"""Scoring jobs: the scores of the model, in files that are complete or absent, whatever happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import limbeck.matchers.pair_scorer as pair_scorer
from limbeck import processor
from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers import DiPair, build, load, matcher_config
from limbeck.matchers.calibration import Calibration
from limbeck.matchers.encoding import InMemory
from limbeck.matchers.interactions import Dot, MaxSim
from limbeck.progress import reporting
from limbeck.runtimes.choice import using_runtime
from limbeck.scoring import job as job_module
from limbeck.scoring import local
from limbeck.scoring import scorer as scorer_module
from limbeck.scoring import worker as worker_module
from limbeck.scoring.engine import in_words
from limbeck.scoring.job import score_pairs
from limbeck.scoring.local import LocalEngine
from limbeck.scoring.worker import top_of_each
from limbeck.stores.manifest import canonical
from limbeck.stores.ragged import Ragged
from tests.training.toy import WORDS

ONE = LocalEngine(1)


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory) -> str:
    torch.manual_seed(0)
    lengths = {"layers": 1, "query_length": 8, "document_length": 8}
    matcher = build(matcher_config(kind="dipair", start=tiny_bert, tokens=(2, 3), dim=8, head_width=16, **lengths))
    with torch.no_grad():
        for parameter in matcher.head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    folder = tmp_path_factory.mktemp("model") / "dipair"
    matcher.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def texts(tmp_path):
    generator = np.random.default_rng(0)
    sides = {}
    for side, count in (("left", 12), ("right", 20)):
        sides[side] = {f"{side[0]}{n}": " ".join(generator.choice(WORDS, size=4)) for n in range(count)}
        with open(tmp_path / f"{side}.jsonl", "w") as handle:
            handle.writelines(json.dumps({"_id": key, "text": text}) + "\n" for key, text in sides[side].items())
    return sides


@pytest.fixture
def listed(texts):
    generator = np.random.default_rng(1)
    return [(f"l{generator.integers(12)}", f"r{generator.integers(20)}") for _ in range(90)]


def distinct(listed) -> int:
    """How many texts the pairs name."""
    return len({left for left, _ in listed}) + len({right for _, right in listed})


def write_ids(path, listed):
    columns = {"left": [left for left, _ in listed], "right": [right for _, right in listed]}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"left": left, "right": right}) + "\n" for left, right in listed))
    else:
        joint = "," if path.suffix == ".csv" else "\t"
        path.write_text("".join(f"{left}{joint}{right}\n" for left, right in [("left", "right"), *listed]))
    return path


def result(folder) -> list[dict]:
    files = sorted((folder / "scores").glob("part-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def sides_of(tmp_path) -> dict[str, str]:
    return {"left": str(tmp_path / "left.jsonl"), "right": str(tmp_path / "right.jsonl")}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "jsonl"])
def test_listed_pairs_get_the_models_scores_in_their_order(model, texts, listed, tmp_path, suffix):
    file = write_ids(tmp_path / f"pairs.{suffix}", listed)
    done = score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=40)
    assert (done.pairs, done.scored, done.encoded) == (90, 90, 32)
    rows = result(tmp_path / "out")
    assert [row["pair"] for row in rows] == list(range(90))
    assert [(row["left"], row["right"]) for row in rows] == listed
    wanted = load(model).score([(texts["left"][left], texts["right"][right]) for left, right in listed])
    assert np.ptp(wanted) > 0.05
    assert np.allclose([row["score"] for row in rows], wanted, atol=1e-4)


def test_texts_in_the_list_itself_are_encoded_once_each(model, texts, listed, tmp_path):
    with open(tmp_path / "pairs.jsonl", "w") as handle:
        for left, right in listed:
            handle.write(json.dumps({"text_a": texts["left"][left], "text_b": texts["right"][right]}) + "\n")
    done = score_pairs(model, tmp_path / "pairs.jsonl", tmp_path / "out", ONE)
    assert done.encoded == distinct(listed)
    wanted = load(model).score([(texts["left"][left], texts["right"][right]) for left, right in listed])
    assert np.allclose([row["score"] for row in result(tmp_path / "out")], wanted, atol=1e-4)


def test_everything_against_everything_is_never_written_out(model, texts, tmp_path):
    score_pairs(model, None, tmp_path / "out", ONE, **sides_of(tmp_path), shard=50)
    rows = result(tmp_path / "out")
    assert len(rows) == 240 and not (tmp_path / "out" / "_job" / "work" / "pairs").exists()
    wanted = load(model).score([(one, other) for one in texts["left"].values() for other in texts["right"].values()])
    assert np.allclose([row["score"] for row in rows], wanted, atol=1e-4)
    score_pairs(model, None, tmp_path / "best", ONE, **sides_of(tmp_path), shard=50, top_k=3)
    best = result(tmp_path / "best")
    assert len(best) == 36
    for number, left in enumerate(texts["left"]):
        own = [row for row in best if row["left"] == left]
        assert [row["rank"] for row in own] == [1, 2, 3]
        order = np.argsort(-wanted.reshape(12, 20)[number], kind="stable")[:3]
        assert [row["right"] for row in own] == [f"r{column}" for column in order]


def test_the_best_of_listed_pairs_are_complete_for_any_shards(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    found = []
    for shard in (7, 90):
        score_pairs(model, file, tmp_path / f"out{shard}", ONE, **sides_of(tmp_path), shard=shard, top_k=2)
        found.append(sorted((row["left"], row["rank"], row["pair"]) for row in result(tmp_path / f"out{shard}")))
    assert found[0] == found[1]
    assert {left for left, _, _ in found[0]} == {left for left, _ in listed}


def test_the_best_of_each_by_hand():
    lefts, scores = np.array([0, 1, 0, 1, 0]), np.array([0.1, 0.5, 0.3, 0.5, 0.2])
    keep, rank = top_of_each(lefts, scores, 2)
    assert keep.tolist() == [2, 4, 1, 3] and rank.tolist() == [1, 2, 1, 2]


def test_a_killed_job_resumes_and_ends_with_the_same_files(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=20)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out" / "scores").iterdir()}
    for name in ("part-0000001.parquet", "part-0000004.parquet"):
        (tmp_path / "out" / "scores" / name).unlink()
    done = score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=20)
    assert (done.scored, done.encoded) == (30, 0)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out" / "scores").iterdir()} == before


def test_a_job_that_never_started_leaves_no_rows_for_the_next(model, texts, listed, tmp_path, monkeypatch):
    """Killed before the plan was made, then called with another list: the first list's rows must not be taken."""
    first = write_ids(tmp_path / "first.csv", listed[:9])
    monkeypatch.setattr(job_module, "_planned", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        score_pairs(model, first, tmp_path / "out", ONE, **sides_of(tmp_path))
    monkeypatch.undo()
    second = write_ids(tmp_path / "second.csv", listed[9:30])
    done = score_pairs(model, second, tmp_path / "out", ONE, **sides_of(tmp_path))
    assert (done.pairs, done.encoded) == (21, distinct(listed[:30]) - distinct(listed[:9]))
    assert [(row["left"], row["right"]) for row in result(tmp_path / "out")] == listed[9:30]


def test_a_changed_list_encodes_only_new_texts_with_one_store(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed[:10])
    first = score_pairs(model, file, tmp_path / "one", ONE, **sides_of(tmp_path), store=tmp_path / "store")
    with open(tmp_path / "right.jsonl", "a") as handle:
        handle.write(json.dumps({"_id": "new", "text": "sort sort sort"}) + "\n")
    other = write_ids(tmp_path / "more.csv", [*listed, ("l0", "new")])
    second = score_pairs(model, other, tmp_path / "two", ONE, **sides_of(tmp_path), store=tmp_path / "store")
    assert (first.encoded, second.encoded) == (distinct(listed[:10]), distinct(listed) - distinct(listed[:10]) + 1)


def test_only_texts_that_the_list_names_are_encoded(model, texts, tmp_path):
    some = [("l11", "r3"), ("l2", "r3"), ("l11", "r19")]
    file = write_ids(tmp_path / "pairs.csv", some)
    done = score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=2)
    assert done.encoded == 4
    wanted = load(model).score([(texts["left"][left], texts["right"][right]) for left, right in some])
    assert np.allclose([row["score"] for row in result(tmp_path / "out")], wanted, atol=1e-4)
    (tmp_path / "out" / "scores" / "part-0000001.parquet").unlink()
    again = score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=2)
    assert (again.scored, again.encoded) == (1, 0)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_vectors_cost_little(model, texts, listed, tmp_path, dtype):
    file = write_ids(tmp_path / "pairs.csv", listed)
    for name in ("float32", dtype):
        score_pairs(model, file, tmp_path / name, ONE, **sides_of(tmp_path), dtype=name)
    exact, small = (np.array([row["score"] for row in result(tmp_path / name)]) for name in ("float32", dtype))
    assert not np.array_equal(exact, small) and np.abs(exact - small).max() < 0.05


def test_a_calibrated_model_gives_probabilities_and_matches(model, texts, listed, tmp_path):
    shutil.copytree(model, tmp_path / "calibrated")
    Calibration(2.0, -0.5, 0.4, "f1", 1.0, 1.0, 10).save(tmp_path / "calibrated")
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(str(tmp_path / "calibrated"), file, tmp_path / "out", ONE, **sides_of(tmp_path))
    for row in result(tmp_path / "out"):
        assert row["probability"] == pytest.approx(1 / (1 + np.exp(0.5 - 2 * row["score"])), abs=1e-5)
        assert row["match"] == (row["probability"] >= 0.4)
    Calibration(1.0, 0.5, 0.4, "f1", 1.0, 1.0, 10).save(tmp_path / "calibrated")  # fitted again, same threshold
    with pytest.raises(LimbeckError, match="contains another job .the model differs."):
        score_pairs(str(tmp_path / "calibrated"), file, tmp_path / "out", ONE, **sides_of(tmp_path))


def test_a_score_that_is_not_finite_is_named_by_its_pairs_number(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    worker = worker_module.Worker(tmp_path / "out")
    score = worker.scores
    worker.scores = lambda rows: np.where(np.arange(len(rows))[:, None] == 7, np.nan, score(rows))
    with pytest.raises(LimbeckError, match="the score of pair 37 is not finite"):
        worker.run(1)
    assert result(tmp_path / "out")[37]["pair"] == 37


def test_the_best_of_several_scores_is_undefined_and_refused(tiny_bert, texts, tmp_path):
    lengths = {"layers": 1, "query_length": 8, "document_length": 8}
    spec = matcher_config(kind="dipair", start=tiny_bert, tokens=(2, 3), dim=8, head_width=16, outputs=3, **lengths)
    build(spec).save_pretrained(tmp_path / "classes")
    with pytest.raises(LimbeckError, match="--top-k: the model gives 3 scores per pair"):
        score_pairs(str(tmp_path / "classes"), None, tmp_path / "out", ONE, **sides_of(tmp_path), top_k=2)


def test_a_dual_encoder_scores_lists_too(tiny_bert, texts, listed, tmp_path):
    spec = matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=8, similarity="cosine")
    build(spec).save_pretrained(tmp_path / "dual")
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(str(tmp_path / "dual"), file, tmp_path / "out", ONE, **sides_of(tmp_path))
    wanted = load(tmp_path / "dual").score([(texts["left"][left], texts["right"][right]) for left, right in listed])
    assert np.allclose([row["score"] for row in result(tmp_path / "out")], wanted, atol=1e-5)


def test_what_is_wrong_with_a_list_is_named_with_its_line(model, texts, listed, tmp_path):
    def refused(line, pairs, model=model, **changes):
        with pytest.raises(LimbeckError, match=line):
            score_pairs(model, pairs, tmp_path / "bad", ONE, **{**sides_of(tmp_path), **changes})
        assert not (tmp_path / "bad").exists()

    unknown = write_ids(tmp_path / "unknown.csv", [*listed[:3], ("l0", "r99")])
    refused(r"unknown.csv:5: names right text 'r99', which does not exist; add the text", unknown)
    wrong = tmp_path / "wrong.parquet"
    pq.write_table(pa.table({"a": ["l0"], "b": ["r0"]}), wrong)
    refused("has no id columns, only a, b; name two of them left and right", wrong)
    kinds = tmp_path / "kinds.parquet"
    pq.write_table(pa.table({"left": [["l0"]], "right": ["r0"]}), kinds)
    refused("column 'left' .list.* cannot be read as ids; write ids as strings", kinds)
    twice = tmp_path / "twice.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["l0"])] * 3, names=["left", "left", "right"]), twice)
    refused("has two columns with the same name", twice)
    refused("names texts by their ids; give their texts with --left and --right", unknown, left=None, right=None)
    gap = tmp_path / "gap.parquet"
    pq.write_table(pa.table({"left": ["l0", "l1", "l2"], "right": ["r0", None, "r1"]}), gap)
    refused("gap.parquet:2: has no right; name its columns", gap)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 but not really")
    refused("is not a complete parquet file", broken)
    refused("no such file", tmp_path / "absent.parquet")
    with open(tmp_path / "right.jsonl", "a") as handle:
        handle.write('{"_id": "blank", "text": " "}\n')
    refused(
        r"blank.csv:3: right text 'blank' is empty", write_ids(tmp_path / "blank.csv", [listed[0], ("l0", "blank")])
    )
    refused(r"right.jsonl: text 'blank' is empty; write it, or leave it out", None)
    empty = write_ids(tmp_path / "empty.csv", [])
    refused("contains no pairs", empty)
    inline = tmp_path / "inline.jsonl"
    inline.write_text('{"text_a": "one", "text_b": "two"}\n{"text_a": "one", "text_b": " "}\n')
    refused("inline.jsonl:2: text 2 is empty", inline, left=None, right=None)
    for first, second in (("ab", "abc"), ("abc", "ab")):
        inline.write_text("".join(json.dumps({"texts": list(texts)}) + "\n" for texts in (first, second)))
        line = f"inline.jsonl:2: has {len(second)} texts where the first line has {len(first)}"
        refused(line, inline, left=None, right=None)
    for count in (0, 1):
        inline.write_text(json.dumps({"texts": ["one"] * count}) + "\n")
        refused(f"inline.jsonl:1: has {count} texts; give every pair two or more", inline, left=None, right=None)
    inline.write_text('{"text_a": "one", "text_b": 2}\n')
    refused("has a text that is not a string", inline, left=None, right=None)
    refused("requires the texts of both sides", unknown, right=None)
    refused("nope.jsonl: no such file or folder; check the path", unknown, left="nope.jsonl")


def test_sides_may_be_tables(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    (tmp_path / "left.csv").write_text(
        "".join(f"{key},{text}\n" for key, text in {"id": "text", **texts["left"]}.items())
    )
    columns = {"id": list(texts["right"]), "text": list(texts["right"].values())}
    pq.write_table(pa.table(columns), tmp_path / "right.parquet")
    score_pairs(model, file, tmp_path / "a", ONE, **sides_of(tmp_path), head="torch")
    sides = {"left": str(tmp_path / "left.csv"), "right": str(tmp_path / "right.parquet")}
    score_pairs(model, file, tmp_path / "b", ONE, **sides, head="torch")
    assert [row["pair"] for row in result(tmp_path / "a")] == [row["pair"] for row in result(tmp_path / "b")]
    first, second = ([row["score"] for row in result(tmp_path / name)] for name in "ab")
    assert np.allclose(first, second, atol=1e-5)


def test_a_place_that_cannot_hold_vectors_is_named_as_a_store(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    with pytest.raises(LimbeckError, match=f"{file}: is a file; name a folder with --store"):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), store=file)
    with pytest.raises(LimbeckError, match="cannot be made .Not a directory.; name a folder with --store"):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), store=file / "deep")


def test_files_outside_a_job_are_never_deleted(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    precious = tmp_path / "out" / "work" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("years of it")
    with pytest.raises(LimbeckError, match="is not empty and contains no scoring job"):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    assert precious.read_text() == "years of it"
    with pytest.raises(LimbeckError, match="is a file; give --out a folder"):
        score_pairs(model, file, file, ONE, **sides_of(tmp_path))


def test_a_part_that_was_cut_short_is_scored_again(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    whole = result(tmp_path / "out")
    for part, size in (("part-0000001.parquet", 20), ("part-0000002.parquet", 0)):
        os.truncate(tmp_path / "out" / "scores" / part, size)
    assert score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30).scored == 60
    assert result(tmp_path / "out") == whole


@pytest.mark.parametrize("size", [0, 20, 140])
def test_rows_that_were_cut_short_are_made_again(model, texts, listed, tmp_path, size):
    file = write_ids(tmp_path / "pairs.csv", listed)
    ask = (model, file, tmp_path / "out", ONE)
    score_pairs(*ask, **sides_of(tmp_path), shard=30)
    whole = result(tmp_path / "out")
    os.truncate(tmp_path / "out" / "_job" / "work" / "pairs" / "rows.npy", size)
    os.truncate(tmp_path / "out" / "_job" / "work" / "rows-1.npy", size)
    (tmp_path / "out" / "scores" / "part-0000001.parquet").unlink()
    assert score_pairs(*ask, **sides_of(tmp_path), shard=30).scored == 30
    assert result(tmp_path / "out") == whole


def test_a_head_that_is_gone_or_damaged_is_written_again(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    whole, head = result(tmp_path / "out"), tmp_path / "out" / "_job" / "head"
    for damage in ((head / "head.json").unlink, lambda: os.truncate(head / "head.safetensors", 9)):
        damage()
        (tmp_path / "out" / "scores" / "part-0000001.parquet").unlink()
        assert score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30).scored == 30
        assert result(tmp_path / "out") == whole


class Pipe:
    """The worker's end of a driver that asks for shard 0 for ever."""

    def __init__(self):
        self.said = []

    def recv(self):
        return 0

    def send(self, message):
        self.said.append(message)


def test_a_worker_that_fails_says_why_at_once(model, texts, listed, tmp_path, monkeypatch):
    file, out = write_ids(tmp_path / "pairs.csv", listed), tmp_path / "out"
    score_pairs(model, file, out, ONE, **sides_of(tmp_path))

    def said():
        pipe = Pipe()
        with scorer_module.one_thread():
            local._work(str(out), pipe, "cpu")
        (message,) = pipe.said
        return message

    for damage in (
        lambda: os.truncate(out / "_job" / "head" / "head.safetensors", 9),
        (out / "_job" / "head" / "head.safetensors").unlink,
    ):
        damage()
        kind, words = said()
        assert kind == "failed" and words.startswith(f"{out / '_job' / 'head'}: is damaged (")
        assert words.endswith("; run the same command again to write it again")
    monkeypatch.setattr(worker_module, "Worker", lambda *_: [][1])
    assert re.search(r"a worker failed in test_job.py:\d+ .IndexError: list index out of range.; please", said()[1])


def test_out_of_memory_is_distinguished_from_other_failures(tmp_path):
    torchs = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
    for error in (MemoryError(), torchs):
        words = in_words(error, tmp_path)
        assert "a worker ran out of memory" in words and "; free some memory, or use fewer --workers" in words
    assert in_words(OSError(28, "No space left on device", "a"), tmp_path).startswith("a: No space left on device; fix")
    assert "a worker failed (OSError: odd)" in in_words(OSError("odd"), tmp_path)


def signed(record):
    """A plan with the checksum that its content should have."""
    plain = {key: value for key, value in record.items() if key != "checksum"}
    return plain | {"checksum": digest(canonical(plain))}


def damage_plan(place, damage):
    if damage is None:
        os.truncate(place, 20)
        return
    record = json.loads(place.read_text())
    place.write_text(json.dumps(damage(record)))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (None, "is not valid JSON"),
        (lambda record: [record], "is damaged .it is not a record"),
        (lambda record: {key: value for key, value in record.items() if key != "batch"}, "is damaged or was edited"),
        (lambda record: record | {"pairs": 89}, "is damaged or was edited"),
        (lambda record: signed(record | {"colour": "red"}), "is damaged .colour: "),
        (lambda record: signed(record | {"shard": "30"}), "is damaged .shard: "),
    ],
)
def test_a_damaged_plan_names_what_to_remove_and_texts_stay_encoded(model, texts, listed, tmp_path, damage, reason):
    file = write_ids(tmp_path / "pairs.csv", listed)
    ask, out = (model, file, tmp_path / "out", ONE), tmp_path / "out"
    score_pairs(*ask, **sides_of(tmp_path), shard=30)
    whole = result(out)
    damage_plan(out / "_job" / "job.json", damage)
    with pytest.raises(LimbeckError, match=f"job.json.*: {reason}.*; remove it and {out / 'scores'}, and run the same"):
        score_pairs(*ask, **sides_of(tmp_path), shard=30)
    (out / "_job" / "job.json").unlink()
    with pytest.raises(LimbeckError, match=f"contains scores without _job/job.json.*; remove {out / 'scores'} and run"):
        score_pairs(*ask, **sides_of(tmp_path), shard=45)  # parts of another cut must not be taken
    shutil.rmtree(out / "scores")
    done = score_pairs(*ask, **sides_of(tmp_path), shard=45)
    assert (done.scored, done.encoded) == (90, 0)
    assert [row["pair"] for row in result(out)] == [row["pair"] for row in whole]
    assert np.allclose([row["score"] for row in result(out)], [row["score"] for row in whole], atol=1e-5)


def test_encodings_without_their_manifest_are_made_again_after_they_are_removed(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    ask, store = (model, file, tmp_path / "out", ONE), tmp_path / "out" / "_job" / "encodings" / "position-0"
    score_pairs(*ask, **sides_of(tmp_path), shard=30)
    (tmp_path / "out" / "scores" / "part-0000001.parquet").unlink()
    (store / "manifest.json").unlink()
    with pytest.raises(LimbeckError, match=f"without its manifest.json; remove {store} and run the same command again"):
        score_pairs(*ask, **sides_of(tmp_path), shard=30)
    shutil.rmtree(store)
    done = score_pairs(*ask, **sides_of(tmp_path), shard=30)
    assert (done.scored, done.encoded) == (30, 12)


def test_damaged_texts_of_a_list_that_has_them_are_read_again(model, texts, listed, tmp_path):
    rows = [{"text_a": texts["left"][left], "text_b": texts["right"][right]} for left, right in listed]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ask, place = (model, tmp_path / "pairs.jsonl", tmp_path / "out", ONE), tmp_path / "out" / "_job" / "work" / "pairs"
    score_pairs(*ask)
    whole = result(tmp_path / "out")
    for name in ("texts-1.arrow", "rows.npy", "shown.json", "sums.json"):
        for damage in (lambda file: os.truncate(file, 50), Path.unlink):
            damage(place / name)
            (tmp_path / "out" / "scores" / "part-0000000.parquet").unlink()
            assert score_pairs(*ask).encoded == 0
            assert result(tmp_path / "out") == whole


def test_a_mark_that_is_damaged_is_set_again(model, texts, listed, tmp_path, monkeypatch):
    file = write_ids(tmp_path / "pairs.csv", listed)
    monkeypatch.setattr(job_module, "_planned", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    monkeypatch.undo()
    os.truncate(tmp_path / "out" / "_job" / "work" / "begun.json", 10)
    assert score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path)).encoded == 0


def test_texts_that_change_while_they_are_scored_are_noticed(model, texts, listed, tmp_path, monkeypatch):
    """A worker opens the texts again: other texts under the same ids would get the scores of the old."""
    file = write_ids(tmp_path / "pairs.csv", listed)
    planned = job_module._planned

    def meanwhile(*arguments):
        plan = planned(*arguments)
        lines = (tmp_path / "left.jsonl").read_text().splitlines()
        (tmp_path / "left.jsonl").write_text("".join(f"{line}\n" for line in reversed(lines)))
        return plan

    monkeypatch.setattr(job_module, "_planned", meanwhile)
    with pytest.raises(LimbeckError, match="changed while they were scored; start again"):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    assert not list((tmp_path / "out" / "scores").iterdir()) and not (tmp_path / "out" / "_job" / "done.json").exists()


def test_a_store_made_again_in_another_order_gives_the_same_scores(model, texts, listed, tmp_path, monkeypatch):
    together = DiPair.encode

    def alone(matcher, texts, position, batch_size=64):  # whom a text is encoded with may change its last bits
        return np.concatenate([together(matcher, [text], position) for text in texts])

    monkeypatch.setattr(DiPair, "encode", alone)
    file = write_ids(tmp_path / "pairs.csv", listed)
    ask, shared = (model, file, tmp_path / "out", ONE), tmp_path / "store"
    score_pairs(*ask, **sides_of(tmp_path), store=shared)
    whole = result(tmp_path / "out")
    shutil.rmtree(shared)
    for side in ("left", "right"):
        lines = (tmp_path / f"{side}.jsonl").read_text().splitlines()
        (tmp_path / f"other-{side}.jsonl").write_text("".join(f"{line}\n" for line in reversed(lines)))
    others = {side: str(tmp_path / f"other-{side}.jsonl") for side in ("left", "right")}
    score_pairs(model, file, tmp_path / "other", ONE, **others, store=shared)
    (tmp_path / "out" / "scores" / "part-0000000.parquet").unlink()
    assert score_pairs(*ask, **sides_of(tmp_path), store=shared).encoded == 0
    assert result(tmp_path / "out") == whole


def test_texts_that_changed_in_their_folder_are_another_list(model, texts, tmp_path):
    (tmp_path / "left").mkdir()
    for name in ("queries", "corpus"):
        (tmp_path / "left" / f"{name}.jsonl").write_text((tmp_path / "left.jsonl").read_text())
    sides = {"left": str(tmp_path / "left"), "right": str(tmp_path / "right.jsonl")}
    score_pairs(model, None, tmp_path / "out", ONE, **sides, top_k=2)
    corpus = (tmp_path / "left" / "corpus.jsonl").read_text().splitlines()
    (tmp_path / "left" / "corpus.jsonl").write_text("".join(f"{line}\n" for line in reversed(corpus)))
    with pytest.raises(LimbeckError, match="contains another job .the list of pairs differs."):
        score_pairs(model, None, tmp_path / "out", ONE, **sides, top_k=2)


def test_a_folder_of_another_job_is_not_changed(model, texts, listed, tmp_path, tiny_bert):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    other = write_ids(tmp_path / "other.csv", listed[:5])
    with pytest.raises(LimbeckError, match="contains another job .the list of pairs differs."):
        score_pairs(model, other, tmp_path / "out", ONE, **sides_of(tmp_path))
    with pytest.raises(LimbeckError, match="contains another job .top_k differs."):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), top_k=1)
    assert len(result(tmp_path / "out")) == 90


@pytest.mark.parametrize("kind", ["cross_encoder", "colbert", "dual_encoder", "poly_encoder"])
def test_every_kind_of_matcher_scores_a_list_as_it_scores_pairs(kind, texts, listed, tmp_path, tiny_bert, capsys):
    spec = matcher_config(kind=kind, start=tiny_bert, query_length=8, document_length=8)
    matcher = build(spec)
    matcher.save_pretrained(tmp_path / kind)
    file = write_ids(tmp_path / "pairs.csv", listed)
    told = []
    with reporting(Told(told)):
        score_pairs(str(tmp_path / kind), file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=40)
    expected = matcher.score([(texts["left"][left], texts["right"][right]) for left, right in listed])
    assert np.allclose([row["score"] for row in result(tmp_path / "out")], expected, atol=1e-5)
    warned = [line for line in told if "reads both texts of every pair together: 90 pairs take about" in line]
    assert bool(warned) == (kind == "cross_encoder")
    assert (tmp_path / "out" / "_job" / "encodings").exists() == (kind != "cross_encoder")


def test_a_model_without_a_head_needs_none(texts, listed, tmp_path, tiny_bert):
    spec = matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=8)
    build(spec).save_pretrained(tmp_path / "cross")
    file = write_ids(tmp_path / "pairs.csv", listed)
    with pytest.raises(LimbeckError, match="--head onnx: a cross_encoder has no head; leave --head out"):
        score_pairs(str(tmp_path / "cross"), file, tmp_path / "new", ONE, **sides_of(tmp_path), head="onnx")


class Told:
    """Keeps what is said."""

    def __init__(self, lines):
        self.lines = lines

    @contextmanager
    def task(self, label, total):
        yield lambda count: None

    def say(self, message):
        self.lines.append(message)


class Killing(LocalEngine):
    """Kills the first worker that has begun."""

    def run(self, folder, shards, advance):
        class Pool(local._Pool):
            def _heard(self, pipe):
                if not self.waiting.lost and not getattr(self, "killed", False):
                    self.killed = True
                    victim = next(process for process, _ in self.busy.values())
                    os.kill(victim.pid, signal.SIGKILL)
                super()._heard(pipe)

        Pool(folder, shards, advance, self.device).run(2)


@pytest.mark.full
def test_a_killed_worker_is_replaced_and_nothing_is_lost(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "one", ONE, **sides_of(tmp_path), shard=10, head="torch")
    score_pairs(model, file, tmp_path / "two", Killing(2), **sides_of(tmp_path), shard=10, head="torch")
    assert result(tmp_path / "one") == result(tmp_path / "two")


class Damaging(LocalEngine):
    """Spoils the head before its workers read it."""

    def run(self, folder, shards, advance):
        os.truncate(folder / "_job" / "head" / "head.safetensors", 9)
        super().run(folder, shards, advance)


@pytest.mark.full
def test_workers_that_fail_end_the_job_with_their_reason(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    with pytest.raises(LimbeckError, match="head: is damaged .*; run the same command again to write it again"):
        score_pairs(model, file, tmp_path / "out", Damaging(2), **sides_of(tmp_path), shard=30)
    assert score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path)).scored == 90


@pytest.mark.full
def test_a_killed_driver_leaves_whole_files_and_no_workers(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed * 40)
    command = [sys.executable, "-m", "limbeck", "score", model, str(file), "--out", str(tmp_path / "out")]
    command += ["--left", str(tmp_path / "left.jsonl"), "--right", str(tmp_path / "right.jsonl"), "--shard", "100"]
    command += ["--workers", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 240
        before = len(list((tmp_path / "out").glob("scores/part-*")))
        while len(list((tmp_path / "out").glob("scores/part-*"))) <= before and time.monotonic() < deadline:
            if driver.poll() is not None:
                break
            time.sleep(0.02)
        driver.kill()
        driver.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = result(tmp_path / "out")
    assert [row["pair"] for row in rows] == list(range(3600))
    assert not list((tmp_path / "out").glob("scores/.*"))
    once = {(row["left"], row["right"]): row["score"] for row in rows[:90]}
    assert all(np.isclose(once[row["left"], row["right"]], row["score"], atol=1e-5) for row in rows)


@pytest.mark.parametrize("head", ["onnx", "int8"])
def test_other_heads_give_the_same_scores_and_stay_with_the_job(model, texts, listed, tmp_path, head):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "torch", ONE, **sides_of(tmp_path), head="torch")
    score_pairs(model, file, tmp_path / head, ONE, **sides_of(tmp_path), shard=25, head=head)
    assert json.loads((tmp_path / head / "_job" / "job.json").read_text())["head"] == head
    plain, other = ([row["score"] for row in result(tmp_path / name)] for name in ("torch", head))
    assert np.allclose(plain, other, atol=1e-4 if head == "onnx" else 0.05 * np.ptp(plain))
    with pytest.raises(LimbeckError, match="contains another job .head differs."):
        score_pairs(model, file, tmp_path / head, ONE, **sides_of(tmp_path), head="torch")


def test_an_unavailable_head_is_named(model, texts, listed, tmp_path, tiny_bert, monkeypatch):
    file = write_ids(tmp_path / "pairs.csv", listed)
    with pytest.raises(LimbeckError, match="--head onxx: no such head; did you mean 'onnx'"):
        score_pairs(model, file, tmp_path / "a", ONE, **sides_of(tmp_path), head="onxx")
    spec = matcher_config(kind="dual_encoder", start=tiny_bert, layers=1, query_length=8, document_length=8)
    build(spec).save_pretrained(tmp_path / "dual")
    with pytest.raises(LimbeckError, match="--head int8: this model has no transformer head"):
        score_pairs(str(tmp_path / "dual"), file, tmp_path / "b", ONE, **sides_of(tmp_path), head="int8")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(LimbeckError, match=r"onnxruntime is not installed; run `pip install 'limbeck\[onnx\]'`"):
        score_pairs(model, file, tmp_path / "c", ONE, **sides_of(tmp_path), head="onnx")


def test_little_room_for_prepared_texts_changes_nothing_but_the_order_of_work(
    model, texts, listed, tmp_path, monkeypatch
):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "much", ONE, **sides_of(tmp_path), head="torch")
    monkeypatch.setattr(pair_scorer, "PREPARED", 4000)
    monkeypatch.setattr(pair_scorer, "SAMPLE", 2)
    prepared = []
    prepare = pair_scorer.PairScorer.prepare

    def counted(self, rows, position):
        prepared.append(len(rows))
        return prepare(self, rows, position)

    monkeypatch.setattr(pair_scorer.PairScorer, "prepare", counted)
    score_pairs(model, file, tmp_path / "little", ONE, **sides_of(tmp_path), head="torch")
    assert max(prepared) < 12  # fewer than either side's distinct texts
    for much, little in zip(result(tmp_path / "much"), result(tmp_path / "little"), strict=True):
        assert much["pair"] == little["pair"]
        assert np.isclose(much["score"], little["score"], atol=1e-5)


def test_texts_are_prepared_once_for_all_shards(model, texts, listed, tmp_path, monkeypatch):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "one", ONE, **sides_of(tmp_path), head="torch")
    prepared = []
    prepare = pair_scorer.PairScorer._prepare

    def counted(self, rows, position):
        prepared.append((self, position, len(rows)))
        return prepare(self, rows, position)

    monkeypatch.setattr(pair_scorer, "SAMPLE", 1)
    monkeypatch.setattr(pair_scorer.PairScorer, "_prepare", counted)
    score_pairs(model, file, tmp_path / "many", ONE, **sides_of(tmp_path), head="torch", shard=10)
    of_worker = [(position, count) for scorer, position, count in prepared if scorer is prepared[-1][0] and count > 1]
    sizes = [len({pair[side] for pair in listed}) for side in (0, 1)]
    assert of_worker == list(enumerate(sizes))  # nine shards
    monkeypatch.setattr(pair_scorer, "PREPARED", 4000)
    score_pairs(model, file, tmp_path / "little", ONE, **sides_of(tmp_path), head="torch", shard=10)
    for one, many, little in zip(*(result(tmp_path / name) for name in ("one", "many", "little")), strict=True):
        assert one["pair"] == many["pair"] == little["pair"]
        assert np.allclose([many["score"], little["score"]], one["score"], atol=1e-5)


def test_texts_of_different_lengths_are_not_kept(tmp_path):
    """They would all be padded to the longest of them."""
    generator = np.random.default_rng(0)
    texts = [InMemory(Ragged.from_list([generator.standard_normal((n, 4)).astype(np.float32) for n in (2, 5, 3)]))] * 2
    scorer = pair_scorer.PairScorer(MaxSim(), texts)
    rows = np.array([[0, 1], [2, 2], [1, 0]])
    before = scorer.score(rows)
    assert not scorer.keep([np.arange(3), np.arange(3)])
    assert np.array_equal(scorer.score(rows), before)
    vectors = [InMemory(generator.standard_normal((3, 4)).astype(np.float32))] * 2
    plain = pair_scorer.PairScorer(Dot(), vectors)
    before = plain.score(rows)
    assert plain.keep([np.array([2, 0, 1]), np.array([1, 2, 0])])
    assert np.allclose(plain.score(rows), before, atol=1e-6)


class Wide(Dot):
    """Prepares texts of one position with ten times the numbers of the other, and notes which texts it reads."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.wide, self.seen = wide, []

    def prepare(self, encoded, position):
        (vectors,) = super().prepare(encoded, position)
        return vectors, vectors.repeat(1, 10 if position == self.wide else 1)

    def score_rows(self, texts, rows):
        self.seen += zip(*(row.tolist() for row in rows), strict=True)
        return self.score([(text[0][row],) for text, row in zip(texts, rows, strict=True)])


@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("kept", [True, False])
def test_pairs_with_the_same_large_text_follow_each_other(wide, kept):
    """It is read from memory once, and then from the processor's cache."""
    generator = np.random.default_rng(0)
    vectors = [InMemory(generator.standard_normal((7, 4)).astype(np.float32))] * 2
    rows = generator.integers(0, 7, (50, 2))
    interaction = Wide(wide)
    scorer = pair_scorer.PairScorer(interaction, vectors, batch=8)
    if kept:
        assert scorer.keep([np.arange(7), np.arange(7)])
    interaction.seen.clear()
    scores = scorer.score(rows)
    turns = [np.count_nonzero(np.diff([pair[position] for pair in interaction.seen])) for position in (0, 1)]
    assert turns[wide] == 6 and turns[1 - wide] > 20
    assert np.allclose(scores, pair_scorer.PairScorer(Dot(), vectors).score(rows), atol=1e-6)


def test_shards_of_the_best_hold_whole_left_texts_and_several_of_them():
    assert job_module.whole_lefts(100_000, 10_000) == 100_000
    assert job_module.whole_lefts(100_000, 300_000) == 8 * 300_000
    assert job_module.whole_lefts(100_000, 1_000_000) == 4_000_000  # four
    assert job_module.whole_lefts(100_000, 9_000_000) == 9_000_000  # one, of any length
    assert job_module.whole_lefts(10, 7) == 56


def test_the_plan_is_what_the_first_call_decided(model, texts, listed, tmp_path, monkeypatch):
    """Another machine may find another batch faster; a job that is under way keeps its own."""
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    first = json.loads((tmp_path / "out" / "_job" / "job.json").read_text())
    monkeypatch.setattr(pair_scorer.PairScorer, "tune", lambda *_: 1)
    (tmp_path / "out" / "scores" / "part-0000000.parquet").unlink()
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path))
    assert json.loads((tmp_path / "out" / "_job" / "job.json").read_text()) == first


def test_another_cut_of_a_job_that_was_begun_is_refused(model, texts, listed, tmp_path):
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    with pytest.raises(LimbeckError, match="out: was started with --shard 30, not 50; leave --shard out"):
        score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=50)
    score_pairs(model, file, tmp_path / "out", ONE, **sides_of(tmp_path), shard=30)
    score_pairs(model, None, tmp_path / "best", ONE, **sides_of(tmp_path), shard=50, top_k=2)
    score_pairs(model, None, tmp_path / "best", ONE, **sides_of(tmp_path), shard=50, top_k=2)  # cut at whole left texts
    with pytest.raises(LimbeckError, match="best: was started with --shard 160, not 200;"):
        score_pairs(model, None, tmp_path / "best", ONE, **sides_of(tmp_path), shard=200, top_k=2)


def test_a_worker_that_rounds_to_other_bits_is_named(texts, tmp_path, tiny_bert, monkeypatch):
    cross = {"kind": "cross_encoder", "query_length": 8, "document_length": 8}
    build(matcher_config(start=tiny_bert, layers=1, **cross)).save_pretrained(tmp_path / "model")
    flags = {"flags": "avx512_vnni"}
    monkeypatch.setattr(processor, "_cpuinfo", lambda: flags)
    with using_runtime("int8"):
        score_pairs(str(tmp_path / "model"), None, tmp_path / "job", ONE, **sides_of(tmp_path))
    flags["flags"] = "avx2"
    with pytest.raises(LimbeckError, match="rounds weights to 7 bits on this processor, and to 8 .*--runtime onnx"):
        worker_module.Worker(tmp_path / "job")
    build(matcher_config(start=tiny_bert, layers=2, **cross)).save_pretrained(tmp_path / "model")
    with pytest.raises(LimbeckError, match="model: the model changed while pairs were scored; choose another --out"):
        worker_module.Worker(tmp_path / "job")


def test_a_worker_for_each_core_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    assert LocalEngine().workers == 3 and LocalEngine(2).workers == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert LocalEngine().workers == 6


def test_a_worker_loads_no_library_of_models():
    """Seconds and hundreds of megabytes for each of many workers."""
    program = "import sys, limbeck.scoring.worker; print([n for n in ('transformers', 'sklearn') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"
