"""What a model needs to name tokens, masked or seen: the head that guesses them, and the vocabulary to guess from.

Both serve training alone. The head is never saved with the model.
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
SPREAD = 0.02  # of new weights, as BERT has it


@dataclass(frozen=True)
class Vocabulary:
    """Which tokens may be chosen, and what can replace them."""

    mask: int | None  # None where nothing is masked
    special: np.ndarray  # ids that are never chosen
    ordinary: np.ndarray  # all others

    @classmethod
    def of(cls, tokenizer: Any, masks: bool = True) -> Vocabulary:
        """A tokenizer's; with `masks` it has to have a mask token."""
        with quiet():
            mask = getattr(tokenizer, "mask_token_id", None)
        if mask is None and masks:
            raise LimbeckError("masked_lm: the student's tokeniser has no mask token; use another start, or drop it")
        special = np.array(sorted(tokenizer.all_special_ids), dtype=np.int64)
        return cls(mask, special, np.setdiff1d(np.arange(len(tokenizer)), special))


class TokenHead(nn.Module):
    """BERT's: a dense layer, GELU, layer norm, then the token embeddings as decoder, with a bias of its own."""

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
        """A new head for a sentence-transformers Transformer; the seed alone decides its weights."""
        vocabulary = Vocabulary.of(transformer.tokenizer, masks)
        embeddings = transformer.model.get_input_embeddings().weight
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(transformer.get_embedding_dimension(), embeddings, vocabulary)

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """Logits [M, tokens] of token states [M, width]; the embeddings [tokens, dim] learn from them too."""
        return F.linear(self.norm(F.gelu(self.dense(states))), embeddings, self.bias)
