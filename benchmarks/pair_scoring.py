"""Pairs a second: cross-encoders as a user would run them, and a DiPair head (4 + 8 tokens of 256 numbers, 2 layers of
1024) alone and end to end, side by side in one run.

Cross-encoders have made-up weights of the true sizes and read pairs of 128 tokens. "head alone" scores texts that are
encoded and prepared, on one core; "end to end" is the command `limbeck score` with all cores: it chooses a batch size,
starts its workers, reads a parquet file of ids, gathers vectors, scores, and writes parquet. The clock starts when the
model is loaded. Ratios compare like with like: one core with one core, all with all.

    python -m benchmarks.pair_scoring
    python -m benchmarks.pair_scoring --pairs 12000000 --heads int8 --only-heads    # a long list, one head
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from limbeck.matchers import DiPair, build, matcher_config
from limbeck.matchers.encoding import as_encoded
from limbeck.matchers.interactions.folded import FoldedTransformer
from limbeck.progress import reporting
from limbeck.runtimes.onnx_head import OnnxHead
from limbeck.scoring.job import score_pairs
from limbeck.scoring.local import LocalEngine

TOKENS = 128
SIZES = {  # layers, hidden size, attention heads
    "BERT-base": (12, 768, 12),
    "MiniLM": (6, 384, 12),
    "BERT-tiny": (2, 128, 2),
}
SLOTS, DIM, LAYERS, WIDTH = (4, 8), 256, 2, 1024
BATCHES = (64, 128, 256, 512)


def rate(work: Callable[[], Any], count: int, seconds: float = 2.0) -> float:
    """The rate per second, the best of several measurements: other work on the machine only makes it slower."""
    work()
    best, ends = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        began = time.perf_counter()
        work()
        best = max(best, count / (time.perf_counter() - began))
    return best


class Cross(nn.Module):
    """A cross-encoder: BERT of a size, and a score from [CLS]."""

    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
        config = BertConfig(**sizes, intermediate_size=4 * hidden, num_labels=1, attn_implementation="sdpa")
        self.model = BertForSequenceClassification(config).eval()

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits


def in_onnx_int8(cross: Cross, ids: Tensor, folder: Path) -> Callable[[], Any]:
    """The same cross-encoder in onnxruntime with dynamic 8-bit weights, made with its own tools."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        axes = {"ids": {0: "pairs"}}
        cross.model.set_attn_implementation("eager")
        torch.onnx.export(cross, (ids,), buffer, input_names=["ids"], dynamic_axes=axes, dynamo=False, opset_version=17)
    (folder / "plain.onnx").write_bytes(buffer.getvalue())
    logging.disable(logging.WARNING)
    quantize_dynamic(folder / "plain.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8, reduce_range=True)
    logging.disable(logging.NOTSET)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(folder / "int8.onnx", options, providers=["CPUExecutionProvider"])
    given = {"ids": ids.numpy()}
    return lambda: session.run(None, given)


def cross_encoders(batch: int, folder: Path) -> list[dict[str, Any]]:
    """Each size in torch and in onnxruntime, on one core and on all."""
    rows = []
    everything = LocalEngine().workers
    for name, sizes in SIZES.items():
        for how in ("torch", "onnxruntime int8"):
            found: dict[str, Any] = {"what": f"{name}, {how}"}
            for cores in (1, everything):
                torch.set_num_threads(cores)
                torch.manual_seed(0)
                cross, ids = Cross(*sizes), torch.randint(1000, 20000, (batch, TOKENS))
                with torch.inference_mode():
                    run = in_onnx_int8(cross, ids, folder) if how != "torch" else lambda c=cross, i=ids: c(i)
                    found[f"cores_{cores}"] = rate(run, batch, 5.0)
            rows.append({**found, "one": found["cores_1"], "all": found[f"cores_{everything}"]})
    return rows


def dipair() -> DiPair:
    torch.manual_seed(0)
    sizes = {"tokens": SLOTS, "dim": DIM, "head_layers": LAYERS, "head_width": WIDTH}
    lengths = {"layers": 1, "query_length": 16, "document_length": 16}
    matcher = build(matcher_config(kind="dipair", start="minilm", **sizes, **lengths)).eval()
    assert isinstance(matcher, DiPair)
    return matcher


def heads(matcher: DiPair, seconds: float) -> list[dict[str, Any]]:
    """The head on one core, at its best batch size, and how close it is to the limit of the matrix product."""
    torch.set_num_threads(1)
    folded = matcher.interaction.folded()
    assert isinstance(folded, FoldedTransformer)
    rows = []
    for name, head in {
        "training graph": matcher.interaction,
        "folded, torch": folded,
        "folded, onnxruntime": OnnxHead(folded),
        "folded, onnxruntime int8": OnnxHead(folded, int8=True),
    }.items():
        best = {"one": 0.0, "batch": 0}
        for batch in BATCHES:
            vectors = [as_encoded(torch.randn(batch, slots, DIM).numpy()) for slots in SLOTS]
            with torch.inference_mode():
                texts = [head.prepare(some, position) for position, some in enumerate(vectors)]
                got = rate(lambda h=head, t=texts: h.score(t), batch, seconds)
            best = max(best, {"one": got, "batch": batch}, key=lambda each: each["one"])
        rows.append({"what": f"head alone, {name}", **best})
    return rows


def products_a_pair() -> int:
    """Multiplications of a folded pair that are products with weights or between tokens."""
    slots = sum(SLOTS)
    first = 2 * slots * slots * DIM + 2 * slots * DIM * WIDTH
    last = 2 * DIM * DIM + 2 * slots * DIM + 2 * DIM * WIDTH
    return first + last


def matrix_limit(seconds: float) -> float:
    """Multiplications a second of the head's largest product, in float32 on one core."""
    torch.set_num_threads(1)
    rows = 128 * sum(SLOTS)
    left, right = torch.randn(rows, DIM), torch.randn(WIDTH, DIM)
    return rate(lambda: left @ right.T, rows * DIM * WIDTH, seconds)


def end_to_end(matcher: DiPair, pairs: int, texts: int, head: str, folder: Path) -> float:
    """Pairs per second of `limbeck score` with stored vectors."""
    matcher.save_pretrained(folder / "model")
    generator = np.random.default_rng(0)
    sides = {}
    for side in ("left", "right"):
        sides[side] = str(folder / f"{side}.jsonl")
        with open(sides[side], "w") as handle:
            for number in range(texts):
                words = " ".join(str(word) for word in generator.integers(0, 9999, size=6))
                handle.write(json.dumps({"_id": f"{side}{number}", "text": words}) + "\n")
    columns = {
        side: pa.array([f"{side}{number}" for number in generator.integers(0, texts, size=pairs)]) for side in sides
    }
    pq.write_table(pa.table(columns), folder / "pairs.parquet")
    every = {side: [f"{side}{number}" for number in range(texts)] for side in sides}
    pq.write_table(pa.table(every), folder / "every.parquet")
    model, store = str(folder / "model"), folder / "store"
    with reporting(None):  # encodes all texts
        score_pairs(model, folder / "every.parquet", folder / f"every-{head}", LocalEngine(1), **sides, store=store)
    given = [model, folder / "pairs.parquet", "--out", folder / f"all-{head}", "--store", store, "--head", head]
    given += ["--left", sides["left"], "--right", sides["right"], "--json"]
    command = [sys.executable, "-m", "limbeck", "score", *map(str, given)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return float(json.loads(done.stdout)["pairs_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4_000_000, help="scored end to end")
    parser.add_argument("--texts", type=int, default=5_000, help="on each side")
    parser.add_argument("--batch", type=int, default=8, help="pairs at a time of the cross-encoders")
    parser.add_argument("--heads", default="auto,int8", help="heads to run end to end")
    parser.add_argument("--only-heads", action="store_true", help="without cross-encoders, and so without ratios")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each batch size of each head")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [] if options.only_heads else cross_encoders(options.batch, folder)
        matcher = dipair()
        rows += heads(matcher, options.seconds)
        alone = {row["what"]: row["one"] for row in rows if "head alone" in row["what"]}
        float32 = max(rate for what, rate in alone.items() if "int8" not in what)
        of_alone = {}
        for head in options.heads.split(","):
            speed = end_to_end(matcher, options.pairs, options.texts, head, folder)
            rows.append({"what": f"end to end, --head {head}", "all": speed})
            one = alone["head alone, folded, onnxruntime int8"] if head == "int8" else float32
            of_alone[head] = speed / one / LocalEngine().workers
    base = {} if options.only_heads else rows[0]
    for row in rows:
        for key in ("one", "all"):
            row[f"ratio_{key}"] = row[key] / base[key] if key in row and key in base else None
    limit = matrix_limit(options.seconds)
    share = {row["what"]: row["one"] * products_a_pair() / limit for row in rows if "folded" in row["what"]}
    if options.json:
        facts = {"rows": rows, "multiplications_a_pair": products_a_pair(), "limit": limit, "share": share}
        print(json.dumps({**facts, "of_cores_times_head_alone": of_alone}))
        return
    print(f"{'pairs a second':<40}{'one core':>12}{'all cores':>12}{'x BERT-base, one':>18}{'all':>8}")
    for row in rows:
        cells = [f"{row[key]:,.1f}" if key in row else "" for key in ("one", "all")]
        ratios = [f"{row[key]:,.0f}" if row[key] else "" for key in ("ratio_one", "ratio_all")]
        print(f"{row['what']:<40}{cells[0]:>12}{cells[1]:>12}{ratios[0]:>18}{ratios[1]:>8}")
    for head, part in of_alone.items():
        print(f"end to end, --head {head}: {part:.0%} of the head alone times {LocalEngine().workers} cores")
    print(
        f"\n{products_a_pair() / 1e6:.1f} million multiplications a pair; the processor's float32 matrix product does"
    )
    print(f"{limit / 1e9:.1f} thousand million a second on one core. Of that limit the heads reach:")
    for what, part in share.items():
        print(f"  {what:<40}{part:>6.0%}")


if __name__ == "__main__":
    main()
