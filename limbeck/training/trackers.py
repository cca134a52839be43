"""Losses and dev measures in a tracker while a model trains, by the integrations of `transformers`.

Every stage of every model is one run of a tracker: `mine/teacher`, `mine/student`, `mine/student, stage 2`.
tensorboard's files are in `tracking/` beside the run's log. The other trackers write where they do by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import MLflowCallback, TensorBoardCallback, TrackioCallback, WandbCallback

from limbeck.errors import first_line
from limbeck.files import slug
from limbeck.progress import say
from limbeck.training.processes import is_main
from limbeck.training.tracker_choice import asked_trackers

FOLDER = "tracking"
TENSORBOARD = "tensorboard"
CALLBACKS: dict[str, Callable[[], Any]] = {
    "wandb": WandbCallback,
    "mlflow": MLflowCallback,
    "trackio": TrackioCallback,
}
# The run that is open in a tracker, and how to end it.
OPEN_RUN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "wandb": (lambda wandb: wandb.run, lambda wandb: wandb.finish()),
    "mlflow": (lambda mlflow: mlflow.active_run(), lambda mlflow: mlflow.end_run()),
    "trackio": (lambda trackio: trackio.context_vars.current_run.get(), lambda trackio: trackio.finish()),
}


def run_name(log: Path, model: str, stage: int) -> str:
    """The name of a stage in a tracker: the run's folder, the model, and the stage after the first."""
    return f"{log.absolute().parent.name}/{model}" + (f", stage {stage + 1}" if stage else "")


@contextmanager
def tracked(log: Path, model: str, stage: int, done: int) -> Iterator[list[TrainerCallback]]:
    """The callbacks of a stage, in the process that writes files; `done` steps were trained before."""
    place = log.parent / FOLDER / slug(model) / f"stage-{stage + 1}"
    trackers = [Tracker(name, place, done) for name in asked_trackers() if is_main()]
    try:
        yield [*trackers]
    finally:
        for tracker in trackers:
            tracker.close()


class Tracker(TrainerCallback):
    """A callback of transformers, until it fails: then it is named and left out, and the training goes on."""

    def __init__(self, name: str, place: Path, done: int) -> None:
        self.name, self.callback = name, None
        self.end: Callable[[], Any] = lambda: None
        with self._failing_alone():
            if name == TENSORBOARD:
                writer = _event_writer(place, done)
                self.end, self.callback = writer.close, TensorBoardCallback(writer)
            else:
                self.end, self.callback = _end_of_run(name), CALLBACKS[name]()

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._pass_on("on_train_begin", *args, **kwargs)

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        self._pass_on("on_log", *args, **kwargs)

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self._pass_on("on_save", *args, **kwargs)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self._pass_on("on_train_end", *args, **kwargs)

    def close(self) -> None:
        """End the tracker's run, also if the training failed: otherwise the next stage would continue it."""
        with suppress(Exception):
            self.end()

    def _pass_on(self, event: str, *args: Any, **kwargs: Any) -> None:
        if self.callback is not None:
            with self._failing_alone():
                getattr(self.callback, event)(*args, **kwargs)

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = first_line(error) or type(error).__name__
            say(f"warning: {self.name} failed ({reason}); the training goes on without it")
            self.callback = None


def _event_writer(place: Path, done: int) -> Any:
    """Writes event files. Later steps of a killed run are trained again, so their events are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(place), purge_step=done + 1)


def _end_of_run(name: str) -> Callable[[], Any]:
    """How to end the run of a tracker; a run that was open before belongs to the user's program and stays open."""
    package, (is_open, end) = import_module(name), OPEN_RUN[name]
    if is_open(package) is not None:
        return lambda: None
    return lambda: end(package) if is_open(package) is not None else None
