"""`limbeck score` on lists of 1, 3 and 10 million pairs: time, peak memory, bytes written.

The model is `dipair-laptop`'s shape (4 + 4 tokens of 128 numbers, a head of 2 layers of 512) with an encoder of one
layer; texts are encoded before the clock starts. Memory is the proportional share (PSS) of the command and all its
workers together, looked at twice a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from limbeck.matchers import build, matcher_config

BLOCK = 1_000_000


def write_model(folder: Path) -> None:
    torch.manual_seed(0)
    sizes = {"tokens": (4, 4), "dim": 128, "head_layers": 2, "head_width": 512}
    lengths = {"layers": 1, "query_length": 16, "document_length": 16}
    build(matcher_config(kind="dipair", start="minilm", **sizes, **lengths)).save_pretrained(folder)


def write_texts(path: Path, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    with open(path, "w") as handle:
        for number in range(count):
            words = " ".join(str(word) for word in generator.integers(0, 9999, size=6))
            handle.write(json.dumps({"_id": f"t{number}", "text": words}) + "\n")


def write_pairs(path: Path, pairs: int, texts: int) -> None:
    generator = np.random.default_rng(2)
    names = pa.array([f"t{number}" for number in range(texts)])
    with pq.ParquetWriter(path, pa.schema([("left", pa.string()), ("right", pa.string())])) as writer:
        for start in range(0, pairs, BLOCK):
            count = min(BLOCK, pairs - start)
            columns = [names.take(pa.array(generator.integers(0, texts, size=count))) for _ in range(2)]
            writer.write_table(pa.table({"left": columns[0], "right": columns[1]}))


def write_every_text(path: Path, texts: int) -> None:
    """A list with each text in one pair, so that all texts are encoded."""
    names = pa.array([f"t{number}" for number in range(texts)])
    pq.write_table(pa.table({"left": names, "right": names}), path)


def memory(process: psutil.Process) -> int:
    """Bytes of a process and its children; shared memory counts once."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_full_info().pss
        except psutil.Error:  # it ended in the meantime
            continue
    return total


def measure(folder: Path, list_file: Path, pairs: int, head: str) -> dict[str, Any]:
    out = folder / f"out-{list_file.stem}"
    command = [sys.executable, "-m", "limbeck", "score", str(folder / "model"), str(list_file)]
    command += ["--left", str(folder / "left.jsonl"), "--right", str(folder / "right.jsonl")]
    command += ["--store", str(folder / "store"), "--head", head, "--out", str(out), "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(psutil.Process(process.pid)))
        time.sleep(0.5)
    seconds = time.perf_counter() - began
    assert process.stdout is not None
    facts = json.loads(process.stdout.read())
    return {
        "pairs": pairs,
        "seconds": seconds,
        "pairs_per_second": pairs / seconds,
        "peak_bytes": peak,
        "written_bytes": facts["bytes"],
        "bytes_a_pair": facts["bytes"] / pairs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--texts", type=int, default=20_000, help="on each side")
    parser.add_argument("--head", default="auto")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model")
        for seed, side in enumerate(("left", "right")):
            write_texts(folder / f"{side}.jsonl", options.texts, seed)
        write_every_text(folder / "every.parquet", options.texts)
        measure(folder, folder / "every.parquet", options.texts, options.head)
        for pairs in options.pairs:
            file = folder / f"pairs-{pairs}.parquet"
            write_pairs(file, pairs, options.texts)
            rows.append(measure(folder, file, pairs, options.head))
            file.unlink()
            row = rows[-1]
            if not options.json:
                print(
                    f"{row['pairs']:>12,} pairs: {row['seconds']:>7,.0f} s, {row['pairs_per_second']:>7,.0f} a second, "
                    f"at most {row['peak_bytes'] / 1e6:,.0f} MB, {row['written_bytes'] / 1e6:,.0f} MB written "
                    f"({row['bytes_a_pair']:.1f} bytes a pair)",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
