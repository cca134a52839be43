"""DiPair's heads with everything precomputed that depends on a single text or on no text.

A head is exact algebra over stored vectors, so nothing here is an approximation:

- The first layer's computations on single texts (position, segment, norm, queries, keys, values) are done once per
  text. The map that merges attention's result is linear, so it is applied to the values: v W_o.
- Only the first output of the last layer is read. So its queries are computed for one token; its keys enter only as
  q W_k . x, so W_k is applied to the one query instead of to every token; its values enter only as a weighted sum,
  which is taken before W_v and W_o, not after. Both pairs of maps are multiplied out once: W_k^T W_q and W_o W_v.

For N + M = 12 tokens of 256 numbers, 2 layers of 1024, this needs 7.0 of 18.9 million multiplications per pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from limbeck.matchers.encoding import Encoded, TokenVectors
from limbeck.matchers.interactions.base import Interaction, Prepared
from limbeck.matchers.interactions.dipair import FeedForwardHead, TransformerHead
from limbeck.matchers.interactions.layer import HeadLayer


class FoldedTransformer(Interaction):
    """`TransformerHead`, folded."""

    name = "folded transformer"

    def __init__(self, head: TransformerHead) -> None:
        super().__init__()
        self.head, self.outputs = head.eval(), head.outputs
        first, last = head.layers[0], head.layers[-1]
        assert isinstance(first, HeadLayer) and isinstance(last, HeadLayer)
        self.first, self.last, self.heads = first, last, first.heads
        self.between = [layer for layer in head.layers[1:-1] if isinstance(layer, HeadLayer)]
        with torch.no_grad():
            self._fold_first()
            self._fold_last()

    def _fold_first(self) -> None:
        layer, heads = self.first, self.heads
        queries, keys, values = layer.attend.weight.chunk(3)  # [dim, dim] each, rows by attention head
        biases = layer.attend.bias.chunk(3)
        dim = queries.shape[1]
        scale = (dim // heads) ** -0.5
        merged = torch.cat(
            [layer.merge.weight[:, some] @ values[some] for some in _each_head(dim, heads)]
        )  # [heads * dim, dim]: v W_o of every head
        merged_bias = torch.cat([layer.merge.weight[:, some] @ biases[2][some] for some in _each_head(dim, heads)])
        self.maps = torch.cat([queries * scale, keys, merged])
        self.map_biases = torch.cat([biases[0] * scale, biases[1], merged_bias])
        self.merge_bias = layer.merge.bias.detach().clone()

    def _fold_last(self) -> None:
        layer, heads = self.last, self.heads
        queries, keys, values = layer.attend.weight.chunk(3)
        query_bias, _, value_bias = layer.attend.bias.chunk(3)  # a key's bias shifts all logits equally: no effect
        dim = queries.shape[1]
        scale = (dim // heads) ** -0.5
        parts = list(_each_head(dim, heads))
        self.ask = torch.cat([keys[some].T @ queries[some] * scale for some in parts])  # [heads * dim, dim]
        self.ask_bias = torch.cat([keys[some].T @ query_bias[some] * scale for some in parts])
        self.tell = torch.cat(
            [layer.merge.weight[:, some] @ values[some] for some in parts], dim=1
        )  # [dim, heads * dim]
        self.tell_bias = layer.merge.bias + layer.merge.weight @ value_bias

    @torch.inference_mode()
    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        """Residual input, queries, keys, merged values [texts, slots, ...] and the mask as logits [texts, slots].

        Before the mask come the unit vectors of first tokens [texts, dim], if the head adds their cosine.
        """
        assert isinstance(encoded, TokenVectors)
        vectors, mask = encoded
        states = self.head.inputs(vectors, position)
        hidden = torch.full(mask.shape, torch.finfo(states.dtype).min, device=states.device)
        masked = torch.where(mask, 0.0, hidden)
        rest = (masked,) if self.head.cosine is None else (F.normalize(vectors[:, 0], dim=-1), masked)
        if len(self.head.layers) == 1:  # the only layer is the last, which reads the states directly
            return states, *rest
        dim, heads = states.shape[-1], self.heads
        found = F.linear(states, self.maps, self.map_biases)
        queries, keys, values = found.split([dim, dim, heads * dim], dim=-1)
        return states + self.merge_bias, queries.contiguous(), keys.contiguous(), values.contiguous(), *rest

    @torch.inference_mode()
    def score(self, texts: Sequence[Prepared]) -> Tensor:
        scores = self._layers(texts)
        return scores if self.head.cosine is None else scores + self.head.cosine.after(texts[0][-2], texts[1][-2])

    def _layers(self, texts: Sequence[Prepared]) -> Tensor:
        masked = torch.cat([text[-1] for text in texts], dim=1)  # [pairs, slots]
        if len(self.head.layers) == 1:
            return self._last(torch.cat([text[0] for text in texts], dim=1), masked)
        residual, queries, keys, values = (torch.cat([text[part] for text in texts], dim=1) for part in range(4))
        states = self._after(self.first, residual + self._attended(queries, keys, values, masked))
        for layer in self.between:
            states = layer(states, masked == 0)
        return self._last(states, masked)

    def _attended(self, queries: Tensor, keys: Tensor, values: Tensor, masked: Tensor) -> Tensor:
        """The first layer's attention, merged: [pairs, slots, dim]."""
        pairs, slots, _ = queries.shape
        if self.heads == 1:
            logits = torch.baddbmm(masked.unsqueeze(1), queries, keys.transpose(1, 2))
            return logits.softmax(dim=-1) @ values
        split = (pairs, slots, self.heads, -1)
        logits = torch.einsum("bihd,bjhd->bhij", queries.view(split), keys.view(split)) + masked[:, None, None, :]
        return torch.einsum("bhij,bjhd->bid", logits.softmax(dim=-1), values.view(split))

    def _last(self, states: Tensor, masked: Tensor) -> Tensor:
        """The last layer for its first token, and the scores."""
        first = states[:, 0]  # [pairs, dim]
        asked = F.linear(first, self.ask, self.ask_bias).view(len(first), self.heads, -1)
        logits = torch.baddbmm(masked.unsqueeze(1), asked, states.transpose(1, 2))  # [pairs, heads, slots]
        told = (logits.softmax(dim=-1) @ states).flatten(1)
        found = self._after(self.last, first + F.linear(told, self.tell, self.tell_bias))
        return self.head.output(found)

    @staticmethod
    def _after(layer: HeadLayer, summed: Tensor) -> Tensor:
        """The part of a layer after attention is added."""
        states = layer.first_norm(summed)
        return layer.second_norm(states + layer.narrow(F.gelu(layer.widen(states))))


class FoldedFeedForward(Interaction):
    """`FeedForwardHead`, folded: the first layer is linear, so each text's part of it is precomputed."""

    name = "folded ffnn"

    def __init__(self, head: FeedForwardHead) -> None:
        super().__init__()
        self.head, self.outputs = head.eval(), head.outputs
        sizes = [slots * head.arguments["dim"] for slots in head.arguments["slots"]]
        self.parts = [part.detach().clone() for part in head.first.weight.split(sizes, dim=1)]

    @torch.inference_mode()
    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        bias = self.head.first.bias if position == 0 else None
        (flat,) = self.head.prepare(encoded, position)
        return (F.linear(flat, self.parts[position], bias),)

    @torch.inference_mode()
    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return self.head.after(sum((text[0] for text in texts[1:]), texts[0][0]))


def _each_head(dim: int, heads: int) -> list[slice]:
    return [slice(number * dim // heads, (number + 1) * dim // heads) for number in range(heads)]
