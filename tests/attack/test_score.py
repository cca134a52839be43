"""Score jobs, stores and the table cache under attack: killed at any moment, damaged at any byte."""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limbeck.data import cache
from limbeck.data.passages import load_texts
from limbeck.errors import LimbeckError
from limbeck.scoring.job import score_pairs
from limbeck.scoring.parts import missing_parts
from limbeck.scoring.plan import Plan
from limbeck.stores import EncodingStore, ScoreStore
from tests.attack.harness import FLIPS, ROUNDS, command, damaged_copies, detected, finish, kill_and_finish, run
from tests.scoring.test_job import ONE, model, result  # noqa: F401
from tests.training.toy import WORDS

pytestmark = pytest.mark.full

PAIRS, SHARD = 6000, 200
BY_COMMAND = 5  # of the flips; the others are made in this process, through the function that the command calls


@pytest.fixture(scope="module")
def lists(tmp_path_factory) -> Path:
    """The same pairs as a list of texts and as a list of ids."""
    folder = tmp_path_factory.mktemp("lists")
    chance = np.random.default_rng(3)
    sides = {side: [" ".join(chance.choice(WORDS, size=5)) for _ in range(40)] for side in ("left", "right")}
    rows = chance.integers(0, 40, size=(PAIRS, 2)).tolist()
    for side, texts in sides.items():
        lines = [json.dumps({"_id": f"{side}{row}", "text": text}) for row, text in enumerate(texts)]
        (folder / f"{side}.jsonl").write_text("\n".join(lines) + "\n")
    inline = [{"text_a": sides["left"][a], "text_b": sides["right"][b], "label": a % 2} for a, b in rows]
    ids = [{"left": f"left{a}", "right": f"right{b}"} for a, b in rows]
    for name, some in (("texts", inline), ("ids", ids)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    (folder / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in inline[:60]))
    return folder


def asked(kind: str, model: str, lists: Path, out: Path) -> list[Any]:  # noqa: F811
    sides = (
        ["--left", lists / "left.jsonl", "--right", lists / "right.jsonl"] if kind == "ids" else ["--columns", "all"]
    )
    ask = ["score", model, lists / f"{kind}.jsonl", *sides, "--shard", SHARD, "--head", "torch", "--workers", 2]
    return [*ask, "--out", out]


def same(found: list[dict], wanted: list[dict]) -> None:
    """All but the last digits, which depend on the batch that is fastest at the moment."""
    scores = [[row.pop("score") for row in rows] for rows in (found, wanted)]
    assert found == wanted
    np.testing.assert_allclose(*scores, atol=1e-5)


def survive_kills(ask: Callable[[Path], list[Any]], folder: Path) -> None:
    _, seconds = finish(*ask(folder / "whole"))
    chance, hits = random.Random(ROUNDS), 0
    for number in range(ROUNDS):
        out = folder / f"round-{number}"
        hits += kill_and_finish(*ask(out), within=seconds, chance=chance, kills=2)
        same(result(out), result(folder / "whole"))
        assert not missing_parts(out, Plan.read(out).shards)
        assert not list(out.rglob(".*.partial"))
        shutil.rmtree(out)
    print(f"\n{2 * ROUNDS} kills, {hits} of a running process, {ROUNDS} results equal")
    assert hits


@pytest.mark.parametrize("kind", ["ids", "texts"])
def test_score_killed_at_random_moments_ends_with_the_same_scores(model, lists, tmp_path, kind):  # noqa: F811
    survive_kills(lambda out: asked(kind, model, lists, out), tmp_path)


@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray")
def test_score_on_ray_killed_at_random_moments_ends_with_the_same_scores(model, lists, tmp_path):  # noqa: F811
    survive_kills(lambda out: [*asked("ids", model, lists, out), "--engine", "ray"], tmp_path)


def survive_damage(folder: Path, place: Path, use: Callable[[Path], Any], wanted: Any, seed: int) -> None:
    """Every damaged copy is refused in one line, or gives what the whole one gives."""
    outcomes: Counter[str] = Counter()
    for copy, what in damaged_copies(folder, place, seed):
        try:
            found = use(copy)
        except LimbeckError as error:
            line = str(error)
            assert "; " in line and "\n" not in line, what  # a remedy, in one line
            outcomes["detected"] += 1
        else:
            assert found == wanted, what
            outcomes["harmless"] += 1
    print(f"\n{folder.name}: {FLIPS} flips and cuts, {dict(outcomes)}")


@pytest.fixture(scope="module")
def jobs(model, lists, tmp_path_factory) -> Path:  # noqa: F811
    """A finished job of each kind, and the same with half of its scores missing."""
    folder = tmp_path_factory.mktemp("jobs")
    for kind in ("finished", "unfinished"):
        score_pairs(model, lists / "few.jsonl", folder / kind, ONE, shard=10, head="torch", columns="all")
    for part in (1, 3, 4):
        (folder / "unfinished" / "scores" / f"part-{part:07}.parquet").unlink()
    (folder / "unfinished" / "_job" / "done.json").unlink()
    return folder


@pytest.mark.parametrize("kind", ["finished", "unfinished"])
def test_a_damaged_job_gives_the_same_scores_or_is_refused(model, lists, jobs, tmp_path, kind):  # noqa: F811
    shutil.copytree(jobs / kind, tmp_path / "whole")

    def go_on(copy: Path) -> list[dict]:
        score_pairs(model, lists / "few.jsonl", copy, ONE, head="torch", columns="all")
        return result(copy)

    survive_damage(jobs / kind, tmp_path / "copy", go_on, go_on(tmp_path / "whole"), seed=len(kind))


def test_a_damaged_job_is_noticed_by_the_command(model, lists, jobs, tmp_path):  # noqa: F811
    whole = result(jobs / "finished")
    more = ["--head", "torch", "--columns", "all", "--workers", 1]
    for copy, what in damaged_copies(jobs / "finished", tmp_path / "copy", seed=5, count=BY_COMMAND):
        if not detected(run("score", model, lists / "few.jsonl", *more, "--out", copy)):
            assert result(copy) == whole, what


TEXTS = [f"text {number}" for number in range(50)]
IDENTITY = {"weights": "abc"}


def vectors_of(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), int(text.split()[1]), 1.5] for text in texts], dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_damaged_encoding_store_gives_the_same_vectors_or_is_refused(tmp_path, dtype):
    store = EncodingStore.open(tmp_path / "store", IDENTITY, 3, dtype)
    for start in range(0, 40, 10):
        store.append(TEXTS[start : start + 10], vectors_of(TEXTS[start : start + 10]))

    def use(copy: Path) -> list[Any]:
        opened = EncodingStore.open(copy, IDENTITY, 3, dtype)
        opened.append(TEXTS[30:], vectors_of(TEXTS[30:]))
        opened.compact()
        return [opened.get(TEXTS).tolist(), opened.rows(TEXTS).tolist(), EncodingStore.read(copy).error]

    shutil.copytree(tmp_path / "store", tmp_path / "whole")
    survive_damage(tmp_path / "store", tmp_path / "copy", use, use(tmp_path / "whole"), seed=1)


def test_a_damaged_score_store_gives_the_same_scores_or_is_refused(tmp_path):
    store = ScoreStore.open(tmp_path / "store", IDENTITY)
    for query in range(4):
        store.append([f"q{query}"] * 10, [f"d{number}" for number in range(10)], np.arange(10) + query / 8)

    def use(copy: Path) -> list[Any]:
        opened = ScoreStore.open(copy, IDENTITY)
        opened.append(["q9"], ["d9"], [0.5])
        opened.compact()
        return [opened.to_run(), opened.top(3), opened.lookup("q1", ["d1", "d5"]).tolist(), opened.for_query("q2")]

    shutil.copytree(tmp_path / "store", tmp_path / "whole")
    survive_damage(tmp_path / "store", tmp_path / "copy", use, use(tmp_path / "whole"), seed=2)


@pytest.mark.parametrize("small", [0, 64 << 20])
def test_a_damaged_table_of_the_cache_gives_the_same_texts_or_is_refused(lists, tmp_path, monkeypatch, small):
    """Refused only if it is too large to be checked when it is opened, and then made again by the next call."""
    monkeypatch.setattr(cache, "_SMALL", small)

    def use(folder: Path) -> list[Any]:
        monkeypatch.setenv("LIMBECK_CACHE", str(folder))
        texts = load_texts(lists / "left.jsonl")
        return [dict(texts.items()), texts.rows(["left3", "left39"]).tolist(), texts["left7"], "absent" in texts]

    wanted = use(tmp_path / "cache")

    def use_twice(copy: Path) -> list[Any]:
        try:
            return use(copy)
        except LimbeckError:
            assert small == 0 and use(copy) == wanted
            raise

    survive_damage(tmp_path / "cache", tmp_path / "copy", use_twice, wanted, seed=4)


@pytest.mark.parametrize(
    ("limit", "values"), [(resource.RLIMIT_FSIZE, [500, 5000, 50_000]), (resource.RLIMIT_NOFILE, [12, 20, 26])]
)
def test_limits_on_files_are_named_and_the_job_goes_on_without_them(model, lists, tmp_path, limit, values):  # noqa: F811
    ask, refused = asked("texts", model, lists, tmp_path / "out"), 0
    for value in values:
        done = subprocess.run(
            command(*ask),
            preexec_fn=lambda value=value: resource.setrlimit(limit, (value, resource.getrlimit(limit)[1])),
            capture_output=True,
            text=True,
        )
        refused += detected(done)
    assert refused
    finish(*ask)
    assert [row["pair"] for row in result(tmp_path / "out")] == list(range(PAIRS))
