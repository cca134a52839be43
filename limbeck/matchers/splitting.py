"""How texts of different lengths are split into passes of a model. It needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

PASS_OVERHEAD = 192  # cost of one more pass, in tokens of the same model; measured on 2 cores
STEP = 8  # chunk borders are tried at every eighth text, or less often if there are many texts
MOST_BORDERS = 128
USUAL = 128  # tokens: a batch of inference has as many as `batch_size` texts of this length


def split_by_length(
    lengths: Sequence[int], limit: int | None = None, overhead: int = PASS_OVERHEAD, budget: int | None = None
) -> list[slice]:
    """Split ascending `lengths` into chunks so that padded tokens plus `overhead` per chunk are minimal.

    `limit` is the maximum number of texts in a chunk, `budget` that of tokens with padding (a longer text is a chunk of
    its own). Dynamic programming over chunk borders at every `STEP` texts.
    """
    count = len(lengths)
    step = max(STEP, count // MOST_BORDERS)
    step = min(step, limit) if limit else step
    step = max(1, min(step, budget // max(1, lengths[-1]))) if budget and count else step
    borders = [*range(0, count, step), count]
    best: list[float] = [0.0] + [float("inf")] * (len(borders) - 1)
    came_from = [0] * len(borders)
    for end in range(1, len(borders)):
        for start in range(end - 1, -1, -1):
            size = borders[end] - borders[start]
            if (limit and size > limit) or (budget and size > 1 and size * lengths[borders[end] - 1] > budget):
                break
            cost = best[start] + size * lengths[borders[end] - 1] + overhead
            if cost < best[end]:
                best[end], came_from[end] = cost, start
    chunks, end = [], len(borders) - 1
    while end > 0 and count:
        chunks.append(slice(borders[came_from[end]], borders[end]))
        end = came_from[end]
    return chunks[::-1]
