"""Predict tokens, masked or visible: the head, and the vocabulary to predict from.

Both are only used in training. The head is never saved with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.matchers.quiet import quiet

TOKEN_HEAD = "token_head"  # its name among a matcher's training heads
SPREAD = 0.02  # standard deviation of new weights, as in BERT


@dataclass(frozen=True)
class Vocabulary:
    """Which tokens may be selected, and their replacements."""

    mask: int | None  # None if nothing is masked
    special: np.ndarray  # ids that are never selected
    ordinary: np.ndarray  # all others

    @classmethod
    def of(cls, tokenizer: Any, masks: bool = True) -> Vocabulary:
        """The vocabulary of a tokenizer; with `masks` it must have a mask token."""
        with quiet():
            mask = getattr(tokenizer, "mask_token_id", None)
        if mask is None and masks:
            raise LimbeckError("masked_lm: the student's tokeniser has no mask token; use another start, or drop it")
        special = np.array(sorted(tokenizer.all_special_ids), dtype=np.int64)
        return cls(mask, special, np.setdiff1d(np.arange(len(tokenizer)), special))


class TokenHead(nn.Module):
    """BERT's head: a dense layer, GELU, layer norm, then the token embeddings as decoder, with a separate bias."""

    def __init__(self, width: int, embeddings: Tensor, vocabulary: Vocabulary) -> None:
        super().__init__()
        tokens, embedding_width = embeddings.shape
        self.vocabulary = vocabulary
        self.dense = nn.Linear(width, embedding_width)
        self.norm = nn.LayerNorm(embedding_width)
        self.bias = nn.Parameter(torch.zeros(tokens))
        nn.init.normal_(self.dense.weight, std=SPREAD)
        nn.init.zeros_(self.dense.bias)

    @classmethod
    def of(cls, transformer: Any, seed: int, masks: bool = True) -> TokenHead:
        """A new head for a sentence-transformers Transformer; its weights depend only on the seed."""
        vocabulary = Vocabulary.of(transformer.tokenizer, masks)
        embeddings = transformer.model.get_input_embeddings().weight
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(transformer.get_embedding_dimension(), embeddings, vocabulary)

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """Logits [M, tokens] of token states [M, width]; the embeddings [tokens, dim] receive gradients too."""
        return F.linear(self.norm(F.gelu(self.dense(states))), embeddings, self.bias)
