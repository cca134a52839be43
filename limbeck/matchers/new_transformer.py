"""A new small transformer with the tokenizer of a start: it keeps no layer of the start, and any width is possible.

Its layers are random. Its token table is that of the start, projected to the principal components with most of the
variance, because a short training cannot learn the meaning of words again.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules import Transformer
from transformers import BertConfig, BertModel

from limbeck.errors import LimbeckError
from limbeck.matchers.chunks import Side
from limbeck.matchers.parts import keep_whole, side_lengths, start_transformer
from limbeck.matchers.starts import start_of

HEAD = 32  # size of an attention head
WIDER = 4  # width of the feed-forward layers relative to the states


def new_transformer(config: Any, side: Side | None = None) -> Transformer:
    """A BERT of `config.layers` layers and `config.width` numbers per token, initialised with torch's global generator.

    It is written to a folder and loaded from there, so that it is an ordinary transformers folder.
    """
    lengths = side_lengths(config)
    start = start_transformer(start_of(config, side).model_copy(update={"layers": 1}), lengths)
    tokenizer: Any = start.tokenizer
    keep_whole(tokenizer, config.prompts)
    embeddings: Any = start.model.get_input_embeddings()
    table = embeddings.weight.detach().float().numpy()
    if config.width > table.shape[1]:
        problem = f"width={config.width} is more than the {table.shape[1]} numbers per token of {config.init_from}"
        raise LimbeckError(f"{problem}; ask for at most {table.shape[1]}")
    model = _random_bert(config, len(table), tokenizer.pad_token_id, lengths["max_seq_length"])
    with torch.no_grad():
        own: Any = model.get_input_embeddings()
        own.weight.copy_(torch.from_numpy(principal_table(table, config.width, model.config.initializer_range)))
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return start_transformer(config.model_copy(update={"init_from": folder, "layers": None}), lengths)


def _random_bert(config: Any, tokens: int, padding: int | None, positions: int) -> BertModel:
    described = BertConfig(
        vocab_size=tokens,
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=head_count(config.width),
        intermediate_size=WIDER * config.width,
        max_position_embeddings=positions,
        pad_token_id=padding,
    )
    return BertModel(described)


def head_count(width: int) -> int:
    """Attention heads of 32 numbers each; if the width is not a multiple, the next smaller number that divides it."""
    return next(heads for heads in range(max(1, width // HEAD), 0, -1) if width % heads == 0)


def principal_table(table: np.ndarray, width: int, deviation: float) -> np.ndarray:
    """A table [tokens, dim] on its first `width` principal components, scaled to a standard deviation.

    The sign of an eigenvector is arbitrary; here the largest weight of a component is positive.
    """
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)  # variances ascend
    first = vectors[:, ::-1][:, :width]  # [dim, width]
    first = first * np.sign(first[np.abs(first).argmax(axis=0), np.arange(width)])
    found = centred @ first
    return (found * (deviation / max(found.std(), np.finfo(np.float64).tiny))).astype(np.float32)
