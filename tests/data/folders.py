"""Small data folders, written by the tests that read them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

DOCUMENTS = [
    {"_id": "d1", "title": "Cats", "text": "purr at night"},
    {"_id": "d2", "title": "", "text": "dogs bark"},
    {"_id": "d3", "text": "Fische schwimmen im Fluß"},
    {"_id": "d4", "title": "Birds", "text": ""},
]
QUERIES = [{"_id": "q1", "text": "what purrs"}, {"_id": "q2", "text": "who barks"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td3\t0\nq2\td2\t1\n"


def jsonl(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, gzipped where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def beir_folder(
    folder: Path,
    corpus: str | bytes | None = None,
    queries: str | bytes | None = None,
    qrels: str | None = None,
    gz: str = "",
) -> Path:
    """A BEIR folder; what is not given is sound."""
    write(folder / f"corpus.jsonl{gz}", corpus if corpus is not None else jsonl(DOCUMENTS))
    write(folder / f"queries.jsonl{gz}", queries if queries is not None else jsonl(QUERIES))
    write(folder / "qrels" / f"test.tsv{gz}", qrels if qrels is not None else QRELS)
    return folder
