"""A matcher's interaction without its towers: all that is needed once texts are encoded.

A job keeps it in its own folder, so that workers load kilobytes instead of a model, and a cluster's machines need not
see the model at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.files import directory_atomically, read_json, write_json
from limbeck.matchers.interactions import Interaction, interaction_named

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher

HEADS = ("auto", "torch", "onnx", "int8")
FACTS, WEIGHTS = "head.json", "head.safetensors"


def save_head(interaction: Interaction, folder: Path) -> None:
    """Write what `load_head` builds the interaction from."""
    with directory_atomically(folder) as place:
        write_json(place / FACTS, {"interaction": interaction.name, "arguments": interaction.arguments})
        weights = {name: value.detach().cpu().contiguous() for name, value in interaction.state_dict().items()}
        save_file(weights, place / WEIGHTS)


def load_head(folder: Path) -> Interaction:
    """The interaction of a job's folder; every call of the job writes it again."""
    remedy = "run the same command again, which writes it again"
    facts = read_json(folder / FACTS, remedy)
    try:
        interaction = interaction_named(facts["interaction"], facts["arguments"])
        interaction.load_state_dict(load_file(folder / WEIGHTS))
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(folder, f"is damaged ({reason})", remedy) from error
    return interaction.eval()


def require_head(matcher: Matcher, how: str) -> None:
    """Refuse what cannot be had before any work is done."""
    if how not in HEADS:
        raise LimbeckError(f"--head {how}: no such head; {did_you_mean(how, list(HEADS))}")
    from limbeck.matchers.encoding_matcher import encodes_apart  # not above: workers load no library of models

    if not encodes_apart(matcher):
        if how not in ("auto", "torch"):
            raise LimbeckError(f"--head {how}: a {matcher.kind} has no head of its own; leave --head out")
    elif how != "auto":
        running(matcher.interaction, how)


def running(interaction: Interaction, how: str = "torch") -> Interaction:
    """The interaction as it runs fastest: in torch, in onnxruntime, or in onnxruntime with 8-bit weights."""
    folded = interaction.folded()
    if how == "torch":
        return folded
    from limbeck.scoring.onnx_head import OnnxHead, has_graph

    if not has_graph(folded):
        raise LimbeckError(f"--head {how}: this model has no transformer head to run there; use --head torch")
    return OnnxHead(folded, int8=how == "int8")
