"""BEIR folders: `corpus.jsonl`, `queries.jsonl`, `qrels/{train,dev,test}.tsv`; each file may be gzipped."""

from __future__ import annotations

from pathlib import Path

from limbeck.data.dataset import Qrels, RankingData
from limbeck.data.lines import bare_stem, plain_or_gz, require
from limbeck.data.tables import JsonLines, read_texts
from limbeck.data.texts import Texts
from limbeck.data.trec import read_qrels
from limbeck.data.written import require_unchanged
from limbeck.errors import bad_input

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
