"""Where tensors live: batches follow the model that reads them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


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
