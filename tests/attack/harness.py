"""Tools that attack the real command: kill it at random moments, damage what it wrote, give it bad input.

An attack passes if Limbeck detects the damage (exit code 2, one line) or if the result is the one that an undisturbed
run gives. LIMBECK_ATTACK_ROUNDS and LIMBECK_ATTACK_FLIPS ask for more rounds than the default.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROUNDS = int(os.environ.get("LIMBECK_ATTACK_ROUNDS", "10"))
FLIPS = int(os.environ.get("LIMBECK_ATTACK_FLIPS", "100"))
SECONDS = 600  # no command under attack may take longer

Done = subprocess.CompletedProcess[str]


def command(*arguments: object) -> list[str]:
    """The command line of a Limbeck verb in a separate process."""
    return [sys.executable, "-m", "limbeck", *map(str, arguments)]


def run(*arguments: object, stdin: str = "") -> Done:
    """Run a verb to its end."""
    return subprocess.run(
        command(*arguments),
        input=stdin,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def finish(*arguments: object) -> tuple[Done, float]:
    """Run a verb that must succeed; what it printed and the seconds that it took."""
    began = time.monotonic()
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return done, time.monotonic() - began


def kill_and_finish(*arguments: object, within: float, chance: random.Random, kills: int = 1) -> int:
    """Kill a verb at random moments of its first `within` seconds, then run it to its end.

    Returns how many kills hit a running process.
    """
    hits = 0
    for _ in range(kills):
        process = subprocess.Popen(
            command(*arguments),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(chance.uniform(0, within))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            hits += 1
        process.wait()
    finish(*arguments)
    return hits


def detected(done: Done) -> bool:
    """Whether the verb refused, in one line; False if it succeeded. Anything else fails the attack."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 2), f"exit code {done.returncode}: {done.stderr}"
    if done.returncode == 2:
        lines = [line for line in done.stderr.splitlines() if line.startswith("limbeck: ")]
        assert len(lines) == 1, done.stderr
    return done.returncode == 2


def damaged_copies(folder: Path, place: Path, seed: int, count: int = FLIPS) -> Iterator[tuple[Path, str]]:
    """Copies of a folder, one after the other in the same `place`, each with one bit flipped or one file cut short.

    Every file has the same chance, whatever its size. Yields the copy and a sentence that says what was done to it.
    """
    chance = random.Random(seed)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    for _ in range(count):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place, symlinks=True)
        yield place, damage(place / chance.choice(files), chance)


def damage(file: Path, chance: random.Random) -> str:
    """Flip one bit of a file, or, one time in five, cut it short. Its size and times may change with it."""
    content = bytearray(file.read_bytes())
    place = chance.randrange(len(content))
    if chance.random() < 0.2:
        file.write_bytes(content[:place])
        return f"{file.name} cut to {place} of {len(content)} bytes"
    bit = chance.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"{file.name}: bit {bit} of byte {place} flipped"


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
