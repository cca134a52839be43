"""Names of ranking measures as users write them, and the matching objects of ir-measures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from limbeck.errors import LimbeckError, did_you_mean

if TYPE_CHECKING:
    import ir_measures

_BASES = {
    "ndcg": "nDCG",
    "mrr": "RR",
    "recall": "R",
    "map": "AP",
    "p": "P",
    "success": "Success",
}  # names in ir-measures
ANSWER_RECALL = "answer_recall"  # recall by answer strings (`answers.py`), which ir-measures does not have
_ALIASES = {"rr": "mrr", "r": "recall", "ap": "map", "precision": "p"}
_NEEDS_CUTOFF = ("recall", "p", "success", ANSWER_RECALL)
_SPELLING = re.compile(r"(?P<base>[a-z_]+)(?:@(?P<cutoff>[1-9][0-9]*))?")


def canonical_name(name: str) -> str:
    """The canonical name of each measure: `RR@10` and `MRR@10` are `mrr@10`."""
    spelling = _SPELLING.fullmatch(name.strip().lower())
    base = _ALIASES.get(spelling["base"], spelling["base"]) if spelling else ""
    if not spelling or base not in (*_BASES, ANSWER_RECALL):
        word = re.split(r"[@(]", name.strip().lower())[0]
        known = [*_BASES, *_ALIASES, ANSWER_RECALL]
        problem = "the cutoff must be a whole number, 1 or more" if word in known else did_you_mean(word, known)
        raise LimbeckError(f"unknown measure {name!r}; {problem}")
    if spelling["cutoff"] is None:
        if base in _NEEDS_CUTOFF:
            raise LimbeckError(f"measure {name!r} needs a cutoff; write e.g. {base}@10")
        return base
    return f"{base}@{spelling['cutoff']}"


def needs_answers(name: str) -> bool:
    """Whether a measure, given by its canonical name, uses answers instead of judgements."""
    return name.startswith(f"{ANSWER_RECALL}@")


def parse_measure(name: str, relevance_level: int = 1) -> ir_measures.Measure:
    """The ir-measures object for a name."""
    base, _, cutoff = canonical_name(name).partition("@")
    if base not in _BASES:
        raise LimbeckError(f"measure {name!r} is not one of ir-measures'; known: {', '.join(_BASES)}")
    import ir_measures

    measure = getattr(ir_measures, _BASES[base])
    if base != "ndcg":
        measure = measure(rel=relevance_level)
    return measure @ int(cutoff) if cutoff else measure


def measure_name(measure: ir_measures.Measure) -> str:
    """The name of an ir-measures object; the relevance level is not part of it."""
    base = next((name for name, base in _BASES.items() if base == measure.NAME), None)
    if base is None:
        raise LimbeckError(f"measure {measure} is not supported; known: {', '.join(_BASES)}")
    cutoff = measure.params.get("cutoff")
    return f"{base}@{cutoff}" if cutoff else base
