"""The vectors that a cross-encoder computes for pairs, to analyse its geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from limbeck.data.dataset import RankingData
from limbeck.errors import LimbeckError
from limbeck.matchers.base import Matcher, TextBatch
from limbeck.matchers.device import on_device
from limbeck.progress import track

SIGNALS = ("query_proxies", "pair_embeddings")  # in order of preference; a model has one of them


@dataclass(frozen=True)
class PairVectors:
    """One vector for each document of each query's list."""

    signal: str  # `query_proxies` or `pair_embeddings`
    lists: Mapping[str, np.ndarray]  # query -> [documents, dim]


@torch.inference_mode()
def pair_vectors(matcher: Matcher, data: RankingData, lists: Mapping[str, Sequence[str]]) -> PairVectors:
    """The vectors of each query with each document of its list; queries and documents are given by id."""
    signal = next((signal for signal in SIGNALS if signal in matcher.shows), None)
    if signal is None:
        problem = f"a {matcher.kind} shows no vectors of pairs"
        raise LimbeckError(f"{problem}; a map needs a cross_encoder that Limbeck trained")
    matcher.eval()
    found = {}
    for query, documents in track(lists.items(), "Mapping pairs", len(lists)):
        texts = [data.corpus[document] for document in documents]
        inputs = matcher.prepare(TextBatch([data.queries[query]], texts, None))
        shown = matcher(on_device(inputs, matcher.device), frozenset({signal}))
        found[query] = getattr(shown, signal)[0].float().cpu().numpy()
    return PairVectors(signal, found)
