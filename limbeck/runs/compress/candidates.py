"""The students that are tried, from the cheapest to the dearest: each is a recipe whose stages are its rungs.

A teacher with one vector per text (a dual encoder) has students that keep its document vectors and only have a
cheaper query encoder, and students that also have their own document encoder. Any other teacher, or a folder of
scores, has students that learn to order candidates as it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from transformers import AutoConfig

from limbeck.errors import LimbeckError
from limbeck.matchers.config import matcher_config
from limbeck.matchers.safe_loading import HERE_ONLY
from limbeck.matchers.starts import local_start, start_kind, start_of
from limbeck.recipe.files import parse_recipe
from limbeck.recipe.recipe import Recipe

BATCH, LIST_BATCH = 64, 16
FEWEST_STEPS, MOST_STEPS = 50, 400  # of the first rung
GROWTH = (1, 2, 4)  # steps of the rungs of embedding matching, in units of the first
LIST_GROWTH = (1, 2)
MOST_TOKENS = 128  # of a document; a query has half
FEWEST_LABELS, LABEL_BATCH, LABEL_EPOCHS = 200, 128, 5
LABELS = "labels"  # part of the name of a student that also learns from labels
STATIC_COST = 0.1  # of a step, in layers of a query encoder


@dataclass(frozen=True)
class Candidate:
    """A student to try. After rung r it has been trained in the first `rungs[r]` stages of its recipe."""

    name: str
    recipe: Recipe
    rungs: tuple[int, ...]
    cost: float  # of a training step, relative to one layer that reads queries; for estimates
    without_labels: str | None = None  # the same student without labels, which it has to beat after its first rung

    @property
    def is_static(self) -> bool:
        """Whether its queries need no transformer, so that no other runtime could run it."""
        return getattr(self.recipe.student, "encoder", None) == "static"

    @property
    def keeps_documents(self) -> bool:
        """Whether the teacher's document vectors serve it."""
        return getattr(self.recipe.student, "document", None) is not None

    def recipe_at(self, rung: int) -> Recipe:
        return self.recipe.model_copy(update={"stages": self.recipe.stages[: self.rungs[rung]]})

    def new_steps(self, rung: int) -> int:
        """The steps of a rung, without those of the rungs before it."""
        first = self.rungs[rung - 1] if rung else 0
        return sum(stage.steps or 0 for stage in self.recipe.stages[first : self.rungs[rung]])


@dataclass(frozen=True)
class Start:
    """The model that students start from."""

    name: str
    layers: int
    longest: int  # tokens of a text

    @classmethod
    def of(cls, name: str) -> Start:
        config = local_start(matcher_config(init_from=name))
        if start_kind(config) == "StaticEmbedding":
            problem = "has no transformer that could be made smaller"
            raise LimbeckError(f"{name}: {problem}; give another teacher, or another --start")
        found = AutoConfig.from_pretrained(start_of(config).init_from, **HERE_ONLY)
        positions = getattr(found, "max_position_embeddings", None) or MOST_TOKENS
        return cls(name, int(found.num_hidden_layers), min(MOST_TOKENS, int(positions)))


def kept_layers(count: int, there: int) -> str | list[int]:
    """The layers of a student: the best one, or the first, the last, and others spread between them."""
    if count == 1:
        return "auto:1"
    return sorted({round(at * (there - 1) / (count - 1) + 0.01) for at in range(count)})


def of_dual_encoder(
    base: dict[str, Any], texts: tuple[int, int], start: Start, keep_documents: bool, labelled: int = 0
) -> Iterator[Candidate]:
    """Students of a model with one vector per text.

    `texts` are the numbers of training queries and of documents, `labelled` that of training queries with labels.
    """
    there = start.layers
    common = {"kind": "dual_encoder", "init_from": "teacher", "align": True, **_lengths(start)}
    asymmetric = {**common, "document": "teacher"}
    static = asymmetric | {"encoder": "static"}
    yield _candidate("static", base, static, [], (0,), STATIC_COST)
    steps = _steps(texts[0], BATCH)
    stages = [_matching("match_embeddings(of=queries)", steps * factor) for factor in GROWTH]
    counts = [count for count in (2, 3, 1) if count < there]  # one layer is hardly ever better than a static encoder
    layered = {count: asymmetric | {"layers": kept_layers(count, there), "inner_dropout": 0.0} for count in counts}
    for count, student in layered.items():
        yield _candidate(_layers(count), base, student, stages, (1, 2, 3), count)
    if labelled >= FEWEST_LABELS:
        last = _label_stage(labelled, 1e-3)
        yield _candidate(f"static, {LABELS}", base, static, [last], (1,), STATIC_COST, "static")
        if 3 in layered:
            both = [stages[0], _label_stage(labelled, 1e-4)]
            yield _candidate(f"{_layers(3)}, {LABELS}", base, layered[3], both, (2,), 3, _layers(3))
    if keep_documents:
        return
    stages = [_matching("match_embeddings", _steps(sum(texts), BATCH) * factor) for factor in GROWTH]
    for count in (count for count in counts if count > 1):
        student = common | {
            "layers": kept_layers(count, there),
            "similarity": "cosine",
            "inner_dropout": 0.0,
        }
        yield _candidate(f"{_layers(count)}, both sides", base, student, stages, (1, 2, 3), 4 * count)


def of_scores(base: dict[str, Any], texts: tuple[int, int], scored: int, start: Start) -> Iterator[Candidate]:
    """Students that learn the order of a teacher's scores, from `start`; `scored` is the number of scored queries."""
    there = start.layers
    common = {"init_from": start.name, **_lengths(start)}
    dual = common | {"kind": "dual_encoder", "align": True, "scale": 20.0}
    steps = _steps(scored, LIST_BATCH)
    lists = [_list_stage(steps * factor, 3e-4) for factor in LIST_GROWTH]
    static = [_list_stage(steps * factor, 1e-3) for factor in LIST_GROWTH]
    yield _candidate("static", base, dual | {"encoder": "static"}, static, (0, 1, 2), STATIC_COST)
    matching = _matching("match_embeddings(unit=True)", _steps(sum(texts), BATCH) * 2)
    counts = [count for count in (2, 3) if count < there] or [there]
    for count in counts:
        student = dual | {"layers": kept_layers(count, there) if count < there else there}
        yield _candidate(_layers(count), base, student, [matching, *lists], (2, 3), 5 * count)
    least = counts[0]
    tokens = common | {"kind": "colbert", "layers": kept_layers(least, there) if 1 < least < there else least}
    slow = [_list_stage(steps * factor, 1e-4) for factor in LIST_GROWTH]
    without_spans = base | {"data": {**base["data"], "spans": 0}}  # nothing of it reads them
    yield _candidate(f"ColBERT, {_layers(least)}", without_spans, tokens, slow, (1, 2), 5 * least)


def _candidate(
    name: str,
    base: dict[str, Any],
    student: dict[str, Any],
    stages: list[Any],
    rungs: tuple[int, ...],
    cost: float,
    without_labels: str | None = None,
) -> Candidate:
    told = f"`limbeck compress` of {base['teacher'].get('model') or base['teacher'].get('scores')}: {name}"
    values = base | {"name": name.replace(", ", "-").replace(" ", "-"), "description": told}
    recipe = parse_recipe(values | {"student": student, "stages": stages}, name)
    return Candidate(name, recipe, rungs, cost, without_labels)


def _lengths(start: Start) -> dict[str, int]:
    return {"query_length": start.longest // 2, "document_length": start.longest}


def _matching(objective: str, steps: int) -> dict[str, Any]:
    shared = {"batch_size": BATCH, "lr": 5e-4, "freeze": ["token_embeddings"]}
    return {"objectives": [objective], "steps": steps, **shared}


def _label_stage(labelled: int, lr: float) -> dict[str, Any]:
    """Learn from labels, with the documents of the other queries of a step as negatives."""
    lists = {"size": 1, "pool": 1, "negatives": "uniform", "in_batch": True}
    steps = min(ceil(LABEL_EPOCHS * labelled / LABEL_BATCH), MOST_STEPS)
    shared = {"batch_size": LABEL_BATCH, "lr": lr, "lists": lists}
    return {"objectives": ["one_hot(tau=0.05)"], "steps": steps, **shared}


def _list_stage(steps: int, lr: float) -> dict[str, Any]:
    lists = {"size": 8, "pool": 16}
    return {
        "objectives": ["softmax_ce(tau_student=4)"], "steps": steps, "batch_size": LIST_BATCH, "lr": lr, "lists": lists
    }  # fmt: skip


def _steps(examples: int, batch: int) -> int:
    """An epoch, within limits."""
    return min(max(ceil(examples / batch), FEWEST_STEPS), MOST_STEPS)


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"
