"""Choose the tokens that are hidden from a model or predicted by it: dropped, masked, and visible ones.

The tokens chosen in a text depend on the seed, on the examples of the batch and on the text's position among all texts
of the batch; not on chunks, on the number of processes, or on earlier draws. So a resumed run makes the same choice,
and two processes make the same choice as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from limbeck.matchers.base import PreparedBatch, TextBatch
from limbeck.matchers.chunks import Features, texts_of_chunks
from limbeck.matchers.token_head import Vocabulary

CHOSEN = 0.15  # share of the tokens that are not special (Devlin et al.)
AS_MASK, AS_RANDOM = 0.8, 0.1  # shares of these; the rest are not changed, so that no token can be trusted

DROPPING, MASKING, NAMING = 0, 1, 2  # separate random streams

Generators = Callable[[int], np.random.Generator]  # generators for the texts of a part


class Draws:
    """A random generator for each text of a batch."""

    def __init__(self, seed: int, examples: Sequence[tuple[int, int]]) -> None:
        entropy = [seed, *(number for example in examples for number in example)]
        self.root = np.random.SeedSequence(entropy).generate_state(4).tolist()

    def of(self, purpose: int, part: int, first: int) -> Generators:
        return lambda text: np.random.default_rng([*self.root, purpose, part, first + text])


def drop_tokens(inputs: PreparedBatch, probability: float, draws: Draws) -> None:
    """Hide tokens from attention and pooling, in the prepared texts or pairs (in place)."""
    for number, (part, first) in enumerate(inputs.tokenised):
        generator = draws.of(DROPPING, number, first)
        for chunk, texts in zip(part.passes, texts_of_chunks(part), strict=True):
            if "offsets" in chunk:
                _drop_from_bags(chunk, map(generator, texts), probability)
                continue
            mask = chunk["attention_mask"].numpy().copy()
            segments = chunk["token_type_ids"].numpy() if "token_type_ids" in chunk else np.zeros_like(mask)
            for row, text in enumerate(texts):
                real = np.flatnonzero(mask[row])
                dropped = generator(text).random(len(real)) < probability
                dropped &= np.diff(segments[row, real], prepend=-1) == 0  # keep the first token of each text
                mask[row, real[dropped]] = 0
            chunk["attention_mask"] = torch.from_numpy(mask)


def _drop_from_bags(chunk: Features, generators: Iterator[np.random.Generator], probability: float) -> None:
    """The same for concatenated tokens without padding: dropped tokens are removed."""
    lengths = np.diff(chunk["offsets"].numpy(), append=len(chunk["input_ids"]))
    kept = [
        (generator.random(length) >= probability) | (np.arange(length) == 0)
        for generator, length in zip(generators, lengths, strict=True)
    ]
    chunk["input_ids"] = chunk["input_ids"][torch.from_numpy(np.concatenate(kept))]
    chunk["offsets"] = torch.from_numpy(np.cumsum([0, *(some.sum() for some in kept[:-1])]))


def mask_tokens(inputs: PreparedBatch, vocabulary: Vocabulary, draws: Draws) -> tuple[Tensor, Tensor]:
    """Add a masked copy of the prepared texts to `inputs`; return the original tokens and the text of each."""
    ids, texts, before = [], [], 0
    for number, (part, first) in enumerate(inputs.tokenised):
        generator = draws.of(MASKING, number, first)
        chunks = []
        for chunk, rows in zip(part.passes, texts_of_chunks(part), strict=True):
            tokens = chunk["input_ids"].numpy()
            shown, chosen = _with_gaps(tokens, chunk["attention_mask"].numpy(), vocabulary, map(generator, rows))
            chunks.append(chunk | {"input_ids": torch.from_numpy(shown), "chosen": torch.from_numpy(chosen)})
            ids.append(tokens[chosen])
            texts.append(np.repeat(np.array(rows) + before, chosen.sum(axis=1)))
        inputs.masked.append(replace(part, passes=chunks))
        before += len(part)
    return torch.from_numpy(np.concatenate(ids)), torch.from_numpy(np.concatenate(texts))


def choose_tokens(inputs: PreparedBatch, vocabulary: Vocabulary, draws: Draws) -> tuple[Tensor, Tensor]:
    """Mark the tokens that a model has to predict in the prepared pairs (in place); return them and the pair of each.

    A seventh of all tokens, drawn again in every step: logits of all tokens, [tokens, vocabulary], would not fit.
    """
    ids, pairs, before = [], [], 0
    for number, (part, first) in enumerate(inputs.tokenised):
        generator = draws.of(NAMING, number, first)
        for chunk, rows in zip(part.passes, texts_of_chunks(part), strict=True):
            tokens = chunk["input_ids"].numpy()
            chosen = np.zeros(tokens.shape, dtype=bool)
            for row, places in enumerate(_maskable(tokens, chunk["attention_mask"].numpy(), vocabulary)):
                chosen[row, _some(places, generator(rows[row]))] = True
            chunk["chosen"] = torch.from_numpy(chosen)
            ids.append(tokens[chosen])
            pairs.append(np.repeat(np.array(rows) + before, chosen.sum(axis=1)))
        before += len(part)
    return torch.from_numpy(np.concatenate(ids)), torch.from_numpy(np.concatenate(pairs))


def pair_shares(mask: np.ndarray) -> Tensor:
    """The weight of each pair in the loss of each query: equal within its own list. [B, K] bool -> [B, B * K]"""
    even = mask / np.maximum(1, mask.sum(axis=1, keepdims=True))
    return torch.from_numpy((np.eye(len(mask))[:, :, None] * even).reshape(len(mask), -1)).float()


def text_shares(columns: np.ndarray, mask: np.ndarray, batch: TextBatch) -> Tensor:
    """The weight of each text that this process encodes in the loss of each of its queries. [own B, own T]

    A query and the documents of its list have equal weights. The weights of documents that are encoded here for queries
    of other processes are added to this process's queries, so that the sum over processes is right.
    """
    lists = np.zeros((len(columns), len(batch.documents)))  # [B, P] over all processes
    lists[np.nonzero(mask)[0], columns[mask]] = 1
    own_texts = [np.eye(len(columns))[:, batch.query_slice], lists[:, batch.document_slice]]
    shares = np.hstack(own_texts) / (1 + lists.sum(axis=1, keepdims=True))
    own = shares[batch.query_slice]
    return torch.from_numpy(own + (shares.sum(axis=0) - own.sum(axis=0)) / max(1, len(own))).float()


def _with_gaps(
    tokens: np.ndarray, mask: np.ndarray, vocabulary: Vocabulary, generators: Iterator[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray]:
    """The replacement for the tokens [n, tokens] of a chunk, and which of them were chosen."""
    assert vocabulary.mask is not None
    shown, chosen = tokens.copy(), np.zeros(tokens.shape, dtype=bool)
    for row, (maskable, generator) in enumerate(zip(_maskable(tokens, mask, vocabulary), generators, strict=True)):
        places = _some(maskable, generator)
        fate = generator.random(len(places))
        random = generator.choice(vocabulary.ordinary, size=len(places))
        kept_or_random = np.where(fate < AS_MASK + AS_RANDOM, random, tokens[row, places])
        shown[row, places] = np.where(fate < AS_MASK, vocabulary.mask, kept_or_random)
        chosen[row, places] = True
    return shown, chosen


def _maskable(tokens: np.ndarray, mask: np.ndarray, vocabulary: Vocabulary) -> list[np.ndarray]:
    """The positions in each row of tokens that are neither padding nor special."""
    return [np.flatnonzero(row) for row in (mask != 0) & ~np.isin(tokens, vocabulary.special)]


def _some(places: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A share of the positions, at least one if there is any."""
    if not len(places):
        return places
    return generator.choice(places, size=max(1, round(CHOSEN * len(places))), replace=False)
