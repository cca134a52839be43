"""Change an index: add, delete, compact. Each change is atomic: a reader sees either the old index or the new one.

Added passages get their own segment, with exact vectors; deleted ones are marked and never found. Neither changes
existing vectors. BM25 depends on all passages at once (how many have a word, how long they are), so its weights are
computed again from the counts, and its scores equal those of an index built from scratch. `compact` merges all segments
into one; an exact index then equals a new build. An 8-bit index keeps the ranges and lists that it learnt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.data.passages import Passages, join_fields, load_passages
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.files import directory_atomically, write_atomically
from limbeck.progress import say
from limbeck.search.build import Builder
from limbeck.search.dense import DenseIndex, emptied, fill
from limbeck.search.index import SearchIndex
from limbeck.search.index_writer import finish, new_name, working
from limbeck.search.manifest import DenseFacts, IndexManifest, Segment
from limbeck.search.milvus import remove_keys
from limbeck.search.milvus_address import is_milvus, require_trusted, trust
from limbeck.search.mixing import mixed_with
from limbeck.search.recall import choose_effort, exact_top, sample_queries
from limbeck.search.segmented import Chosen
from limbeck.search.segments import OpenSegment, open_collection, write_segment
from limbeck.search.windows import Windows

MANY = 8  # number of segments at which compaction pays off


def add_passages(
    path: str | Path, source: str | Path | Passages, model: Any = None, store: str | Path | None = None
) -> int:
    """Add passages; a passage with an existing id replaces the old one. Returns how many were replaced."""
    return change_index(path, source, (), model, store).replaced


def delete_passages(path: str | Path, ids: Iterable[str]) -> int:
    """Delete passages by id; returns how many existed. Unknown ids are named in a note."""
    return change_index(path, None, ids).deleted


@dataclass(frozen=True)
class Changed:
    """The result of a change: passages added, how many of them replaced others, and passages deleted."""

    added: int = 0
    replaced: int = 0
    deleted: int = 0


def change_index(
    path: str | Path,
    add: str | Path | Passages | None = None,
    delete: Iterable[str] = (),
    model: Any = None,
    store: str | Path | None = None,
    mix_runtimes: bool = False,
) -> Changed:
    """Delete passages by id and add others in one step: after a kill, all of it is done or nothing.

    The same change can be repeated: ids that do not exist any more are named in a note, and passages that exist with
    the same content are not added again. An id that is deleted and added is replaced. `mix_runtimes` allows vectors of
    another runtime of the model than the index has.
    """
    passages = load_passages(add) if isinstance(add, str | Path) else add
    unwanted = [key for key in dict.fromkeys(delete) if passages is None or key not in passages.corpus]
    if is_milvus(store):
        trust(str(store))
    index = SearchIndex.open(path, model)
    with working(index.path, "changes") as folder:
        index = SearchIndex.open(folder, model)
        facts = index.manifest.dense
        if facts is not None and facts.store is not None:
            require_trusted(facts.store, str(index.path))
        gone = _named(index, unwanted)
        if passages is not None and not _has(index, passages):
            replaced = _added(index, passages, gone, store, mix_runtimes)
            return Changed(len(passages.corpus), replaced, len(gone))
        alive = index.collection.alive.copy()
        alive[gone] = False
        if not alive.any():
            raise LimbeckError(f"{path}: no passage would be left; remove the folder instead")
        if len(gone):
            _change(index, replace(index.manifest, content=""), alive)
            _forget(index.manifest.dense, index.collection.segments, alive)
    return Changed(deleted=len(gone))


def _named(index: SearchIndex, ids: Sequence[str]) -> np.ndarray:
    """The rows to delete. A killed command may have deleted some of them, so missing ids are only noted."""
    rows = index.collection.find(ids)
    unknown = int((rows < 0).sum())
    if unknown:
        more = f" and {unknown - 1:,} more" if unknown > 1 else ""
        first = ids[int(np.argmin(rows))][:60]
        say(f"{index.path}: has no passage {first!r}{more}; ignored")
    return rows[rows >= 0]


def _has(index: SearchIndex, passages: Passages) -> bool:
    """Whether an earlier run of the same command added these passages already: same ids, texts and fields."""
    rows = index.collection.find(list(passages.corpus))
    facts = index.manifest.sparse
    if (rows < 0).any() or (facts is not None and facts.expansions is not None):
        return False
    records = zip(passages.corpus.records(), _fields(passages), strict=True)
    return all(
        index.collection.record_at(row) == record and index.collection.fields_at(row) == fields
        for row, (record, fields) in zip(rows.tolist(), records, strict=True)
    )


def _fields(passages: Passages) -> Iterator[dict[str, Any]]:
    """The fields of each passage, with one block in memory at a time."""
    if passages.fields is None:
        yield from ({} for _ in range(len(passages.corpus)))
        return
    for batch in passages.fields.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            yield {name: value for name, value in row.items() if value is not None}


def _added(
    index: SearchIndex, passages: Passages, gone: np.ndarray, store: str | Path | None, mix_runtimes: bool
) -> int:
    """Write a segment of new passages and the index with it, without the `gone` rows; returns the number replaced."""
    manifest, collection = index.manifest, index.collection
    dense = facts = manifest.dense
    vectors, first_key = None, 0
    builder = Builder(index.path, None, _windows(facts), store)
    if facts is not None:
        builder.matcher = index.dense.matcher
        dense = facts = mixed_with(facts, builder.matcher.computed, index.path, mix_runtimes)
        vectors = builder.encode(passages)
        facts = replace(facts, kind=facts.kind if facts.store else "flat")
        first_key = _next_key(collection.segments)
    segment, _ = builder.segment(passages, vectors, facts, first_key)
    alive = np.append(collection.alive, np.ones(len(passages.corpus), dtype=bool))
    rows = collection.find(list(passages.corpus))
    replaced = rows[rows >= 0]
    alive[gone], alive[replaced] = False, False
    manifest = replace(manifest, dense=dense, segments=(*manifest.segments, segment), content="")
    _change(index, manifest, alive, passages.corpus)
    _forget(manifest.dense, collection.segments, alive)
    return len(replaced)


def compact_index(path: str | Path, seed: int = 0) -> None:
    """Merge all passages that are not deleted into one segment."""
    index = SearchIndex.open(path)
    if len(index.manifest.segments) == 1 and not index.manifest.deleted:
        return
    with working(index.path, "compaction") as folder:
        index = SearchIndex.open(folder)
        name = new_name(folder / "segments")
        kept = index.collection.rows
        segment, facts = Segment(name, len(kept)), index.manifest.dense
        dense, windows, keys = None, None, None
        if facts is not None:
            numbers = index.dense.kept(index.collection.alive)
            windows = _renumbered(index.dense.windows, numbers, kept)
            effort = index.manifest.segments[0].effort
            if facts.store is not None:
                keys = np.concatenate([np.asarray(part.keys) for part in index.collection.segments])[numbers]
            else:
                dense, facts = _joined(index, numbers, facts, seed)
                effort = dense.effort
            segment = replace(segment, vectors=len(numbers), kind=facts.kind, effort=effort)
        with directory_atomically(folder / "segments" / name) as place:
            write_segment(place, *_kept_passages(index), dense, windows, keys)
        manifest = replace(index.manifest, segments=(segment,), deleted_part=None, deleted=0, dense=facts)
        finish(folder, manifest, None)  # BM25 numbers only passages that are not deleted, which stay the same


def _change(index: SearchIndex, manifest: IndexManifest, alive: np.ndarray, added: Texts | None = None) -> None:
    """Write which passages are deleted, and the resulting BM25."""
    folder = index.path
    deleted = int(np.count_nonzero(~alive))
    name = None
    if deleted:
        name = new_name(folder / "deleted", ".npy")
        with write_atomically(folder / "deleted" / name) as handle:
            np.save(handle, ~alive, allow_pickle=False)
    manifest = replace(manifest, deleted_part=name, deleted=deleted)
    sparse = None
    if manifest.sparse is not None:
        whole = open_collection(folder, manifest).live()
        sparse = index.sparse.changed(alive[index.collection.rows], added or Texts.from_dict({}), whole)
    finish(folder, manifest, sparse)


def _windows(facts: DenseFacts | None) -> Windows | None:
    if facts is None or facts.window is None or facts.stride is None:
        return None
    return Windows(facts.window, facts.stride)


def _next_key(segments: Sequence[OpenSegment]) -> int:
    return max((int(part.keys[-1]) + 1 for part in segments if part.keys is not None and len(part.keys)), default=0)


def _forget(facts: DenseFacts | None, segments: Sequence[OpenSegment], alive: np.ndarray) -> None:
    """Remove the vectors of deleted passages from Milvus; the manifest already excludes them."""
    if facts is None or facts.store is None:
        return
    start = 0
    for part in segments:
        assert part.keys is not None
        owners = np.arange(len(part.texts)) if part.windows is None else part.windows[:, 0]
        remove_keys(facts.store, np.asarray(part.keys)[~alive[start + owners]], str(facts.owner))
        start += len(part.texts)


def _joined(index: SearchIndex, numbers: np.ndarray, facts: DenseFacts, seed: int) -> tuple[DenseIndex, DenseFacts]:
    """One index of the kept vectors, and its recall if the vectors are still exact."""
    first = index.manifest.segments[0]
    file = index.path / "segments" / first.name / "dense.faiss"
    vectors = Chosen(index.dense.vectors, numbers)
    joined = DenseIndex(emptied(file, facts.kind, facts.dim), facts.kind, first.effort)
    fill(joined.index, joined.kind, vectors)
    if joined.kind != "hnsw":
        return joined, replace(facts, recall=1.0 if joined.kind == "flat" else None, measured_with=None)
    asked = sample_queries(vectors, seed)
    reached = choose_effort(joined, asked, exact_top(asked, vectors))
    return joined, replace(facts, recall=round(reached, 4), measured_with="passages")


def _renumbered(windows: np.ndarray | None, numbers: np.ndarray, kept: np.ndarray) -> np.ndarray | None:
    if windows is None:
        return None
    table = windows[numbers].copy()
    table[:, 0] = np.searchsorted(kept, table[:, 0])
    return table.astype(np.int32)


def _kept_passages(index: SearchIndex) -> tuple[Texts, pa.Table | None]:
    """The texts and fields of passages that are not deleted."""
    batches, blocks, start = [], [], 0
    for part in index.collection.segments:
        alive = index.collection.alive[start : start + len(part.texts)]
        mask = pa.array(alive)
        at = 0
        for batch in part.texts.batches():
            batches.append(batch.filter(mask.slice(at, len(batch))))
            at += len(batch)
        table = part.fields.filter(mask) if part.fields is not None else None
        columns = {name: table[name].combine_chunks() for name in table.column_names} if table is not None else {}
        blocks.append((int(alive.sum()), {name: _plain(column) for name, column in columns.items()}))
        start += len(part.texts)
    return Texts.from_batches(batches), join_fields(blocks)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
