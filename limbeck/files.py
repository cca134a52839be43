"""Files that are complete or absent: written under a temporary name, fsynced, then renamed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import resource
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from limbeck.errors import LimbeckError, bad_input

# Errors for a full disk or the limit on file size, as worded by safetensors, by numpy, and by torch.save while it
# writes and when it closes the file
_SHORT_WRITE = re.compile(
    r"No space left on device|File too large|^\d+ requested and \d+ written$|unexpected pos \d+ vs \d+"
    r"|basic_ios::clear: iostream"
)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_PLACE = (
    errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP
)  # fmt: skip


@contextmanager
def naming_disk_errors(path: Path, *also: Path) -> Iterator[None]:
    """Turn a full disk, or a path (`path` or one in `also`) that cannot be written, into a one-line error.

    Errors about other files, such as inputs that the block reads, pass through unchanged.
    """
    try:
        yield
    except LimbeckError:
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in NO_SPACE or _SHORT_WRITE.search(str(error)):
            raise bad_input(path, *_no_space(error)) from error
        if number in (errno.EMFILE, errno.ENFILE):
            raise bad_input(path, "too many files are open", "raise the limit (ulimit -n)") from error
        if isinstance(error, OSError) and number in NO_PLACE and _concerns(error, (path, *also)):
            raise bad_input(path, f"cannot write ({error.strerror})", "choose another place with --out") from error
        raise


def _no_space(error: Exception) -> tuple[str, str]:
    """The problem and its remedy. A limit on file size cuts a write short just as a full disk does."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not full and resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return "a file would be larger than this shell allows", "raise the limit (ulimit -f) and run it again"
    return "no space left on the device", "free some space and run the same command again"


def _concerns(error: OSError, places: tuple[Path, ...]) -> bool:
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return False
    file = Path(os.path.realpath(os.fsdecode(error.filename)))
    real = [Path(os.path.realpath(place)) for place in places]
    return any(file.is_relative_to(place) or place.is_relative_to(file) for place in real)


PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{8}\.partial")  # the names that `_beside` gives


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"


def _old(path: Path) -> Path:
    """The temporary name of a directory while its replacement is renamed; users do not use such names."""
    return path.parent / f".{path.name}.limbeck-replaced"


def fsync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(path: Path) -> None:
    """Create `path` and its parents so that they survive a power cut."""
    made = [place for place in (path, *path.parents) if not place.exists()]
    with _refusing_as_elsewhere():
        path.mkdir(parents=True, exist_ok=True)
    for place in made:
        fsync_directory(place.parent)


@contextmanager
def _refusing_as_elsewhere() -> Iterator[None]:
    """Report folders where no file can be created. In /proc, creating a file fails with "file does not exist"."""
    try:
        yield
    except FileNotFoundError as error:
        raise PermissionError(errno.EACCES, "cannot create files there", error.filename) from error


def _create(path: Path, mode: str, encoding: str | None) -> IO[Any]:
    with _refusing_as_elsewhere():
        return open(path, mode, encoding=encoding)


@contextmanager
def write_atomically(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file that appears at `path` only if the block succeeds.

    A symbolic link is kept, and its target is replaced. Pipes and devices are written to directly.
    """
    path = Path(path)
    target = _target(path)
    partial = _beside(target)
    encoding = None if "b" in mode else "utf-8"
    with naming_disk_errors(path, partial):
        if path.exists() and not path.is_file() and not path.is_dir():
            with open(path, mode, encoding=encoding) as handle:
                yield handle
            return
        if target.is_dir():
            raise bad_input(path, "is a directory", "name a file")
        make_directory(target.parent)
        try:
            with _create(partial, mode, encoding) as handle:
                _claim(handle.fileno())
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
                os.replace(partial, target)
            fsync_directory(target.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def directory_atomically(path: str | Path) -> Iterator[Path]:
    """A new directory that replaces `path` only if the block succeeds.

    An existing directory at `path` is replaced as a whole. A crash between the two renames leaves the old one
    under another name, and `put_back_directory` (or the next write to `path`) puts it back.
    """
    path = Path(path)
    target = _target(path)
    partial = _beside(target)
    with naming_disk_errors(path, partial, _old(target)):
        recover_directory(path)
        if target.exists() and not target.is_dir():
            raise bad_input(path, "is not a directory", "name a directory")
        make_directory(target.parent)
        try:
            with _refusing_as_elsewhere():
                partial.mkdir()
            with _claimed(partial):
                yield partial
                _open_to_readers(partial)
                _fsync_tree(partial)
                _swap(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            _put_back(target)
            raise


def _open_to_readers(folder: Path) -> None:
    """Set the permissions of all files by the user's umask; safetensors makes files that only the owner can read."""
    allowed = folder.stat().st_mode & 0o666  # the folder shows the umask: it was created with all permissions
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(file.stat().st_mode | allowed)


@contextmanager
def alone_in(folder: str | Path) -> Iterator[None]:
    """Lock a directory for this process; another process that tries gets an error. A kill releases the lock."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        remedy = "wait for it to end, or choose another --out"
        raise bad_input(folder, "another limbeck process is writing to it", remedy) from error
    try:
        yield
    finally:
        os.close(handle)


def _swap(fresh: Path, target: Path) -> None:
    """Rename `fresh` to `target`. If it is killed between the two renames, `_put_back` restores the old `target`."""
    if target.exists():
        _discard(_old(target), target)
        os.replace(target, _old(target))
    os.replace(fresh, target)
    fsync_directory(target.parent)
    _discard(_old(target), target)


def _put_back(target: Path) -> None:
    old = _old(target)
    if old.exists() and not target.exists():
        os.replace(old, target)


def _discard(old: Path, target: Path) -> None:
    """Rename to a `.partial` name, then delete: a half-deleted directory is never mistaken for the old one."""
    doomed = _beside(target)
    with suppress(FileNotFoundError):
        os.replace(old, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _fsync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            file = Path(folder, name)
            if file.is_file():
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
        fsync_directory(Path(folder))


def _claim(handle: int) -> None:
    """Mark a partial file or directory as in use, for as long as this process keeps it open."""
    with suppress(OSError):  # a file system without locks: nothing can be locked, and nothing is cleaned up
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY)
    try:
        _claim(handle)
        yield
    finally:
        os.close(handle)


def _is_abandoned(remains: Path) -> bool:
    try:
        handle = os.open(remains, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _remains(target: Path) -> list[Path]:
    """Temporary files of all writers to `target`, running or dead."""
    found = [(entry, PARTIAL.fullmatch(entry.name)) for entry in target.parent.iterdir()]
    return [entry for entry, known in found if known is not None and known[1] == target.name]


def put_back_directory(path: str | Path) -> None:
    """For readers: restore a directory that a crash left under its temporary name. Deletes nothing."""
    target = Path(os.path.realpath(path))
    if target.exists() or not _old(target).exists():
        return
    with naming_disk_errors(Path(path), target.parent):
        if all(map(_is_abandoned, _remains(target))):  # otherwise a running writer may be between its two renames
            _put_back(target)


def recover_directory(path: str | Path) -> None:
    """For writers: clean up after a crash. Restore the old directory and remove what dead writers to `path` left.

    It also removes temporary files of `write_atomically`. Files of running processes are not touched.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        return
    with naming_disk_errors(path, target.parent):
        remains = _remains(target)
        abandoned = [entry for entry in remains if _is_abandoned(entry)]
        if abandoned == remains:  # otherwise a running writer may be between its two renames
            _put_back(target)
            _discard(_old(target), target)
        for entry in abandoned:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def recover_in(folder: str | Path, deep: bool = False) -> None:
    """`recover_directory` for everything in a folder; `deep`, also for what is further below."""
    entries = Path(folder).rglob("*") if deep else Path(folder).iterdir()
    found = [(entry, PARTIAL.fullmatch(entry.name)) for entry in entries]
    for name in dict.fromkeys(entry.with_name(known[1]) for entry, known in found if known is not None):
        recover_directory(name)


def require_writable(output: str | Path | None) -> None:
    """Refuse a file path that cannot be written, before the hours of work that produce its content."""
    if output is None or (Path(output).exists() and not Path(output).is_file()):
        return  # devices are written directly; the function that writes the file refuses folders
    target = _target(Path(output))
    nearest = next(place for place in target.parents if place.exists())
    probe = _beside(nearest / target.name)
    with naming_disk_errors(Path(output), probe, target):
        _create(probe, "wb", None).close()
        probe.unlink()


def _target(path: Path) -> Path:
    """The path that is really written: a symbolic link is kept, and its target is replaced."""
    target = Path(os.path.realpath(path))
    if os.path.islink(target):
        raise bad_input(path, "is a circular symbolic link", "remove it, or name another place")
    return target


def refuse_overwriting(output: str | Path | None, *inputs: str | Path | None) -> None:
    """Refuse to overwrite a file that the command reads: a named input, or a part of a data set or an index.

    Other files in a folder, such as an earlier result, may be replaced.
    """
    target = Path(os.path.realpath(output)) if output is not None else None
    for source in inputs:
        place = Path(os.path.realpath(source)) if source is not None else None
        if target is None or place is None or not target.exists() or not target.is_relative_to(place):
            continue
        if target == place or (place / "index.json").exists() or target.suffix in (".jsonl", ".tsv", ".gz"):
            raise bad_input(str(output), f"belongs to {source}, which the command reads", "write to another place")


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as readable JSON, complete or not at all."""
    with write_atomically(path, "w") as handle:
        json.dump(value, handle, indent=2, ensure_ascii=False, allow_nan=False)
        handle.write("\n")


def reason(error: Exception) -> str:
    """Why something cannot be read, in a few words and without the path."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]


def read_json(path: str | Path, remedy: str = "remove it and run the command again") -> Any:
    """Read a JSON file, or say in one line why it cannot be read."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise bad_input(path, "no such file", remedy) from error
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input(path, f"cannot be read ({reason(error)})", remedy) from error
    except json.JSONDecodeError as error:
        raise bad_input(path, f"is not valid JSON ({error.msg})", remedy, error.lineno) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or thousands of nested brackets
        raise bad_input(path, "has a number that is too long, or is nested too deeply", remedy) from error


def checksum(path: str | Path) -> str:
    """The BLAKE2b-128 digest of a file."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest(*parts: str | bytes) -> str:
    """A short digest of strings, for cache keys. ["ab", "c"] and ["a", "bc"] give different digests."""
    return digest_of(parts)


def digest_of(parts: Iterable[str | bytes]) -> str:
    """The digest of many parts, without holding them all in memory."""
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.hexdigest()


def slug(name: str) -> str:
    """A name that consists of letters, digits and hyphens, for use as a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def require_empty_or_absent(path: str | Path, remedy: str) -> None:
    """Refuse to write into a directory that contains other files."""
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise LimbeckError(f"{path}: already exists and limbeck did not write it; {remedy}")
