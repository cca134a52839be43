"""The attention of a cross-encoder between the two texts of a pair.

For each layer only the two blocks between the texts are computed (VIRT Eq. 2), while the layer runs. The softmax is the
model's own, over the whole sequence; only the columns of the other text are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.matchers.attention import LayerInputs, places_of, sizes_of, take, token_ids, watching
from limbeck.matchers.chunks import Features
from limbeck.signals import CrossAttention


def cross_attention(
    model: Any,
    features: Features,
    of_text: Tensor | None,
    layers: tuple[int, ...] | None,
    run: Callable[[Features], Features],
) -> tuple[Features, CrossAttention]:
    """Run a chunk of n pairs and also return the attention between their texts. `of_text` [n, tokens] says which text
    each token belongs to. The result has n in place of B and K.
    """
    if of_text is None:
        raise LimbeckError(
            "attention between texts needs to know the text of each token; call read_apart before prepare"
        )
    sizes = sizes_of(model)
    layers = tuple(range(sizes.layers)) if layers is None else layers
    (queries, some), (documents, others) = (places_of(of_text == text) for text in (0, 1))
    ids, real = features["input_ids"], some[:, None, :, None] & others[:, None, None, :]  # [n, 1, M, N]

    def see(inputs: LayerInputs) -> tuple[Tensor, Tensor]:
        offsets = inputs.offsets()
        there, back = _block(inputs, offsets, queries, documents), _block(inputs, offsets, documents, queries)
        return there * real, back * real.transpose(-1, -2)

    with watching(model, layers, see) as seen:
        made = run(features)
    to_documents, to_queries = zip(*(seen[layer] for layer in layers), strict=True)
    tokens = token_ids(ids, queries, some), token_ids(ids, documents, others)
    return made, CrossAttention(sizes, layers, *tokens, to_documents, to_queries)


def _block(inputs: LayerInputs, offsets: Tensor | None, rows: Tensor, columns: Tensor) -> Tensor:
    """One block of one layer's map: [n, heads, rows, columns]."""
    precise = torch.promote_types(inputs.queries.dtype, torch.float32)
    with torch.autocast(rows.device.type, enabled=False):
        logits = take(inputs.queries, rows).to(precise) @ inputs.keys.to(precise).transpose(-1, -2)
        if offsets is not None:
            own = offsets.expand(len(rows), -1, -1, -1)
            logits = logits + (take(own, rows) if own.shape[2] > 1 else own)
        weights = logits.softmax(dim=-1)  # over all tokens of the sequence
    return take(weights.transpose(-1, -2), columns).transpose(-1, -2)


def join_pairs(parts: Sequence[CrossAttention], restore: Tensor, shape: tuple[int, int]) -> CrossAttention:
    """Join the chunks, in the order of the pairs [B, K]."""
    first = parts[0]
    queries = max(part.query_tokens.shape[1] for part in parts)
    documents = max(part.document_tokens.shape[1] for part in parts)

    def joined(tensors: Sequence[Tensor], *widths: int, filling: int = 0) -> Tensor:
        rows = torch.cat([_widened(each, widths, filling) for each in tensors])[restore]
        return rows.view(*shape, *rows.shape[1:])

    numbers = range(len(first.layers))
    return CrossAttention(
        first.sizes,
        first.layers,
        joined([part.query_tokens for part in parts], queries, filling=-1),
        joined([part.document_tokens for part in parts], documents, filling=-1),
        tuple(joined([part.to_documents[at] for part in parts], queries, documents) for at in numbers),
        tuple(joined([part.to_queries[at] for part in parts], documents, queries) for at in numbers),
    )


def _widened(tensor: Tensor, widths: tuple[int, ...], filling: int) -> Tensor:
    """Pad the last dimensions to `widths`."""
    more = [wanted - there for wanted, there in zip(widths, tensor.shape[-len(widths) :], strict=True)]
    return F.pad(tensor, [size for each in reversed(more) for size in (0, each)], value=filling)
