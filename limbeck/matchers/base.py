"""The interface of all matchers."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.chunks import Chunks
from limbeck.matchers.config import MatcherConfig
from limbeck.matchers.encoding import Encoding
from limbeck.matchers.probabilities import calibrated
from limbeck.matchers.token_head import TOKEN_HEAD, TokenHead, Vocabulary
from limbeck.signals import Signals

if TYPE_CHECKING:
    from limbeck.matchers.attention import AttentionFacts

SCORES = frozenset({"scores"})


Document = str | tuple[str, ...]  # a text, or all texts but the first in an n-ary task


def as_parts(document: Document) -> tuple[str, ...]:
    """The texts of a document as a tuple."""
    return (document,) if isinstance(document, str) else document


def distinct(texts: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """The distinct texts in order of first appearance, and the row of each text in them: [texts] int64."""
    known: dict[str, int] = {}
    rows = [known.setdefault(text, len(known)) for text in texts]
    return list(known), np.array(rows, dtype=np.int64)


@dataclass(frozen=True)
class TextBatch:
    """B queries, the P distinct documents they mention, and each query's list of K of them.

    If `lists` is None, every query is paired with every document: K = P. In n-ary tasks a document is a tuple of texts.

    With several processes this is one process's share of the batch: `query_slice` and `document_slice` select the texts
    that it encodes. Each process uses the rows of `lists` for its own queries; documents are gathered from all.
    """

    queries: list[str]
    documents: Sequence[Document]
    lists: Tensor | None  # [B, K] indices into documents; 0 where padded
    query_slice: slice = field(default_factory=lambda: slice(None))
    document_slice: slice = field(default_factory=lambda: slice(None))

    @property
    def own_queries(self) -> list[str]:
        return self.queries[self.query_slice]

    @property
    def own_texts(self) -> list[str]:
        """The documents as single texts."""
        return [" ".join(as_parts(document)) for document in self.own_documents]

    @property
    def own_documents(self) -> Sequence[Document]:
        return self.documents[self.document_slice]

    @property
    def own_lists(self) -> Tensor | None:
        return None if self.lists is None else self.lists[self.query_slice]


class PreparedBatch:
    """A batch in the form that a matcher's `forward` reads; each architecture has its own dataclass."""

    @property
    def tokenised(self) -> list[tuple[Chunks, int]]:
        """The tokenised parts, each with the index of its first text among the texts of all processes."""
        raise NotImplementedError

    masked: list[Chunks]  # the tokenised parts with masked tokens, if a student restores tokens


class Matcher(nn.Module, ABC):
    """Scores how well a document answers a query."""

    kind: ClassVar[str]
    config_type: ClassVar[type[MatcherConfig]]
    model_types: ClassVar[tuple[str, ...]] = ()  # its names in folders of sentence-transformers and related libraries
    shows: frozenset[str] = SCORES  # the signals that it can compute
    bf16 = False  # whether it computes in bfloat16: see `bf16.py`
    runtime = "torch"  # what runs its transformers: see `limbeck.runtimes`
    computed: dict[str, Any] = {}  # noqa: RUF012 (never changed in place) what makes its outputs differ from float32
    folder: Path | None = None  # the folder it was loaded from
    attention_layers: tuple[int, ...] | None = None  # the layers whose attention it shows; None means all

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict()  # trained with the matcher but never saved: see `add_token_head`

    @property
    def outputs(self) -> int:
        """Scores per pair."""
        return 1

    @property
    def texts(self) -> int:
        """The number of texts in a pair."""
        return 2

    def encoding(self, position: int) -> Encoding | None:
        """The form in which texts at a position are stored; None for a matcher that reads both texts together."""
        return None

    @property
    def embedding_dim(self) -> int | None:
        """The size of its pooled embeddings of texts or pairs; None if it has only scores."""
        kept = self.encoding(0)
        return None if kept is None else kept.dim

    @abstractmethod
    def prepare(self, batch: TextBatch, chunk: int | None = None) -> PreparedBatch:
        """Tokenise a batch for `forward`; runs in the data loader. `chunk` limits the texts in one pass."""

    @abstractmethod
    def forward(self, inputs: Any, needs: frozenset[str] = SCORES, recompute: bool = False) -> Signals:
        """Compute the signals in `needs` for a prepared batch.

        With `recompute` the activations of each chunk are dropped and computed again in the backward pass, so that
        memory holds one chunk at a time (gradient caching): exact, for about a third more computation.
        """

    @abstractmethod
    def score(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        """Raw scores of (query, document) pairs: [n], or [n, outputs] for a matcher with several outputs."""

    @abstractmethod
    def save_pretrained(self, path: str | Path) -> None:
        """Write a folder for `limbeck.load`, and for sentence-transformers if it has the architecture."""

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """Everything except the weights that changes the scores: modules, lengths, prompts, tokeniser."""

    def add_token_head(self, seed: int) -> None:
        """Add a head for token logits, for training only; it is not saved."""
        raise LimbeckError(f"a {self.kind} has no token states that a head could read; use another kind of model")

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that a token head can predict, and their replacements."""
        return self.token_head.vocabulary

    @property
    def token_head(self) -> TokenHead:
        head = self.heads[TOKEN_HEAD]
        assert isinstance(head, TokenHead)
        return head

    def append_projection(self, projection: nn.Linear) -> None:
        """Add a linear map that was trained on the matcher's embeddings to the matcher."""
        raise LimbeckError(f"a {self.kind} has no embedding to project; use kind: dual_encoder, or drop the objective")

    @property
    def trained_positions(self) -> tuple[int, ...]:
        """The positions whose texts pass through trained modules."""
        return tuple(range(self.texts))

    @property
    def aligned_positions(self) -> tuple[int, ...]:
        """The positions whose texts `align` needs."""
        return self.trained_positions

    aligned_on: int = 4000  # maximum number of texts for `align`

    def align(
        self, texts: Sequence[Sequence[str]], targets: Sequence[np.ndarray], reference: Matcher, seed: int = 0
    ) -> list[float]:
        """Map the encodings of texts at each position to `targets` [n, dim], the embeddings of `reference`, in closed
        form. The result is the mean cosine to them on held-out texts, for each fitted tower.
        """
        raise LimbeckError(f"align: a {self.kind} has no embedding to align; use kind: dual_encoder, or drop it")

    def pooled(self, texts: Sequence[str], position: int) -> np.ndarray:
        """The vectors that `align` would map: [n, width]."""
        raise LimbeckError(f"layers: auto: a {self.kind} has no embedding to compare; give the layers as a list")

    def attention(self, position: int) -> AttentionFacts:
        """Layers, heads and tokenizer of the encoder for a position."""
        raise LimbeckError(f"a {self.kind} shows no attention; use another kind of model, or drop virt")

    def text_tokens(self, position: int) -> int:
        """The maximum number of tokens that it reads of a text at a position, without special tokens and prompts."""
        raise LimbeckError(f"a {self.kind} does not read texts apart; use another kind of model, or drop virt")

    def read_apart(self, tokens: tuple[int, int] | None) -> None:
        """Truncate the two texts of a pair to these numbers of tokens, as a student does that encodes each text alone.
        None turns it off. Attention between texts is only available when it is on.
        """
        raise LimbeckError(f"a {self.kind} shows no attention between texts; use a cross_encoder, or drop virt")

    @property
    def scores_are_cosines(self) -> bool:
        """Whether scores lie between -1 and 1 by construction."""
        return False

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts that mark queries and documents, for a student that starts from this matcher."""
        return {}

    def limit_tokens(self, longest: int) -> None:
        """Read at most `longest` tokens of a text."""

    @property
    def reads_stored_outputs(self) -> bool:
        """Whether stored outputs currently replace its encoder."""
        return False

    def encoder_outputs(self, position: int) -> tuple[Encoding, dict[str, Any]] | None:
        """The form of its encoder's outputs at a position, before other trained modules, and everything that decides
        them; None if a frozen encoder's outputs cannot be stored.
        """
        return None

    def keep(self, texts: Sequence[str], position: int, batch_size: int = 64) -> np.ndarray:
        """The outputs that `encoder_outputs` describes."""
        raise NotImplementedError

    def read_outputs_from(self, stored: Callable[[list[str], int], np.ndarray] | None) -> None:
        """Use stored outputs instead of the encoder; None switches back."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def build(cls, config: Any, local: Any) -> Matcher:
        """Build the matcher of a config; `local` is the same config with `init_from` as a checked folder."""

    @classmethod
    def reads(cls, folder: Path) -> bool:
        """Whether a plain transformers folder, without our own configuration, contains such a matcher."""
        return False

    @classmethod
    @abstractmethod
    def from_pretrained(cls, path: str | Path, revision: str | None = None) -> Matcher:
        """Load a folder or a model from the hub."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def rank(self, query: str, documents: Sequence[str], top_k: int | None = None) -> list[tuple[int, float]]:
        """The positions and scores of the documents, best first; equal scores keep their order."""
        if isinstance(documents, str):
            raise LimbeckError("rank needs a list of documents, not one text; put it in a list")
        if self.outputs != 1:
            raise LimbeckError(f"rank needs one score per pair, and this {self.kind} gives {self.outputs}; use score")
        scores = self.score([(query, document) for document in documents])
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [(int(position), float(scores[position])) for position in order]

    def probabilities(self, pairs: Sequence[tuple[str, ...]], batch_size: int = 32) -> np.ndarray:
        """The probability that each pair is a match, from the calibration saved with the model: [n]."""
        return calibrated(self.folder, self.score(pairs, batch_size))

    def identity(self, position: int | None = None) -> dict[str, Any]:
        """The cache key of this matcher's outputs: weights and configuration.

        With a position, the key of its encodings there: a matcher with separate towers has one identity for each.
        """
        key = {"kind": self.kind, "weights": weights_digest(self), "configuration": self.configuration()}
        return key | ({"bf16": True} if self.bf16 else {}) | ({"computed": self.computed} if self.computed else {})


def weights_digest(module: nn.Module) -> str:
    """A digest of all parameters and buffers that can affect a score, including their names.

    An encoder's own pooler affects none; if a folder lacks it, it is random at every load.
    """
    whole = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(module.state_dict().items()):
        if ".model.pooler." in f".{name}":
            continue
        whole.update(name.encode())
        whole.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def tokeniser_digest(tokenizer: Any, of_words: bool = False) -> str:
    """A digest of everything that turns text into token ids; `of_words` ignores special and added tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)  # a `Tokenizer` has no backend
    if not hasattr(backend, "to_str"):
        return digest(repr(tokenizer))
    state = json.loads(backend.to_str())
    ignored = ["truncation", "padding"]  # left over from the last call; lengths are part of the key elsewhere
    for setting in [*ignored, "added_tokens", "post_processor"] if of_words else ignored:
        state.pop(setting, None)
    return digest(json.dumps(state, sort_keys=True))
