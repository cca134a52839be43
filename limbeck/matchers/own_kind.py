"""Folders of kinds that consist of sentence-transformers' modules but that it does not have itself.

Such a folder has `limbeck.json` next to `modules.json`: the kind, and the interaction that scores the encodings of the
modules. The weights of the interaction are in `head.safetensors`. sentence-transformers can open the folder too and
computes the same encodings, but scores them with its most similar function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from limbeck.errors import bad_input
from limbeck.files import write_json
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.matchers.folder_checks import OWN_CONFIG, read_settings
from limbeck.matchers.interactions import Interaction, interaction_named

WEIGHTS = "head.safetensors"
FORMAT = 1


def has_own_kind(matcher: EncodingMatcher) -> bool:
    """Whether sentence-transformers has no name for its kind. A class derived from another must define `model_types`
    itself to have one.
    """
    return not vars(type(matcher)).get("model_types")


def own_facts(matcher: EncodingMatcher) -> dict[str, Any]:
    """The part of such a matcher's configuration that is not in its modules; empty for other matchers."""
    scored = matcher.interaction
    return {"interaction": scored.name, "arguments": scored.arguments} if has_own_kind(matcher) else {}


def mark_kind(folder: Path, matcher: EncodingMatcher) -> None:
    """Write the kind and the interaction into a folder of modules; other matchers do not need it."""
    if not has_own_kind(matcher):
        return
    write_json(folder / OWN_CONFIG, {"kind": matcher.kind, "format": FORMAT, **own_facts(matcher)})
    weights = {name: value.detach().cpu().contiguous() for name, value in matcher.interaction.state_dict().items()}
    if weights:
        save_file(weights, folder / WEIGHTS)


def stored_interaction(folder: str | Path) -> Interaction | None:
    """The interaction of a folder that `mark_kind` marked; None for other folders."""
    place = Path(folder) / OWN_CONFIG
    facts = read_settings(place)
    if not facts:
        return None
    if facts.get("format") != FORMAT or not isinstance(facts.get("arguments"), dict):
        raise bad_input(place, f"is not of format {FORMAT}", "update limbeck, or save the model again")
    found = interaction_named(str(facts.get("interaction")), facts["arguments"])
    if (Path(folder) / WEIGHTS).exists():
        found.load_state_dict(load_file(Path(folder) / WEIGHTS))
    return found
