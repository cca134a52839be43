"""Tokenised pairs in which each text is truncated by itself, as a student does that encodes each text alone.

A tokenizer truncates the longer text of a pair, so a cross-encoder and its student would read different tokens of long
texts. These pairs also say which text each token belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.matchers.attention import LONG, special_ids
from limbeck.matchers.base import distinct
from limbeck.matchers.chunks import Features
from limbeck.matchers.segments import JointTransformer

OF_TEXT = "of_text"  # a feature: the text, 0 or 1, that each token [n, tokens] belongs to
NEITHER = -1  # special tokens and padding


def tokenise_apart(transformer: Any, pairs: Sequence[tuple[str, str]], tokens: tuple[int, int]) -> Features:
    """Tokenised pairs, with a maximum number of tokens for each text."""
    tokenizer = transformer.tokenizer
    if isinstance(transformer, JointTransformer):  # it truncates each text by itself, to lengths that were checked
        features = transformer.preprocess(pairs)
        of_text = features["token_type_ids"].masked_fill(features["attention_mask"] == 0, NEITHER)
    else:
        features = _cut_and_joined(tokenizer, pairs, tokens)
        of_text = features[OF_TEXT]
    marks = torch.isin(features["input_ids"], special_ids(tokenizer))  # texts can contain special tokens
    return {**features, OF_TEXT: of_text.masked_fill(marks, NEITHER)}


def _cut_and_joined(tokenizer: Any, pairs: Sequence[tuple[str, str]], tokens: tuple[int, int]) -> Features:
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    sides = []
    for side, most in enumerate(tokens):
        different, rows = distinct(pair[side] for pair in pairs)
        encoded = backend.encode_batch(different, add_special_tokens=False)
        for text in encoded:
            text.truncate(most, direction=tokenizer.truncation_side)
        sides.append([encoded[row] for row in rows])
    joined = [backend.post_process(first, second) for first, second in zip(*sides, strict=True)]
    features: Features = {
        "input_ids": _padded([pair.ids for pair in joined], tokenizer.pad_token_id),
        "attention_mask": _padded([pair.attention_mask for pair in joined], 0),
        OF_TEXT: _padded([_texts(len(first), pair) for first, pair in zip(sides[0], joined, strict=True)], NEITHER),
        "modality": "text",
    }
    if "token_type_ids" in tokenizer.model_input_names:
        features["token_type_ids"] = _padded([pair.type_ids for pair in joined], 0)
    return features


def _texts(first: int, pair: Any) -> list[int]:
    """The text that each token of a pair belongs to; the first text has `first` tokens."""
    text = iter([0] * first + [1] * len(pair))
    return [NEITHER if mark else next(text) for mark in pair.special_tokens_mask]


def _padded(rows: Sequence[list[int]], filling: int) -> Tensor:
    most = max(map(len, rows))
    return torch.tensor([row + [filling] * (most - len(row)) for row in rows])


def refuse_other_lengths(transformer: Any, tokens: tuple[int, int]) -> None:
    """Raise an error if the teacher cannot read the tokens that the student reads. A JointTransformer truncates texts
    itself, so its lengths have to be the same.
    """
    if isinstance(transformer, JointTransformer):
        own = own_lengths(transformer)
        if own != tokens:
            problem = (
                f"the teacher reads {own[0]} and {own[1]} tokens of the texts, the student {tokens[0]} and {tokens[1]}"
            )
            lengths = f"query_length: {transformer.query_length} and document_length: {transformer.document_length}"
            raise LimbeckError(
                f"virt: {problem}; set student.{lengths.replace('and ', 'and student.')}, as the teacher has"
            )
        return
    marks = transformer.tokenizer.num_special_tokens_to_add(pair=True)
    needed, most = sum(tokens) + marks, transformer.max_seq_length
    if most is not None and needed > most:
        problem = (
            f"the student reads {tokens[0]} and {tokens[1]} tokens of the texts, and a pair of {needed} with marks"
        )
        remedy = f"make student.query_length and student.document_length {needed - most} smaller in all"
        raise LimbeckError(f"virt: {problem} is more than the teacher's {most}; {remedy}, or use a longer teacher")


def own_lengths(transformer: Any) -> tuple[int, int]:
    """How many tokens of each text are read: as the model cuts them; half of its room each, if it cuts whole pairs."""
    if isinstance(transformer, JointTransformer):
        found = tokenise_apart(transformer, [(LONG, LONG)], (0, 0))[OF_TEXT]
        return int((found == 0).sum()), int((found == 1).sum())
    tokenizer = transformer.tokenizer
    room = (transformer.max_seq_length or tokenizer.model_max_length) - tokenizer.num_special_tokens_to_add(pair=True)
    return room - room // 2, room // 2
