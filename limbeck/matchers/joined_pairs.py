"""Tokenised pairs in which each text is tokenised once: pairs share the text of their query, and documents recur.

A fast tokenizer tokenises both texts of a pair apart, cuts the longer one first (`longest_first`), and puts special
tokens around them. Here the same is done with token ids that are known already. Whether a model's pairs are made this
way is tried on pairs of many lengths, whole tensors compared; a model that differs keeps its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from limbeck.matchers.chunks import Chunks, Features, texts_of_chunks
from limbeck.matchers.splitting import split_by_length

Preprocess = Callable[[list[tuple[str, str]]], Features]
KNOWN = 20_000  # texts whose tokens are kept
IDS, TYPES, MASK = "input_ids", "token_type_ids", "attention_mask"


@dataclass(frozen=True)
class Template:
    """What stands before, between and behind the texts of a pair: ids and types; and the types of the texts."""

    ids: tuple[np.ndarray, np.ndarray, np.ndarray]
    types: tuple[np.ndarray, np.ndarray, np.ndarray]
    of_text: tuple[int, int]

    @property
    def size(self) -> int:
        return sum(map(len, self.ids))


class JoinedPairs:
    """Pairs of a model as passes of similar length, equal to those of `prepare_chunks`."""

    def __init__(self, tokenizer: Any, longest: int, template: Template, extras: Features, typed: bool) -> None:
        self.template, self.extras, self.typed = template, extras, typed
        self.room = longest - template.size
        self.from_left = tokenizer.truncation_side == "left"
        self.padding = int(tokenizer.pad_token_id), int(tokenizer.pad_token_type_id)
        self._tokenizer = _own_copy(tokenizer)
        self._known: dict[str, np.ndarray] = {}

    def chunks(self, pairs: Sequence[tuple[str, str]], budget: int | None = None) -> Chunks:
        """The pairs, sorted by length; `budget` as in `split_by_length`."""
        sides = [self._tokens([pair[at] for pair in pairs]) for at in (0, 1)]
        left, right = (np.array(list(map(len, side))) for side in sides)
        kept = cut_longest_first(left, right, self.room)  # [pairs, 2]
        lengths = kept.sum(axis=1) + self.template.size
        order = np.argsort(lengths, kind="stable")
        passes = [
            self._pass([sides[0][row] for row in rows], [sides[1][row] for row in rows], kept[rows], lengths[rows])
            for rows in (order[part] for part in split_by_length(lengths[order].tolist(), budget=budget))
        ]
        return Chunks(passes, torch.from_numpy(np.argsort(order, kind="stable")))

    def _tokens(self, texts: list[str]) -> list[np.ndarray]:
        """The ids of texts without special tokens; each text is tokenised once."""
        if len(self._known) > KNOWN:
            self._known.clear()
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for text, found in zip(new, self._tokenizer.encode_batch(new, add_special_tokens=False), strict=True):
            self._known[text] = np.array(found.ids, dtype=np.int32)
        return [self._known[text] for text in texts]

    def _pass(
        self, first: list[np.ndarray], second: list[np.ndarray], kept: np.ndarray, lengths: np.ndarray
    ) -> Features:
        shape = len(first), int(lengths.max())
        ids, types = (np.full(shape, filling, dtype=np.int64) for filling in self.padding)
        before, between, behind = self.template.ids
        marks, of_text = self.template.types, self.template.of_text
        for row, (left, right) in enumerate(kept.tolist()):
            texts = self._cut(first[row], left), self._cut(second[row], right)
            ids[row, : lengths[row]] = np.concatenate([before, texts[0], between, texts[1], behind])
            if self.typed:
                own = [np.full(size, kind) for size, kind in zip((left, right), of_text, strict=True)]
                types[row, : lengths[row]] = np.concatenate([marks[0], own[0], marks[1], own[1], marks[2]])
        mask = (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)
        made = {IDS: ids, **({TYPES: types} if self.typed else {}), MASK: mask}
        return {**self.extras, **{name: torch.from_numpy(value) for name, value in made.items()}}

    def _cut(self, ids: np.ndarray, most: int) -> np.ndarray:
        return ids[len(ids) - most :] if self.from_left else ids[:most]


def cut_longest_first(first: np.ndarray, second: np.ndarray, room: int) -> np.ndarray:
    """How many tokens stay of the two texts of each pair: [pairs, 2]. The longer text is cut to what the shorter one
    leaves; if the shorter one has more than half, both are cut to a half, and the longer one has the odd token.
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    long = np.minimum(long, np.maximum(short, room - short))
    both = short + long > room
    short, long = np.where(both, room // 2, short), np.where(both, room - room // 2, long)
    swapped = first > second
    return np.stack([np.where(swapped, long, short), np.where(swapped, short, long)], axis=1)


def joined_pairs(tokenizer: Any, longest: int | None, preprocess: Preprocess) -> JoinedPairs | None:
    """Pairs joined from tokens of texts, if that gives what `preprocess` does; otherwise None."""
    usable = getattr(tokenizer, "backend_tokenizer", None) is not None and tokenizer.padding_side == "right"
    if not usable or tokenizer.pad_token_id is None or longest is None:
        return None
    tried = _tried(tokenizer, longest)
    theirs = preprocess(tried)
    names = {name for name, value in theirs.items() if isinstance(value, Tensor)}
    template = _template(tokenizer, preprocess) if {IDS, MASK} <= names <= {IDS, TYPES, MASK} else None
    if template is None or longest <= template.size + 1:
        return None
    extras = {name: value for name, value in theirs.items() if name not in names}
    found = JoinedPairs(tokenizer, longest, template, extras, TYPES in names)
    return found if _same(found.chunks(tried), theirs, names) else None


def _own_copy(tokenizer: Any) -> Tokenizer:
    """A tokenizer that cuts and pads nothing; a library call changes these settings of the model's own."""
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    return copy


def _template(tokenizer: Any, preprocess: Preprocess) -> Template | None:
    """Where the tokens of two short texts stand among those of their pair; None if they are not there."""
    texts = ("a", "b")
    whole = preprocess([texts])
    ids = whole[IDS][0].numpy()
    types = whole[TYPES][0].numpy() if TYPES in whole else np.zeros_like(ids)
    copy = _own_copy(tokenizer)
    places, start = [], 0
    for own in (np.array(copy.encode(text, add_special_tokens=False).ids) for text in texts):
        ends = range(start + len(own), len(ids) + 1)
        end = next((end for end in ends if len(own) and np.array_equal(ids[end - len(own) : end], own)), None)
        if end is None:
            return None
        places.append((end - len(own), end))
        start = end
    (left, left_end), (right, right_end) = places
    gaps = slice(0, left), slice(left_end, right), slice(right_end, len(ids))
    before, between, behind = ((ids[gap], types[gap]) for gap in gaps)
    return Template(
        (before[0], between[0], behind[0]), (before[1], between[1], behind[1]), (int(types[left]), int(types[right]))
    )


def _tried(tokenizer: Any, longest: int) -> list[tuple[str, str]]:
    """Pairs that fit, and pairs of which the first, the second or both have to be cut, by odd and even numbers."""
    texts = ["", "a", " Two words, and more? ", f"b {tokenizer.sep_token or ''} c\n d", "\u00e9t\u00e9 \u4f60\u597d"]
    texts += ["a b " * count for count in {1, longest // 6, longest // 4, longest // 2, longest}]
    return [(first, second + more) for first in texts for second in texts for more in ("", " c")]


def _same(mine: Chunks, theirs: Features, names: set[str]) -> bool:
    """Whether all pairs have the same tensors; what theirs have behind a pass is padding."""
    for rows, one in zip(texts_of_chunks(mine), mine.passes, strict=True):
        width = one[IDS].shape[1]
        if theirs[MASK][rows, width:].any():
            return False
        if not all(torch.equal(one[name], theirs[name][rows, :width]) for name in names):
            return False
    return True
