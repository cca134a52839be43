"""The training loop: `transformers.Trainer` with signals, objectives, and checkpoints that are complete or absent."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from limbeck.errors import LimbeckError
from limbeck.files import naming_disk_errors, write_json
from limbeck.matchers.base import Matcher
from limbeck.matchers.bf16 import warn_if_emulated
from limbeck.matchers.device import chosen_device, on_device
from limbeck.objectives import standardise_global, standardise_list
from limbeck.progress import Advance
from limbeck.recipe.stage import Stage
from limbeck.signals import Signals, merged
from limbeck.training.batches import Batch, BatchPlan, Collator, Positions
from limbeck.training.checkpoints import PREFIX, seal
from limbeck.training.cpu_speedups import faster, one_lookup
from limbeck.training.log import RunLog
from limbeck.training.processes import all_process_mean, is_main, main_decides, main_number, wait_for_all
from limbeck.training.teachers import live_signals
from limbeck.training.training_heads import with_heads
from limbeck.training.weights import contiguous, load_weights, save_weights

BEST = "best.safetensors"
DEV = "eval_dev"


class DistillationTrainer(Trainer):
    """One stage. Requests only the signals that the objectives need from student and teacher."""

    def __init__(
        self,
        student: Matcher,
        stage: Stage,
        collator: Collator,
        folder: Path,
        steps: int,
        eval_every: int,
        seed: int,
        log: RunLog,
        dev: Callable[[Matcher], dict[str, float]] | None = None,
        teacher: Matcher | None = None,
        standardise: Callable[[Tensor, Tensor], Tensor] | None = None,
        advance: Advance = lambda _: None,
        snapshots: Path | None = None,
        deadline: float | None = None,
        trackers: Sequence[TrainerCallback] = (),
        run_name: str | None = None,
    ) -> None:
        self.snapshots = snapshots
        self.rhythm = _Rhythm(stage, advance, deadline)
        self.stage, self.folder, self.run_log, self.dev = stage, folder, log, dev
        self.objectives = stage.weighted_objectives()
        self.needs_student, self.needs_teacher = stage.student_signals, stage.teacher_signals
        self.live_teacher, self.standardise, self.seed = teacher, standardise, seed
        self.staging: Path | None = None
        self.sums: dict[str, float] = {}
        lists = collator.lists
        self.student, self.queries = student, len(lists)
        self.order = lists.together if stage.group_by_text else None
        self.parts = 0
        super().__init__(
            model=student,
            args=_arguments(stage, folder, steps, eval_every, seed, dev is not None, run_name),
            data_collator=partial(_as_inputs, collator),
            train_dataset=Positions(self.queries),
            eval_dataset=Positions(0) if dev is not None else None,
            callbacks=[self.rhythm, *trackers],
        )
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)
        if teacher is not None:
            teacher.to(self.args.device).eval().requires_grad_(False)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        with faster(self.student):
            return super().train(*args, **kwargs)

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline stopped it before its last step."""
        return self.rhythm.late

    def get_train_dataloader(self) -> DataLoader:
        """The planned batches: every process makes the whole batch and takes its share."""
        plan = BatchPlan(
            self.queries,
            self.stage.batch_size // self.stage.accumulate,
            self.args.max_steps * self.stage.accumulate,
            self.seed,
            self.order,
        )
        return DataLoader(
            Positions(self.queries),
            batch_sampler=plan,
            collate_fn=self.data_collator,
            num_workers=self.stage.workers,
            generator=torch.Generator().manual_seed(self.seed),
        )

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """The weighted objectives, each averaged over the queries of the whole batch."""
        batch: Batch = inputs["batch"]
        recompute = self.stage.chunk is not None
        alone = self.args.world_size == 1 and not recompute
        with one_lookup(self.student, batch.student) if alone else nullcontext():
            student: Signals = model(batch.student, self.needs_student, recompute)
        teacher = self._teacher_signals(batch)
        total = torch.zeros((), device=batch.targets.mask.device)
        # Processes average their gradients, so each scales its share up to the whole batch.
        share = self.args.world_size / batch.size
        for weight, objective in self.objectives:
            loss = with_heads(objective, self.student.heads)(student, teacher, batch.targets).sum() * share
            total = total + weight * loss
            self.sums[str(objective)] = self.sums.get(str(objective), 0.0) + float(loss.detach())
        self.parts += 1
        if not torch.isfinite(total):
            raise LimbeckError(
                f"the loss is not finite at step {self.state.global_step}; "
                "lower lr, raise tau, or check the teacher's scores"
            )
        return total

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return on_device(inputs, self.args.device)

    def _teacher_signals(self, batch: Batch) -> Signals | None:
        if not self.needs_teacher:
            return None
        shown = batch.teacher
        if self.live_teacher is not None and batch.live is not None:
            live = live_signals(
                self.live_teacher, batch.live, self.needs_teacher & self.live_teacher.shows, batch.targets
            )
            shown = live if shown is None else merged(live, shown)
        if self.standardise is not None and shown is not None and shown.scores is not None:
            shown = replace(shown, scores=self.standardise(shown.scores, batch.targets.mask))
        return shown

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Measure on dev, keep the best weights, and decide when to stop."""
        assert self.dev is not None
        self.student.eval()
        value, measures = -math.inf, {}
        if is_main():  # one process measures for all: with different rounding, processes would decide differently
            measures = self.dev(self.student)
            first = next(iter(measures.values()))
            value = -math.inf if math.isnan(first) else first
            self.run_log.write(stage_step=self.state.global_step, dev=measures)
            if self.snapshots is not None:
                keep_snapshot(self.snapshots, self.dev, self.run_log.stage, self.state.global_step)
            best = -math.inf if self.state.best_metric is None else self.state.best_metric
            if value > best:
                save_weights(self.student, self.folder / BEST)
        metrics = {DEV: main_number(value)}
        self.log({**metrics, **{f"eval_{name}": found for name, found in measures.items()}})
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        if out_of_patience(self.stage, self.state.log_history):
            self.control.should_training_stop = True
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and self.sums:
            means = all_process_mean([total / self.parts for total in self.sums.values()])
            objectives = dict(zip(self.sums, means, strict=True))
            if is_main():
                self.run_log.write(
                    stage_step=self.state.global_step,
                    loss=logs["loss"],
                    lr=logs.get("learning_rate"),
                    objectives=objectives,
                )
            self.sums, self.parts = {}, 0
            logs = {**logs, **{f"objective/{name}": mean for name, mean in objectives.items()}}
        super().log(logs, start_time)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.staging or self.folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """Save weights only, as safetensors; the library would add its arguments as a pickle."""
        folder = Path(output_dir or self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(contiguous(self.student.state_dict()), folder / "model.safetensors")

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Let the library write under a temporary name, then rename the complete folder."""
        name = f"{PREFIX}{self.state.global_step}"
        self.staging = self.folder / ".writing"
        try:
            if is_main():
                shutil.rmtree(self.staging, ignore_errors=True)
            wait_for_all()
            with naming_disk_errors(self.folder):
                super()._save_checkpoint(model, trial)
                wait_for_all()
                if is_main():
                    seal(self.staging / name, self.folder / name)
            wait_for_all()
        finally:
            if is_main():
                shutil.rmtree(self.staging, ignore_errors=True)
            self.staging = None

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(self.student, Path(resume_from_checkpoint) / "model.safetensors")


def _as_inputs(collator: Collator, examples: list[tuple[int, int]]) -> dict[str, Batch]:
    """A batch in the form that the library passes around."""
    return {"batch": collator(examples)}


def keep_snapshot(folder: Path, dev: Any, stage: int = 0, step: int = 0) -> None:
    """Store the scores of an evaluation on dev, to plot how they change (Defense Fig. 5 to 7)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{stage:03}-{step:09}.json", dev.run)


def out_of_patience(stage: Stage, history: Sequence[dict[str, Any]]) -> bool:
    """Whether `patience` evaluations on dev have passed since the best one."""
    values = [entry[DEV] for entry in history if DEV in entry]
    if stage.patience is None or not values:
        return False
    return len(values) - 1 - values.index(max(values)) >= stage.patience


class _Rhythm(TrainerCallback):
    """Shows progress, requests a checkpoint when enough time has passed since the last, and stops at a deadline."""

    def __init__(self, stage: Stage, advance: Advance, deadline: float | None = None) -> None:
        self.seconds, self.advance, self.last = stage.checkpoint_seconds, advance, time.monotonic()
        self.deadline, self.late = deadline, False

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.advance(state.global_step)
        self.last = time.monotonic()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.advance(1)
        if state.global_step >= args.max_steps:
            control.should_evaluate = args.eval_strategy != "no"
        else:
            if self.deadline is not None:
                self.late = main_decides(time.monotonic() >= self.deadline)
            control.should_training_stop = control.should_training_stop or self.late
            control.should_save = self.late or main_decides(time.monotonic() - self.last >= self.seconds)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.last = time.monotonic()


class _Arguments(TrainingArguments):
    """Training arguments for the chosen device. By default the library would use every GPU of the machine."""

    @cached_property
    def _setup_devices(self) -> torch.device:
        device: torch.device = super()._setup_devices
        if self.world_size > 1:  # torchrun gave each process its own device
            return device
        chosen = self.distributed_state.device = chosen_device()
        self._n_gpu = int(chosen.type == "cuda")
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        return chosen


def _arguments(
    stage: Stage, folder: Path, steps: int, eval_every: int, seed: int, has_dev: bool, run_name: str | None
) -> TrainingArguments:
    device = chosen_device()
    if stage.bf16:
        warn_if_emulated(device.type)
    return _Arguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=stage.batch_size // stage.accumulate,
        gradient_accumulation_steps=stage.accumulate,
        learning_rate=stage.lr,
        warmup_steps=round(stage.warmup * steps),
        lr_scheduler_type=stage.schedule,
        weight_decay=stage.weight_decay,
        max_grad_norm=stage.max_grad_norm,
        bf16=stage.bf16,
        use_cpu=device.type == "cpu",
        eval_strategy="steps" if has_dev else "no",
        eval_steps=eval_every,
        save_strategy="no",
        metric_for_best_model=DEV if has_dev else None,
        greater_is_better=True if has_dev else None,
        logging_strategy="steps",
        logging_steps=max(1, min(10, steps // 20)),
        logging_nan_inf_filter=False,
        report_to="none",  # trackers are given as callbacks
        run_name=run_name,
        project="limbeck",
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=seed,
        dataloader_pin_memory=device.type == "cuda",
        ddp_find_unused_parameters=stage.only_inside_the_encoder,
    )


def standardiser(kind: str, scores: Tensor) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The standardisation of teacher scores to mean 0 and deviation 1, if any; `scores` are all stored scores."""
    if kind == "list":
        return standardise_list
    if kind == "global":
        mean, deviation = float(scores.mean()), float(scores.std())
        return lambda values, mask: standardise_global(values, mean, deviation)
    return None
