"""Token vectors in closed form: those whose sums come nearest to a teacher's embeddings of many texts.

With X [texts, tokens] the counts of each text's tokens over the length of its sum, and T [texts, dim] the teacher's
embeddings, the table W [tokens, dim] minimises |XW - T|^2 + strength |W - P|^2. No labels and no gradients are needed.
The length of a sum is the root of its number of tokens at first, then what a first solution makes it.

The prior P is what is known of a token before any text is read: F M, where F [tokens, width] is what the teacher makes
of each token alone (or, without a teacher, the table as it is), and M the linear map that brings XF nearest to T. A
token that no text has keeps its row of P. On pydocs, from its 2,038 training queries alone, the search of the teacher's
documents keeps 88% of its quality; with zero as the prior it keeps 55%.

Documents are texts like any others: with the vectors of an index that is there, nothing has to be encoded but tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import SIDES, Side
from limbeck.matchers.device import on_device
from limbeck.matchers.ridge import linear_map, ridge
from limbeck.matchers.static import replace_table, token_ids
from limbeck.matchers.tower import Tower
from limbeck.progress import progress

STRENGTHS = (1.0, 0.3, 0.1, 0.03)  # that are tried; the one that does best on held-out texts is used on all
MOST_TEXTS = 40_000  # that a run fits; with 128 tokens each they take some minutes of a core
FIRST = 0.3  # strength of the solution that says how long sums are
SHORTEST = 0.2  # a shorter sum counts as one of this length
HELD_OUT = 0.1  # of the texts, and at most
MOST_HELD_OUT = 2000
FEWEST = 20  # texts; of fewer, none can be held out
BLOCK = 1024


@dataclass(frozen=True)
class StaticFit:
    """What became of a fit."""

    texts: int
    tokens: int  # that occur in the texts
    strength: float  # of the ridge
    cosine: float  # mean, between the static vectors of held-out texts and the teacher's
    from_teacher: bool  # whether the prior is the teacher's of each token


def fit_static(
    matcher: Any,
    side: Side,
    texts: Sequence[str],
    targets: np.ndarray,
    reference: Any = None,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
) -> StaticFit:
    """Give the static tower of a side the token vectors that come nearest to `targets` [texts, dim].

    `matcher` is a dual encoder; `reference` is the one whose embeddings are the targets, if it is available.
    """
    part = matcher.tower.transformer(side)
    if not isinstance(part, StaticEmbedding):
        raise LimbeckError(f"the {side} tower has a transformer; a closed form needs encoder: static")
    if len(texts) != len(targets) or len(texts) < FEWEST:
        problem = f"{len(texts)} texts and {len(targets)} embeddings cannot be fitted"
        raise LimbeckError(f"{problem}; give at least {FEWEST} texts, each with its embedding")
    prompt = matcher.tower.prompt(side) or ""
    design = counts(_reader(part, reference), [prompt + text for text in texts], part.num_embeddings)
    known = token_outputs(reference.tower, side, part) if reference is not None else None
    features = part.embedding.weight.detach().cpu().numpy() if known is None else known
    unit = _unit(np.asarray(targets, dtype=np.float32))
    order = np.random.default_rng(seed).permutation(len(texts))
    held, rest = np.split(order, [min(MOST_HELD_OUT, max(1, int(HELD_OUT * len(texts))))])
    with progress("Fitting token vectors", len(strengths) + 1) as advance:
        strength, cosine = _best_strength(design, unit, features, (rest, held), strengths, advance)
        table = next(_solve(design, unit, features, [strength]))
        advance(1)
    device = part.embedding.weight.device
    replace_table(part, torch.from_numpy(table).to(device))
    seen = np.count_nonzero(np.bincount(design.indices, minlength=1))
    return StaticFit(len(texts), int(seen), strength, cosine, known is not None)


def fit_towers(
    matcher: Any,
    positions: Sequence[int],
    texts: Sequence[Sequence[str]],
    targets: Sequence[np.ndarray],
    reference: Any,
    seed: int = 0,
) -> list[float]:
    """Fit the static towers at `positions`, in turn. Cosines on held-out texts.

    One table that both share is fitted to all texts; so is a query side whose documents have another tower, because
    vectors of documents say as much of their words as others do.
    """
    first, second = (matcher.tower.transformer(side) for side in SIDES)
    together = first is second or len(positions) == 1
    found = []
    for at in positions[:1] if together else positions:
        group = [other for other in ((0, 1) if together else (at,)) if len(texts[other])]
        every = [text for other in group for text in texts[other]]
        wanted = np.concatenate([targets[other] for other in group])
        found.append(fit_static(matcher, SIDES[at], every, wanted, reference, seed=seed).cosine)
    return found


def _reader(part: StaticEmbedding, reference: Any) -> Tokenizer:
    """A tokenizer that reads as much of a text as the reference does, whatever the tower itself reads of a query."""
    copy = Tokenizer.from_str(part.tokenizer.to_str())
    if reference is not None:
        copy.enable_truncation(max(reference.tower.words(side)[1] for side in SIDES))
    return copy


def counts(tokenizer: Tokenizer, texts: Sequence[str], tokens: int) -> csr_matrix:
    """X [texts, tokens]: how often each token is in a text, over the root of the text's length."""
    ids, starts = token_ids(tokenizer, texts)
    lengths = np.diff(starts)
    values = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    found = csr_matrix((values, ids, starts), shape=(len(texts), tokens))
    found.sum_duplicates()
    return found


def token_outputs(tower: Tower, side: Side, part: StaticEmbedding) -> np.ndarray | None:
    """What a tower makes of each token by itself, between its special tokens: [tokens, dim].

    None if it reads other tokens than `part`, or has no transformer: then there is nothing to be known from it.
    """
    first = tower.transformer(side)
    if isinstance(first, StaticEmbedding) or first.tokenizer.get_vocab() != part.tokenizer.get_vocab():
        return None
    template = tower.model.preprocess(["a"], prompt=tower.prompt(side), task=side)
    word = first.tokenizer.encode("a", add_special_tokens=False)
    places = (template["input_ids"][0] == word[0]).nonzero().flatten() if len(word) == 1 else []
    if not len(places):
        return None
    found = []
    tower.eval()
    with progress("Encoding tokens", part.num_embeddings) as advance, torch.inference_mode():
        for ids in torch.arange(part.num_embeddings).split(BLOCK):
            features = {
                name: value.repeat(len(ids), 1) if isinstance(value, torch.Tensor) and value.dim() == 2 else value
                for name, value in template.items()
            }
            features["input_ids"][:, places[-1]] = ids
            vectors = tower.model(on_device(features, tower.model.device), task=side)["sentence_embedding"]
            found.append(vectors.float().cpu())
            advance(len(ids))
    return torch.cat(found).numpy()


def _best_strength(
    design: csr_matrix,
    targets: np.ndarray,
    features: np.ndarray,
    split: tuple[np.ndarray, np.ndarray],
    strengths: Sequence[float],
    advance: Callable[[int], None],
) -> tuple[float, float]:
    """The strength whose table, found on some texts, does best on the others; and how well: the mean cosine."""
    some, others = split
    cosines = []
    for table in _solve(design[some], targets[some], features, strengths):
        cosines.append(float((_unit(design[others] @ table) * targets[others]).sum(axis=1).mean()))
        advance(1)
    best = int(np.argmax(cosines))
    return strengths[best], cosines[best]


def _solve(
    design: csr_matrix, targets: np.ndarray, features: np.ndarray, strengths: Sequence[float]
) -> Iterator[np.ndarray]:
    """The table [tokens, dim] for each strength, in turn; each starts from the one before.

    What a text's sum is divided by in the end is its own length, not the root of its tokens: a first solution tells.
    """
    seen = np.unique(design.indices)
    compact = design[:, seen]
    first = _prior(design, targets, features)
    first[seen] = ridge(compact, targets, FIRST, first[seen])
    factors = 1 / np.maximum(np.linalg.norm(design @ first, axis=1), SHORTEST)
    design, compact = _scaled(design, factors), _scaled(compact, factors)
    prior = _prior(design, targets, features)
    table = prior.copy()
    for strength in strengths:
        table[seen] = ridge(compact, targets, strength, prior[seen], start=table[seen])
        yield table.copy()


def _prior(design: csr_matrix, targets: np.ndarray, features: np.ndarray) -> np.ndarray:
    return features @ linear_map(design @ features, targets)


def _scaled(design: csr_matrix, factors: np.ndarray) -> csr_matrix:
    """Each row times its factor."""
    found = design.copy()
    found.data = (found.data * np.repeat(factors, np.diff(found.indptr))).astype(np.float32)
    return found


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
