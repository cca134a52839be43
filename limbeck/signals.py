"""What passes between teacher, student and objective.

One batch holds B queries, the P distinct documents that they mention and, for each query, a list of K of them. When
every in-batch pair counts, K = P and every list is all documents; no objective needs to know which it is. A batch may
have no lists (K = 0): embedding matching trains on texts alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

SIGNALS = ("scores", "queries", "documents", "token_logits")


@dataclass(frozen=True)
class Signals:
    """What a matcher showed while it worked. A matcher fills in what was asked of it, and no more.

    A teacher's NaN score means "not scored": a pair that the teacher never saw.
    """

    scores: Tensor | None = None  # [B, K] raw logits, never passed through an activation; [B, K, C] for C classes
    queries: Tensor | None = None  # [B, dim] pooled query embeddings
    documents: Tensor | None = None  # [P, dim] pooled embeddings of the batch's distinct documents
    token_logits: Tensor | None = None  # [M, vocabulary] at the masked tokens, in the order of MaskedTokens


def merged(first: Signals, second: Signals) -> Signals:
    """The signals of two sources; where both show one, the first counts."""
    return replace(second, **{name: value for name, value in vars(first).items() if value is not None})


@dataclass(frozen=True)
class MaskedTokens:
    """What was taken out of the texts that a student is asked to restore: M tokens of T texts.

    The T texts are the queries of the batch and its distinct documents; with several processes, those that this
    process encodes.
    """

    ids: Tensor  # [M] the tokens that stood there
    texts: Tensor  # [M] which text each is in
    shares: Tensor  # [B, T] each text's part in each query's loss


@dataclass(frozen=True)
class Targets:
    """What is known of a batch besides what the matchers show."""

    mask: Tensor  # [B, K] bool: False is padding
    labels: Tensor  # [B, K] graded or soft relevance, or a class; [B, K, C] soft classes; NaN where nobody judged
    tokens: MaskedTokens | None = None  # known only where an objective asks for token logits
    own: Tensor | None = None  # [B, K] bool: chosen for this query, not for another of the batch; None is all of them
    texts: slice | None = None  # texts without lists: which of the batch's documents this process counts
    lists: Tensor | None = None  # [B, K] rows of the distinct documents, 0 where padded; None: each list has them all

    def per_list(self, documents: Tensor) -> Tensor:
        """What is known of each distinct document [P, ...] as [B, K, ...], list by list."""
        if self.lists is None:
            return documents.expand(len(self.mask), *documents.shape)
        return documents[self.lists]


@dataclass(frozen=True)
class Sizes:
    """What an objective has to know of student and teacher to build what is trained with it."""

    student: int  # numbers in a pooled embedding
    teacher: int | None = None  # the same of the teacher; None where there are only its scores
