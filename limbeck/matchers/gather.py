"""Gather the encodings of all processes, with gradients, so that every query can use all documents of the batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from limbeck.matchers.encoding import Encoded, TokenVectors, join_texts


class _Gather(torch.autograd.Function):
    """All-gather whose backward sums the gradients of all processes for the rows this process encoded."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].contiguous()
        dist.all_reduce(summed)
        return summed.chunk(dist.get_world_size())[dist.get_rank()]


def share(count: int, rank: int, world: int) -> slice:
    """The rows of `count` for process `rank` of `world`: evenly divided, in order."""
    return slice(count * rank // world, count * (rank + 1) // world)


def zero_of(module: nn.Module) -> Tensor | float:
    """A zero that depends on the module's weights. It lets a process without texts take part in the gradient exchange,
    because the other processes would wait for it. A frozen module has no gradient.
    """
    free = next((parameter for parameter in module.parameters() if parameter.requires_grad), None)
    return 0.0 if free is None else free.sum() * 0


def gather_rows(rows: Tensor, count: int) -> Tensor:
    """Join the processes' shares of `count` rows; in a single process, return the rows unchanged."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return rows
    world = dist.get_world_size()
    sizes = [len(range(count)[share(count, rank, world)]) for rank in range(world)]
    widest = max(sizes)
    padded = torch.nn.functional.pad(rows, (0, 0, 0, widest - len(rows)))
    everyone = _Gather.apply(padded)
    keep = torch.cat([torch.arange(size) + rank * widest for rank, size in enumerate(sizes)])
    return everyone[keep.to(rows.device)]


def gather_texts(encoded: Encoded, count: int, longest: int) -> Encoded:
    """Put the processes' encodings of `count` texts together; `longest` is the same in every process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return encoded
    if isinstance(encoded, Tensor):
        return gather_rows(encoded.flatten(1), count).view(count, *encoded.shape[1:])
    own = join_texts([encoded], longest)
    rows = torch.cat([own.vectors.float().flatten(1), own.mask.float()], dim=1)
    everyone = gather_rows(rows, count)
    vectors = everyone[:, :-longest].view(count, longest, own.vectors.shape[-1])
    return TokenVectors(vectors, everyone[:, -longest:].detach() > 0.5)
