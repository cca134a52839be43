"""DiPair's heads with everything precomputed that depends on a single text or on no text.

A head is exact algebra over stored vectors, so nothing here is an approximation:

- The first layer's computations on single texts (position, segment, norm, queries, keys, values) are done once per
  text. The map that merges attention's result is linear, so it is applied to the values: v W_o. With one attention
  head, W_k is applied to the queries, so that the states themselves are the keys: one part less to read per pair.
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
        asked, ask_bias = queries * scale, biases[0] * scale
        merged = torch.cat(
            [layer.merge.weight[:, some] @ values[some] for some in _each_head(dim, heads)]
        )  # [heads * dim, dim]: v W_o of every head
        merged_bias = torch.cat([layer.merge.weight[:, some] @ biases[2][some] for some in _each_head(dim, heads)])
        if heads == 1:  # q W_k . (x + b) differs from q . k by the same amount for all keys, which softmax ignores
            maps, map_biases = [keys.T @ asked, merged], [keys.T @ ask_bias, merged_bias]
        else:
            maps, map_biases = [asked, keys, merged], [ask_bias, biases[1], merged_bias]
        self.maps, self.map_biases = torch.cat(maps), torch.cat(map_biases)
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

    @property
    def parts(self) -> list[str]:
        """What `prepare` returns: the names of its tensors."""
        first = ["residual", "queries", "values"] if self.heads == 1 else ["residual", "queries", "keys", "values"]
        unit = ["unit"] if self.head.cosine is not None else []
        return [*(first if len(self.head.layers) > 1 else ["residual"]), *unit, "masked"]

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
        dim = states.shape[-1]
        found = F.linear(states, self.maps, self.map_biases)
        sizes = [dim] * (self.parts.index("values") - 1) + [self.heads * dim]
        return states + self.merge_bias, *(part.contiguous() for part in found.split(sizes, dim=-1)), *rest

    def joined(self, texts: Sequence[Prepared], rows: Sequence[Tensor] | None = None) -> dict[str, Tensor]:
        """The parts of a pair's texts as one tensor [pairs, slots of all texts, ...]; unit vectors stay apart.

        With `rows`, pairs are rows of the texts. These are copied to their place in one step: for a small head, a
        second copy would be a notable share of the time.
        """
        found: dict[str, Tensor] = {}
        for at, name in enumerate(self.parts):
            each = [text[at] for text in texts]
            if name == "unit":
                picked = each if rows is None else [part[row] for part, row in zip(each, rows, strict=True)]
                found |= {"unit_0": picked[0], "unit_1": picked[1]}
            else:
                found[name] = torch.cat(each, dim=1) if rows is None else _gathered(each, rows)
        return found

    @torch.inference_mode()
    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return self._score_joined(self.joined(texts))

    @torch.inference_mode()
    def score_rows(self, texts: Sequence[Prepared], rows: Sequence[Tensor]) -> Tensor:
        return self._score_joined(self.joined(texts, rows))

    def _score_joined(self, parts: dict[str, Tensor]) -> Tensor:
        scores = self._layers(parts)
        return scores if self.head.cosine is None else scores + self.head.cosine.after(parts["unit_0"], parts["unit_1"])

    def _layers(self, parts: dict[str, Tensor]) -> Tensor:
        states, masked = parts["residual"], parts["masked"]
        if len(self.head.layers) > 1:
            states = self._after(self.first, states + self._attended(parts))
            for layer in self.between:
                states = layer(states, masked == 0)
        return self._last(states, masked)

    def _attended(self, parts: dict[str, Tensor]) -> Tensor:
        """The first layer's attention, merged: [pairs, slots, dim]."""
        queries, values, masked = parts["queries"], parts["values"], parts["masked"]
        if self.heads == 1:
            logits = torch.baddbmm(masked.unsqueeze(1), queries, parts["residual"].transpose(1, 2))
            return logits.softmax(dim=-1) @ values
        pairs, slots, _ = queries.shape
        split = (pairs, slots, self.heads, -1)
        logits = torch.einsum("bihd,bjhd->bhij", queries.view(split), parts["keys"].view(split))
        weights = (logits + masked[:, None, None, :]).softmax(dim=-1)
        return torch.einsum("bhij,bjhd->bid", weights, values.view(split))

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


def _gathered(texts: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """Rows of tensors [texts, slots, ...], next to each other: [pairs, slots of all, ...]."""
    slots = [text.shape[1] for text in texts]
    found = texts[0].new_empty(len(rows[0]), sum(slots), *texts[0].shape[2:])
    for text, row, place in zip(texts, rows, found.split(slots, dim=1), strict=True):
        torch.index_select(text, 0, row, out=place)
    return found


def _each_head(dim: int, heads: int) -> list[slice]:
    return [slice(number * dim // heads, (number + 1) * dim // heads) for number in range(heads)]
