"""Vectors of one model that different runtimes computed: an index mixes them only if the user says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from limbeck.errors import LimbeckError
from limbeck.search.manifest import DenseFacts

Computed = dict[str, Any]  # what makes vectors differ from float32: {"runtime": "int8", ..}; nothing in float32
OPTION = "--mix-runtimes"


def runtime_of(computed: Computed | None) -> str:
    """The runtime to ask for."""
    return str((computed or {}).get("runtime", "torch"))


def described(computed: Computed | None) -> str:
    """Such as "int8, with weights of 7 bits"."""
    if not computed:
        return "float32"
    bits = f", with weights of {computed['bits']} bits" if "bits" in computed else ""
    return f"{computed['runtime']}{bits}"


def mixed_with(facts: DenseFacts, computed: Computed, path: Path, allowed: bool) -> DenseFacts:
    """The facts of an index that gets vectors computed in this way; refused unless it has such vectors already, or if
    that is allowed.
    """
    own = facts.computed or {}
    if computed in (own, *(facts.mixed or [])):
        return facts
    if allowed:
        return replace(facts, mixed=[*(facts.mixed or []), computed])
    if "calibrated" in own and runtime_of(computed) == runtime_of(own):
        problem = f"its vectors were computed by {runtime_of(own)}, calibrated on the texts that it was built from"
        raise LimbeckError(f"{path}: {problem}; build the index again, best with --runtime int8, or add {OPTION}")
    problem = f"its vectors were computed in another precision ({described(own)}) than these ({described(computed)})"
    raise LimbeckError(f"{path}: {problem}; {remedy(own, computed)}, build the index again, or add {OPTION}")


def remedy(own: Computed | None, computed: Computed | None) -> str:
    """How to compute vectors like those of an index."""
    if runtime_of(own) != runtime_of(computed):
        return f"use --runtime {runtime_of(own)}"
    if (own or {}).get("calibrated") != (computed or {}).get("calibrated"):
        return "calibrate it on the same texts"
    return "use a processor of the kind that it was built on"
