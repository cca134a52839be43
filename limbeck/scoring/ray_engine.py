"""Run shards on a Ray cluster: one long-lived actor per worker, one task per shard.

Ray only distributes shard numbers: a shard is on disk before its task is done, so a job can continue after any failure,
with this engine or another. Every machine must see the job's folder and the texts under the same paths.

Without an address, a cluster is started on this machine: on 127.0.0.1, with its own token, without a dashboard, in a
private folder that is removed afterwards.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.processor import cores
from limbeck.scoring.engine import Waiting, in_words, worker_device
from limbeck.scoring.plan import JOB
from limbeck.scoring.ray_folder import private_folder
from limbeck.scoring.worker import Worker

PATIENCE = 30.0  # seconds without news before the cluster is checked
OBJECTS = 2 << 30  # bytes of Ray's object store: we store nothing there, but with much less Ray hangs


class ShardWorker:
    """The actor: a `Worker` that returns its errors as messages instead of Ray's tracebacks."""

    def __init__(self, folder: str, device: str = "cpu") -> None:
        import torch

        torch.set_num_threads(1)
        self.folder, self.device = Path(folder), device
        self.worker: Worker | None = None

    def run(self, shard: int) -> tuple[int | None, str]:
        """The number of scored pairs, or None and the error."""
        try:
            if not (self.folder / JOB).exists():
                remedy = "put --out and the texts where every machine of the cluster can read them"
                raise LimbeckError(f"{self.folder}: does not exist on the machine {os.uname().nodename}; {remedy}")
            self.worker = self.worker or Worker(self.folder, self.device)
            return self.worker.run(shard), ""
        except Exception as error:
            return None, in_words(error, self.folder)


class RayEngine:
    """Runs a job's shards in `workers` actors; by default one for each core of the cluster."""

    def __init__(self, workers: int | None = None, address: str | None = None, device: str | None = None) -> None:
        self.workers, self.address, self.device = workers, address, device or worker_device()

    def run(self, folder: Path, shards: Sequence[int], advance: Callable[[int], None]) -> None:
        with _cluster(self.address, self.workers) as ray:
            there = int(ray.cluster_resources().get("CPU", 1))
            if self.workers is not None and self.workers > there:
                raise LimbeckError(f"the cluster has {there} cores; use --workers {there} or fewer")
            count = min(self.workers or there, len(shards))
            _Actors(ray, folder.resolve(), shards, advance, self.device).run(count)


class _Actors:
    def __init__(
        self, ray: Any, folder: Path, shards: Sequence[int], advance: Callable[[int], None], device: str
    ) -> None:
        self.ray, self.folder, self.advance, self.device = ray, folder, advance, device
        self.waiting = Waiting(shards)
        gpus = {"num_gpus": 1} if device.startswith("cuda") else {}  # Ray hides GPUs from actors that ask for none
        self.made = ray.remote(num_cpus=1, max_restarts=0, **gpus)(ShardWorker)
        self.busy: dict[Any, tuple[Any, int]] = {}  # task -> actor, its shard

    def run(self, count: int) -> None:
        for _ in range(count):
            self._next(self._actor())
        while self.busy:
            ready, _ = self.ray.wait(list(self.busy), num_returns=1, timeout=PATIENCE)
            if not ready:
                _require_nodes(self.ray)
            for task in ready:
                self._heard(task)

    def _actor(self) -> Any:
        return self.made.remote(str(self.folder), self.device)

    def _next(self, actor: Any) -> None:
        shard = self.waiting.next()
        if shard is not None:
            self.busy[actor.run.remote(shard)] = (actor, shard)

    def _heard(self, task: Any) -> None:
        actor, shard = self.busy.pop(task)
        try:
            done, problem = self.ray.get(task)
        except self.ray.exceptions.RayActorError:
            _require_nodes(self.ray)
            self.waiting.died(shard, "on the cluster")
            actor = self._actor()
        else:
            if done is None:
                raise LimbeckError(problem)
            self.advance(done)
        self._next(actor)


def _require_nodes(ray: Any) -> None:
    """Check whether the cluster still exists: otherwise the driver would wait forever, and so would Ray's own check."""
    alive: list[bool] = []
    asked = Thread(target=lambda: alive.append(any(node["Alive"] for node in ray.nodes())), daemon=True)
    asked.start()
    asked.join(PATIENCE)
    if not any(alive):
        raise LimbeckError(
            "ray: lost the cluster; start it again and run the same command, which keeps finished shards"
        )


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[Any]:
    """Ray, connected; a cluster that was started here ends with the block."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None or address.partition(":")[0] in ("127.0.0.1", "localhost"):
        # Ray interprets 127.0.0.1 as "any address that others can reach" and then listens on all of them, unless its
        # switch for clusters of desktop machines is off; it reads the switch once, when it is imported.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if address is None and not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        import ray
    except ImportError as error:
        raise LimbeckError("ray is not installed; run `pip install 'limbeck[ray]'`, or use --engine local") from error
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with ExitStack() as stack:
        if address is None:
            options |= {"num_cpus": workers or cores(), "include_dashboard": False, "object_store_memory": OBJECTS}
            options |= {"_node_ip_address": "127.0.0.1", "_temp_dir": str(stack.enter_context(private_folder()))}
        try:
            ray.init(address=address or "local", **options)
        except (OSError, RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            remedy = "check --address and RAY_AUTH_TOKEN, or use --engine local"
            raise LimbeckError(f"ray: cannot reach a cluster ({reason}); {remedy}") from error
        stack.callback(ray.shutdown)
        yield ray
