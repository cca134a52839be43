"""Traced graphs on disk: `graphs/` in the cache folder, which can be deleted at any time.

A graph is a folder with its file and a checksum, written under another name and renamed: complete or absent. Its name
is a digest of everything that decides the graph: weights, architecture, inputs, precision, and the versions that
traced and checked it. Empty files `checked-...` beside the graph stand for further checks that it passed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from limbeck.data.cache import cache_directory
from limbeck.errors import LimbeckError, first_line
from limbeck.file_list import read_list, require_as_listed, write_list
from limbeck.files import digest, directory_atomically
from limbeck.progress import say
from limbeck.stores.manifest import canonical

FORMAT = 1
FILE = "graph.onnx"
REMEDY = "it is made again"


def cached_graph(key: dict[str, Any], make: Callable[[], bytes]) -> bytes:
    """The graph of a key: from the cache, or made and kept there. Without a cache it is made at every call."""
    folder = _folder(key)
    if folder is None:
        return make()
    if folder.is_dir():
        try:
            return _read(folder)
        except (LimbeckError, OSError) as error:
            say(f"{error}")
    graph = make()
    with keeping("a graph"):
        try:
            with directory_atomically(folder) as made:
                (made / FILE).write_bytes(graph)
                write_list(made, about=key)
        except (LimbeckError, OSError):
            if not folder.is_dir():
                raise
            return _read(folder)  # another process was faster
    return graph


@contextmanager
def keeping(what: str) -> Iterator[None]:
    """Go on without the cache where the block cannot write to it, and say so."""
    try:
        yield
    except (LimbeckError, OSError) as error:
        reason = first_line(error.__cause__ or error)
        say(f"the cache cannot keep {what} ({reason}); set LIMBECK_CACHE to another folder")


def checked_once(key: dict[str, Any], about: Sequence[str], check: Callable[[], None]) -> None:
    """Check the graph of a key, unless it passed before; `about` is what the check depends on besides the graph."""
    folder = _folder(key)
    passed = folder / f"checked-{digest(*about)}" if folder is not None else None
    if passed is not None and passed.exists():
        return
    check()
    if passed is not None:
        with suppress(OSError):  # without a mark it is checked again
            passed.touch()


def _folder(key: dict[str, Any]) -> Path | None:
    place = cache_directory("graphs")
    return place / digest(canonical({**key, "format": FORMAT})) if place is not None else None


def _read(folder: Path) -> bytes:
    listed = read_list(folder, REMEDY)
    if listed is None or FILE not in listed.files:
        raise LimbeckError(f"{folder}: is damaged; {REMEDY}")
    require_as_listed(folder, listed.files, "is damaged", REMEDY)
    return (folder / FILE).read_bytes()
