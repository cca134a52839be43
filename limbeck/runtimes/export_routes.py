"""The parts of a matcher as an export needs them: graphs or tables with their tokenizers, and what each side does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sentence_transformers.base.modules import Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import SIDES, Side
from limbeck.matchers.static import tokens_read
from limbeck.runtimes.compiled import CompiledEncoder
from limbeck.runtimes.exported import PAIR
from limbeck.runtimes.exported_route import Encoder, Route
from limbeck.runtimes.inputs import CannotExport, NothingToRound, Signature
from limbeck.runtimes.int8 import with_int8_weights
from limbeck.runtimes.sessions import NeedsTorch
from limbeck.runtimes.single import TRIED
from limbeck.runtimes.tail import Step
from limbeck.runtimes.tail_of_modules import pair_steps, steps_of, table_steps, token_steps
from limbeck.runtimes.trace import float32_graph
from limbeck.runtimes.use import require_in, use_torch

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
IN_TORCH = "run the model itself, in torch"


@dataclass(frozen=True)
class Part:
    """A transformer as a graph, or a table of token vectors; and its tokenizer."""

    tokenizer: Tokenizer
    graph: bytes | None = None
    table: np.ndarray | None = None
    padding: int = 0


@dataclass
class Parts:
    """All of a matcher. `routes` has what `Route` takes, by side; their `encoder` is the number of a part."""

    parts: list[Part] = field(default_factory=list)
    routes: dict[str, dict[str, Any]] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)  # of modules

    def number(self, module: Any, make: Any) -> int:
        """The number of a module's part; sides may share a module."""
        if id(module) not in self._numbers:
            self._numbers[id(module)] = len(self.parts)
            self.parts.append(make())
        return self._numbers[id(module)]


class CannotWrite(Exception):
    """Why a matcher cannot be exported, in a few words."""


def parts_of(matcher: Any, runtime: str, bits: int, name: str) -> Parts:
    """The parts of a matcher in a runtime; a matcher that needs torch is refused. It ends in torch."""
    try:
        found = (_of_pairs if matcher.encoding(0) is None else _of_towers)(matcher, runtime, bits)
        if runtime == "int8" and all(part.graph is None for part in found.parts):
            raise NothingToRound
        return found
    except CannotWrite as error:
        raise refusal(name, error, f"run the model itself with --runtime {runtime}") from error
    except NothingToRound as error:
        raise refusal(name, error, "leave out --int8") from error
    except CannotExport as error:
        raise refusal(name, f"it has no graph ({error})", IN_TORCH) from error
    except NeedsTorch as error:
        raise refusal(name, error.problem, IN_TORCH) from error
    finally:
        use_torch(matcher)


def refusal(name: str, why: object, remedy: str) -> LimbeckError:
    return LimbeckError(f"{name}: cannot be exported: {why}; {remedy}")


def _of_towers(matcher: Any, runtime: str, bits: int) -> Parts:
    tower = getattr(matcher, "tower", None)
    if tower is None or not hasattr(tower, "route") or matcher.encoding(0).tokens not in (None, "ragged"):
        raise CannotWrite(f"the {matcher.interaction.name} of this {matcher.kind} reads more than vectors, in torch")
    by_token = matcher.encoding(0).tokens == "ragged"
    if any(isinstance(tower.transformer(side), Transformer) for side in SIDES):
        require_in(matcher, runtime)
    found = Parts()
    for side in SIDES:
        first = tower.transformer(side)
        make = _table_route if isinstance(first, StaticEmbedding) else _text_route
        found.routes[side] = make(found, tower, side, by_token, bits)
    return found


def _text_route(found: Parts, tower: Any, side: Side, by_token: bool, bits: int) -> dict[str, Any]:
    part, *rest = tower.route(side)
    if type(part) is not Transformer or not hasattr(part.tokenizer, "backend_tokenizer"):
        raise CannotWrite(f"its {type(part).__name__} is more than a transformer with a fast tokenizer")
    prompt = tower.prompt(side) or ""
    features = tower.model.preprocess([TRIED[1]], prompt=tower.prompt(side), task=side)
    fill = _fill(part, features) if side == "query" else None
    own = part.query_length if side == "query" else part.document_length
    told = {
        "encoder": found.number(part, lambda: _graph_part(part, part.model.forward, features, bits)),
        "longest": int(fill["length"] if fill else own or part.max_seq_length),
        "cut_from": part.tokenizer.truncation_side,
        "prompt": prompt,
        "fill": fill,
        "skip": _skipped(rest, side),
        "steps": _known(token_steps(rest) if by_token else steps_of(rest, bool(prompt)), rest),
    }
    _require_same_tokens(tower, side, found.parts[told["encoder"]], told)
    return told


def _graph_part(part: Any, compiled: CompiledEncoder, features: Any, bits: int) -> Part:
    given = {name: features[name].numpy() for name in INPUTS if name in features}
    graph = compiled.graph(Signature.of(given, compiled.pooled), bits)
    return Part(_bare(part.tokenizer.backend_tokenizer), graph, padding=int(part.tokenizer.pad_token_id or 0))


def _bare(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that cuts and pads nothing."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _table_route(found: Parts, tower: Any, side: Side, by_token: bool, bits: int) -> dict[str, Any]:
    part, *rest = tower.route(side)

    def make() -> Part:
        return Part(_bare(part.tokenizer), table=part.embedding.weight.detach().float().numpy())

    return {
        "encoder": found.number(part, make),
        "longest": tokens_read(part),
        "prompt": tower.prompt(side) or "",
        "marks": False,
        "steps": _known(table_steps(rest), rest),
    }


def _fill(part: Any, features: Any) -> dict[str, Any] | None:
    """The tokens that fill a ColBERT's query, as they stand in the features of a short one."""
    expansion = part.query_expansion
    if not expansion:
        return None
    where = features["query_expansion_positions"][0].bool()
    if not where.any():
        raise CannotWrite("its queries are filled in another way than to a fixed length")
    ident = int(features["input_ids"][0][where][0])
    return {"length": int(expansion["length"]), "id": ident, "attend": bool(expansion["attend"])}


def _skipped(modules: Sequence[Any], side: Side) -> list[int]:
    """Tokens whose vectors a ColBERT leaves out."""
    for module in modules:
        if isinstance(module, MultiVectorMask):
            if module.keep_only_token_ids:
                raise CannotWrite("it keeps only some tokens")
            ids = module._skiplist_ids
            return ids.tolist() if ids is not None and side in module.skiplist_tasks else []
    return []


def _known(steps: list[Step] | None, modules: Sequence[Any]) -> list[Step]:
    if steps is None:
        names = ", ".join(type(module).__name__ for module in modules) or "nothing"
        raise CannotWrite(f"behind its transformer it has {names}, of which some need torch")
    return steps


def _require_same_tokens(tower: Any, side: Side, part: Part, told: dict[str, Any]) -> None:
    """Compare tokens with those of sentence-transformers, on short and long texts."""
    nothing: Encoder = None  # type: ignore[assignment]  # only tokens are asked for
    route = Route(nothing, _bare(part.tokenizer), **{name: told[name] for name in told if name not in ("encoder",)})
    for text in TRIED:
        features = tower.model.preprocess([text], prompt=tower.prompt(side), task=side)
        (mine,) = route.tokens([text])
        theirs = [features[name][0].tolist() for name in ("input_ids", "attention_mask")]
        mask = [1] * mine.attended + [0] * (len(mine.ids) - mine.attended)
        if [mine.ids, mask] != theirs:
            raise CannotWrite("its tokens are not those of its tokenizer alone")


def _of_pairs(matcher: Any, runtime: str, bits: int) -> Parts:
    """A cross-encoder: a classifier of transformers as one graph, or a transformer with linear maps behind it."""
    model = getattr(matcher, "model", None)
    shared = matcher._shared() if hasattr(matcher, "_shared") else None
    if model is None or shared is None or type(model[0]) is not Transformer:
        raise CannotWrite("its pairs are not made by a fast tokenizer alone")
    first, *rest = model
    features = model.preprocess([("a", "b")])
    found = Parts()
    whole = first.model is not first.model.base_model
    if whole and rest:
        raise CannotWrite(f"its classifier has {', '.join(type(module).__name__ for module in rest)} behind it")
    if whole:
        found.parts.append(_classifier(first, features, runtime, bits))
    else:
        require_in(matcher, runtime)
        found.parts.append(_graph_part(first, first.model.forward, features, bits))
    found.routes[PAIR] = {
        "encoder": 0,
        "longest": int(first.max_seq_length),
        "cut_from": first.tokenizer.truncation_side,
        "steps": [] if whole else _known(pair_steps(rest), rest),
        "whole": whole,
    }
    return found


def _classifier(part: Any, features: Any, runtime: str, bits: int) -> Part:
    given = {name: features[name].numpy() for name in INPUTS if name in features}
    graph = float32_graph(part.model, part.model.forward, Signature.of(given, False, logits=True))
    if runtime == "int8":
        graph, products = with_int8_weights(graph, bits)
        if not products:
            raise NothingToRound
    return Part(_bare(part.tokenizer.backend_tokenizer), graph, padding=int(part.tokenizer.pad_token_id or 0))
