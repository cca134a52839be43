"""Which layers of a pretrained transformer a matcher keeps.

The last layers of a model contain its geometry and the first its words, so a shallow student is better with both ends
(`[0, 5]` of six) than with the first two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from limbeck.errors import LimbeckError
from limbeck.matchers.config import Layers


def layers_to_load(layers: Layers) -> int:
    """How many of the first layers must be read from disk."""
    assert not isinstance(layers, str)
    return layers if isinstance(layers, int) else max(layers) + 1


def refuse_absent_layers(layers: Layers, there: int, name: str) -> None:
    """Refuse layers that a checkpoint does not have; the library would initialise them at random."""
    if isinstance(layers, str):
        raise LimbeckError(f"layers={layers} is chosen by a run, on texts; give a number of layers or a list")
    if isinstance(layers, int) and layers > there:
        raise LimbeckError(f"layers={layers} is more than {name} has; ask for at most {there}")
    if not isinstance(layers, int) and max(layers) >= there:
        problem = f"layers={list(layers)}: {name} has {there} layers, 0 to {there - 1}"
        raise LimbeckError(f"{problem}; drop {max(layers)}")


def keep_layers(model: nn.Module, kept: Sequence[int]) -> None:
    """Drop all layers except `kept` from a transformer that was loaded completely, and update its configuration."""
    config: Any = model.config
    owner, name = _stack(model, config.num_hidden_layers)
    stack = getattr(owner, name)
    if 0 not in kept and any("relative_attention_bias" in part for part, _ in stack[0].named_parameters()):
        raise LimbeckError(f"layers={list(kept)}: all layers of this model share biases of layer 0; keep layer 0")
    setattr(owner, name, nn.ModuleList(stack[number] for number in kept))
    for number, layer in enumerate(getattr(owner, name)):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number
    whole = config.num_hidden_layers
    for key, value in list(vars(config).items()):  # settings per layer, e.g. layer_types
        if isinstance(value, list) and len(value) == whole and key.startswith("layer"):
            setattr(config, key, [value[number] for number in kept])
    config.num_hidden_layers = len(kept)


def _stack(model: nn.Module, count: int) -> tuple[nn.Module, str]:
    """The module with the list of layers, and the name of the list."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                return module, name
    problem = f"layers: a {type(model).__name__} has no list of {count} layers to choose from"
    raise LimbeckError(f"{problem}; give a number of first layers, or leave layers out")
