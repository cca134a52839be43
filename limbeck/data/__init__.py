"""Data sets (`dataset`), and readers for common formats.

data = load("my/beir/folder")          # or an MS MARCO or DPR folder, a pair file or folder,
data = load("hf:mteb/scifact")         # a hub name, `ir:msmarco-passage/dev/small`, `pydocs` or `pydocs:all`
"""

from __future__ import annotations

from pathlib import Path

from limbeck.data.beir import is_beir, load_beir
from limbeck.data.candidates import CandidateLists
from limbeck.data.dataset import Candidates, Pair, PairData, Qrels, RankingData, Run, Texts, positives, ranked
from limbeck.data.dpr import PASSAGES, is_dpr, load_dpr
from limbeck.data.lines import bare_suffix, plain_or_gz
from limbeck.data.msmarco import is_msmarco, load_msmarco
from limbeck.data.pairs import load_pairs, split_files, texts_of
from limbeck.data.records import SUFFIXES, read_records
from limbeck.data.score_export import write_scores
from limbeck.data.scores import iterate_scores, read_scored_texts, read_scores
from limbeck.data.trec import read_qrels, read_run, write_qrels, write_run
from limbeck.data.triples import Triples, load_text_triples, read_triples
from limbeck.errors import LimbeckError, bad_input

BUILT_IN = ("pydocs", "pydocs:all")
_FOLDERS = (
    "corpus.jsonl (BEIR), collection.tsv (MS MARCO), psgs_w100.tsv or *train*.json (DPR), "
    "{train,dev,test}.{jsonl,csv,tsv,parquet} (pairs)"
)


def load(source: str | Path, needs_queries: bool = True) -> RankingData | PairData:
    """Read a data set from a folder, a file or a name. Without `needs_queries`, a folder may have documents alone."""
    name = str(source)
    if name == "pydocs":
        from limbeck.data.pydocs import load_pydocs

        return load_pydocs()
    if name == "pydocs:all":
        from limbeck.data.all_pydocs import load_all_pydocs

        return load_all_pydocs()
    if name.startswith("hf:"):
        from limbeck.data.hub import load_hub

        return load_hub(name.removeprefix("hf:"))
    if name.startswith("ir:"):
        from limbeck.data.ir_datasets import load_ir

        return load_ir(name.removeprefix("ir:"))
    require_source(source)
    path = Path(source).expanduser()
    return _load_folder(path, needs_queries) if path.is_dir() else _load_file(path)


def require_source(source: str | Path) -> None:
    """Refuse a data set that does not exist. This check is fast, while importing the readers is slow."""
    name = str(source)
    if name in BUILT_IN or name.startswith(("hf:", "ir:")) or Path(source).expanduser().exists():
        return
    raise LimbeckError(
        f"{name}: no such file or folder; give a folder, a pair file, `hf:owner/name`, `ir:name`, or `pydocs`"
    )


def _load_folder(path: Path, needs_queries: bool) -> RankingData | PairData:
    if is_beir(path):
        return load_beir(path, needs_queries)
    if is_msmarco(path):
        return load_msmarco(path)
    if plain_or_gz(path / PASSAGES) or (not split_files(path) and is_dpr(path)):
        return load_dpr(path)
    if split_files(path):
        return load_pairs(path)
    raise bad_input(path, "is not a data set that limbeck knows", f"looked for {_FOLDERS}")


def _load_file(path: Path) -> RankingData | PairData:
    if bare_suffix(path) == ".json":
        return load_dpr(path)
    if bare_suffix(path) not in SUFFIXES:
        raise bad_input(
            path, "is not a data set that limbeck knows", f"give a folder, a .json of DPR, or {', '.join(SUFFIXES)}"
        )
    if path.name.startswith("triples.") and bare_suffix(path) == ".tsv":
        return load_text_triples(path)
    first = next(read_records(path), None)
    if bare_suffix(path) == ".jsonl" and first is not None and texts_of(first[1]) is None:
        return read_scored_texts(path)
    return load_pairs(path)


__all__ = [
    "CandidateLists",
    "Candidates",
    "Pair",
    "PairData",
    "Qrels",
    "RankingData",
    "Run",
    "Texts",
    "Triples",
    "iterate_scores",
    "load",
    "load_beir",
    "load_dpr",
    "load_msmarco",
    "load_pairs",
    "positives",
    "ranked",
    "read_qrels",
    "read_run",
    "read_scored_texts",
    "read_scores",
    "read_triples",
    "require_source",
    "write_qrels",
    "write_run",
    "write_scores",
]
