"""kill -9 at any moment: nothing is lost but the block in work, nothing is stored twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from limbeck.stores import EncodingStore, ScoreStore

from .crash_worker import BLOCK, IDENTITY, ITEMS, candidates, scores_of, texts, vectors_of

WORKER = [sys.executable, str(Path(__file__).with_name("crash_worker.py"))]


def check(kind: str, folder: Path, kills: int) -> None:
    """The store is what an uninterrupted run gives, and at most one block per kill was done again."""
    store: EncodingStore | ScoreStore
    if kind == "encodings":
        store = encodings = EncodingStore.open(folder / "store", IDENTITY, dim=4)
        np.testing.assert_array_equal(encodings.get(texts()), vectors_of(texts()))
        np.testing.assert_array_equal(encodings.rows(texts()), np.arange(ITEMS))
    else:
        store = scores = ScoreStore.open(folder / "store", IDENTITY)
        for query_id, document_ids in candidates():
            pairs = [(query_id, document_id) for document_id in document_ids]
            np.testing.assert_array_equal(scores.lookup(query_id, document_ids), scores_of(pairs))
            assert list(scores.for_query(query_id)) == document_ids
    store.verify()
    assert len(store) == ITEMS
    work = Counter((folder / "work.log").read_text().splitlines())
    assert len(work) == ITEMS
    assert work.total() <= ITEMS + kills * BLOCK
    on_disk = {shard.name for shard in (folder / "store" / "shards").iterdir()}
    with store.writing():  # the next writer removes what the crash left
        pass
    left = {shard.name for shard in (folder / "store" / "shards").iterdir()}
    assert left <= on_disk
    assert left == {mapped.shard.name for mapped in store._shards.shards}


def kill_at_steps(kind: str, folder: Path, step: int) -> int:
    ended = subprocess.run(
        [*WORKER, kind, str(folder), "points", str(step)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    points = ended.stdout.split()
    check(kind, folder / "whole", kills=0)
    for point in points:
        check(kind, folder / point, kills=1)
    return len(points)


@pytest.mark.parametrize("kind", ["encodings", "scores"])
def test_a_kill_before_some_steps_on_disk_costs_at_most_one_block(kind: str, tmp_path: Path) -> None:
    assert kill_at_steps(kind, tmp_path, step=7) > 10


@pytest.mark.full
@pytest.mark.parametrize("kind", ["encodings", "scores"])
def test_a_kill_before_any_step_on_disk_costs_at_most_one_block(kind: str, tmp_path: Path) -> None:
    assert kill_at_steps(kind, tmp_path, step=1) > 80


def check_kills_at_random(kind: str, folder: Path, kills: int) -> None:
    """Start, kill after a random time, start again; the store is refilled from nothing once it is full."""
    chance = random.Random(kills)
    done, rounds = 0, 0
    while done < kills:
        rounds += 1
        place = folder / str(rounds)
        place.mkdir()
        of_this_round = 0
        while True:
            worker = subprocess.Popen([*WORKER, kind, str(place), "resume"], stdout=subprocess.PIPE)
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"started\n"
            if done < kills:
                time.sleep(chance.uniform(0, 0.15))
                worker.send_signal(signal.SIGKILL)
            status = worker.wait(timeout=60)
            worker.stdout.close()
            if status == 0:
                break
            assert status == -signal.SIGKILL
            of_this_round += 1
            done += 1
        check(kind, place, of_this_round)


@pytest.mark.parametrize("kind", ["encodings", "scores"])
def test_a_few_kills_at_random_moments_cost_at_most_one_block_each(kind: str, tmp_path: Path) -> None:
    check_kills_at_random(kind, tmp_path, kills=3)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["encodings", "scores"])
def test_thirty_kills_at_random_moments_cost_at_most_one_block_each(kind: str, tmp_path: Path) -> None:
    check_kills_at_random(kind, tmp_path, kills=30)
