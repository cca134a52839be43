"""Dual pooling: a query proxy and a document proxy from one joint pass (EmbedDistill Sec. 4.2, App. B).

    special     query: the final state of [CLS];  document: the final state of the last [SEP]
    weighted    of each text: sum of its tokens' final states / sqrt(number of its tokens)

The score is the inner product of the two proxies. There are no learnt modules after the transformer, so the states
themselves must contain what the score needs, and a dual encoder can be matched to them.

The paper leaves two things open for `weighted`. Here the length is that of the text, not of the whole sequence, and
special tokens belong to neither text (App. B distinguishes query, document and special tokens).

sentence-transformers has no such module, so only Limbeck can load a folder of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from limbeck.errors import LimbeckError, bad_input
from limbeck.matchers.quiet import quiet

POOLINGS = ("special", "weighted")
APART = ("segments", *POOLINGS)  # all poolings with one vector per text; the first is in segments.py
QUERY, DOCUMENT = "query_proxies", "document_proxies"  # names in a model's features: [pairs, dim]


@dataclass(frozen=True)
class Boundaries:
    """The special tokens that a tokenizer puts around two texts: [CLS] first [SEP] second [SEP]; names may differ."""

    start: int | None
    separator: int

    @classmethod
    def of(cls, tokenizer: Any, pooling: str, name: str) -> Boundaries:
        """Find them by tokenising a pair. Errors name the model (`name`) if its tokenizer does not fit `pooling`."""
        with quiet():
            ids = tokenizer("a", "a")["input_ids"]
            starts = {tokenizer.cls_token_id, tokenizer.bos_token_id} - {None}
            ends = {tokenizer.sep_token_id, tokenizer.eos_token_id} - {None}
        if ids[-1] not in ends or ids.count(ids[-1]) < 2:
            raise _refused(pooling, name, "puts no token such as [SEP] behind each text")
        start = ids[0] if ids[0] in starts else None
        if start is None and pooling == "special":
            raise _refused(pooling, name, "puts no token such as [CLS] before the first text")
        return cls(start, ids[-1])


def _refused(pooling: str, name: str, problem: str) -> LimbeckError:
    return LimbeckError(f"pooling: {pooling}: the tokenizer of {name} {problem}; use pooling: mean, or another model")


class DualPooling(Module):
    """scores = <proxy query, proxy document>, both pooled from the states of one pass over the pair."""

    config_keys: list[str] = ["pooling"]  # noqa: RUF012 (declared as in the library)

    def __init__(self, pooling: str, boundaries: Boundaries) -> None:
        super().__init__()
        self.pooling, self.boundaries = pooling, boundaries

    def forward(self, features: dict[str, Any], **kwargs: object) -> dict[str, Any]:
        pool = self._special if self.pooling == "special" else self._weighted
        query, document = pool(features, features["token_embeddings"].float())  # even under autocast
        features |= {QUERY: query, DOCUMENT: document, "scores": (query * document).sum(dim=-1, keepdim=True)}
        return features

    def _special(self, features: dict[str, Any], states: Tensor) -> tuple[Tensor, Tensor]:
        """Select by token, not by mask: a token that is hidden from others in training can still read them."""
        ids = features["input_ids"]
        first = (ids == self.boundaries.start).int().argmax(dim=1)
        last = ids.shape[1] - 1 - (ids == self.boundaries.separator).int().flip(1).argmax(dim=1)
        rows = torch.arange(len(ids), device=ids.device)
        return states[rows, first], states[rows, last]

    def _weighted(self, features: dict[str, Any], states: Tensor) -> tuple[Tensor, Tensor]:
        ids = features["input_ids"]
        separator = ids == self.boundaries.separator
        in_second = features.get("token_type_ids")
        if in_second is None or not in_second.any():  # tokenizers without types: everything after the first [SEP]
            in_second = separator.cumsum(dim=1) - separator.int() > 0
        words = features["attention_mask"].bool() & ~separator
        if self.boundaries.start is not None:
            words &= ids != self.boundaries.start
        return _by_root(states, words & (in_second == 0)), _by_root(states, words & (in_second != 0))

    def save(self, output_path: str, *args: object, **kwargs: object) -> None:
        self.save_config(output_path)

    @classmethod
    def restore(cls, folder: Path, tokenizer: Any) -> DualPooling:
        pooling = cls.load_config(model_name_or_path=str(folder)).get("pooling")
        if pooling not in POOLINGS:
            problem = f"has a pooling {pooling!r} that is neither {' nor '.join(POOLINGS)}"
            raise bad_input(folder / "config.json", problem, "save the model again")
        return cls(pooling, Boundaries.of(tokenizer, pooling, str(folder.parent)))


def _by_root(states: Tensor, words: Tensor) -> Tensor:
    """sum / sqrt(count) of the states [pairs, tokens, dim] at `words` [pairs, tokens]; zeros for an empty text."""
    own = words.unsqueeze(-1).to(states.dtype)
    return (states * own).sum(dim=1) / own.sum(dim=1).clamp(min=1).sqrt()
