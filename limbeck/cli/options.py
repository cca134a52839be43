"""Options that several commands share."""

from __future__ import annotations

from typing import Any

import typer


def _use(context: typer.Context, name: str | None) -> str | None:
    """Run models on this device until the command ends. The value needs no further handling."""
    from limbeck.matchers.device_choice import using_device

    context.with_resource(using_device(name))
    return name


DEVICE: Any = typer.Option(
    None,
    "--device",
    callback=_use,
    help="Where models run: cpu, cuda, cuda:1 or mps; by default a GPU if there is one.",
)
