"""Choose the head and the batch size that are fastest on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from limbeck.matchers.interactions import Interaction
from limbeck.matchers.pair_scorer import BATCHES, TRIED, Encodings, PairScorer
from limbeck.progress import say
from limbeck.runtimes.choice import missing_package
from limbeck.scoring.heads import running

__all__ = ["TRIED", "choose_head", "one_thread"]


def choose_head(interaction: Interaction, asked: str, stores: Sequence[Encodings], rows: np.ndarray) -> tuple[str, int]:
    """The fastest head and batch size, measured on some pairs with one thread, like in workers."""
    with one_thread():
        names = [asked] if asked != "auto" else ["torch", *(["onnx"] if _onnx_could_run(interaction) else [])]
        scorers = {name: PairScorer(running(interaction, name), stores) for name in names}
        spent = {name: scorer.tune(rows) for name, scorer in scorers.items()}
        best = min(spent, key=spent.__getitem__)
        if asked == "int8":
            exact = PairScorer(running(interaction), stores).score(rows)
            off = np.abs(scorers["int8"].score(rows) - exact)
            range_ = max(float(np.ptp(exact)), np.finfo(np.float32).tiny)
            worst = f"{off.max():.4f} at worst, {off.max() / range_:.2%} of their range"
            say(f"8-bit scores of {len(rows):,} pairs are off by {off.mean():.4f} on average, {worst}")
    return best, scorers[best].batch or BATCHES[1]


def _onnx_could_run(interaction: Interaction) -> bool:
    if missing_package("onnx") is not None:
        return False
    from limbeck.runtimes.onnx_head import has_graph

    return has_graph(interaction.folded())


@contextmanager
def one_thread() -> Iterator[None]:
    """Measure under the same conditions as workers run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
