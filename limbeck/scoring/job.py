"""A scoring job: texts are encoded once, pairs are scored in shards, and each shard is one file.

    DIR/
      scores/part-0000000.parquet ...  written under a temporary name and renamed: complete or absent
      _job/
        job.json               the model, the list and the shards; another job may not use the folder
        head/                  the model's head, which is all that workers need
        encodings/position-0/  stored vectors of the texts (elsewhere with `store`)
        work/                  rows of pairs and texts
        parts/                 checksums of the scores
        done.json              written when all shards are done

A job that was killed continues with the missing shards and ends with the same files. A shard depends only on the job,
not on the engine that ran it. Every file has a checksum, which each call verifies: files that can be made again are,
and a damaged plan or store raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import alone_in, digest, make_directory, naming_disk_errors, write_atomically, write_json
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.matchers.after_loading import after_loading, asked_finish
from limbeck.matchers.calibration import Calibration
from limbeck.matchers.device import chosen_device
from limbeck.matchers.encoding_matcher import EncodingMatcher, encodes_apart
from limbeck.matchers.names import model_folder
from limbeck.progress import progress, say
from limbeck.scoring.claim import claim, nothing_left_of_a_mistake
from limbeck.scoring.engine import Engine
from limbeck.scoring.heads import require_head, save_head
from limbeck.scoring.inputs import changed, content_of, note_times, state_of, times_of
from limbeck.scoring.parts import clear_remains, forget_parts, missing_parts
from limbeck.scoring.plan import DONE, ENCODINGS, HEAD, PARTS, SCORES, WORK, Asked, Plan
from limbeck.scoring.scorer import TRIED, choose_head, one_thread
from limbeck.scoring.source import Source, Wanted, prepare_source
from limbeck.scoring.whole_model import SHARD as WHOLE_SHARD
from limbeck.scoring.whole_model import warn_of_time
from limbeck.scoring.worker import model_identity, store_rows
from limbeck.stores import EncodingStore, encode_with_store

SHARD = 100_000  # pairs in a file
TEXTS = 8192  # texts looked up at a time
TOGETHER, LARGEST = 8, 4_000_000  # left texts per shard of a cross product, and its maximum number of pairs


@dataclass(frozen=True)
class Done:
    """A finished job."""

    folder: Path
    pairs: int
    scored: int  # pairs scored in this call
    encoded: int  # texts encoded in this call
    seconds: float
    bytes: int

    @property
    def pairs_per_second(self) -> float:
        return self.scored / self.seconds if self.seconds else 0.0


def score_pairs(
    model: str,
    pairs: str | Path | None,
    out: str | Path,
    engine: Engine,
    left: str | None = None,
    right: str | None = None,
    top_k: int | None = None,
    shard: int | None = None,
    dtype: str = "float32",
    store: str | Path | None = None,
    head: str = "auto",
    columns: str | None = None,
) -> Done:
    """Score a list of pairs into `out`; after a kill, call it again to resume.

    `columns` selects the columns of the list to copy: names separated by commas, `all`, or `none`; by default its ids
    or its texts.
    """
    folder = Path(out).expanduser()
    if folder.exists() and not folder.is_dir():
        raise LimbeckError(f"{folder}: is a file; give --out a folder for the scores")
    matcher = _loaded(model)
    require_head(matcher, head)
    if top_k is not None and matcher.outputs > 1:
        problem = f"--top-k: the model gives {matcher.outputs} scores per pair, so there is no single score to sort by"
        raise LimbeckError(f"{problem}; leave it out, and sort the scores yourself")
    began = time.monotonic()
    wanted = _wanted(pairs, left, right, columns)
    files = wanted.pairs, wanted.left, wanted.right
    state, times = state_of(*files), times_of(*files)
    asked = _asked(matcher, model, wanted, top_k, dtype, store, head)  # reads the files: a bad one leaves no folder
    with naming_disk_errors(folder):
        make_directory(folder)
    with alone_in(folder):
        known = claim(folder, asked)
        clear_remains(folder)
        with nothing_left_of_a_mistake(folder):
            source = prepare_source(wanted, folder / WORK)
            _require_texts(matcher, source)
        if known is not None and shard is not None and _cut(shard, known, source) != known.shard:
            remedy = "leave --shard out, or choose another --out"
            raise LimbeckError(f"{folder}: was started with --shard {known.shard}, not {shard}; {remedy}")
        stores = _open_stores(folder, asked, matcher) if encodes_apart(matcher) else {}
        encoded = _encode(matcher, source, folder, list(stores.values())) if encodes_apart(matcher) else 0
        matcher.to(chosen_device(engine.device))  # after encoding, test the head on the workers' device
        plan = known or _planned(folder, asked, source, matcher, stores, shard)
        waiting = missing_parts(folder, plan.shards)
        todo = sum(_size(plan, number) for number in waiting)
        if waiting:
            (folder / DONE).unlink(missing_ok=True)
            _write_head(folder, matcher, model)
            note_times(folder, times)
        with progress("Scoring pairs", plan.pairs) as advance:
            advance(plan.pairs - todo)
            if waiting:
                engine.run(folder, waiting, advance)
        if state_of(*files) != state:
            forget_parts(folder, waiting)
            raise changed()
        size = sum(file.stat().st_size for file in (folder / SCORES).glob("part-*.parquet"))
        done = Done(folder, plan.pairs, todo, encoded, time.monotonic() - began, size)
        write_json(folder / DONE, {"pairs": plan.pairs, "shards": plan.shards, "bytes": size})
        return done


def _loaded(model: str) -> Matcher:
    """The model. If workers will load it too, its runtime is chosen by what one thread does, because each has one."""
    asked = asked_finish()

    def finish(matcher: Matcher) -> Matcher:
        with nullcontext() if encodes_apart(matcher) else one_thread():
            return asked(matcher) if asked is not None else matcher

    with after_loading(finish):
        return load_matcher(model)


def _wanted(pairs: str | Path | None, left: str | None, right: str | None, columns: str | None) -> Wanted:
    """The pairs with absolute paths."""
    given = Path(pairs).absolute() if pairs is not None else None
    left, right = (str(Path(side).absolute()) if side and Path(side).exists() else side for side in (left, right))
    return Wanted(given, left, right, columns)


def _asked(
    matcher: Matcher, model: str, wanted: Wanted, top_k: int | None, dtype: str, store: str | Path | None, head: str
) -> Asked:
    """The job as requested."""
    return Asked(
        model=str(model),
        identity=model_identity(matcher, model),
        source=content_of(wanted.pairs, wanted.left, wanted.right),
        pairs_file=str(wanted.pairs) if wanted.pairs else None,
        left=wanted.left,
        right=wanted.right,
        top_k=top_k,
        dtype=dtype,
        store=str(Path(store).absolute()) if store else None,
        columns=wanted.columns,
        asked=head,
        runtime=matcher.runtime,
    )


def _require_texts(matcher: Matcher, source: Source) -> None:
    if len(source.tables) != matcher.texts:
        problem = f"each pair has {len(source.tables)} texts, but the model reads {matcher.texts}"
        raise LimbeckError(f"{problem}; use a list and a model that fit")


def _open_stores(folder: Path, asked: Asked, matcher: EncodingMatcher) -> dict[str, EncodingStore]:
    """The encodings of each position's texts by their place: the job's own, or in a folder that jobs share."""
    make_directory(folder / WORK)
    if asked.store is not None:
        _make_store(Path(asked.store))
    stores = {}
    for position in range(matcher.texts):
        identity, encoding = matcher.identity(position), matcher.encoding(position)
        place = f"{ENCODINGS}/position-{position}"
        if asked.store is not None:
            place = str(Path(asked.store) / f"{digest(str(identity))[:12]}-{asked.dtype}-position-{position}")
        key = {**identity, "position": position}  # everything that changes the content of the store
        stores[place] = EncodingStore.open(folder / place, key, encoding.dim, asked.dtype, encoding.tokens)  # type: ignore[arg-type]
    return stores


def _make_store(place: Path) -> None:
    try:
        make_directory(place)
    except OSError as error:
        reason = "is a file" if place.is_file() else f"cannot be made ({error.strerror})"
        raise bad_input(place, reason, "name a folder with --store") from error


def _encode(matcher: EncodingMatcher, source: Source, folder: Path, stores: Sequence[EncodingStore]) -> int:
    """Encode the texts of the pairs that the stores lack, and record each text's row in them."""
    encoded = 0
    for position, (table, named) in enumerate(zip(source.tables, source.named_rows(), strict=True)):
        kept = stores[position]
        blocks = [named[at : at + TEXTS] for at in range(0, len(named), TEXTS)]
        texts = (text for block in blocks for text in table.take(block))
        encoded += encode_with_store(kept, texts, partial(matcher.encode, position=position), total=len(named))
        # In every call: a shared store may have been removed and made again in another order.
        rows = np.full(len(table), -1, dtype=np.int64)
        for block in blocks:
            rows[block] = kept.rows(table.take(block))
        with write_atomically(folder / WORK / f"rows-{position}.npy") as handle:
            np.save(handle, rows, allow_pickle=False)
        if kept.dtype != "float32":
            off = f"off by {kept.error.relative:.2%}, at worst by {kept.error.worst:.2%}"
            say(f"vectors of text {position + 1} are stored as {kept.dtype}: {off}")
    return encoded


def _planned(
    folder: Path, asked: Asked, source: Source, matcher: Matcher, stores: dict[str, EncodingStore], shard: int | None
) -> Plan:
    """The size of shards and batches, fixed for the job."""
    if not len(source):
        raise LimbeckError("there are no pairs to score; check the list")
    if encodes_apart(matcher):
        rows = store_rows(folder, source.rows(0, min(len(source), TRIED)))
        how, batch = choose_head(matcher.interaction, asked.asked, list(stores.values()), rows)
    else:
        warn_of_time(matcher, source)
        how, batch = "model", 0
    cut = _cut(shard or (SHARD if stores else WHOLE_SHARD), asked, source)
    plan = Plan(**asked.model_dump(), pairs=len(source), shard=cut, stores=list(stores), head=how, batch=batch)
    make_directory(folder / SCORES)
    make_directory(folder / PARTS)
    plan.write(folder)
    return plan


def _write_head(folder: Path, matcher: Matcher, model: str) -> None:
    """Write the files that workers need from the model; in every call, so that damaged ones are replaced."""
    interaction = matcher.interaction if encodes_apart(matcher) else None
    save_head(interaction, folder / HEAD, Calibration.load(model_folder(model)))


def _cut(shard: int, asked: Asked, source: Source) -> int:
    """The number of pairs in a shard, as requested."""
    if asked.top_k is None or source.pairs is not None:
        return shard
    return whole_lefts(shard, len(source.tables[1]))


def whole_lefts(shard: int, rights: int) -> int:
    """Pairs in a shard for --top-k: all pairs of a left text are in one shard, with several left texts."""
    return max(1, max(shard, min(TOGETHER * rights, LARGEST)) // rights) * rights


def _size(plan: Plan, shard: int) -> int:
    return min(plan.shard, plan.pairs - shard * plan.shard)
