"""Write a model as a folder that runs without torch: dual encoders with one or two towers, ColBERT, cross-encoders.

A dual encoder with one tower is in the layout of sentence-transformers' ONNX backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME, write_list
from limbeck.files import directory_atomically, read_json, require_empty_or_absent, write_json
from limbeck.matchers import load
from limbeck.matchers.chunks import SIDES
from limbeck.matchers.device_choice import using_device
from limbeck.matchers.encoding_matcher import encodes_apart
from limbeck.runtimes.choice import require_runtime
from limbeck.runtimes.export_routes import IN_TORCH, Parts, parts_of, refusal
from limbeck.runtimes.exported import FACTS, FORMAT, GRAPH, PAIR, SIMILARITIES, TAIL, TOKENIZER, Exported
from limbeck.runtimes.gate import Gate, lost
from limbeck.runtimes.measure import EQUAL, closeness, judged_quality, largest_difference
from limbeck.runtimes.sample import Sample
from limbeck.stores.ragged import Ragged

PORTABLE_BITS = 7  # of 8-bit weights: the folder may be used on a processor without exact sums
FLOAT32 = Gate(0.9999, None)  # of an exported float32 model, which has to be equal in every output too


@dataclass(frozen=True)
class Written:
    """An exported folder: its runtime, its bytes, and how near it is to the original on texts of `source`."""

    folder: Path
    runtime: str
    bytes: int
    source: str
    cosine: float  # mean cosine to the original's queries or documents, the lower; a cross-encoder's correlation
    off: float  # the largest difference to the original's outputs, as a share of the largest of these
    judged: str | None = None  # which queries gave nDCG@10
    ndcg: float | None = None
    exact_ndcg: float | None = None  # of the original

    @property
    def lost(self) -> float | None:
        """The share of nDCG@10 that is lost."""
        return lost(self.ndcg, self.exact_ndcg)


def export_model(
    model: str | Path,
    out: str | Path,
    read_sample: Callable[[], Sample],
    int8: bool = False,
    gate: Gate | None = None,
) -> Written:
    """Export a model to the folder `out`; refused, and nothing written, where it fails the gate.

    The texts to compare on are read after the model, so that a model that cannot be exported is refused at once.
    """
    folder, runtime = Path(out).expanduser(), "int8" if int8 else "onnx"
    require_empty_or_absent(folder, "name a folder that does not exist")
    require_runtime(runtime, None)
    with using_device("cpu"):
        matcher = load(model)
    if matcher.texts != 2:
        raise refusal(str(model), f"it reads {matcher.texts} texts", f"run the model itself with --runtime {runtime}")
    parts = parts_of(matcher, runtime, PORTABLE_BITS, str(model))
    sample = read_sample()
    exact, exact_ndcg = _outputs(matcher, sample), judged_quality(matcher, sample)
    with directory_atomically(folder) as place:
        _write(place, matcher, parts, runtime)
        found = Exported.load(place, torch.get_num_threads())
        mine = _outputs(found, sample)
        near, off = _compared(mine, exact)
        ndcg = judged_quality(found, sample) if exact_ndcg is not None else None
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        judged = str(sample.judged) if ndcg is not None else None
        done = Written(folder, runtime, size, sample.source, near, off, judged, ndcg, exact_ndcg)
        _require_quality(done, str(model), (gate or Gate()) if int8 else FLOAT32)
    return done


def _require_quality(done: Written, model: str, gate: Gate) -> None:
    """Refuse what fails the gate, with the limit that would accept it; in float32, what is not equal."""
    if done.runtime != "int8" and not done.off <= EQUAL:
        problem = (
            f"an output is off by {done.off:.2g} of the largest one on texts of {done.source}, more than {EQUAL:g}"
        )
        raise LimbeckError(f"{model}: {problem}; {IN_TORCH}")
    if gate.passes(done.cosine, done.lost):
        return
    if done.lost is None or gate.loss is None:
        problem = f"closeness {done.cosine:.4f} to the original on texts of {done.source}, below {gate.closeness:g}"
        accepted = f"--gate {np.floor(done.cosine * 1000) / 1000:g}"
    else:
        values = f"nDCG@10 {done.ndcg:.4f}, and {done.exact_ndcg:.4f} of the original, on {done.judged}"
        problem = f"{values} of {done.source}: {done.lost:.1%} lost, more than {gate.loss:.1%}"
        accepted = f"--max-loss {np.ceil(done.lost * 1000) / 10:g}"
    remedy = f"leave out --int8, or accept it with {accepted}" if done.runtime == "int8" else IN_TORCH
    raise LimbeckError(f"{model}: {problem}; {remedy}")


def _write(place: Path, matcher: Any, parts: Parts, runtime: str) -> None:
    matcher.save_pretrained(place)
    (place / NAME).unlink()
    _drop_transformers(place)
    (place / GRAPH).parent.mkdir()
    weights, encoders = {"format": np.array([FORMAT])}, []
    for at, part in enumerate(parts.parts):
        told: dict[str, Any] = {"tokenizer": TOKENIZER if at == 0 else f"tokenizer-{SIDES[at]}.json"}
        part.tokenizer.save(str(place / told["tokenizer"]))
        if part.graph is not None:
            told |= {"graph": GRAPH if at == 0 else f"onnx/{SIDES[at]}.onnx", "padding": part.padding}
            (place / told["graph"]).write_bytes(part.graph)
        elif part.table is not None:
            told["table"] = f"table.{at}"
            weights[told["table"]] = part.table
        encoders.append(told)
    routes = {}
    for side, route in parts.routes.items():
        steps = route["steps"]
        weights |= {
            f"{side}.{at}.{name}": value for at, step in enumerate(steps) for name, value in step.weights.items()
        }
        routes[side] = {**route, "steps": [{"kind": step.kind, "settings": step.settings} for step in steps]}
    save_file(weights, place / TAIL)
    similarity = matcher.interaction.name if encodes_apart(matcher) else None
    facts = {
        "format": FORMAT,
        "runtime": runtime,
        "dim": matcher.embedding_dim,
        "tokens": encodes_apart(matcher) and matcher.encoding(0).tokens == "ragged",
        "similarity": similarity,
        "outputs": matcher.outputs if similarity is None or similarity in SIMILARITIES else 0,
        "encoders": encoders,
        "routes": routes,
    }
    write_json(place / FACTS, facts)
    write_list(place)


def _drop_transformers(place: Path) -> None:
    """Remove the weights that graphs have: those beside a transformer's config, and a static encoder's table."""
    for config in place.rglob("config.json"):
        if "model_type" in read_json(config):
            for file in config.parent.glob("*.safetensors"):
                file.unlink()


def _outputs(model: Any, sample: Sample) -> list[np.ndarray]:
    """What is compared: the vectors of queries and of documents, or of their tokens; scores of a cross-encoder."""
    apart = PAIR not in model.routes if isinstance(model, Exported) else encodes_apart(model)
    if not apart:
        return [np.asarray(model.score(sample.pairs()))]
    return [_flat(model.encode_query(sample.queries)), _flat(model.encode_document(sample.documents))]


def _compared(mine: list[np.ndarray], exact: list[np.ndarray]) -> tuple[float, float]:
    """The lowest closeness and the largest difference."""
    if [each.shape for each in mine] != [each.shape for each in exact]:
        return 0.0, float("inf")
    return min(map(closeness, mine, exact)), max(map(largest_difference, mine, exact))


def _flat(encoded: Any) -> np.ndarray:
    if isinstance(encoded, Ragged):
        return np.asarray(encoded.vectors)
    return np.concatenate(encoded) if isinstance(encoded, list) else np.asarray(encoded)
