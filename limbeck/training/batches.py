"""Batches: a fixed sequence that depends only on the seed, so that a resumed run sees the same batches.

The sequence is made for the whole batch, for any number of processes; each process takes its share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from limbeck.matchers.base import Matcher, PreparedBatch, TextBatch
from limbeck.matchers.gather import share
from limbeck.signals import ChosenTokens, Signals, Targets
from limbeck.training.corruption import Draws, choose_tokens, drop_tokens, mask_tokens, pair_shares, text_shares
from limbeck.training.lists import Examples, TextLists
from limbeck.training.teachers import CachedTeacher

LookUp = Callable[[int, np.ndarray], np.ndarray]  # values of a query's documents, by their rows
Order = Callable[[np.random.Generator], np.ndarray]


class BatchPlan(Sampler[list[tuple[int, int]]]):
    """Shuffled epochs of queries as one stream, split into batches of (epoch, index).

    `order` shuffles all queries with a given generator; without it, every order is equally likely.
    """

    def __init__(self, queries: int, batch_size: int, batches: int, seed: int, order: Order | None = None) -> None:
        self.queries, self.batch_size, self.batches, self.seed = queries, batch_size, batches, seed
        self.order = order or (lambda generator: generator.permutation(queries))

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, order = -1, np.zeros(0, dtype=np.int64)
        for batch in range(self.batches):
            examples = []
            for position in range(batch * self.batch_size, (batch + 1) * self.batch_size):
                if position // self.queries != epoch:
                    epoch = position // self.queries
                    order = self.order(np.random.default_rng([self.seed, epoch]))
                examples.append((epoch, int(order[position % self.queries])))
            yield examples


class Positions(torch.utils.data.Dataset[tuple[int, int]]):
    """The data set for a `BatchPlan`: an example is its own (epoch, index)."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, example: Any) -> tuple[int, int]:
        return example


@dataclass(frozen=True)
class Batch:
    """One process's share of a batch, ready for student, teacher and objectives."""

    student: PreparedBatch
    targets: Targets
    size: int  # queries in the whole batch, over all processes
    teacher: Signals | None = None  # stored signals of a cached teacher
    live: PreparedBatch | None = None  # input of a live teacher


@dataclass
class Collator:
    """Turns examples into one process's share of a batch, tokenised for the student and for a live teacher."""

    lists: Examples
    student: Matcher
    live_teacher: Matcher | None = None
    cached: CachedTeacher | None = None
    in_batch: bool = False
    chunk: int | None = None
    rank: int = 0
    world: int = 1
    seed: int = 0
    token_dropout: float = 0.0
    restore_tokens: bool = False
    name_tokens: bool = False

    def __call__(self, examples: list[tuple[int, int]]) -> Batch:
        if isinstance(self.lists, TextLists):
            return self._texts(self.lists, examples)
        lists = self.lists
        picked = [lists.pick(index, epoch) for epoch, index in examples]
        rows = np.unique(np.concatenate(picked)).astype(np.int64)  # the P distinct documents
        own = share(len(examples), self.rank, self.world)
        columns, mask = self._columns(picked, rows)
        batch = TextBatch(
            queries=[lists.query(index) for _, index in examples],
            documents=lists.texts(rows.tolist()),
            lists=None if self.in_batch else torch.from_numpy(columns),
            query_slice=own,
            document_slice=share(len(rows), self.rank, self.world),
        )
        mine = [index for _, index in examples[own]]
        student = self.student.prepare(batch, self.chunk)
        draws = Draws(self.seed, examples)
        tokens = self._masked(student, batch, columns, mask, draws) if self.restore_tokens else None
        if self.name_tokens:
            tokens = ChosenTokens(*choose_tokens(student, self.student.vocabulary, draws), pair_shares(mask[own]))
        if self.token_dropout:  # after masking: the pass that predicts masked tokens has no dropout of tokens
            drop_tokens(student, self.token_dropout, draws)

        def known(look_up: LookUp) -> torch.Tensor:
            return self._known(look_up, mine, rows, columns[own], mask[own])

        targets = Targets(
            mask=torch.from_numpy(mask[own]),
            labels=known(lists.labels),
            tokens=tokens,
            own=self._own(picked[own], rows) if self.in_batch else None,
            lists=batch.own_lists,
        )
        return Batch(
            student,
            targets,
            size=len(examples),
            teacher=self.cached.signals(batch, lambda: known(lists.teacher)) if self.cached is not None else None,
            live=self.live_teacher.prepare(batch, self.chunk) if self.live_teacher is not None else None,
        )

    def _texts(self, lists: TextLists, examples: list[tuple[int, int]]) -> Batch:
        """A batch of texts without lists; a text that occurs twice counts twice."""
        queries, documents = lists.of([index for _, index in examples])
        own, theirs = (share(len(texts), self.rank, self.world) for texts in (queries, documents))
        batch = TextBatch(queries, documents, torch.zeros(len(queries), 0, dtype=torch.long), own, theirs)
        student = self.student.prepare(batch, self.chunk)
        if self.token_dropout:
            drop_tokens(student, self.token_dropout, Draws(self.seed, examples))
        nothing = torch.zeros(len(batch.own_queries), 0)
        return Batch(
            student,
            Targets(mask=nothing.bool(), labels=nothing, texts=theirs, lists=batch.own_lists),
            size=len(examples),
            teacher=self.cached.signals(batch, lambda: nothing) if self.cached is not None else None,
            live=self.live_teacher.prepare(batch, self.chunk) if self.live_teacher is not None else None,
        )

    def _masked(
        self, student: PreparedBatch, batch: TextBatch, columns: np.ndarray, mask: np.ndarray, draws: Draws
    ) -> ChosenTokens:
        """The masked tokens; the masked texts are added to the student's inputs."""
        ids, texts = mask_tokens(student, self.student.vocabulary, draws)
        return ChosenTokens(ids, texts, text_shares(columns, mask, batch))

    def _columns(self, picked: list[np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lists [B, K] as positions in `rows`, and a mask of the real entries."""
        if self.in_batch:
            shape = (len(picked), len(rows))
            return np.broadcast_to(np.arange(len(rows)), shape), np.ones(shape, dtype=bool)
        width = max(map(len, picked))
        columns = np.zeros((len(picked), width), dtype=np.int64)
        mask = np.zeros((len(picked), width), dtype=bool)
        for number, documents in enumerate(picked):
            columns[number, : len(documents)] = np.searchsorted(rows, documents)
            mask[number, : len(documents)] = True
        return columns, mask

    @staticmethod
    def _own(picked: list[np.ndarray], rows: np.ndarray) -> torch.Tensor:
        """Which documents of the batch were chosen for each query: [B, P]."""
        own = [np.isin(rows, documents) for documents in picked]
        return torch.from_numpy(np.array(own, dtype=bool).reshape(len(picked), len(rows)))

    @staticmethod
    def _known(
        look_up: LookUp, indices: list[int], rows: np.ndarray, columns: np.ndarray, mask: np.ndarray
    ) -> torch.Tensor:
        """The values of `look_up` for each list, NaN for padding: [B, K], or [B, K, C] for C values each."""
        found = [look_up(index, rows[columns[number, mask[number]]]) for number, index in enumerate(indices)]
        each = found[0].shape[1:] if found else ()
        known = np.full((*columns.shape, *each), np.nan, dtype=np.float32)
        for number, values in enumerate(found):
            known[number, mask[number]] = values
        return torch.from_numpy(known)
