"""Add to documents the queries that they might answer, for the sparse part of a search (doc2query).

DIR/expand.json       settings; another model, data set or seed may not use the folder
DIR/samples.jsonl     every generated query, by blocks of the corpus, appended during the work;
                      each line has its checksum, and everything after a damaged line is generated again
DIR/scores-*.jsonl    the teacher's scores of them, in the same form
DIR/expansions.jsonl  the kept queries, in the order of the corpus
DIR/corpus.jsonl      the documents followed by these queries; with queries.jsonl and qrels/ a BEIR folder

DIR/limbeck-files.json  checksums of the finished files, compared whenever they are read (`limbeck.data.written`)

The last three and the rest of the data set appear together, when all is done.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.data import RankingData, Texts, load
from limbeck.data.beir import write_line, write_queries
from limbeck.data.by_kind import require_ranking
from limbeck.data.passages import load_passages
from limbeck.data.written import record_files
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import (
    alone_in,
    digest,
    directory_atomically,
    make_directory,
    recover_directory,
    require_empty_or_absent,
    write_atomically,
)
from limbeck.generation import block_log
from limbeck.generation.block_log import blocks, by_block, fill, missing
from limbeck.matchers import Matcher
from limbeck.matchers import load as load_matcher
from limbeck.progress import progress, track
from limbeck.search.doc2query import QueryGenerator, Sampling
from limbeck.search.expansions import EXPANSIONS
from limbeck.stores.append_log import AppendLog
from limbeck.stores.manifest import Manifest, canonical, require_same

KIND = "limbeck expansion"
_OURS = re.compile(
    r"\..*|expand\.json|limbeck-files\.json|(corpus|queries|samples|expansions|scores-[0-9a-f]+)\.jsonl|qrels"
)
KEEP = 0.7
_SCORED = 32  # number of documents whose queries are scored between two writes


@dataclass(frozen=True)
class Expanded:
    """What `expand_data` did."""

    out: Path
    documents: int
    kept: int  # queries kept, of all documents
    generated: int  # documents with new queries


def expand_data(
    source: str,
    model: str,
    out: Path,
    how: Sampling | None = None,
    batch_size: int = 8,
    teacher: str | None = None,
    keep: float | None = None,
) -> Expanded:
    """Generate queries for every document, keep all or those with the best teacher scores, and write the result.

    A kill loses at most one batch, and nothing on disk is generated or scored again.
    """
    how = how or Sampling()
    keep = _share(teacher, keep)
    data = require_ranking(load(source), source)
    recover_directory(out)
    matcher = load_matcher(teacher) if teacher is not None else None  # report a mistake before the work starts
    generator = QueryGenerator.load(model)
    identity = {**generator.identity(), **asdict(how), "documents": data.corpus.content_digest}
    checked = _keeps_checksums(out)
    _claim(out, Manifest(KIND, identity, {"block": block_log.BLOCK, **({"checksums": True} if checked else {})}))
    with alone_in(out):
        samples = AppendLog(out / "samples.jsonl", checked)
        generated = _generate(generator, data.corpus, samples, how, batch_size)
        expansions = _all(data.corpus, samples)
        if matcher is not None:
            scores = _score(matcher, data.corpus, samples, out, checked)
            expansions = _best(data.corpus, samples, scores, keep)
        kept = _write(data, load_passages(source).fields, out, expansions)
    return Expanded(out, len(data.corpus), kept, generated)


def _share(teacher: str | None, keep: float | None) -> float:
    if keep is not None and teacher is None:
        raise LimbeckError("--keep requires --filter; name a teacher that scores the queries")
    if keep is not None and not 0 < keep <= 1:
        raise LimbeckError(f"--keep {keep} is not a share; give a number above 0 and at most 1")
    return KEEP if keep is None else keep


def _keeps_checksums(out: Path) -> bool:
    """Whether the lines of the logs have checksums; logs of earlier versions have none, and get none."""
    manifest = out / "expand.json"
    return not manifest.exists() or Manifest.load(manifest, KIND).layout.get("checksums") is True


def _claim(out: Path, wanted: Manifest) -> None:
    """Continue in a folder of the same work, or start a new one."""
    manifest = out / "expand.json"
    if manifest.exists():
        require_same(out, Manifest.load(manifest, KIND), wanted)
        foreign = next((file.name for file in sorted(out.iterdir()) if not _OURS.fullmatch(file.name)), None)
        if foreign is not None:  # the whole folder is written again
            raise bad_input(
                out, f"holds {foreign!r}, which `limbeck expand` did not write", "move it away, or choose another --out"
            )
        return
    require_empty_or_absent(out, "choose another --out")
    make_directory(out)
    wanted.save(manifest)


def _generate(generator: QueryGenerator, corpus: Texts, log: AppendLog, how: Sampling, batch_size: int) -> int:
    def write(rows: list[int]) -> list[list[str]]:
        return generator.generate(corpus.ids_at(rows), corpus.take(rows), how)

    return fill(corpus, log, write, batch_size)


def _score(teacher: Matcher, corpus: Texts, samples: AppendLog, out: Path, checked: bool) -> AppendLog:
    """The teacher's score of every query with its document."""
    if teacher.outputs != 1:
        raise LimbeckError(
            f"--filter: the teacher gives {teacher.outputs} scores per pair; name one that gives a single score"
        )
    log = AppendLog(out / f"scores-{digest(canonical(teacher.identity()))[:8]}.jsonl", checked)
    with progress("Scoring queries", len(corpus)) as advance:
        advance(len(log))
        for block, lists in zip(blocks(corpus), by_block(corpus, samples, "queries"), strict=True):
            rows = missing(corpus, block, log)
            for start in range(0, len(rows), _SCORED):
                batch = rows[start : start + _SCORED]
                queries = [lists[row - block.start] for row in batch]
                log.append(_scored(teacher, corpus.ids_at(batch), corpus.take(batch), queries))
                advance(len(batch))
    return log


def _scored(
    teacher: Matcher, ids: Sequence[str], texts: Sequence[str], lists: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    pairs = [(query, text) for text, queries in zip(texts, lists, strict=True) for query in queries]
    scores = np.asarray(teacher.score(pairs), dtype=np.float64)
    if not np.isfinite(scores).all():
        query, _ = pairs[int(np.argmin(np.isfinite(scores)))]
        raise LimbeckError(f"the teacher's score of {query!r} is not a finite number; use another teacher")
    rest = iter(scores.tolist())
    return [{"_id": key, "scores": list(islice(rest, len(queries)))} for key, queries in zip(ids, lists, strict=True)]


Kept = tuple[list[str], list[float] | None]  # a document's queries, and their scores if they were scored


def _all(corpus: Texts, samples: AppendLog) -> Iterator[Kept]:
    for lists in by_block(corpus, samples, "queries"):
        yield from ((queries, None) for queries in lists)


def _best(corpus: Texts, samples: AppendLog, log: AppendLog, keep: float) -> Iterator[Kept]:
    """The best-scoring share of all queries, over all documents; ties favour earlier documents."""
    lists = (own for block in by_block(corpus, log, "scores") for own in block)
    scores = np.fromiter((score for own in lists for score in own), dtype=np.float64)
    good = np.zeros(len(scores), dtype=bool)
    good[np.argsort(-scores, kind="stable")[: round(keep * len(scores))]] = True
    start = 0
    for queries, _ in _all(corpus, samples):
        own = slice(start, start + len(queries))
        kept = [place for place, stays in enumerate(good[own].tolist()) if stays]
        yield [queries[place] for place in kept], scores[own][kept].tolist()
        start = own.stop


def _write(data: RankingData, fields: pa.Table | None, out: Path, expansions: Iterator[Kept]) -> int:
    """Write the data set into the folder in one step; returns how many queries were kept."""
    others = _rows(fields) if fields is not None else repeat({}, len(data.corpus))
    count = 0
    with directory_atomically(out) as folder:
        for file in [out / "expand.json", out / "samples.jsonl", *out.glob("scores-*.jsonl")]:
            _link(file, folder / file.name)
        with (
            write_atomically(folder / "corpus.jsonl", "w") as corpus,
            write_atomically(folder / EXPANSIONS, "w") as own,
        ):
            rows = zip(data.corpus.records(), expansions, others, strict=True)
            for (key, title, text), (queries, scores), other in track(rows, "Writing documents", len(data.corpus)):
                write_line(
                    corpus, {"_id": key, "title": title, "text": " ".join(filter(None, [text, *queries])), **other}
                )
                write_line(own, {"_id": key, "queries": queries} | ({} if scores is None else {"scores": scores}))
                count += len(queries)
        write_queries(data, folder)
        record_files(folder, "expand", {}, {}, leave_out=("samples.jsonl", "scores-*.jsonl"))
    return count


def _rows(fields: pa.Table) -> Iterator[dict[str, Any]]:
    """The fields of each passage."""
    for batch in fields.to_batches(max_chunksize=block_log.BLOCK):
        for row in batch.to_pylist():
            yield {name: value for name, value in row.items() if value is not None}


def _link(file: Path, place: Path) -> None:
    """A hard link to the file, or a copy if the file system has no links."""
    try:
        os.link(file, place)
    except OSError:
        shutil.copy2(file, place)
