"""Training lists small enough to reason about, for a real tiny model. Runs as a script under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from limbeck.matchers import Matcher, build, matcher_config
from limbeck.objectives import Objective
from limbeck.recipe.stage import Stage
from limbeck.training import stages as stages_module
from limbeck.training.batches import Collator
from limbeck.training.stages import Fit, fit
from limbeck.training.teachers import CachedTeacher
from limbeck.training.trainer import DistillationTrainer

WORDS = "copy move open close read write file folder list sort number text object value error module".split()


class ToyLists:
    """24 queries over 40 documents; the teacher counts shared words, the positive is the first of the pool."""

    def __init__(self, queries: int = 24, documents: int = 40, size: int = 5) -> None:
        generator = np.random.default_rng(7)
        self.documents = [" ".join(generator.choice(WORDS, size=generator.integers(2, 14))) for _ in range(documents)]
        self.queries = [" ".join(generator.choice(WORDS, size=3)) for _ in range(queries)]
        self.pools = [generator.choice(documents, size=8, replace=False) for _ in range(queries)]
        self.size = size

    def __len__(self) -> int:
        return len(self.queries)

    def query(self, index: int) -> str:
        return self.queries[index]

    def pick(self, index: int, epoch: int) -> np.ndarray:
        return np.random.default_rng([index, epoch]).choice(self.pools[index], size=self.size, replace=False)

    def texts(self, rows: list[int]) -> list[str]:
        return [self.documents[row] for row in rows]

    def labels(self, index: int, rows: np.ndarray) -> np.ndarray:
        return (np.asarray(rows) == self.pools[index][0]).astype(np.float32)

    def teacher(self, index: int, rows: np.ndarray) -> np.ndarray:
        words = set(self.queries[index].split())
        return np.array([len(words & set(self.documents[row].split())) for row in rows], dtype=np.float32)


def tiny_student(start: str, kind: str = "dual_encoder", dropout: float = 0.0, **options: object) -> Matcher:
    """A two-layer matcher whose every dropout is `dropout`."""
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    matcher = build(matcher_config(kind=kind, start=start, layers=2, query_length=8, document_length=16, **options))
    for module in matcher.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    torch.random.set_rng_state(state)
    return matcher


def gradients(
    matcher: Matcher, objective: Objective, in_batch: bool, chunk: int | None, recompute: bool
) -> torch.Tensor:
    """The gradient of one batch of six queries."""
    cached = CachedTeacher(frozenset({"scores"}))
    collator = Collator(ToyLists(), matcher, cached=cached, in_batch=in_batch, chunk=chunk)
    batch = collator([(0, index) for index in range(6)])
    matcher.train()
    signals = matcher(batch.student, recompute=recompute)
    objective(signals, batch.teacher, batch.targets).mean().backward()
    return torch.cat([p.grad.flatten() for _, p in sorted(matcher.named_parameters()) if p.grad is not None])


def train(start: str, folder: Path, stage: Stage, dropout: float = 0.1, kind: str = "dual_encoder") -> Matcher:
    """Run one stage in `folder` and return the matcher; `live` is a dual encoder with a ColBERT in every step, and
    `virt:KIND` a student of a kind with a cross-encoder.
    """
    teacher = {"live": "colbert", "virt": "cross_encoder"}.get(kind.partition(":")[0])
    student = "dual_encoder" if kind == "live" else kind.removeprefix("virt:")
    more: dict[str, object] = {"tokens": (3, 1)} if student == "poly_encoder" else {}
    matcher = tiny_student(start, student, dropout, **more)
    teacher = tiny_student(start, teacher) if teacher else None
    fit(matcher, [stage], lambda _: ToyLists(), Fit("student", folder, folder / "log.jsonl", seed=3, teacher=teacher))
    return matcher


def first_gradients(start: str, folder: Path, stage: Stage, kind: str = "dual_encoder") -> torch.Tensor:
    """What the optimiser sees in the first step: after accumulation, and after the processes have averaged.

    Weights are no measure of equality: Adam turns rounding in a gradient that ought to be zero (a key's bias) into a
    whole step.
    """
    seen: list[torch.Tensor] = []

    class Recorder(DistillationTrainer):
        def _clip_grad_norm(self, model: torch.nn.Module) -> torch.Tensor:
            found = [p.grad.flatten() for _, p in sorted(self.model.named_parameters()) if p.grad is not None]
            seen.append(torch.cat(found).clone())
            return super()._clip_grad_norm(model)

    plain, stages_module.DistillationTrainer = stages_module.DistillationTrainer, Recorder
    try:
        train(start, folder, stage, dropout=0.0, kind=kind)
    finally:
        stages_module.DistillationTrainer = plain
    return seen[0]


def torchrun(processes: int, *arguments: str) -> str:
    """What a Python module prints when this many processes run it; fails with all they wrote if one of them fails."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone", "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [*command, *arguments], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def weights(matcher: Matcher) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for _, parameter in sorted(matcher.named_parameters())])


if __name__ == "__main__":  # torchrun toy.py START FOLDER IN_BATCH KIND [STAGE]: the gradients that process 0 sees
    from limbeck.training.processes import start_processes, world

    start, folder, in_batch, kind = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "True", sys.argv[4]
    torch.set_num_threads(1)
    start_processes()
    usual = {"objectives": ["softmax_ce", "0.5 * one_hot"], "steps": 4, "batch_size": 6, "lr": 1e-3}
    changes = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    stage = Stage(**{**usual, "lists": {"in_batch": in_batch}, **changes})
    gradient = first_gradients(start, folder, stage, kind)
    if world()[0] == 0:
        torch.save(gradient, folder / "gradients.pt")
