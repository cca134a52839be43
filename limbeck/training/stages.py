"""Run stages one after the other; each resumes where it stopped."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from limbeck.errors import LimbeckError
from limbeck.files import digest, read_json, slug
from limbeck.matchers.base import Matcher, as_parts, weights_digest
from limbeck.matchers.encoding_matcher import EncodingMatcher
from limbeck.progress import progress, say
from limbeck.recipe.stage import Stage
from limbeck.training.attention import attention_shown
from limbeck.training.batches import Collator
from limbeck.training.checkpoints import PREFIX, newest_complete
from limbeck.training.frozen_cache import frozen_outputs
from limbeck.training.lists import Examples
from limbeck.training.log import RunLog
from limbeck.training.processes import is_main, wait_for_all, world
from limbeck.training.stored_outputs import StoredOutputs
from limbeck.training.teachers import EMBEDDINGS, CachedTeacher
from limbeck.training.trackers import run_name, tracked
from limbeck.training.trainer import BEST, DistillationTrainer, out_of_patience
from limbeck.training.training_heads import learn_where_asked, training_heads
from limbeck.training.weights import is_whole, load_if_whole, load_weights, save_weights

FREEZABLE = {
    # the first module of towers and cross-encoders, of static towers, and of DiPair
    "encoder": ("*.0.model.*", "*.0.embedding.*", "encoders.*"),
    "token_embeddings": ("*.word_embeddings.*", "*.0.embedding.*"),
}


@dataclass
class Fit:
    """Everything that the stages of one model share."""

    name: str  # its name in the log: "teacher", "student", or the name of a student in a sweep
    folder: Path  # where unfinished work is kept
    log: Path
    seed: int
    dev: Callable[[Matcher], dict[str, float]] | None = None
    teacher: Matcher | None = None  # a live teacher
    standardise: Callable[[Tensor, Tensor], Tensor] | None = None
    snapshots: Path | None = None  # store the scores of dev here at every evaluation
    outputs: Path | None = None  # outputs of frozen encoders, which several models share
    shared: Path | None = None  # weights after a stage that several models begin with
    cached_teacher: Matcher | None = None  # a teacher whose stored scores are used
    reference: EncodingMatcher | None = None  # its stored embeddings are used: the teacher, or the student's start
    embeddings: StoredOutputs | None = None  # the reference's, by text
    deadline: float | None = None  # by `time.monotonic`: stop there with a checkpoint and raise OutOfTime


class OutOfTime(Exception):
    """A stage reached its deadline. Its last checkpoint is kept, so that it can continue another time."""


def fit(matcher: Matcher, stages: Sequence[Stage], lists: Callable[[Stage], Examples], how: Fit) -> None:
    """Train `matcher` through all stages; finished stages are loaded, interrupted ones resume."""
    with training_heads(matcher, stages, how.reference or how.teacher or how.cached_teacher, how.seed):
        for number, stage in enumerate(stages):
            finished = how.folder / f"{slug(how.name)}-stage-{number}.safetensors"
            if load_if_whole(matcher, finished):
                continue
            if how.shared is not None and number + 1 < len(stages):
                finished = how.shared / f"{_begun_alike(matcher, stage, number, how)}.safetensors"
                if load_if_whole(matcher, finished):
                    say(f"{how.name}: stage {number + 1} is that of an earlier run with the same start and settings")
                    continue
            folder = how.folder / f"{slug(how.name)}-stage-{number}"
            _discard_damaged(folder)
            learn_where_asked(matcher, stage)
            found, outputs = lists(stage), how.outputs or how.folder / "frozen"
            if how.embeddings is not None and _replayed(stage, how) & EMBEDDINGS:
                how.embeddings.add_all(_texts(found))
            with (
                frozen(matcher, stage.freeze),
                frozen_outputs(matcher, stage, found, outputs),
                attention_shown(matcher, how.teacher, stage),
            ):
                _run_stage(matcher, stage, number, found, folder, how)
            if (folder / BEST).exists():
                load_weights(matcher, folder / BEST)
            wait_for_all()
            if is_main():
                finished.parent.mkdir(parents=True, exist_ok=True)
                save_weights(matcher, finished)
                shutil.rmtree(folder, ignore_errors=True)
            wait_for_all()


def _begun_alike(matcher: Matcher, stage: Stage, number: int, how: Fit) -> str:
    """The key of a stage: models with the same key and data have the same weights after the stage."""
    return digest(weights_digest(matcher), stage.model_dump_json(), str(how.seed + number))


def _discard_damaged(folder: Path) -> None:
    """Restart a stage whose best weights so far are damaged: no checkpoint has them."""
    if is_main() and (folder / BEST).exists() and not is_whole(folder / BEST):
        shutil.rmtree(folder)
    wait_for_all()


def _run_stage(matcher: Matcher, stage: Stage, number: int, lists: Examples, folder: Path, how: Fit) -> None:
    an_epoch = math.ceil(len(lists) / stage.batch_size)
    steps = stage.steps or max(1, math.ceil((stage.epochs or 1) * len(lists) / stage.batch_size))
    folder.mkdir(parents=True, exist_ok=True)
    resume = newest_complete(folder)
    log = RunLog(how.log, how.name, number)
    done = int(resume.name.removeprefix(PREFIX)) if resume else 0
    if is_main():
        log.rewind(done)
    rank, processes = world()
    if stage.batch_size // stage.accumulate < processes:
        raise LimbeckError(
            f"batch_size {stage.batch_size} in {stage.accumulate} parts is too few for {processes} processes; raise it"
        )
    label = f"Training {how.name}" + (f", stage {number + 1}" if number else "")
    if resume is not None and out_of_patience(stage, read_json(resume / "trainer_state.json")["log_history"]):
        return
    with progress(label, steps) as advance, tracked(how.log, how.name, number, done) as trackers:
        trainer = DistillationTrainer(
            student=matcher,
            stage=stage,
            collator=Collator(
                lists,
                matcher,
                how.teacher if how.teacher is not None and stage.teacher_signals & how.teacher.shows else None,
                _cached(stage, how),
                in_batch=stage.lists.in_batch,
                chunk=stage.chunk,
                rank=rank,
                world=processes,
                seed=how.seed + number,
                token_dropout=stage.token_dropout,
                restore_tokens="token_logits" in stage.student_signals,
                name_tokens="seen_token_logits" in stage.student_signals,
            ),
            folder=folder,
            steps=steps,
            eval_every=min(stage.eval_every or an_epoch, steps),
            seed=how.seed + number,
            log=log,
            dev=how.dev,
            teacher=how.teacher,
            standardise=how.standardise,
            advance=advance,
            snapshots=how.snapshots,
            deadline=how.deadline,
            trackers=trackers,
            run_name=run_name(how.log, how.name, number),
        )
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        if trainer.out_of_time:
            raise OutOfTime(f"{trainer.state.global_step} of {steps} steps")


def _texts(lists: Examples) -> list[list[str]]:
    """All texts of both sides; documents of several parts are joined."""
    queries, documents = lists.everything()
    return [queries, [" ".join(as_parts(document)) for document in documents]]


def _replayed(stage: Stage, how: Fit) -> frozenset[str]:
    """The signals that a stage needs but no live teacher provides."""
    return stage.teacher_signals - (how.teacher.shows if how.teacher is not None else frozenset())


def _cached(stage: Stage, how: Fit) -> CachedTeacher | None:
    """The teacher that provides stored signals; None if there are none."""
    replayed = _replayed(stage, how)
    return CachedTeacher(replayed, how.embeddings) if replayed else None


class frozen:
    """Freeze parameters inside the block: by alias (`encoder`, `token_embeddings`) or by a pattern of their names.

    A module whose parameters are all frozen also stays in evaluation mode, even if the model is set to training: with
    dropout its outputs would differ from the stored ones.
    """

    def __init__(self, module: nn.Module, patterns: Sequence[str]) -> None:
        self.module, self.held = module, list[nn.Parameter]()
        self.still: list[nn.Module] = []
        named = list(module.named_parameters())
        for pattern in patterns:
            forms = FREEZABLE.get(pattern, (pattern,))
            found = [parameter for name, parameter in named if any(fnmatchcase(name, form) for form in forms)]
            if not found:
                raise LimbeckError(
                    f"freeze: no parameter matches {pattern!r}; use {', '.join(FREEZABLE)} or a pattern such as "
                    f"{named[0][0]!r}"
                )
            self.held += [parameter for parameter in found if parameter.requires_grad]

    def leaves_something(self) -> None:
        """Refuse to freeze all trainable parameters."""
        held = set(map(id, self.held))
        if not any(parameter.requires_grad and id(parameter) not in held for parameter in self.module.parameters()):
            raise LimbeckError("freeze: no parameter is left to train; freeze fewer, or drop the stage")

    def __enter__(self) -> None:
        self.leaves_something()
        for parameter in self.held:
            parameter.requires_grad_(False)
        self.still = list(_fixed(self.module, set(map(id, self.held))))
        for module in self.still:
            module.eval()
            module.train = partial(_stay, module)  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        for parameter in self.held:
            parameter.requires_grad_(True)
        for module in self.still:
            del module.train


def _fixed(module: nn.Module, held: set[int]) -> Iterator[nn.Module]:
    """The largest submodules that contain frozen parameters and nothing that is trained."""
    parameters = list(module.parameters())
    if any(id(parameter) in held for parameter in parameters):
        if not any(parameter.requires_grad for parameter in parameters):
            yield module
        else:
            for child in module.children():
                yield from _fixed(child, held)


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    """Replaces the `train` method of a frozen module: the mode does not change."""
    return module
