"""The modules behind a transformer as steps in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn

from limbeck.runtimes.tail import POOLINGS, Step

EMBEDDING = "sentence_embedding"
ACTIVATIONS: dict[type[nn.Module], str] = {nn.Identity: "identity", nn.Tanh: "tanh"}


def steps_of(modules: Sequence[nn.Module], prompt: bool) -> list[Step] | None:
    """The steps of the modules behind a transformer; None where one of them has no such step. `prompt` says whether
    texts have a prompt before them, which some poolings leave out.
    """
    kept = [module for module in modules if not isinstance(module, Dropout)]
    steps = [_step(module, prompt) for module in kept]
    if not kept or not isinstance(kept[0], Pooling) or any(step is None for step in steps):
        return None
    return [step for step in steps if step is not None]


def _step(module: Any, prompt: bool) -> Step | None:
    if isinstance(module, Pooling):
        known = module.pooling_mode in POOLINGS and (module.include_prompt or not prompt)
        return Step("pooling", {"mode": module.pooling_mode}) if known else None
    if isinstance(module, LayerNorm):
        return Step("layer_norm", {"eps": module.norm.eps}, _weights(module.norm))
    if getattr(module, "module_input_name", None) != EMBEDDING or module.module_output_name != EMBEDDING:
        return None
    if type(module) is Normalize:
        return Step("normalize")
    return _dense(module) if type(module) is Dense else None


def _dense(module: Dense) -> Step | None:
    activation = ACTIVATIONS.get(type(module.activation_function))  # type: ignore[arg-type]
    if activation is None or module.use_residual:
        return None
    return Step("dense", {"activation": activation}, _weights(module.linear))


def _weights(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().float().numpy() for name, value in module.named_parameters()}
