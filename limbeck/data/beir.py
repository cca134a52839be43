"""BEIR folders: `corpus.jsonl`, `queries.jsonl`, `qrels/{train,dev,test}.tsv`; each file may be gzipped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from limbeck.data.dataset import Qrels, RankingData
from limbeck.data.lines import bare_stem, plain_or_gz, require
from limbeck.data.tables import JsonLines, read_texts
from limbeck.data.texts import Texts
from limbeck.data.trec import read_qrels
from limbeck.data.written import require_unchanged
from limbeck.errors import bad_input
from limbeck.files import write_atomically

_LAYOUT = "a BEIR folder contains corpus.jsonl, queries.jsonl and qrels/{train,dev,test}.tsv"


def is_beir(folder: Path) -> bool:
    """Whether a folder has some of the files of a BEIR folder."""
    return any(plain_or_gz(folder / name) for name in ("corpus.jsonl", "queries.jsonl")) or (folder / "qrels").is_dir()


def load_beir(folder: str | Path, needs_queries: bool = True) -> RankingData:
    """Read a BEIR folder. The splits are the files in `qrels/`; unlabelled queries have none.

    Without `needs_queries`, a folder may contain nothing but `corpus.jsonl`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise bad_input(folder, "no such folder", _LAYOUT)
    require_unchanged(folder)
    corpus = read_texts(require(folder / "corpus.jsonl", _LAYOUT), JsonLines("document", may_be_empty=True))
    alone = plain_or_gz(folder / "queries.jsonl") is None and not (folder / "qrels").is_dir()
    if alone and not needs_queries:
        return RankingData(folder.resolve().name, corpus, Texts.build(()), {})
    queries = read_texts(require(folder / "queries.jsonl", _LAYOUT), JsonLines("query"))
    return RankingData(folder.resolve().name, corpus, queries, _qrels(folder / "qrels", queries, corpus))


def _qrels(folder: Path, queries: Texts, corpus: Texts) -> dict[str, Qrels]:
    if not folder.is_dir():
        return {}
    files = sorted([*folder.glob("*.tsv"), *folder.glob("*.tsv.gz")])
    splits = {bare_stem(file): file for file in files}
    if not splits:
        raise bad_input(folder, "contains no .tsv file", _LAYOUT)
    order = sorted(splits, key=lambda name: (["train", "dev", "test", name].index(name), name))
    return {name: read_qrels(splits[name], queries, corpus) for name in order}


def write_beir(data: RankingData, folder: Path) -> None:
    """Write a data set as a BEIR folder, into a folder that is being written."""
    with write_atomically(folder / "corpus.jsonl", "w") as handle:
        for key, title, text in data.corpus.records():
            write_line(handle, {"_id": key, "title": title, "text": text})
    write_queries(data, folder)


def write_queries(data: RankingData, folder: Path) -> None:
    """Write the queries and judgements of a BEIR folder; a split without judgements has no file."""
    with write_atomically(folder / "queries.jsonl", "w") as handle:
        for key, text in data.queries.items():
            write_line(handle, {"_id": key, "text": text})
    for split, qrels in data.qrels.items():
        if not qrels:
            continue
        with write_atomically(folder / "qrels" / f"{split}.tsv", "w") as handle:
            handle.write("query-id\tcorpus-id\tscore\n")
            for query, grades in qrels.items():
                handle.writelines(f"{query}\t{document}\t{grade}\n" for document, grade in grades.items())


def write_line(handle: IO[str], record: Mapping[str, Any]) -> None:
    """A line of a .jsonl file."""
    handle.write(json.dumps(record, ensure_ascii=False) + "\n")
