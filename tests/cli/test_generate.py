"""`limbeck generate` as a user runs it, and as a kill -9 leaves it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.test_cli import assert_one_line_about
from tests.generation.test_generate import write_beir
from tests.search.seq2seq import FILLERS, write_bart, write_t5


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    return {
        "bart": str(write_bart(tmp_path_factory.mktemp("bart"))),
        "t5": str(write_t5(tmp_path_factory.mktemp("t5"))),
    }


def test_it_says_what_it_wrote_and_what_it_left_out(limbeck, tmp_path):
    data, out = write_beir(tmp_path / "data"), tmp_path / "near.jsonl"
    done = limbeck("generate", data, "--out", out, "--per-query", 20)
    found = json.loads(limbeck("generate", data, "--out", out, "--per-query", 20, "--json").out)
    lines = done.out.splitlines()
    assert lines[0] == f"{out}: {found['queries']} new queries from 2 queries"
    assert lines[1] == f"  left out: {found['repeated']} repeated" and found["repeated"] > 0
    assert lines[2] == "  not used: 2 queries that a dev or test split has too"
    assert lines[3] == "  copy a file -> " + found["examples"][0][1] and len(lines) == 6
    assert found["queries"] == len(out.read_text().splitlines()) == 40 - found["repeated"]


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_a_model_writes_neighbours(limbeck, models, kind, tmp_path):
    (tmp_path / "log.txt").write_text("copy move open\nsort list file\nread write close\n")
    out = tmp_path / "near.jsonl"
    done = limbeck("generate", tmp_path / "log.txt", "--model", models[kind], "--noise", 1.5, "--out", out)
    assert done.code == 0, done.err
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert found and all(line["how"] == "model" for line in found)
    known = set(FILLERS) | {f"synonym{n}" for n in range(12)}
    assert all(set(line["text"].split()) <= known for line in found)


def test_mistakes_are_one_line(limbeck, models, tiny_bert, tmp_path):
    data, out = write_beir(tmp_path / "data"), tmp_path / "near.jsonl"
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "taken.jsonl").write_text("{}\n")
    (tmp_path / "hollow").mkdir()

    def refused(*arguments, words):
        assert_one_line_about(limbeck("generate", *arguments), *words)

    refused(tmp_path / "no.txt", "--out", out, words=["no.txt", "no such file or folder"])
    refused(tmp_path / "empty.txt", "--out", out, words=["empty.txt", "contains no query"])
    refused(data, "--out", out, "--model", tiny_bert, words=[tiny_bert, "a bert is not a seq2seq model"])
    refused(data, "--out", out, "--model", tmp_path / "hollow", words=["hollow", "no config.json"])
    refused(data, "--out", out, "--model", tmp_path / "no", words=["no such folder"])
    refused(data, "--out", out, "--model", models["t5"], "--noise", "-1", words=["--noise -1.0"])
    refused(data, "--out", out, "--model", models["t5"], "--noise", "loud", words=["--noise"])
    refused(data, "--out", out, "--model", models["t5"], "--mask", "1", words=["--mask 1.0"])
    refused(data, "--out", tmp_path / "taken.jsonl", words=["taken.jsonl", "did not write it"])
    refused(data, "--out", data / "queries.jsonl", words=["queries.jsonl", "belongs to"])
    refused(data, "--out", tmp_path / "hollow", words=["hollow", "is not a .jsonl file"])
    refused(data, "--out", out, "--split", "test", words=["--split test", "must not be trained on"])
    refused(data, "--out", out, "--how", "sample", "--from", tmp_path / "no.txt", words=["no.txt", "no such file"])
    refused(data, "--out", out, "--how", "sample", "--from", tmp_path / "empty.txt", words=["contains no query"])
    refused(data, words=["--out"])
    refused(data, "--out", "/proc/near.jsonl", words=["/proc/near.jsonl", "cannot write"])
    assert not list(tmp_path.glob("near*"))


def test_killed_repeatedly_it_ends_with_the_same_result(models, tmp_path):
    (tmp_path / "log.txt").write_text(
        "".join(f"{one} {two} {three}\n" for one in FILLERS for two in FILLERS for three in FILLERS)
    )
    command = [sys.executable, "-m", "limbeck", "generate", str(tmp_path / "log.txt"), "--model", models["bart"]]
    command += ["--noise", "1.0", "--batch-size", "4", "--out"]
    whole, out = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    subprocess.run([*command, str(whole)], check=True, capture_output=True)
    log = tmp_path / "killed.jsonl.unfinished" / "queries.jsonl"
    before = 0
    for _ in range(2):
        work = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while (
            time.monotonic() < end and work.poll() is None and (not log.exists() or log.stat().st_size < before + 2000)
        ):
            time.sleep(0.02)
        os.kill(work.pid, signal.SIGKILL)
        work.wait()
        assert not out.exists() and log.stat().st_size > before  # it was at work, and went on where it was
        before = log.stat().st_size
    subprocess.run([*command, str(out)], check=True, capture_output=True)
    assert out.read_bytes() == whole.read_bytes()
    assert not log.parent.exists() and not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
