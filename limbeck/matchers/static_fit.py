"""Token vectors in closed form: those whose sums are closest to a teacher's embeddings of many texts.

Let X [texts, tokens] be the token counts of each text, divided by the length of its sum, and T [texts, dim] the
teacher's embeddings. The table W [tokens, dim] minimises |XW - T|^2 + strength |W - P|^2. This needs no labels and no
gradients. The length of a sum is first estimated as the root of its number of tokens, then taken from a first solution.

The prior P is what is known of a token before reading any text: P = F M, where F [tokens, width] has the teacher's
embeddings of single tokens (or, without a teacher, the current table), and M is the linear map that brings XF closest
to T. A token that does not occur keeps its row of P. On pydocs, with only its 2,038 training queries, searching the
teacher's documents keeps 88% of the teacher's quality; with zero as the prior it keeps 55%.

Documents can be used as texts too: if an index has their vectors, only single tokens have to be encoded.
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

STRENGTHS = (1.0, 0.3, 0.1, 0.03)  # to try; the best on held-out texts is used for the final fit on all
MOST_TEXTS = 40_000  # maximum for a run; with 128 tokens each they take some minutes on one core
FIRST = 0.3  # strength of the first solution, which gives the lengths of sums
SHORTEST = 0.2  # a shorter sum counts as one of this length
HELD_OUT = 0.1  # share of the texts, and maximum number
MOST_HELD_OUT = 2000
FEWEST = 20  # minimum number of texts: some must be held out
BLOCK = 1024


@dataclass(frozen=True)
class StaticFit:
    """The result of a fit."""

    texts: int
    tokens: int  # number of tokens that occur in the texts
    strength: float  # strength of the ridge
    cosine: float  # mean, between the static vectors of held-out texts and the teacher's
    from_teacher: bool  # whether the prior comes from the teacher


def fit_static(
    matcher: Any,
    side: Side,
    texts: Sequence[str],
    targets: np.ndarray,
    reference: Any = None,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
) -> StaticFit:
    """Set the token vectors of a side's static tower to those closest to `targets` [texts, dim].

    `matcher` is a dual encoder; `reference` is the model whose embeddings are the targets, if available.
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
    """Fit the static towers at `positions` one after the other. Returns the cosines on held-out texts.

    A table that both sides share is fitted to all texts. So is a query tower whose documents have another tower,
    because vectors of documents carry as much information about words as vectors of queries.
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
    """A tokenizer that reads as much of a text as the reference does, even if the tower reads less of a query."""
    copy = Tokenizer.from_str(part.tokenizer.to_str())
    if reference is not None:
        copy.enable_truncation(max(reference.tower.words(side)[1] for side in SIDES))
    return copy


def counts(tokenizer: Tokenizer, texts: Sequence[str], tokens: int) -> csr_matrix:
    """X [texts, tokens]: the count of each token in a text, divided by the root of the text's length."""
    ids, starts = token_ids(tokenizer, texts)
    lengths = np.diff(starts)
    values = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    found = csr_matrix((values, ids, starts), shape=(len(texts), tokens))
    found.sum_duplicates()
    return found


def token_outputs(tower: Tower, side: Side, part: StaticEmbedding) -> np.ndarray | None:
    """A tower's embeddings of single tokens, each between the special tokens: [tokens, dim].

    None if it has other tokens than `part`, or no transformer: then it gives no information.
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
    """The strength whose table, fitted on some texts, is best on the others, and its mean cosine."""
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
    """The table [tokens, dim] for each strength; each fit starts from the previous one.

    A text's sum is finally divided by its length, not by the root of its tokens; a first solution gives that length.
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
    """Each row multiplied by its factor."""
    found = design.copy()
    found.data = (found.data * np.repeat(factors, np.diff(found.indptr))).astype(np.float32)
    return found


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
