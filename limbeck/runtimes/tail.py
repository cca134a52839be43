"""What comes behind the transformer of a single text, in numpy: pooling, projections, normalisation.

There is no padding, so every token counts, and no batch. The numbers are those of sentence-transformers' modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn

Step = Callable[[np.ndarray], np.ndarray]  # states [tokens, width], or a vector [width], to a vector
POOLINGS: dict[str, Step] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.max(axis=0),
    "mean": lambda states: states.mean(axis=0),
    "mean_sqrt_len_tokens": lambda states: states.sum(axis=0) / np.float32(np.sqrt(len(states))),
    "lasttoken": lambda states: states[-1],
}
ACTIVATIONS: dict[type[nn.Module], Step] = {nn.Identity: lambda values: values, nn.Tanh: np.tanh}
EMBEDDING = "sentence_embedding"


def numpy_tail(modules: Sequence[nn.Module], prompt: bool) -> list[Step] | None:
    """The steps of the modules behind a transformer; None where one of them has no such step. `prompt` says whether
    texts have a prompt before them, which some poolings leave out.
    """
    steps = [_step(module, prompt) for module in modules]
    if not steps or not isinstance(modules[0], Pooling) or any(step is None for step in steps):
        return None
    return [step for step in steps if step is not None]


def _step(module: Any, prompt: bool) -> Step | None:
    if isinstance(module, Pooling):
        known = isinstance(module.pooling_mode, str) and (module.include_prompt or not prompt)
        return POOLINGS.get(str(module.pooling_mode)) if known else None
    if isinstance(module, Dropout):
        return lambda vector: vector
    if isinstance(module, LayerNorm):
        return _layer_norm(module.norm)
    if getattr(module, "module_input_name", None) != EMBEDDING or module.module_output_name != EMBEDDING:
        return None
    if type(module) is Normalize:
        return lambda vector: vector / np.float32(max(np.linalg.norm(vector), 1e-12))
    return _dense(module) if type(module) is Dense else None


def _dense(module: Dense) -> Step | None:
    activation = ACTIVATIONS.get(type(module.activation_function))  # type: ignore[arg-type]
    if activation is None or module.use_residual:
        return None
    weight = module.linear.weight.detach().numpy()
    bias = module.linear.bias.detach().numpy() if module.bias else np.float32(0)
    return lambda vector: activation(weight @ vector + bias)


def _layer_norm(norm: nn.LayerNorm) -> Step:
    weight, bias, epsilon = norm.weight.detach().numpy(), norm.bias.detach().numpy(), np.float32(norm.eps)

    def apply(vector: np.ndarray) -> np.ndarray:
        centred = vector - vector.mean()
        return centred / np.sqrt((centred**2).mean() + epsilon) * weight + bias

    return apply
