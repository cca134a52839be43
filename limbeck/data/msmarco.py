"""MS MARCO passage files in one folder, under their usual names; each file may be gzipped.

    collection.tsv                                     passage id, passage
    queries.SPLIT.tsv, msmarco-testYEAR-queries.tsv    query id, query
    qrels.SPLIT.tsv, YEARqrels-pass.txt                judgements
    run.NAME.SPLIT.tsv                                 query id, passage id, rank; or a TREC run
    top1000.SPLIT, msmarco-passagetestYEAR-top1000.tsv query id, passage id, query, passage
    qidpidtriples.SPLIT.*.tsv                          query id, positive id, negative id

The splits keep their names (`train`, `dev`, `dev.small`, `eval`, `test2019`). Runs, top-1000 files and triples become
candidate lists in `runs`, read on first access. Each split takes the first that exists, in that order.
`top1000.dev` is also used for `dev.small`, because it was made for those queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from limbeck.data.dataset import Candidates, LazySplits, RankingData
from limbeck.data.lines import plain_or_gz, require
from limbeck.data.runs import read_run_lists, read_top_lists
from limbeck.data.tables import TabSeparated, read_texts
from limbeck.data.texts import Texts
from limbeck.data.trec import read_qrels
from limbeck.data.triples import read_triples
from limbeck.errors import bad_input

_LAYOUT = "an MS MARCO folder contains collection.tsv and queries.SPLIT.tsv"
_QUERIES = (r"queries\.(.+)\.tsv", r"msmarco-(test\d{4})-queries\.tsv")
_QRELS = (r"qrels\.(.+)\.tsv", r"(\d{4})qrels-pass\.txt")
_TOP = (r"top1000\.(.+?)(?:\.tsv|\.txt)?", r"msmarco-passage(test\d{4})-top1000\.tsv")
_TRIPLES = (r"qidpidtriples\.([^.]+)\..*tsv",)
_RUN = (r"run\.(.+)\.(?:tsv|txt|trec)",)


def is_msmarco(folder: Path) -> bool:
    """Whether a folder looks like an MS MARCO folder."""
    return plain_or_gz(folder / "collection.tsv") is not None


def load_msmarco(folder: str | Path) -> RankingData:
    """Read a folder of MS MARCO passage files."""
    folder = Path(folder)
    corpus = read_texts(require(folder / "collection.tsv", _LAYOUT), TabSeparated("passage", may_be_empty=True))
    query_files = dict(_files(folder, _QUERIES))
    if not query_files:
        raise bad_input(folder, "has no queries", _LAYOUT)
    queries = _merged(query_files.values())
    qrels = {split: read_qrels(file, queries, corpus) for split, file in _files(folder, _QRELS)}
    runs = LazySplits(_readers(folder, sorted({*query_files, *qrels}), queries, corpus))
    return RankingData(folder.resolve().name, corpus, queries, qrels, runs)


def _merged(files: Iterable[Path]) -> Texts:
    """The queries of all files. A query in several files, such as those of `dev.small`, must have one text in all."""
    merged: Texts | None = None
    for file in files:
        queries = read_texts(file, TabSeparated("query"))
        if merged is None:
            merged = queries
            continue
        rows = merged.find(queries)
        known = np.flatnonzero(rows >= 0)
        for place, before, here in zip(known, merged.take(rows[known]), queries.take(known), strict=True):
            if before != here:
                problem = (
                    f"query {queries.id_at(int(place))!r} is {here[:60]!r} here and {before[:60]!r} in another file"
                )
                raise bad_input(file, problem, "give different queries different ids")
        added = pa.Table.from_batches(queries.batches()).filter(pa.array(rows < 0)).to_batches()
        merged = Texts.from_batches([*merged.batches(), *added])
    assert merged is not None
    return merged


def _readers(folder: Path, splits: list[str], queries: Texts, corpus: Texts) -> dict[str, Callable[[], Candidates]]:
    """Readers for the candidate lists of each split; the preferred kind of file comes last and wins."""
    readers: dict[str, Callable[[], Candidates]] = {}
    for split, file in _files(folder, _TRIPLES):
        readers[split] = partial(_triple_lists, file, queries, corpus)
    for split, file in _files(folder, _TOP):
        readers[split] = partial(read_top_lists, file, queries, corpus)
        if split == "dev" and "dev.small" in splits:
            readers["dev.small"] = readers[split]
    runs: dict[str, Path] = {}
    for name, file in _files(folder, _RUN):
        split = max((split for split in splits if f".{name}".endswith(f".{split}")), key=len, default="")
        if not split:
            raise bad_input(
                file, "does not end in a split of this folder", f"name it run.NAME.SPLIT.tsv ({', '.join(splits)})"
            )
        if split in runs:
            raise bad_input(
                file, f"is a second run for split {split!r}, next to {runs[split].name}", "keep one of them"
            )
        runs[split] = file
        readers[split] = partial(read_run_lists, file, queries, corpus)
    return readers


def _triple_lists(file: Path, queries: Texts, corpus: Texts) -> Candidates:
    return read_triples(file, queries, corpus).candidates()


def _files(folder: Path, patterns: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """(split, file) of the files whose names match, train split first."""
    found = []
    for file in sorted(folder.iterdir()):
        for pattern in patterns:
            matched = re.fullmatch(pattern, file.name.removesuffix(".gz"))
            if matched and file.is_file():
                split = matched[1] if not matched[1].isdigit() else f"test{matched[1]}"
                found.append((split, file))
    return iter(sorted(found, key=lambda entry: (entry[0] != "train", entry)))
