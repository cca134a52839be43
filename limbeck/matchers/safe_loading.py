"""Load a model safely: every weight comes from the folder, and no code does.

The libraries fill missing weights with random numbers and print a report. Here the report can raise an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn
from transformers import PreTrainedModel

from limbeck.errors import LimbeckError, first_line
from limbeck.matchers.base import TextBatch
from limbeck.matchers.device import chosen_device
from limbeck.matchers.folder_checks import check_folder, has_transformer
from limbeck.matchers.names import local_folder
from limbeck.matchers.quiet import quiet

Report = tuple[PreTrainedModel, dict[str, Any]]
Made = TypeVar("Made", bound=nn.Module)

HERE_ONLY: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}  # how a checked folder is loaded
SHOWN = 3  # maximum number of weight names in an error
_LAYER = re.compile(r"\.\d+\.")
_one_at_a_time = RLock()


def load_safely(name: str | Path, revision: str | None, make: Callable[[str], Made]) -> Made:
    """The result of `make` for the folder or hub model `name`; unsound models raise a one-line error.

    The model is loaded and tested on the CPU, then moved to the chosen device.
    """
    folder = local_folder(name, revision)
    check_folder(folder)
    with naming_load_errors(name), quiet(), complete_weights(folder):
        made = make(str(folder))
    check_tokens(made, folder)
    with naming_load_errors(name, "a model that scores"), quiet():
        try_out(made)
    return made.to(chosen_device())


@torch.inference_mode()
def try_out(matcher: Any) -> None:
    """Score one pair: modules that do not fit together load without errors and fail later.

    With several processes this is skipped, because they would wait for each other; the model was tested before.
    """
    if dist.is_available() and dist.is_initialized():
        return
    others = ("a",) * (getattr(matcher, "texts", 2) - 1)
    matcher.eval()(matcher.prepare(TextBatch(["a"], [others], None)))


@contextmanager
def naming_load_errors(name: str | Path, what: str = "a model") -> Iterator[None]:
    """Turn any error of a library that cannot load a folder into one line."""
    try:
        yield
    except (LimbeckError, MemoryError):
        raise
    except Exception as error:
        problem = f"cannot be loaded as {what} ({first_line(error) or type(error).__name__})"
        raise LimbeckError(f"{name}: {problem}; give a model's folder or a hub name") from error


@contextmanager
def complete_weights(folder: str | Path, fewer_layers: bool = False) -> Iterator[None]:
    """Inside the block, transformers only loads safetensors, and models with missing weights are refused.

    With `fewer_layers` the caller requested fewer layers than the folder has.
    """
    reports: list[Report] = []
    with _one_at_a_time, _reporting(reports):
        yield
    if not reports and has_transformer(folder):
        raise LimbeckError(f"{folder}: its weights cannot be checked; use a version of transformers in constraints.txt")
    for model, report in reports:
        _refuse_made_up_weights(folder, model, report)
        if not fewer_layers:
            _refuse_left_out_layers(folder, model, report)


@contextmanager
def _reporting(reports: list[Report]) -> Iterator[None]:
    """Collect the loading report of every model."""
    original: Any = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: type[PreTrainedModel], *args: Any, **kwargs: Any) -> Any:
        safe = {"use_safetensors": True, "trust_remote_code": False}
        asked = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # the report lists different shapes
        model, report = original.__func__(cls, *args, **{**kwargs, **safe, **asked})
        reports.append((model, report))
        return model

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        PreTrainedModel.from_pretrained = original  # type: ignore[method-assign]


def _refuse_made_up_weights(folder: str | Path, model: PreTrainedModel, report: dict[str, Any]) -> None:
    wrong = {name for name, *_ in report["mismatched_keys"]} | set(report["missing_keys"])
    if model.base_model is model:  # an encoder's own pooler does not affect scores
        wrong = {name for name in wrong if not name.startswith("pooler.")}
    if wrong:
        problem = f"{len(wrong)} weights that its configuration asks for are missing or have another shape"
        remedy = "download or copy the folder again, or check its config.json"
        raise LimbeckError(f"{folder}: {problem} ({_first(wrong)}); {remedy}")


def _refuse_left_out_layers(folder: str | Path, model: PreTrainedModel, report: dict[str, Any]) -> None:
    """Refuse unused weights: a configuration with fewer layers than the weights describes another model."""
    known = set(model.state_dict())
    prefix = f"{model.base_model_prefix}."
    left = {
        name
        for name in report["unexpected_keys"]
        if _LAYER.search(name) and _LAYER.sub(".0.", name.removeprefix(prefix), count=1) in known
    }
    if left:
        problem = f"{len(left)} weights do not fit the model that its configuration describes"
        remedy = "download or copy the folder again, or check its config.json"
        raise LimbeckError(f"{folder}: {problem} ({_first(left)}); {remedy}")


def _first(names: set[str]) -> str:
    return ", ".join(sorted(names)[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def check_tokens(module: nn.Module, folder: str | Path) -> None:
    """Refuse a tokenizer that does not fit the weights, and lengths beyond the model's positions."""
    for part in module.modules():
        if isinstance(part, Transformer):
            check_vocabulary(part.tokenizer, part.model.get_input_embeddings(), folder)
            _check_positions(part, folder)
        elif isinstance(part, StaticEmbedding):
            check_vocabulary(part.tokenizer, part.embedding, folder)


def check_vocabulary(tokenizer: Any, table: Any, folder: str | Path) -> None:
    """Every token needs an embedding; far fewer tokens than embeddings mean that the vocabulary was not found."""
    rows, ids = table.weight.shape[0], tokenizer.get_vocab().values()
    remedy = "its tokenizer belongs to another model; download or copy the folder again"
    if max(ids, default=-1) >= rows:
        raise LimbeckError(f"{folder}: has token ids up to {max(ids)}, but embeddings for {rows}; {remedy}")
    if len(ids) < rows / 2:
        raise LimbeckError(f"{folder}: has {len(ids)} tokens, but embeddings for {rows}; {remedy}")


def _check_positions(part: Transformer, folder: str | Path) -> None:
    longest = max(length or 0 for length in (part.max_seq_length, part.query_length, part.document_length))
    for name, module in part.model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and longest > len(module.weight):
            problem = f"reads up to {longest} tokens, but has positions for {len(module.weight)}"
            raise LimbeckError(f"{folder}: {problem}; lower the lengths in its configuration")
