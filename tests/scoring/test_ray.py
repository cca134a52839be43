"""The Ray engine gives the files of the local one, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from limbeck.errors import LimbeckError
from limbeck.scoring import ray_engine, ray_folder
from limbeck.scoring.job import score_pairs
from limbeck.scoring.ray_engine import RayEngine, ShardWorker
from tests.scoring.test_job import ONE, listed, model, result, sides_of, texts, write_ids  # noqa: F401


class NoRay(Exception):
    """Replaces Ray's error for a dead actor."""


class StandIn:
    """As much of Ray as the engine uses: actors in this process, of which some tasks die."""

    class exceptions:
        RayActorError = NoRay

    def __init__(self, die_at=(), cores=2, gone=False):
        self.die_at, self.cores, self.calls, self.gone = list(die_at), cores, 0, gone

    def cluster_resources(self):
        return {"CPU": float(self.cores)}

    def remote(self, **options):
        assert options == {"num_cpus": 1, "max_restarts": 0}
        ray = self

        class Method:
            def __init__(self, actor):
                self.actor = actor

            def remote(self, shard):
                ray.calls += 1
                return (self.actor, shard, ray.calls in ray.die_at)

        class Actor:
            @staticmethod
            def remote(folder, device):
                made = Actor()
                made.run = Method(ShardWorker(folder, device))
                return made

        return lambda _: Actor

    def wait(self, tasks, num_returns, timeout):
        return ([], tasks) if self.gone else (tasks[:num_returns], tasks[num_returns:])

    def nodes(self):
        return [{"Alive": not self.gone}]

    def get(self, task):
        actor, shard, dies = task
        if dies:
            raise NoRay
        return actor.run(shard)


@pytest.fixture
def stand_in(monkeypatch):
    from contextlib import contextmanager

    def use(ray):
        @contextmanager
        def cluster(address, workers):
            yield ray

        monkeypatch.setattr(ray_engine, "_cluster", cluster)

    return use


def test_shards_of_dead_actors_are_done_again_and_then_given_up(model, texts, listed, tmp_path, stand_in):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    score_pairs(model, file, tmp_path / "one", ONE, **sides_of(tmp_path), shard=10, head="torch")
    stand_in(StandIn(die_at=[2, 5]))
    score_pairs(model, file, tmp_path / "two", RayEngine(), **sides_of(tmp_path), shard=10, head="torch")
    assert result(tmp_path / "one") == result(tmp_path / "two")
    stand_in(StandIn(die_at=range(100)))
    with pytest.raises(LimbeckError, match="crashed 3 workers, the last on the cluster"):
        score_pairs(model, file, tmp_path / "three", RayEngine(), **sides_of(tmp_path), shard=10)


def test_a_cluster_that_cannot_run_the_job_raises_an_error(model, texts, listed, tmp_path, stand_in):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    stand_in(StandIn(cores=1))
    with pytest.raises(LimbeckError, match="the cluster has 1 cores; use --workers 1 or fewer"):
        score_pairs(model, file, tmp_path / "out", RayEngine(workers=3), **sides_of(tmp_path), shard=10)
    stand_in(StandIn(gone=True))
    with pytest.raises(LimbeckError, match="lost the cluster; start it again"):
        score_pairs(model, file, tmp_path / "out", RayEngine(), **sides_of(tmp_path), shard=10)
    done, problem = ShardWorker(str(tmp_path / "elsewhere")).run(0)
    assert done is None and "put --out and the texts where every machine of the cluster can read them" in problem


def test_an_actor_that_fails_says_why(model, texts, listed, tmp_path):  # noqa: F811
    file, out = write_ids(tmp_path / "pairs.csv", listed), tmp_path / "out"
    score_pairs(model, file, out, ONE, **sides_of(tmp_path), shard=30)
    (out / "_job" / "head" / "head.safetensors").write_bytes(b"no weights")
    done, problem = ShardWorker(str(out)).run(0)
    assert done is None and problem.startswith(f"{out / '_job' / 'head'}: is damaged (")
    os.truncate(out / "_job" / "job.json", 20)
    done, problem = ShardWorker(str(out)).run(0)
    assert done is None and f"remove it and {out / 'scores'}" in problem


def test_ray_is_asked_for_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(name, "token")  # so that what the engine sets is gone after the test
    with pytest.raises(LimbeckError, match=r"pip install 'limbeck\[ray\]'"):
        RayEngine().run(Path("."), [0], print)


def test_a_local_cluster_has_the_cores_that_this_process_may_use(monkeypatch):
    asked = {}

    class Ray:
        init = staticmethod(lambda **options: asked.update(options))
        shutdown = staticmethod(lambda: None)

    monkeypatch.setitem(sys.modules, "ray", Ray)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "token")
    with ray_engine._cluster(None, None):
        assert asked["num_cpus"] == 3


def test_ray_gets_a_private_folder_that_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_folder, "_LONGEST", 1000)
    abandoned = tmp_path / "limbeck-ray-of-a-killed-driver"
    abandoned.mkdir()
    monkeypatch.setattr(ray_folder, "_SECONDS", -1)
    with ray_folder.private_folder() as place:
        place.mkdir(mode=0o777)  # as Ray opens it to everybody
        assert place.parent.stat().st_mode & 0o777 == 0o700
        assert not abandoned.exists()
        with ray_folder.private_folder() as other:
            assert place.exists() and other != place
    assert not list(tmp_path.iterdir())


def command(model, file, out, tmp_path):  # noqa: F811
    sides = [part for name, path in sides_of(tmp_path).items() for part in (f"--{name}", path)]
    start = [sys.executable, "-m", "limbeck", "score", model, str(file), "--out", str(out), *sides]
    return [*start, "--shard", "10", "--head", "torch", "--engine", "ray", "--workers", "2"]


def actors_of(driver: psutil.Process) -> list[psutil.Process]:
    return [child for child in driver.children(recursive=True) if "ray::ShardWorker" in " ".join(child.cmdline())]


@pytest.mark.full
def test_a_local_cluster_survives_its_workers_and_its_driver(model, texts, listed, tmp_path):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed * 10)
    score_pairs(model, file, tmp_path / "one", ONE, **sides_of(tmp_path), shard=10, head="torch")
    ask = command(model, file, tmp_path / "two", tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("RAY_AUTH_TOKEN", None)
    parts = lambda: len(list((tmp_path / "two").glob("scores/part-*")))  # noqa: E731
    for victim in ("worker", "driver"):
        before = parts()
        driver = subprocess.Popen(ask, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 240
        while parts() <= before and time.monotonic() < deadline and driver.poll() is None:
            time.sleep(0.01)
        if victim == "driver":
            driver.kill()
            driver.wait()
            continue
        listening = [
            connection.laddr.ip
            for child in psutil.Process(driver.pid).children(recursive=True)
            for connection in child.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        for actor in actors_of(psutil.Process(driver.pid))[:1]:
            os.kill(actor.pid, signal.SIGKILL)
        time.sleep(1)
        if driver.poll() is None:
            driver.send_signal(signal.SIGINT)
        driver.wait(timeout=120)
        assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, listening
    done = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert result(tmp_path / "one") == result(tmp_path / "two")
