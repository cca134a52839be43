"""The base class of interactions, with two steps: the first runs once per text, the second once per pair.

    prepared = [interaction.prepare(encoded, position) for position, encoded in enumerate(texts)]
    scores = interaction.score([tuple(part[rows] for part in text) for text, rows in zip(prepared, pairs)])

Training, re-ranking, latency and `limbeck score` all call these two. An interaction can be rebuilt from its `arguments`
and weights, so a worker that scores pairs needs no tower and no model library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from limbeck.errors import LimbeckError, did_you_mean
from limbeck.matchers.encoding import Encoded
from limbeck.plugins import load_plugins

Prepared = tuple[Tensor, ...]  # prepared texts of one position: tensors with one row per text
Search = Literal["inner_product", "maxsim"]


class Interaction(nn.Module, ABC):
    """Scores encoded texts."""

    name: ClassVar[str]
    search: ClassVar[Search | None] = None  # how a whole corpus can be searched, if at all
    outputs: int = 1  # scores per pair
    _place: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Empty and never saved: `.to(device)` moves it, so an interaction without weights also knows its device.
        self.register_buffer("_place", torch.empty(0), persistent=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its constructor, as JSON."""
        return {}

    @abstractmethod
    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        """Everything that depends on a single text; `position` is the text's position in a pair."""

    @abstractmethod
    def score(self, texts: Sequence[Prepared]) -> Tensor:
        """Scores [pairs, outputs] of prepared texts, one row of each position for each pair."""

    def score_rows(self, texts: Sequence[Prepared], rows: Sequence[Tensor]) -> Tensor:
        """`score` of pairs that are given as rows of prepared texts: the rows of each position, one for each pair."""
        return self.score([take_rows(text, row) for text, row in zip(texts, rows, strict=True)])

    def forward(self, texts: Sequence[Prepared], lists: Tensor | None) -> Tensor:
        """Scores [B, K] of each query's list of documents, or [B, P] of all pairs if `lists` is None.

        With several outputs there is one more dimension for them.
        """
        rows, columns = len(texts[0][0]), len(texts[1][0])
        if lists is None:
            lists = torch.arange(columns, device=texts[0][0].device).expand(rows, -1)
        queries = torch.arange(rows, device=lists.device).unsqueeze(1).expand_as(lists).flatten()
        scores = self.score_rows(texts, [queries, *(lists.flatten() for _ in texts[1:])])
        scores = scores.view(*lists.shape, self.outputs)
        return scores.squeeze(-1) if self.outputs == 1 else scores

    def folded(self) -> Interaction:
        """The same scores for inference, with everything precomputed that does not depend on the pair."""
        return self

    @property
    def device(self) -> torch.device:
        """The device on which encodings are scored."""
        return next(self.parameters(), self._place).device


INTERACTIONS: dict[str, type[Interaction]] = {}
InteractionType = TypeVar("InteractionType", bound=type[Interaction])


def interaction(kind: InteractionType) -> InteractionType:
    """Register an interaction under its `name`, so that it can be rebuilt from its folder."""
    INTERACTIONS[kind.name] = kind
    return kind


def interaction_named(name: str, arguments: dict[str, Any]) -> Interaction:
    """Build a registered interaction; its weights are new."""
    if name not in INTERACTIONS:
        load_plugins()
    if name not in INTERACTIONS:
        raise LimbeckError(f"unknown interaction {name!r}; {did_you_mean(name, list(INTERACTIONS))}")
    return INTERACTIONS[name](**arguments)


def take_rows(text: Prepared, rows: Tensor) -> Prepared:
    """Some rows of prepared texts."""
    return tuple(part[rows] for part in text)


def without_padding(text: Prepared) -> Prepared:
    """Prepared tokens [texts, tokens, ...], their mask last, without positions at which no text has a token."""
    filled = text[-1].any(dim=0)
    return text if bool(filled.all()) else tuple(part[:, filled] for part in text)
