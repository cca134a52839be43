"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def _use(context: typer.Context, name: str | None) -> str | None:
    """Run models on this device until the command ends. The value needs no further handling."""
    from limbeck.matchers.device_choice import using_device

    context.with_resource(using_device(name))
    return name


def _run_in(context: typer.Context, name: str | None) -> str | None:
    """Run models in this runtime until the command ends. The value needs no further handling."""
    from limbeck.runtimes.choice import using_runtime

    context.with_resource(using_runtime(name))
    return name


def _runtime(callback: Callable[[typer.Context, str | None], str | None] | None) -> Any:
    return typer.Option(
        None,
        "--runtime",
        callback=callback,
        help="What runs transformers: torch, onnx, openvino, int8, openvino-int8, or auto: the fastest that keeps the "
        "quality here. By default the fastest float32 one if it was measured, or if the job is long; otherwise torch.",
    )


def _report(context: typer.Context, names: list[str]) -> list[str]:
    """Report to these trackers until the command ends. The value needs no further handling."""
    from limbeck.training.tracker_choice import using_trackers

    context.with_resource(using_trackers(names))
    return names


REPORT_TO: Any = typer.Option(
    [],
    "--report-to",
    callback=_report,
    help="Show losses and dev measures in tensorboard, wandb, mlflow or trackio while it trains. May be repeated.",
)

RUNTIME = _runtime(_run_in)
LATER_RUNTIME = _runtime(None)  # the command itself enters it

DEVICE: Any = typer.Option(
    None,
    "--device",
    callback=_use,
    help="Where models run: cpu, cuda, cuda:1 or mps; by default a GPU if there is one.",
)
