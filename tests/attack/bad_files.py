"""Files and folders that no command can use, by name."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

DEEP = "[" * 20_000 + "]" * 20_000
DIGITS = "9" * 5000
ROW = '{"_id": "d1", "text": "copy a file", "text_a": "copy", "text_b": "a file", "label": 1}\n'
SURROGATE = ROW.replace("copy", "\\ud800")
SUFFIXES = (".jsonl", ".tsv", ".csv", ".parquet", ".json", ".jsonl.gz", ".yaml", ".trec")

CONTENTS = {
    "empty": b"",
    "blank": b"\n\n \n",
    "junk": bytes(range(256)) * 40,
    "utf16": ROW.encode("utf-16"),
    "latin1": ROW.replace("copy", "caf\xe9").encode("latin-1"),
    "nul": ROW.replace("copy", "\0").encode() + b"\0\0\0\n",
    "surrogate": SURROGATE.encode(),
    "deep": DEEP.encode(),
    "deep-field": ROW.replace('"copy a file"', DEEP).replace('"copy"', DEEP).encode(),
    "digits": ROW.replace(" 1}", f" {DIGITS}}}").replace('"d1"', DIGITS).encode(),
    "cut": ROW.encode()[:40],
    "list": b"[1, 2, 3]\n",
    "wrong-types": b'{"_id": {}, "text": [1], "text_a": 1, "text_b": null, "label": {}}\n',
    "escapes": b'\x1b[31m{"_id": "\x1b[2J\n',
}


def bad_files(folder: Path) -> dict[str, str]:
    """Paths by what is wrong with them; contents stand in files of every suffix that some reader looks for."""
    found = {
        "missing": str(folder / "missing.jsonl"),
        "below a file": str(folder / "empty.jsonl" / "x"),
        "long name": str(folder / ("x" * 5000)),
        "null device": "/dev/null",
        "endless device": "/dev/zero",
        "own memory": "/proc/self/mem",
        "proc": "/proc/self",
        "no folder": str(folder / "nothing-in-it"),
    }
    for name, content in CONTENTS.items():
        for suffix in SUFFIXES:
            path = folder / f"{name}{suffix}"
            path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
            found[f"{name}{suffix}"] = str(path)
    (folder / "not-gzip.jsonl.gz").write_bytes(ROW.encode())
    (folder / "half-gzip.jsonl.gz").write_bytes(gzip.compress(ROW.encode() * 50)[:-20])
    found |= {name: str(folder / name) for name in ("not-gzip.jsonl.gz", "half-gzip.jsonl.gz")}
    (folder / "nothing-in-it").mkdir()
    for suffix in (".jsonl", ".tsv", ".yaml"):
        os.symlink(f"loop{suffix}", folder / f"loop{suffix}")
        os.symlink("nowhere", folder / f"dangling{suffix}")
        os.symlink("/dev/zero", folder / f"zero{suffix}")
        os.symlink("/proc/self/mem", folder / f"memory{suffix}")
        os.mkfifo(folder / f"pipe{suffix}")
        (folder / f"folder{suffix}").mkdir()
        for name in ("loop", "dangling", "zero", "memory", "pipe", "folder"):
            found[f"{name}{suffix}"] = str(folder / f"{name}{suffix}")
    return found


def bad_folders(folder: Path) -> dict[str, str]:
    """Folders that look like a data set, a model, an index or a run, with bad files in them."""
    found = {}
    for name, content in CONTENTS.items():
        place = folder / f"all-{name}"
        (place / "qrels").mkdir(parents=True)
        for file in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "qrels/train.tsv", "qrels/dev.tsv"):
            (place / file).write_bytes(content)
        for file in ("config.json", "modules.json", "index.json", "metrics.json", "recipe.yaml", "limbeck.json"):
            (place / file).write_bytes(content)
        found[f"all-{name}"] = str(place)
    loop = folder / "all-loops"
    loop.mkdir()
    for file in ("corpus.jsonl", "queries.jsonl", "config.json", "modules.json", "index.json", "metrics.json"):
        os.symlink(file, loop / file)
    found["all-loops"] = str(loop)
    return found


def good_rows(count: int) -> str:
    return "".join(json.dumps({"_id": f"d{n}", "text": f"copy file {n}"}) + "\n" for n in range(count))
