"""Write a dual encoder as a folder that runs without torch, in the layout of sentence-transformers' ONNX backend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME, write_list
from limbeck.files import directory_atomically, require_empty_or_absent, write_json
from limbeck.matchers import load
from limbeck.matchers.chunks import SIDES
from limbeck.matchers.device_choice import using_device
from limbeck.runtimes.exported import FACTS, FORMAT, GRAPH, TAIL, Exported
from limbeck.runtimes.gate import Gate, lost
from limbeck.runtimes.inputs import Signature
from limbeck.runtimes.measure import closeness, judged_quality
from limbeck.runtimes.sample import Sample
from limbeck.runtimes.single import ShortWay
from limbeck.runtimes.use import use_runtime

PORTABLE_BITS = 7  # of 8-bit weights: the folder may be used on a processor without exact sums
FLOAT32 = 0.9999  # the least mean cosine of an exported float32 model


@dataclass(frozen=True)
class Written:
    """An exported folder: its runtime, its bytes, and how near it is to the original on texts of `source`."""

    folder: Path
    runtime: str
    bytes: int
    source: str
    cosine: float  # the mean, of its vectors to the original's
    judged: str | None = None  # which queries gave nDCG@10
    ndcg: float | None = None
    exact_ndcg: float | None = None  # of the original

    @property
    def lost(self) -> float | None:
        """The share of nDCG@10 that is lost."""
        return lost(self.ndcg, self.exact_ndcg)


def export_model(
    model: str | Path, out: str | Path, sample: Sample, int8: bool = False, gate: Gate | None = None
) -> Written:
    """Export a model to the folder `out`; refused, and nothing written, where it fails the gate."""
    folder, runtime = Path(out).expanduser(), "int8" if int8 else "onnx"
    require_empty_or_absent(folder, "name a folder that does not exist")
    with using_device("cpu"):
        matcher = load(model)
    ways = _ways(matcher, runtime, str(model))
    use_runtime(matcher, "torch")
    exact, exact_ndcg = _vectors(matcher, sample), judged_quality(matcher, sample)
    with directory_atomically(folder) as place:
        matcher.save_pretrained(place)
        for file in (*place.glob("*.safetensors"), place / NAME):
            file.unlink(missing_ok=True)  # the graph has the transformer's weights
        _write(place, matcher, ways, runtime)
        found = Exported.load(place, torch.get_num_threads())
        cosine = closeness(_vectors(found, sample), exact)
        ndcg = judged_quality(found, sample) if exact_ndcg is not None else None
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        judged = str(sample.judged) if ndcg is not None else None
        done = Written(folder, runtime, size, sample.source, cosine, judged, ndcg, exact_ndcg)
        _require_quality(done, str(model), (gate or Gate()) if int8 else Gate(FLOAT32, None))
    return done


def _require_quality(done: Written, model: str, gate: Gate) -> None:
    """Refuse what fails the gate, with the limit that would accept it."""
    if gate.passes(done.cosine, done.lost):
        return
    if done.lost is None or gate.loss is None:
        problem = f"mean cosine {done.cosine:.4f} to the original on texts of {done.source}, below {gate.closeness:g}"
        accepted = f"--gate {np.floor(done.cosine * 1000) / 1000:g}"
    else:
        values = f"nDCG@10 {done.ndcg:.4f}, and {done.exact_ndcg:.4f} of the original, on {done.judged}"
        problem = f"{values} of {done.source}: {done.lost:.1%} lost, more than {gate.loss:.1%}"
        accepted = f"--max-loss {np.ceil(done.lost * 1000) / 10:g}"
    remedy = f"leave out --int8, or accept it with {accepted}" if done.runtime == "int8" else "use --runtime torch"
    raise LimbeckError(f"{model}: {problem}; {remedy}")


def _ways(matcher: Any, runtime: str, name: str) -> dict[str, ShortWay]:
    """What each side does with a text, in the runtime; refused for models that are more than that."""
    use_runtime(matcher, runtime)
    towers = [part for part in matcher.modules() if getattr(part, "single", None)]
    ways: dict[str, Any] = towers[0].single if towers else {}
    if matcher.runtime != runtime or set(ways) != set(SIDES):
        problem = f"this {matcher.kind} cannot be exported: it is more than one transformer, pooling and linear maps"
        raise LimbeckError(f"{name}: {problem}; use --runtime {runtime} instead")
    query, document = (ways[side] for side in SIDES)
    if query.part is not document.part:
        raise LimbeckError(f"{name}: queries and documents have separate towers; use --runtime {runtime} instead")
    return ways


def _write(place: Path, matcher: Any, ways: dict[str, ShortWay], runtime: str) -> None:
    way = ways["query"]
    given = way.tokens("a")
    encoder: Any = way.run.__self__
    (place / GRAPH).parent.mkdir()
    (place / GRAPH).write_bytes(encoder.graph(Signature.of(given, encoder.pooled), PORTABLE_BITS))
    way.tokenizer.no_truncation()
    way.tokenizer.save(str(place / "tokenizer.json"))
    weights = {f"{at}.{name}": value for at, step in enumerate(way.steps) for name, value in step.weights.items()}
    save_file({"format": np.array([FORMAT]), **weights}, place / TAIL)
    lengths = {side: each.longest for side, each in ways.items()}
    facts = {
        "format": FORMAT,
        "runtime": runtime,
        "dim": matcher.embedding_dim,
        "similarity": matcher.interaction.name,
        "lengths": lengths,
        "prompts": {side: each.prompt for side, each in ways.items()},
        "padding": int(way.part.tokenizer.pad_token_id or 0),
        "truncation_side": way.part.tokenizer.truncation_side,
        "steps": [{"kind": step.kind, "settings": step.settings} for step in way.steps],
    }
    write_json(place / FACTS, facts)
    write_list(place)


def _vectors(model: Any, sample: Sample) -> np.ndarray:
    return np.concatenate([model.encode_query(sample.queries), model.encode_document(sample.documents)])
