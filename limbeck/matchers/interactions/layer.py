"""One transformer layer like BERT's, in plain torch: for heads that a worker builds without a model library."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ALIKE = 4.0  # initial logit of two equal tokens; of 1, 4 and 11, 4 learnt fastest on wdc_products


class HeadLayer(nn.Module):
    """Attention, then a feed-forward network with GELU, each added to its input and normalised."""

    def __init__(
        self,
        dim: int,
        heads: int,
        intermediate: int,
        dropout: float,
        attention_dropout: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.attend = nn.Linear(dim, 3 * dim)  # queries, keys, values
        self.merge = nn.Linear(dim, dim)
        self.widen, self.narrow = nn.Linear(dim, intermediate), nn.Linear(intermediate, dim)
        self.first_norm, self.second_norm = nn.LayerNorm(dim, eps), nn.LayerNorm(dim, eps)
        self.dropout, self.attention_dropout = nn.Dropout(dropout), nn.Dropout(attention_dropout)

    @torch.no_grad()
    def compare(self) -> None:
        """Make queries and keys multiples of the states, so that a normalised state's logit with itself is ALIKE."""
        dim = self.merge.in_features
        factor = ALIKE**0.5 * (dim // self.heads) ** -0.25
        self.attend.weight[: 2 * dim] = factor * torch.eye(dim).repeat(2, 1)
        self.attend.bias[: 2 * dim] = 0

    def forward(self, states: Tensor, mask: Tensor, first: bool = False) -> Tensor:
        """The states [B, slots, dim] after this layer; with `first` only the first token's, [B, 1, dim]."""
        dim = states.shape[-1]
        asking = states[:, :1] if first else states
        maps, biases = self.attend.weight.split([dim, 2 * dim]), self.attend.bias.split([dim, 2 * dim])
        queries = F.linear(asking, maps[0], biases[0])
        keys, values = F.linear(states, maps[1], biases[1]).chunk(2, dim=-1)
        return self.attended(asking, queries, keys, values, mask)

    def attended(self, asking: Tensor, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """The rest of the layer, given the queries of the `asking` states and all keys and values."""
        queries, keys, values = map(self._by_head, (queries, keys, values))
        found = self._attention(queries, keys, values, mask[:, None, None, :])
        states = self.first_norm(asking + self.dropout(self.merge(found.transpose(1, 2).flatten(2))))
        return self.second_norm(states + self.dropout(self.narrow(F.gelu(self.widen(states)))))

    def _attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        if not (self.training and self.attention_dropout.p):
            return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        logits = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        weights = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(dim=-1)
        return self.attention_dropout(weights) @ values

    def _by_head(self, found: Tensor) -> Tensor:
        """[B, slots, dim] as [B, heads, slots, dim / heads]."""
        return found.unflatten(-1, (self.heads, -1)).transpose(1, 2)
