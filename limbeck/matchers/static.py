"""A tower without a transformer: the average of a text's token vectors, normalised to length one.

It consists of sentence-transformers' `StaticEmbedding` and `Normalize`, so folders are interchangeable. Word order is
lost; a query costs tokenisation and a few table rows. `static_fit` finds the rows in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sentence_transformers.base.modules import Module, Normalize
from sentence_transformers.sentence_transformer.modules import Dropout, StaticEmbedding
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import Side
from limbeck.matchers.parts import keep_whole, layer_norm, learnt_scale, side_lengths, start_transformer
from limbeck.matchers.safe_loading import HERE_ONLY, check_tokens, naming_load_errors
from limbeck.matchers.starts import go_on, learnt_parts, start_kind, start_of
from limbeck.progress import progress

BLOCK = 4096  # texts that are tokenised together
SMALLEST = 1e-12  # minimum length of a sum to normalise; a text without tokens stays zero


def static_modules(config: Any, side: Side | None = None) -> list[Module]:
    """The modules of a static tower.

    Its table comes from the start: a static model's own, with the learnt modules after it, or a transformer's token
    embeddings. If `dim` differs, the table is projected at random.
    """
    goes_on = start_kind(config, side) == "StaticEmbedding"
    part = _load(start_of(config, side)) if goes_on else _from_transformer(config, side)
    learnt = learnt_parts(config, side) if goes_on else []
    if config.dim not in (None, part.embedding_dim):
        if learnt:
            problem = f"has learnt other modules for {part.embedding_dim} dimensions, not {config.dim}"
            raise LimbeckError(f"{config.init_from}: {problem}; drop dim, or start from another model")
        turn = nn.init.orthogonal_(torch.empty(config.dim, part.embedding_dim))
        replace_table(part, part.embedding.weight.detach() @ turn.T)
    truncate(part, getattr(config, f"{side}_length") if side else side_lengths(config)["max_seq_length"])
    fresh = [*layer_norm(config, part.embedding_dim), *learnt_scale(config, part.embedding_dim)]
    after = go_on(config.init_from, fresh, learnt)
    if not any(isinstance(module, Normalize) for module in after):
        after = [*after, Normalize()]
    return [part, *([Dropout(config.dropout)] if config.dropout else []), *after]


def _load(start: Any) -> StaticEmbedding:
    with naming_load_errors(start.init_from):
        part = StaticEmbedding.load(start.init_from, **HERE_ONLY)
    check_tokens(part, start.init_from)
    return part


def _from_transformer(config: Any, side: Side | None) -> StaticEmbedding:
    transformer = start_transformer(start_of(config, side), side_lengths(config))
    keep_whole(transformer.tokenizer, config.prompts)
    table: Any = transformer.model.get_input_embeddings()
    return StaticEmbedding(_own_copy(transformer.tokenizer, config.init_from), table.weight.detach().clone())


def _own_copy(tokenizer: Any, start: str) -> Tokenizer:
    """A private copy of a tokenizer: transformers changes a tokenizer's truncation at every call."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise LimbeckError(f"{start}: has a slow tokenizer; encoder: static needs one of the `tokenizers` library")
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    return copy


def replace_table(part: StaticEmbedding, table: torch.Tensor) -> None:
    """Give a static embedding other token vectors [tokens, dim]."""
    part.embedding = nn.EmbeddingBag.from_pretrained(table.contiguous(), freeze=False)
    part.num_embeddings, part.embedding_dim = table.shape


def tokens_read(part: StaticEmbedding) -> int | None:
    """The maximum number of tokens of a text; None for no limit."""
    cut = part.tokenizer.truncation
    return None if cut is None else int(cut["max_length"])


def truncate(part: StaticEmbedding, longest: int) -> None:
    """Read no more of a text than a transformer that reads `longest` tokens, including special tokens."""
    room = max(1, longest - part.tokenizer.num_special_tokens_to_add(False))
    part.tokenizer.enable_truncation(min(tokens_read(part) or room, room))


def words(part: StaticEmbedding, prompt: str | None) -> tuple[Any, int]:
    """A transformers tokenizer, and how many tokens of a text are read in addition to the prompt."""
    own = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(part.tokenizer.to_str()))
    used = len(part.tokenizer.encode(prompt or "", add_special_tokens=False).ids)
    return own, (tokens_read(part) or 2**31) - used


def plain_table(modules: Sequence[Any]) -> StaticEmbedding | None:
    """The first module of a tower if the tower only averages token vectors and scales the result, on a CPU."""
    first, *rest = [module for module in modules if not isinstance(module, Dropout)]
    if not isinstance(first, StaticEmbedding) or len(rest) != 1 or not isinstance(rest[0], Normalize):
        return None
    weight = first.embedding.weight
    usual = rest[0].module_input_name == rest[0].module_output_name == "sentence_embedding"
    return first if usual and weight.device.type == "cpu" and weight.dtype == torch.float32 else None


def encode_one(part: StaticEmbedding, text: str) -> np.ndarray:
    """The vector [1, dim] of one text: equal to `encode_many`, without its start-up cost."""
    ids = part.tokenizer.encode(text, add_special_tokens=False).ids
    total = np.add.reduce(part.embedding.weight.detach().numpy().take(ids, axis=0), axis=0, keepdims=True)
    return total / max(math.sqrt(np.vdot(total, total)), SMALLEST)


def encode_many(part: StaticEmbedding, texts: Sequence[str], label: str) -> np.ndarray:
    """The vectors [n, dim] of texts, each normalised to length one; a text without tokens is zero."""
    found = []
    with progress(label, len(texts)) as advance, torch.inference_mode():
        for start in range(0, len(texts), BLOCK):
            ids, starts = token_ids(part.tokenizer, texts[start : start + BLOCK])
            weight = part.embedding.weight
            sums = F.embedding_bag(torch.from_numpy(ids), weight, torch.from_numpy(starts[:-1]), mode="sum")
            found.append(F.normalize(sums, eps=SMALLEST))
            advance(len(sums))
    return torch.cat(found).numpy()


def token_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all texts in one array, without special tokens, and the start of each text: [n + 1]."""
    lists = [found.ids for found in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=starts[-1]), starts
