"""Devices: models are on the chosen device, and batches are moved to the model that reads them."""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.matchers.device_choice import asked_device, check_device_name

T = TypeVar("T")


def chosen_device(name: str | None = None) -> torch.device:
    """The device for models: the named or requested one, otherwise a GPU if CUDA sees one, otherwise the CPU.

    Each process that `torchrun` started has its own GPU.
    """
    found = check_device_name(name) if name is not None else asked_device()
    device = torch.device(found or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise LimbeckError("device mps: torch sees no Apple GPU; use cpu")
    return _own_gpu(device) if device.type == "cuda" else device


def _own_gpu(device: torch.device) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise LimbeckError(f"device {device}: torch sees no GPU; use cpu, or install torch with CUDA")
    if device.index is not None and device.index >= count:
        raise LimbeckError(f"device {device}: there are {count} GPUs, counted from 0; use cuda:{count - 1} or less")
    several = device.index is None and int(os.environ.get("WORLD_SIZE", "1")) > 1
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % count) if several else device


def on_device(value: T, device: torch.device | str) -> T:
    """A value with all tensors in it, at any depth, on a device; lists, tuples, dicts and dataclasses are copied."""
    moved: Any = value
    if isinstance(moved, Tensor):
        return moved.to(device)  # type: ignore[return-value]
    if isinstance(moved, dict):
        moved = {key: on_device(part, device) for key, part in moved.items()}
    elif type(moved) in (list, tuple):
        moved = type(moved)(on_device(part, device) for part in moved)
    elif is_dataclass(moved) and not isinstance(moved, type):
        parts = {field.name: getattr(moved, field.name) for field in fields(moved) if field.init}
        moved = replace(moved, **{name: on_device(part, device) for name, part in parts.items()})
    return moved
