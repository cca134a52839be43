"""Check the folder of a job: a job continues in its own folder or starts in an empty one, and refuses all others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import make_directory, read_json, write_json
from limbeck.scoring.plan import JOB, OWN, SCORES, WORK, Asked, Plan

BEGUN = f"{WORK}/begun.json"  # marks a job's folder before it has a plan
_EARLIER = ("job.json", "work/begun.json")  # places of these files before format 3


@contextmanager
def nothing_left_of_a_mistake(folder: Path) -> Iterator[None]:
    """If the list cannot be read, remove the folder that was made for it."""
    try:
        yield
    except Exception:
        if not (folder / JOB).exists():
            shutil.rmtree(folder / WORK, ignore_errors=True)
            with suppress(OSError):  # other files are in it
                (folder / OWN).rmdir()
                folder.rmdir()
        raise


def claim(folder: Path, asked: Asked) -> Plan | None:
    """The plan of a job to continue, or None; a folder of another job is refused with the first difference."""
    if not (folder / JOB).exists():
        _begin(folder, asked)
        return None
    plan = Plan.read(folder)
    model = "the model" if plan.runtime == asked.runtime else f"the model or --runtime, which was {plan.runtime},"
    names = {"identity": model, "source": "the list of pairs", "asked": "head"}
    for key in ("identity", "source", "top_k", "dtype", "store", "columns", "asked"):
        if getattr(plan, key) != getattr(asked, key):
            problem = f"contains another job ({names.get(key, key)} differs)"
            raise LimbeckError(f"{folder}: {problem}; choose another --out, with one --store for both")
    if not (folder / BEGUN).exists():
        write_json(folder / BEGUN, asked.model_dump())
    return plan


def _begin(folder: Path, asked: Asked) -> None:
    """Mark a folder as a job's; in a job without a plan, everything except the rows of another list can be reused."""
    begun = folder / BEGUN
    if any((folder / name).exists() for name in _EARLIER):
        remedy = "choose another --out, or finish it with the version of limbeck that started it"
        raise bad_input(folder, "contains a job of an earlier version of limbeck", remedy)
    bare = not any(path.is_file() for path in (folder / OWN).rglob("[!.]*"))  # interrupted before the mark was written
    ours = (OWN, SCORES) if begun.exists() else (OWN,) if bare else ()
    if any(path.name not in ours and not path.name.startswith(".") for path in folder.iterdir()):
        raise LimbeckError(f"{folder}: is not empty and contains no scoring job; choose another --out")
    if any((folder / SCORES).glob("part-*.parquet")):
        problem = f"contains scores without {JOB}, which describes how they were made"
        raise bad_input(folder, problem, f"remove {folder / SCORES} and run the same command again")
    if not _is_mark_of(begun, asked):
        shutil.rmtree(begun.parent, ignore_errors=True)
        make_directory(begun.parent)
        write_json(begun, asked.model_dump())


def _is_mark_of(begun: Path, asked: Asked) -> bool:
    try:
        return bool(read_json(begun) == asked.model_dump())
    except LimbeckError:  # missing or damaged
        return False
