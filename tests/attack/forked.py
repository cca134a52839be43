"""Kills without the seconds that each process spends on imports: a fork of this one runs the command and is killed.

The kills then hit the work itself. The moments are spread over the time that an undisturbed fork takes.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

from tqdm import tqdm

FEWEST = 0.02  # seconds that a command is given


def fork(*arguments: object) -> int:
    """Run a verb in a fork of this process; its process id."""
    from limbeck.cli import main  # noqa: F401  (imported once here, not in every fork)

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(silence, handle)
        tqdm.set_lock(threading.RLock())  # its own lock is shared with forks: a killed one would keep it for ever
        code = _main(arguments)
    finally:
        os._exit(code)


def _main(arguments: tuple[object, ...]) -> int:
    from limbeck.cli.main import main

    sys.argv = ["limbeck", *map(str, arguments)]
    try:
        main()
        return 0
    except SystemExit as stop:
        return int(stop.code or 0)


def finish_forked(*arguments: object) -> float:
    """Run a verb that must succeed to its end; the seconds that it took."""
    began = time.monotonic()
    _, status = os.waitpid(fork(*arguments), 0)
    assert status == 0, f"{arguments}: exit code {os.waitstatus_to_exitcode(status)}"
    return time.monotonic() - began


def kill_forked_and_finish(*arguments: object, within: float, chance: random.Random) -> bool:
    """Kill a verb at a random moment of its first `within` seconds, then run it to its end; whether the kill hit it."""
    child = fork(*arguments)
    time.sleep(chance.uniform(FEWEST, within))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    finish_forked(*arguments)
    return os.WIFSIGNALED(status)
