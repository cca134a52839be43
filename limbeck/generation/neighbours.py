"""Queries near a given one: x' = Dec(Enc(x) + eps), with some of its tokens masked (EmbedDistill, App. E)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limbeck.data.tables import TextRecord
from limbeck.generation.draws import own_draws
from limbeck.generation.seq2seq import Seq2Seq

CODE_VERSION = 1  # raise it when the same weights, texts and settings give other queries
READS = 512  # maximum tokens of a query


@dataclass(frozen=True)
class Perturbation:
    """How far from a query its neighbours are.

    `noise` is the standard deviation of eps relative to the encoder states: to the root mean square of the states of
    the query. So the same value has the same effect on models with states of different size. eps is isotropic.
    """

    per_query: int = 2
    seed: int = 0
    noise: float = 0.3
    mask: float = 0.1  # probability for each token except special tokens
    max_length: int = 64  # maximum tokens of a new query


class Neighbours:
    """A seq2seq model that rewrites a query with noise. Only the noise is random: decoding is greedy."""

    def __init__(self, model: Seq2Seq, how: Perturbation, batch_size: int = 8) -> None:
        self.model, self.how, self.batch_size = model, how, batch_size

    def identity(self) -> dict[str, Any]:
        return {**self.model.identity(), **asdict(self.how), "code": CODE_VERSION}

    def write(self, rows: Sequence[TextRecord]) -> list[list[str]]:
        many = self.how.per_query
        ids, mask = (each.repeat_interleave(many, dim=0) for each in self.model.tokens([row[2] for row in rows], READS))
        draws = [own_draws(self.how.seed, key, number) for key, _, _ in rows for number in range(many)]
        ids, mask = self._masked(ids, mask, draws)
        states = self.model.encode(ids, mask)
        queries = self.model.decode(states + self._noise(states, mask, draws), mask, self.how.max_length)
        return [queries[start : start + many] for start in range(0, len(queries), many)]

    def _masked(self, ids: Tensor, mask: Tensor, draws: Sequence[np.random.Generator]) -> tuple[Tensor, Tensor]:
        """Replace some tokens with the mask token, or hide them if the model has no mask token, like T5.

        At least one token of a query is kept.
        """
        if not self.how.mask:
            return ids, mask
        special = torch.isin(ids, torch.tensor(self.model.tokenizer.all_special_ids, device=ids.device))
        chosen = np.zeros(ids.shape, dtype=bool)
        for place, (own, words) in enumerate(zip(draws, (mask.bool() & ~special).tolist(), strict=True)):
            tokens = np.flatnonzero(words)
            some = tokens[own.random(len(tokens)) < self.how.mask]
            chosen[place, some[: len(tokens) - 1]] = True
        hidden = torch.from_numpy(chosen).to(ids.device)
        token = self.model.tokenizer.mask_token_id
        if token is None:
            return ids, mask.masked_fill(hidden, 0)
        return ids.masked_fill(hidden, token), mask

    def _noise(self, states: Tensor, mask: Tensor, draws: Sequence[np.random.Generator]) -> Tensor:
        """eps for every token: [rows, tokens, dim]."""
        eps = np.zeros(states.shape, dtype=np.float32)
        for place, own in enumerate(draws):  # only for the row's own tokens: padding depends on the batch
            seen = mask[place].bool().cpu().numpy()
            eps[place, seen] = own.standard_normal((int(seen.sum()), states.shape[2]))
        weight = mask[:, :, None].to(states.dtype)
        power = (states.square() * weight).sum(dim=(1, 2)) / (weight.sum(dim=(1, 2)) * states.shape[2])
        return self.how.noise * power.sqrt()[:, None, None] * torch.from_numpy(eps).to(states)
