"""One process or several: the rank of this process, and which process writes."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from limbeck.matchers.device import chosen_device


def start_processes() -> None:
    """Join the other processes if `torchrun` started this one; the main process may work alone for days."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        from accelerate import PartialState

        PartialState(cpu=chosen_device().type == "cpu", timeout=timedelta(days=7))
        if dist.get_backend() == "gloo":
            atexit.register(_leave)


def _leave() -> None:
    """Leave the group before the interpreter ends: otherwise gloo's threads, which hold tensors, abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def world() -> tuple[int, int]:
    """This process's rank, and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def is_main() -> bool:
    """Whether this process writes files."""
    return world()[0] == 0


def wait_for_all() -> None:
    if world()[1] > 1:
        dist.barrier()


@contextmanager
def main_first() -> Iterator[bool]:
    """The main process runs the block first and leaves its results on disk; then the others run it."""
    if not is_main():
        wait_for_all()
    yield is_main()
    if is_main():
        wait_for_all()


def main_number(value: float) -> float:
    """The main process's number, in every process."""
    if world()[1] == 1:
        return value
    answer = _on_device([value])
    dist.broadcast(answer, src=0)
    return float(answer.item())


def main_decides(value: bool) -> bool:
    """The main process's answer, in every process."""
    return bool(main_number(float(value)))


def all_process_mean(values: list[float]) -> list[float]:
    """Each value's mean over the processes."""
    if world()[1] == 1:
        return values
    total = _on_device(values)
    dist.all_reduce(total)
    return (total / world()[1]).tolist()


def _on_device(values: list[float]) -> torch.Tensor:
    """A tensor on the device that this kind of process group can use."""
    return torch.tensor(values, dtype=torch.float64, device="cuda" if dist.get_backend() == "nccl" else "cpu")
