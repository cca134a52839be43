"""The modules behind a transformer as steps in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import nn

from limbeck.runtimes.tail import POOLINGS, Step

EMBEDDING, TOKENS, SCORES = "sentence_embedding", "token_embeddings", "scores"
ACTIVATIONS: dict[type[nn.Module], str] = {nn.Identity: "identity", nn.Tanh: "tanh"}


def steps_of(modules: Sequence[nn.Module], prompt: bool) -> list[Step] | None:
    """The steps of the modules behind a transformer; None where one of them has no such step. `prompt` says whether
    texts have a prompt before them, which some poolings leave out.
    """
    kept = [module for module in modules if not isinstance(module, Dropout)]
    if not kept or not isinstance(kept[0], Pooling):
        return None
    return _all([_step(module, prompt) for module in kept])


def pair_steps(modules: Sequence[nn.Module]) -> list[Step] | None:
    """The same of a cross-encoder, whose last module turns the pooled vector into scores."""
    *before, last = modules or [nn.Identity()]
    steps = steps_of(before, False)
    return _all([*steps, _step(last, False, made=SCORES)]) if steps is not None else None


def token_steps(modules: Sequence[nn.Module]) -> list[Step] | None:
    """The same of modules that keep a vector of each token; masks are left out here."""
    kept = [module for module in modules if not isinstance(module, Dropout | MultiVectorMask)]
    return _all([_step(module, False, TOKENS, TOKENS) for module in kept])


def table_steps(modules: Sequence[nn.Module]) -> list[Step] | None:
    """The same of modules behind a static embedding, which averages token vectors itself."""
    kept = [module for module in modules if not isinstance(module, Dropout)]
    return _all([Step("pooling", {"mode": "mean"}), *(_step(module, False) for module in kept)])


def _all(steps: Sequence[Step | None]) -> list[Step] | None:
    return None if any(step is None for step in steps) else [step for step in steps if step is not None]


def _step(module: Any, prompt: bool, given: str = EMBEDDING, made: str = EMBEDDING) -> Step | None:
    """The step of a module that turns the feature `given` into `made`."""
    if isinstance(module, Pooling):
        known = module.pooling_mode in POOLINGS and (module.include_prompt or not prompt) and given == EMBEDDING
        return Step("pooling", {"mode": module.pooling_mode}) if known else None
    if isinstance(module, LayerNorm):
        return Step("layer_norm", {"eps": module.norm.eps}, _weights(module.norm)) if given == EMBEDDING else None
    if getattr(module, "module_input_name", None) != given or module.module_output_name != made:
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
