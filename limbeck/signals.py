"""The data that teacher, student and objectives exchange.

One batch has B queries, the P distinct documents in their lists and, for each query, a list of K of them. If every
in-batch pair counts, K = P and every list has all documents; objectives do not need to know the difference. A batch may
have no lists (K = 0): embedding matching trains on texts without lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

TEXT_SIGNALS = frozenset({"queries", "documents"})  # signals of single texts: a teacher's can be stored by text
PAIR_SIGNALS = frozenset({"query_proxies", "document_proxies", "pair_embeddings", "cross_attention"})  # one per pair
TEXT_ATTENTION, CROSS_ATTENTION = frozenset({"text_attention"}), frozenset({"cross_attention"})
TOKEN_SIGNALS = frozenset({"token_logits", "seen_token_logits"})  # a matcher needs a token head for them


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes that matter when the attention of two encoders is compared."""

    layers: int
    heads: int


@dataclass(frozen=True)
class TextAttention:
    """The queries and keys that an encoder computes for texts that it reads one by one, in some of its layers.

    Only for tokens of the text itself: special tokens, prompts and padding are left out. At positions without a token
    the values are arbitrary.
    """

    sizes: AttentionSizes  # of the whole encoder
    layers: tuple[int, ...]  # which of its layers these are, from 0
    tokens: Tensor  # [n, tokens] ids of each text's tokens, -1 after its end
    queries: tuple[Tensor, ...]  # of each of `layers`: [n, heads, tokens, d], scaled as the encoder scales them
    keys: tuple[Tensor, ...]  # in the same form

    def rows(self, rows: Tensor) -> TextAttention:
        """A selection of the texts."""
        queries, keys = (tuple(layer[rows] for layer in part) for part in (self.queries, self.keys))
        return replace(self, tokens=self.tokens[rows], queries=queries, keys=keys)


@dataclass(frozen=True)
class CrossAttention:
    """The attention of an encoder that reads pairs, between the two texts of each pair, in some of its layers.

    There are two blocks for each head: from the query's tokens to the document's, and back. A row is a part of the
    model's softmax over the whole sequence, so it sums to less than 1. Positions without a token are 0.
    """

    sizes: AttentionSizes
    layers: tuple[int, ...]
    query_tokens: Tensor  # [B, K, M] ids, -1 after the end of a text
    document_tokens: Tensor  # [B, K, N]
    to_documents: tuple[Tensor, ...]  # of each of `layers`: [B, K, heads, M, N]
    to_queries: tuple[Tensor, ...]  # [B, K, heads, N, M]


@dataclass(frozen=True)
class Signals:
    """The outputs of a matcher for a batch. A matcher computes only the requested signals.

    A teacher's NaN score means "not scored".
    """

    scores: Tensor | None = None  # [B, K] raw logits, never passed through an activation; [B, K, C] for C classes
    queries: Tensor | None = None  # [B, dim] pooled query embeddings
    documents: Tensor | None = None  # [P, dim] pooled embeddings of the batch's distinct documents
    query_proxies: Tensor | None = None  # [B, K, dim] each query, from a joint pass with each document of its list
    document_proxies: Tensor | None = None  # [B, K, dim] the documents of each list, from the same pass
    pair_embeddings: Tensor | None = None  # [B, K, dim] one vector for each pair: the input of a cross-encoder's head
    text_attention: tuple[TextAttention, TextAttention] | None = None  # of B queries, and of P distinct documents
    cross_attention: CrossAttention | None = None  # of the pairs of each list
    token_logits: Tensor | None = None  # [M, vocabulary] at masked tokens, in the order of ChosenTokens
    seen_token_logits: Tensor | None = None  # [M, vocabulary] at visible tokens, in the order of ChosenTokens


def merged(first: Signals, second: Signals) -> Signals:
    """The signals of two sources; if both have one, the first counts."""
    return replace(second, **{name: value for name, value in vars(first).items() if value is not None})


@dataclass(frozen=True)
class ChosenTokens:
    """The tokens that a model has to predict: M tokens of T texts, masked or not.

    The T texts are the queries of the batch and its distinct documents, or, for a model that reads both together, the
    pairs of its lists; with several processes, those that this process encodes.
    """

    ids: Tensor  # [M] the original tokens
    texts: Tensor  # [M] which text each is in
    shares: Tensor  # [B, T] weight of each text in each query's loss


@dataclass(frozen=True)
class Targets:
    """Facts about a batch in addition to the signals of the matchers."""

    mask: Tensor  # [B, K] bool: False is padding
    labels: Tensor  # [B, K] graded or soft relevance, or a class; [B, K, C] soft classes; NaN for unjudged documents
    tokens: ChosenTokens | None = None  # only if an objective needs token logits
    own: Tensor | None = None  # [B, K] bool: chosen for this query, not for another of the batch; None means all
    texts: slice | None = None  # texts without lists: the batch's documents that this process counts
    lists: Tensor | None = None  # [B, K] rows of the distinct documents, 0 for padding; None: each list has all

    def per_list(self, documents: Tensor) -> Tensor:
        """Values of each distinct document [P, ...] as [B, K, ...], list by list."""
        if self.lists is None:
            return documents.expand(len(self.mask), *documents.shape)
        return documents[self.lists]


@dataclass(frozen=True)
class Sizes:
    """The sizes of student and teacher that an objective needs to build its heads."""

    student: int  # numbers in a pooled embedding
    teacher: int | None = None  # the same for the teacher, of texts or of pairs; None if it only has scores
