"""A directory of shards that can grow while others read it, and that no crash can damage.

    DIR/manifest.json           the list of shards; replaced atomically
    DIR/writer.lock             held by the one process that writes
    DIR/shards/000007-1f2e.../  files of one shard, complete before the manifest names them

To append: write the shard under a temporary name, fsync, rename it, replace the manifest. A kill before the last step
leaves a shard that is not in the manifest; the next writer deletes it. Small shards are merged to keep them few.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import directory_atomically, make_directory, naming_disk_errors, recover_directory
from limbeck.progress import track
from limbeck.stores.lock import WriterLock
from limbeck.stores.manifest import SHARD_NAME, Manifest, Shard, require_same
from limbeck.stores.mapped import FileRecord, MappedFile

MERGE_AT = 32

Files = dict[str, FileRecord]
Facts = dict[str, Any]


class MappedShard:
    """A shard whose files are mapped; `start` is the number of rows in the shards before it."""

    def __init__(self, folder: Path, shard: Shard, start: int, remedy: str) -> None:
        self.shard = shard
        self.start = start
        self.rows = shard.rows
        self._files = {name: MappedFile(folder / name, record, remedy) for name, record in shard.files.items()}

    def __getitem__(self, name: str) -> MappedFile:
        return self._files[name]

    def verify(self) -> None:
        """Read every byte and compare with the checksums."""
        for file in self._files.values():
            file.verify()

    def verify_once(self) -> None:
        """Read and compare all files, except those that were compared before."""
        for file in self._files.values():
            file.verify_once()


Write = Callable[[Path], tuple[Files, Facts]]
Merge = Callable[[Sequence[MappedShard], Path], tuple[Files, Facts]]


def merge_due(sizes: Sequence[int], large: int) -> int:
    """How many of the last shards to merge now, given the bytes of each; 0 for none.

    Shards of `large` bytes are not merged. Smaller ones at the end are merged once there are 32 of them and the largest
    grows 16-fold, or once their sum is large and the largest grows twofold. So a row is rewritten a logarithmic number
    of times, even with small appends: about twice for appends of a megabyte, the usual size.
    """
    total = largest = 0
    for count, size in enumerate(reversed(sizes), start=1):
        if size >= large:
            return 0
        total, largest = total + size, max(largest, size)
        grows = total / largest
        if (count >= MERGE_AT and grows >= MERGE_AT / 2) or (total >= large and grows >= 2):
            return count
    return 0


def next_group(sizes: Sequence[int], large: int) -> tuple[int, int] | None:
    """The first neighbours that a compaction joins, as [first, last): small ones whose sum is large."""
    first, total = 0, 0
    for at, size in enumerate(sizes):
        if size < large and total < large:
            total += size
            continue
        if at - first > 1:
            return first, at
        first, total = at + 1, 0
    return (first, len(sizes)) if len(sizes) - first > 1 else None


class ShardDirectory:
    """Shared by all stores: identity, append, merge, verification. `merge` writes several shards as one."""

    def __init__(self, path: Path, wanted: Manifest, large: int, merge: Merge, *, any_identity: bool = False) -> None:
        self.path = path
        self.manifest = wanted
        self.shards: tuple[MappedShard, ...] = ()
        self._any_identity = any_identity
        self._large = large
        self._merge = merge
        self._lock = WriterLock(path / "writer.lock")
        self._view = threading.RLock()  # held by a thread that writes or refreshes
        self._remedy = f"remove {path} and run the same command again"
        self.refresh()

    @property
    def rows(self) -> int:
        shards = self.shards
        return shards[-1].start + shards[-1].rows if shards else 0

    @property
    def _manifest_path(self) -> Path:
        return self.path / "manifest.json"

    def _folder(self, shard: Shard) -> Path:
        return self.path / "shards" / shard.name

    def refresh(self) -> None:
        """Load what others have appended. Rows keep their numbers: shards are only added, or joined in order."""
        with self._view:
            self._load(self.shards)

    def _load(self, known: Sequence[MappedShard]) -> None:
        if not self._any_identity and not self._manifest_path.exists():
            self.shards = ()
            return
        while True:
            manifest = Manifest.load(self._manifest_path, self.manifest.kind)
            if not self._any_identity:
                require_same(self.path, manifest, self.manifest)
            try:
                self._show(manifest, known)
                return
            except FileNotFoundError as error:
                # either a writer joined shards in the meantime, or the file is gone
                if Manifest.load(self._manifest_path, self.manifest.kind) == manifest:
                    raise bad_input(error.filename, "is missing", self._remedy) from error

    def _show(self, manifest: Manifest, known: Sequence[MappedShard]) -> None:
        by_name = {mapped.shard.name: mapped for mapped in known}
        shards, start = [], 0
        for shard in manifest.shards:
            mapped = by_name.get(shard.name) or MappedShard(self._folder(shard), shard, start, self._remedy)
            shards.append(mapped)
            start += shard.rows
        self.manifest, self.shards = manifest, tuple(shards)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer inside the block; loads what others wrote, and removes what a crash left."""
        if self._any_identity:
            raise LimbeckError(f"{self.path}: was opened for reading only")
        with naming_disk_errors(self.path):
            make_directory(self.path)
            with self._lock.held() as just_taken:
                if just_taken:
                    self._prepare()
                yield

    def _prepare(self) -> None:
        recover_directory(self._manifest_path)
        if not self._manifest_path.exists():
            foreign = sorted(file.name for file in self.path.iterdir() if file.name != "writer.lock")
            if foreign == ["shards"] and self._holds_shards_only():
                raise bad_input(self.path, "is a store without its manifest.json", self._remedy)
            if foreign:
                raise bad_input(self.path, f"contains {foreign[0]!r} and is not a store", "name another directory")
            replace(self.manifest, shards=()).save(self._manifest_path)
        self.refresh()
        named = {mapped.shard.name for mapped in self.shards}
        make_directory(self.path / "shards")
        for folder in list((self.path / "shards").iterdir()):
            ours = SHARD_NAME.fullmatch(folder.name) or folder.name.endswith(".partial")
            if ours and folder.name not in named:
                shutil.rmtree(folder, ignore_errors=True)

    def _holds_shards_only(self) -> bool:
        return all(SHARD_NAME.fullmatch(folder.name) for folder in (self.path / "shards").iterdir())

    def append(self, rows: int, write: Write) -> None:
        """Add a shard of `rows` rows; `write` writes its files into the directory that it is given."""
        with self.writing():
            self._publish(len(self.shards), len(self.shards), rows, write)
            while count := merge_due([mapped.shard.bytes for mapped in self.shards], self._large):
                self._join(len(self.shards) - count, len(self.shards))

    def compact(self) -> None:
        """Join small neighbours into large shards."""
        with self.writing():
            for _ in track(iter(self._next_group, None), "Compacting"):
                pass

    def _next_group(self) -> tuple[int, int] | None:
        group = next_group([mapped.shard.bytes for mapped in self.shards], self._large)
        if group:
            self._join(*group)
        return group

    def _join(self, first: int, last: int) -> None:
        sources = self.shards[first:last]
        for source in sources:
            source.verify_once()  # a damaged file must not get a new checksum
        rows = sum(source.rows for source in sources)
        self._publish(first, last, rows, lambda folder: self._merge(sources, folder))

    def _publish(self, first: int, last: int, rows: int, write: Write) -> None:
        """Replace shards [first, last) with one new shard."""
        before = self.manifest.shards
        number = 1 + max((int(shard.name.split("-")[0]) for shard in before), default=0)
        name = f"{number:06d}-{uuid.uuid4().hex[:8]}"
        with directory_atomically(self.path / "shards" / name) as folder:
            files, facts = write(folder)
        manifest = replace(self.manifest, shards=(*before[:first], Shard(name, rows, files, facts), *before[last:]))
        with self._view:
            manifest.save(self._manifest_path)
            self._show(manifest, self.shards)
        for replaced in before[first:last]:
            shutil.rmtree(self._folder(replaced), ignore_errors=True)

    def verify(self) -> None:
        """Map and read the whole store again; an error names the first damaged file."""
        with self._view:
            self._load(())
        for mapped in track(self.shards, "Verifying"):
            mapped.verify()


class ShardedStore:
    """What all stores of shards have in common."""

    _shards: ShardDirectory

    def __len__(self) -> int:
        return self._shards.rows

    def refresh(self) -> None:
        """Load what another process has appended."""
        self._shards.refresh()

    def writing(self) -> AbstractContextManager[None]:
        """Remain the only writer over several appends."""
        return self._shards.writing()

    def verify(self) -> None:
        """Compare every file with its checksum; an error names the damaged file."""
        self._shards.verify()

    def compact(self) -> None:
        """Join small shards into large ones; rows keep their numbers. Appending does most of this already."""
        self._shards.compact()
