"""Objectives that distil the attention of a cross-encoder between two texts (VIRT)."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective, check_choice, objective
from limbeck.objectives.lists import mean
from limbeck.signals import (
    CROSS_ATTENTION,
    TEXT_ATTENTION,
    AttentionSizes,
    CrossAttention,
    Signals,
    Targets,
    TextAttention,
)

LAYERS = re.compile(r"all|(first|last|every):([1-9]\d{0,3})")
MAPS = ("same", "first", "last", "spread")


@objective
class virt(Objective):
    """The distance between the attention of student and teacher across the two texts of a pair (VIRT Eq. 3 and 4).

        1 / (2 L H) * sum_l sum_h ( 1/m || M~_xy - M_xy ||  +  1/n || M~_yx - M_yx || ),
        M~_xy = softmax(Q~_x K~_y^T / sqrt(d)),  M~_yx = softmax(Q~_y K~_x^T / sqrt(d))

    Q~ and K~ are the queries and keys that the student computes for each text alone, in layer l and head h; d is the
    size of a head. So M~ is a map that the student never computes itself. M_xy and M_yx are the blocks between the two
    texts in the teacher's map, which is a softmax over the whole joint sequence. m and n are the numbers of tokens of
    the texts; special tokens and padding are in neither map. The norm is the Frobenius norm. A query's loss is the mean
    over its list. A pair with an empty text has loss 0.

    Data: pairs or lists; no labels. The teacher is a cross-encoder with the student's tokenizer and `live: true`. The
    student is any model that encodes each text alone. The teacher's texts are truncated as the student's are.

    `block`: `whole` compares with the teacher's block as it is, whose rows sum to less than 1 (as printed);
    `renormalised` divides each row by its sum, so that it is a distribution over the other text's tokens.

    `layers`: of the student's layers, `all`, `first:2`, `last:2`, or `every:2` (the second, the fourth, ...).

    `map`: the teacher's layer for each layer of the student. `same` needs the same number of layers. Otherwise: `first`
    (the teacher's first layers), `last` (its last), `spread` (for layer l of L the teacher's layer at l/L of its depth,
    rounded up), or a list of the teacher's layers, counted from 0, one for each of the student's: `map=[0, 5]`.

    Each head is compared with the same head of the teacher. `average_heads=true` compares the means over all heads,
    which also works for different numbers of heads.

    T5 does not divide by sqrt(d), so its M~ does not either. Relative position biases (MPNet, T5) are in M and not in
    M~, because tokens of two separate texts have no distance.

    Use it with an objective of the task: L = L_task + alpha L_virt, alpha = 1 (Eq. 7). You can add an objective on the
    teacher's scores. It costs nothing at inference.

    In a recipe: `objectives: [class_ce, virt]`, `2 * virt(layers=first:3, block=renormalised)`.
    """

    block: str = "whole"
    layers: str = "all"
    map: str | tuple[int, ...] = "same"
    average_heads: bool = False

    needs_student = TEXT_ATTENTION
    needs_teacher = CROSS_ATTENTION

    def __post_init__(self) -> None:
        check_choice(self, "block", ("whole", "renormalised"))
        check_choice(self, "average_heads", (True, False))
        if not isinstance(self.layers, str) or not LAYERS.fullmatch(self.layers):
            raise LimbeckError(f"virt: layers={self.layers!r} is not allowed; give all, first:2, last:2 or every:2")
        if isinstance(self.map, list | tuple):
            object.__setattr__(self, "map", tuple(self.map))
            if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in self.map):
                raise LimbeckError(f"virt: map={list(self.map)} is not allowed; give the teacher's layers from 0")
        else:
            check_choice(self, "map", MAPS)

    def attended_layers(self, student: AttentionSizes, teacher: AttentionSizes) -> list[tuple[int, int]]:
        if student.heads != teacher.heads and not self.average_heads:
            problem = f"{self}: the student has {student.heads} attention heads, the teacher {teacher.heads}"
            raise LimbeckError(f"{problem}; set average_heads=true to compare their means")
        theirs = self._teachers_layers(student.layers, teacher.layers)
        for layer in theirs:
            if not 0 <= layer < teacher.layers:
                problem = f"{self}: asks for layer {layer} of the teacher, which has 0 to {teacher.layers - 1}"
                raise LimbeckError(f"{problem}; use map=spread, or name layers that exist")
        return [(layer, theirs[layer]) for layer in self._own_layers(student.layers)]

    def _own_layers(self, depth: int) -> list[int]:
        """The student's layers that are compared."""
        if self.layers == "all":
            return list(range(depth))
        which, _, number = self.layers.partition(":")
        count = int(number)
        if count > depth:
            raise LimbeckError(f"{self}: asks for {count} layers, and the student has {depth}; ask for fewer")
        if which == "every":
            return list(range(count - 1, depth, count))
        return list(range(count) if which == "first" else range(depth - count, depth))

    def _teachers_layers(self, own: int, theirs: int) -> list[int]:
        """The teacher's layer for each of the student's."""
        if isinstance(self.map, tuple):
            if len(self.map) != own:
                problem = f"{self}: map names {len(self.map)} layers of the teacher, and the student has {own}"
                raise LimbeckError(f"{problem}; name one for each of the student's")
            return list(self.map)
        if self.map == "same" and own != theirs:
            problem = f"{self}: the student has {own} layers, the teacher {theirs}"
            raise LimbeckError(f"{problem}; say which belong together: map=spread, first, last or a list")
        if self.map == "spread":
            return [-(-(layer + 1) * theirs // own) - 1 for layer in range(own)]
        return [layer + (theirs - own if self.map == "last" else 0) for layer in range(own)]

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        queries, documents, theirs = self._checked(student, teacher, targets)
        total = queries.queries[0].new_zeros(targets.mask.shape, dtype=_precise(queries.queries[0]))  # [B, K]
        layers = self.attended_layers(queries.sizes, theirs.sizes)
        for own, other in layers:
            at, there = queries.layers.index(own), theirs.layers.index(other)
            ours = (queries.queries[at], queries.keys[at], documents.queries[at], documents.keys[at])
            blocks = (theirs.to_documents[there].detach(), theirs.to_queries[there].detach())
            # Keeps the maps of one layer in memory at a time; the backward pass computes them again.
            total = total + checkpoint(
                self._layer, ours, blocks, theirs, targets, use_reentrant=False, preserve_rng_state=False
            )
        return mean(total / max(1, len(layers)), targets.mask)

    def _layer(
        self, ours: tuple[Tensor, ...], blocks: tuple[Tensor, Tensor], read: CrossAttention, targets: Targets
    ) -> Tensor:
        """The loss of one layer for each pair: [B, K]."""
        m, n = (tokens.shape[-1] for tokens in (read.query_tokens, read.document_tokens))
        query, key = (part[..., :m, :].unsqueeze(1) for part in ours[:2])  # [B, 1, heads, M, d]
        other_query, other_key = (targets.per_list(part[..., :n, :]) for part in ours[2:])  # [B, K, heads, N, d]
        counts = targets.mask.unsqueeze(-1)
        rows, columns = (read.query_tokens >= 0) & counts, (read.document_tokens >= 0) & counts  # [B, K, M], [B, K, N]
        there = self._distance(query, other_key, blocks[0], rows, columns)
        back = self._distance(other_query, key, blocks[1], columns, rows)
        return (there + back) / 2

    def _distance(self, query: Tensor, key: Tensor, theirs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """1 / rows * || softmax(query key^T) - theirs ||, averaged over heads: [B, K]."""
        precise = _precise(query)
        real = rows.unsqueeze(-1) & columns.unsqueeze(-2)  # [B, K, rows, columns]
        real = real.unsqueeze(2)
        ours = virtual_map(query, key, columns[:, :, None, None, :])
        theirs = torch.where(real, theirs.to(precise), 0.0)
        if self.block == "renormalised":
            theirs = theirs / theirs.sum(-1, keepdim=True).clamp(min=torch.finfo(precise).tiny)
        if self.average_heads:
            ours, theirs = ours.mean(2, keepdim=True), theirs.mean(2, keepdim=True)
        squared = torch.where(real, ours - theirs, 0.0).square().sum((-1, -2))  # [B, K, heads]
        apart = squared > 0  # the root has no gradient at 0, so it is 0 for a map that is matched exactly
        norm = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
        return norm.mean(-1) / rows.sum(-1).clamp(min=1)

    def _checked(
        self, student: Signals, teacher: Signals | None, targets: Targets
    ) -> tuple[TextAttention, TextAttention, CrossAttention]:
        """The attention of student and teacher, after a check that both read the same tokens."""
        if student.text_attention is None:
            raise LimbeckError(f"{self} needs a student that shows the attention of texts; use a dual_encoder")
        if teacher is None or teacher.cross_attention is None:
            raise LimbeckError(f"{self} needs a live cross-encoder as teacher, and it shows no attention")
        (queries, documents), theirs = student.text_attention, teacher.cross_attention
        if theirs.query_tokens.shape[:2] != targets.mask.shape:
            found, wanted = list(theirs.query_tokens.shape[:2]), list(targets.mask.shape)
            problem = f"the teacher's attention is of {found} pairs where [queries, documents] = {wanted} were expected"
            raise LimbeckError(f"{self}: {problem}; give the teacher the student's lists")
        of_lists = targets.per_list(documents.tokens)
        first = _same_tokens(queries.tokens.unsqueeze(1), theirs.query_tokens, targets.mask)
        if not (first and _same_tokens(of_lists, theirs.document_tokens, targets.mask)):
            problem = f"teacher and student do not read the same tokens of {'documents' if first else 'queries'}"
            key = "document_length" if first else "query_length"
            raise LimbeckError(f"{self}: {problem}; set student.{key} to what the teacher reads, without prompts")
        return queries, documents, theirs


def virtual_map(query: Tensor, key: Tensor, columns: Tensor) -> Tensor:
    """softmax(query key^T) over the real `columns`, of queries [..., rows, d] and keys [..., columns, d] (Eq. 3)."""
    precise = _precise(query)
    with torch.autocast(query.device.type, enabled=False):
        logits = query.to(precise) @ key.to(precise).transpose(-1, -2)
    return logits.masked_fill(~columns, torch.finfo(precise).min).softmax(dim=-1)


def _same_tokens(ours: Tensor, theirs: Tensor, mask: Tensor) -> bool:
    """Whether ids [B, K or 1, tokens] are the same for all pairs in `mask`; -1 means no token."""
    most = max(ours.shape[-1], theirs.shape[-1])
    ours, theirs = (F.pad(each, (0, most - each.shape[-1]), value=-1) for each in (ours, theirs))
    return bool(((ours == theirs).all(-1) | ~mask).all())


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
