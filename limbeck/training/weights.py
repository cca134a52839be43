"""The weights of unfinished work on disk: one safetensors file with a checksum of its tensors.

A file of weights with a flipped bit would load without an error. So the file contains a digest of all names, types,
shapes and numbers, which is compared on reading.
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
    """Write all weights as one safetensors file, complete or not at all."""
    tensors = contiguous(matcher.state_dict())
    with write_atomically(path) as handle:
        handle.write(save(tensors, metadata={CHECKSUM: _digest(tensors)}))


def load_weights(matcher: nn.Module, path: Path) -> None:
    """Load the weights of a file into `matcher`; a damaged file is refused."""
    matcher.load_state_dict(_read(path))


def load_if_whole(matcher: nn.Module, path: Path) -> bool:
    """Load the weights of a file if it exists and is undamaged."""
    if not path.exists() or not is_whole(path):
        return False
    load_weights(matcher, path)
    return True


def is_whole(path: Path) -> bool:
    """Whether a file is undamaged; a damaged one is reported, and its content is computed again."""
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
    # A file without metadata belongs to a checkpoint, which has a manifest, or to an earlier version.
    if told is not None and told != {CHECKSUM: _digest(tensors)}:
        raise bad_input(path, "is damaged", REMEDY)
    return tensors


def _digest(tensors: dict[str, Tensor]) -> str:
    return digest_of(_parts(tensors))


def _parts(tensors: dict[str, Tensor]) -> Iterator[str | bytes]:
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {list(tensor.shape)}"
        yield tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
