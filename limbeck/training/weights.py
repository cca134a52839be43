"""The weights of unfinished work on disk: one safetensors file that holds a checksum of its own tensors.

A flipped bit in a file of weights gives other weights that load without a word. So the file carries a digest of all
names, types, shapes and numbers, and whoever reads it compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest_of, write_atomically
from limbeck.progress import say

CHECKSUM = "blake2b"
REMEDY = "remove it and run the same command again"


def contiguous(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dictionary that safetensors accepts: no two names share memory."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}


def save_weights(matcher: nn.Module, path: Path) -> None:
    """All weights as one safetensors file, complete or not at all."""
    tensors = contiguous(matcher.state_dict())
    with write_atomically(path) as handle:
        handle.write(save(tensors, metadata={CHECKSUM: _digest(tensors)}))


def load_weights(matcher: nn.Module, path: Path) -> None:
    """Give `matcher` the weights of a file; one that is damaged is refused."""
    matcher.load_state_dict(_read(path))


def load_if_whole(matcher: nn.Module, path: Path) -> bool:
    """Load the weights of a file if it is there and whole."""
    if not path.exists() or not is_whole(path):
        return False
    load_weights(matcher, path)
    return True


def is_whole(path: Path) -> bool:
    """Whether a file has what was written; a damaged one is named, and what it held is made again."""
    try:
        _read(path)
    except LimbeckError:
        say(f"{path}: is damaged; making it again")
        return False
    return True


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            told = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except (SafetensorError, OSError, ValueError) as error:
        raise bad_input(path, "is damaged", REMEDY) from error
    # A file without metadata is a checkpoint's, which has a manifest, or one that an earlier version wrote.
    if told is not None and told != {CHECKSUM: _digest(tensors)}:
        raise bad_input(path, "is damaged", REMEDY)
    return tensors


def _digest(tensors: dict[str, Tensor]) -> str:
    return digest_of(_parts(tensors))


def _parts(tensors: dict[str, Tensor]) -> Iterator[str | bytes]:
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {list(tensor.shape)}"
        yield tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
