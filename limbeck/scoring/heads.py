"""A matcher's interaction without its towers: enough to score encoded texts.

A job stores it in its own folder, so that workers load kilobytes instead of a model, and the machines of a cluster do
not need the model.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from limbeck.data.checked import require_folder, sum_folder
from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.files import directory_atomically, read_json, write_json
from limbeck.matchers.calibration import Calibration
from limbeck.matchers.interactions import Interaction, interaction_named

if TYPE_CHECKING:
    from limbeck.matchers.base import Matcher

HEADS = ("auto", "torch", "onnx", "int8")
FACTS, WEIGHTS = "head.json", "head.safetensors"
REMEDY = "run the same command again to write it again"


def save_head(interaction: Interaction | None, folder: Path, calibration: Calibration | None = None) -> None:
    """Write the files of `load_head`: the interaction, the calibration, and their checksums.

    A model without encodings has no interaction.
    """
    with directory_atomically(folder) as place:
        if interaction is not None:
            write_json(place / FACTS, {"interaction": interaction.name, "arguments": interaction.arguments})
            weights = {name: value.detach().cpu().contiguous() for name, value in interaction.state_dict().items()}
            save_file(weights, place / WEIGHTS)
        if calibration is not None:
            calibration.save(place)
        sum_folder(place)


def require_whole_head(folder: Path) -> None:
    """Refuse a head that does not match its checksums; every call of the job writes it again."""
    try:
        require_folder(folder)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise bad_input(folder, f"is damaged ({str(error).partition(chr(10))[0]})", REMEDY) from error


def load_head(folder: Path) -> Interaction:
    """The interaction of a job's folder."""
    facts = read_json(folder / FACTS, REMEDY)
    try:
        interaction = interaction_named(facts["interaction"], facts["arguments"])
        interaction.load_state_dict(load_file(folder / WEIGHTS))
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise bad_input(folder, f"is damaged ({reason})", REMEDY) from error
    return interaction.eval()


def require_head(matcher: Matcher, how: str) -> None:
    """Refuse a head that is not available, before any work is done."""
    if how not in HEADS:
        raise LimbeckError(f"--head {how}: no such head; {did_you_mean(how, list(HEADS))}")
    from limbeck.matchers.encoding_matcher import encodes_apart  # not at the top: workers import no model library

    if not encodes_apart(matcher):
        if how not in ("auto", "torch"):
            raise LimbeckError(f"--head {how}: a {matcher.kind} has no head; leave --head out")
    elif how != "auto":
        running(matcher.interaction, how)


def running(interaction: Interaction, how: str = "torch") -> Interaction:
    """The interaction in its fastest form: in torch, in onnxruntime, or in onnxruntime with 8-bit weights."""
    if how == "torch":
        return interaction.folded()
    from limbeck.runtimes.onnx_head import OnnxHead, has_graph

    folded = (interaction if interaction.device.type == "cpu" else deepcopy(interaction).cpu()).folded()
    if not has_graph(folded):
        raise LimbeckError(f"--head {how}: this model has no transformer head; use --head torch")
    return OnnxHead(folded, int8=how == "int8")
