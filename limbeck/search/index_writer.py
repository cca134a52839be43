"""The folder of an index during writing: one writer, which changes no other files and lists no unfinished part."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import alone_in, make_directory, naming_disk_errors, read_json, recover_directory, write_json
from limbeck.progress import progress, say
from limbeck.search.checks import record_of
from limbeck.search.manifest import NAME, IndexManifest, is_an_index
from limbeck.search.sparse import SparseIndex

WORK = "work"
PARTS = ("segments", "sparse", "deleted")
_MARK = "unfinished-index.json"


@contextmanager
def working(out: Path, what: str) -> Iterator[Path]:
    """Lock a folder for building; a folder that is not ours is refused, and remains of killed builds are removed."""
    with naming_disk_errors(out):
        if out.exists() and not out.is_dir():
            raise bad_input(out, "is not a folder", "name a folder")
        if out.is_dir() and any(out.iterdir()) and not is_an_index(out) and not (out / WORK / _MARK).is_file():
            raise bad_input(out, "contains other files", "name an empty or new folder with --out")
        make_directory(out / WORK)
        with alone_in(out):
            _refuse_another_build(out, what)
            try:
                write_json(out / WORK / _MARK, {"building": what})
                clear(out)
                yield out
            except LimbeckError:
                _leave_nothing(out)
                raise
            shutil.rmtree(out / WORK, ignore_errors=True)


def _refuse_another_build(out: Path, what: str) -> None:
    """Refuse to discard the encodings of a killed build of another index."""
    if is_an_index(out) or not (out / WORK / _MARK).is_file() or not (out / WORK / "encodings").is_dir():
        return
    begun = _begun(out / WORK / _MARK)
    if begun is not None and begun != what:
        remedy = "run that again, remove the folder, or name another --out"
        raise bad_input(out, f"contains an unfinished index of {begun}", remedy)


def _begun(mark: Path) -> str | None:
    """The data that a killed build was indexing; None if the mark is damaged. Encodings have their own checksums."""
    with suppress(LimbeckError):
        found = read_json(mark)
        if isinstance(found, dict) and isinstance(found.get("building"), str):
            return str(found["building"])
    say(f"{mark}: is damaged; stored encodings are used again where they fit")
    return None


def _leave_nothing(out: Path) -> None:
    """After a user's mistake: keep encodings, but remove a folder without any."""
    if not (out / WORK / "encodings").is_dir():
        shutil.rmtree(out / WORK, ignore_errors=True)
        if not is_an_index(out):
            shutil.rmtree(out, ignore_errors=True)


def clear(folder: Path) -> None:
    """Remove files that are not in the manifest: parts that were replaced or never finished, and its own remains."""
    recover_directory(folder / NAME)
    named = set()
    if is_an_index(folder):
        named = {"/".join(Path(name).parts[:2]) for name in IndexManifest.load(folder).files}
    for part in PARTS:
        for entry in (folder / part).iterdir() if (folder / part).is_dir() else ():
            if f"{part}/{entry.name}" not in named:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def new_name(folder: Path, suffix: str = "") -> str:
    """A new name for a part: the number sorts, the letters make it unique."""
    make_directory(folder)
    taken = [int(entry.name[:6]) for entry in folder.iterdir() if entry.name[:6].isdigit()]
    return f"{max(taken, default=0) + 1:06d}-{uuid.uuid4().hex[:8]}{suffix}"


def finish(folder: Path, manifest: IndexManifest, sparse: SparseIndex | None) -> None:
    """Write a new sparse part if there is one, then the manifest, and remove parts that it no longer lists."""
    if sparse is not None:
        manifest = replace(manifest, sparse_part=new_name(folder / "sparse"))
        sparse.save(folder / "sparse" / str(manifest.sparse_part))
    names = [f"segments/{segment.name}" for segment in manifest.segments]
    names += [f"sparse/{manifest.sparse_part}"] if manifest.sparse_part else []
    names += [f"deleted/{manifest.deleted_part}"] if manifest.deleted_part else []
    files = sorted(file for name in names for file in _files(folder / name))
    known = manifest.files  # files that were checked on opening keep their checksums
    named = {str(file.relative_to(folder)): file for file in files}
    fresh = {name: file for name, file in named.items() if name not in known}
    records = dict(known)
    with progress("Computing checksums", sum(file.stat().st_size for file in fresh.values())) as advance:
        for name, file in fresh.items():
            records[name] = record_of(file)
            advance(records[name].bytes)
    manifest = replace(manifest, files={name: records[name] for name in named})
    manifest.save(folder)
    clear(folder)


def _files(place: Path) -> list[Path]:
    return [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else [place]
