"""Score pairs with a model without encodings: it reads both texts of every pair together."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from limbeck.data import Texts
from limbeck.matchers.base import Matcher
from limbeck.progress import reporting, say
from limbeck.scoring.scorer import one_thread
from limbeck.scoring.source import Source

SHARD = 2_000  # pairs in a file: some seconds to a minute of work
FEW = 32  # number of pairs to time


class WholeModel:
    """Scores pairs, given as rows of text tables."""

    def __init__(self, matcher: Matcher, tables: Sequence[Texts]) -> None:
        self.matcher, self.tables = matcher, tables

    def score(self, rows: np.ndarray) -> np.ndarray:
        """Scores [pairs, outputs] of rows [pairs, positions]."""
        texts = [table.take(column) for table, column in zip(self.tables, rows.T, strict=True)]
        return np.asarray(self.matcher.score(list(zip(*texts, strict=True)))).reshape(len(rows), -1)


def warn_of_time(matcher: Matcher, source: Source) -> None:
    """Print how long a list will take, estimated from a few of its pairs."""
    few = source.rows(0, min(len(source), FEW))
    scorer = WholeModel(matcher, source.tables)
    with reporting(None), one_thread():
        scorer.score(few[:1])
        began = time.perf_counter()
        scorer.score(few)
    seconds = (time.perf_counter() - began) / len(few) * len(source)
    place = "one core" if matcher.device.type == "cpu" else str(matcher.device)
    say(
        f"this {matcher.kind.replace('_', '-')} reads both texts of every pair together: {len(source):,} pairs take "
        f"about {_duration(seconds)} on {place}; for long lists, distil it into a dipair or a dual_encoder"
    )


def _duration(seconds: float) -> str:
    """A duration in a suitable unit."""
    if seconds < 120:
        return f"{max(1, round(seconds))} seconds"
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"
