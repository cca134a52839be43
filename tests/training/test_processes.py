"""What several processes share, and how they part."""

from __future__ import annotations

from pathlib import Path

from limbeck.training.processes import all_process_mean, main_decides, main_number, world
from tests.training.toy import torchrun


def test_one_process_is_its_own_main():
    assert world() == (0, 1)
    assert main_number(0.5) == 0.5 and main_decides(True) and all_process_mean([1.0, 2.0]) == [1.0, 2.0]


def test_two_processes_agree_and_leave_their_group_before_the_interpreter_ends(tmp_path):
    """A gloo group that outlives the interpreter now and then aborts a process whose work was done."""
    torchrun(2, "tests.training.test_processes", str(tmp_path))
    for rank in ("0", "1"):
        assert (tmp_path / f"found-{rank}").read_text() == "0.0 True [1.5, 20.0]"
        assert (tmp_path / f"left-{rank}").read_text() == "True"


if __name__ == "__main__":  # torchrun test_processes.py FOLDER
    import atexit
    import os
    import sys

    import torch.distributed as dist

    from limbeck.training.processes import start_processes

    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    # what is registered first is called last
    atexit.register(lambda: (folder / f"left-{rank}").write_text(str(not dist.is_initialized())))
    start_processes()
    found = main_number(float(rank)), main_decides(rank == 0), all_process_mean([1.0 + rank, 20.0])
    (folder / f"found-{rank}").write_text(" ".join(map(str, found)))
