"""Load time and resident memory of a large corpus.

    python benchmarks/corpus_memory.py                     # one million passages of about 56 words, as in MS MARCO
    python benchmarks/corpus_memory.py --passages 10000000 --json

Each row is a fresh process: `cold` parses `corpus.jsonl`, `warm` maps what the first one left in the cache, `dict`
holds the same passages as Python strings, for comparison. Lookups are timed one by one, and all at once as training
does them. Resident memory is shown whole, and without pages that only mirror a file and that the system takes back
when it needs them (anonymous); both are what was added to a process that has just imported the reader. `peak` is the
highest resident memory until the corpus is loaded, imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from limbeck.data import load_beir

LOOKUPS = 10_000
WORDS_PER_PASSAGE = 56
MEGABYTE = 2**20


def write_folder(folder: Path, passages: int) -> None:
    """A BEIR folder of random passages; the words follow Zipf's law."""
    generator = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(generator.choices(letters, k=generator.randint(2, 9))) for _ in range(50_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    drawn = generator.choices(words, weights, k=4_000_000)
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as handle:
        for number in range(passages):
            length = max(10, round(generator.gauss(WORDS_PER_PASSAGE, 20)))
            start = generator.randrange(len(drawn) - length)
            record = {"_id": str(number), "title": "", "text": " ".join(drawn[start : start + length])}
            handle.write(json.dumps(record) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n')


class AsDict:
    """The corpus as a dict of strings."""

    def __init__(self, folder: Path) -> None:
        with open(folder / "corpus.jsonl", encoding="utf-8") as handle:
            self.texts = {record["_id"]: record["text"] for record in map(json.loads, handle)}

    def one(self, key: str) -> str:
        return self.texts[key]

    def many(self, keys: list[str]) -> list[str]:
        return [self.texts[key] for key in keys]


class AsTexts:
    """The corpus as Limbeck reads it."""

    def __init__(self, folder: Path) -> None:
        self.texts = load_beir(folder).corpus

    def one(self, key: str) -> str:
        return self.texts[key]

    def many(self, keys: list[str]) -> list[str]:
        return self.texts.take(self.texts.rows(keys))


def measure(folder: Path, how: str) -> dict[str, float]:
    """Load the corpus in this process and report time and memory."""
    process = psutil.Process()
    before = process.memory_info()
    start = time.perf_counter()
    corpus = AsDict(folder) if how == "dict" else AsTexts(folder)
    seconds = time.perf_counter() - start
    loaded = process.memory_info()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    keys = [str(number) for number in random.Random(1).choices(range(len(corpus.texts)), k=LOOKUPS)]
    start = time.perf_counter()
    singly = sum(len(corpus.one(key)) for key in keys)
    one_by_one = time.perf_counter() - start
    start = time.perf_counter()
    at_once = sum(map(len, corpus.many(keys)))
    together = time.perf_counter() - start
    after = process.memory_info()
    assert singly == at_once
    return {
        "load_seconds": seconds,
        "lookups_ms": one_by_one * 1000,
        "lookups_at_once_ms": together * 1000,
        "resident_mb": (loaded.rss - before.rss) / MEGABYTE,
        "anonymous_mb": (loaded.rss - loaded.shared - before.rss + before.shared) / MEGABYTE,
        "resident_after_lookups_mb": (after.rss - before.rss) / MEGABYTE,
        "anonymous_after_lookups_mb": (after.rss - after.shared - before.rss + before.shared) / MEGABYTE,
        "peak_while_loading_mb": peak,
    }


def fresh_process(folder: Path, cache: Path, how: str) -> dict[str, float]:
    """`measure` in a separate process."""
    command = [sys.executable, __file__, "--measure", how, "--folder", str(folder)]
    environment = os.environ | {"LIMBECK_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def table(passages: int, file_mb: float, rows: dict[str, dict[str, float]]) -> str:
    """The result in readable form."""
    heads = ("load s", "lookups ms", "at once ms", "resident MB", "anonymous MB", "resident*", "anonymous*", "peak MB")
    lines = [
        f"{passages:,} passages, corpus.jsonl {file_mb:,.0f} MB, {LOOKUPS:,} random lookups by id (* after them)",
        f"{'':6}" + "".join(f"{head:>13}" for head in heads),
    ]
    for name, row in rows.items():
        seconds, *others = row.values()
        lines.append(f"{name:6}{seconds:13.2f}" + "".join(f"{value:13,.0f}" for value in others))
    return "\n".join(lines)


def main() -> None:
    """Make the corpus, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", choices=["cold", "warm", "dict"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.folder, options.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="limbeck-corpus-") as scratch:
        folder, cache = Path(scratch) / "corpus", Path(scratch) / "cache"
        folder.mkdir()
        write_folder(folder, options.passages)
        file_mb = (folder / "corpus.jsonl").stat().st_size / MEGABYTE
        rows = {how: fresh_process(folder, cache, how) for how in ("cold", "warm", "dict")}
    result: dict[str, Any] = {"passages": options.passages, "file_mb": file_mb, **rows}
    print(json.dumps(result, indent=2) if options.json else table(options.passages, file_mb, rows))


if __name__ == "__main__":
    main()
