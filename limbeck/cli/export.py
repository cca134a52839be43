"""`limbeck export`: a model as a folder that runs without torch."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    @app.command()
    def export(
        model: str = typer.Argument(help="A dual encoder: a folder, a hub name or a run directory."),
        out: Path = typer.Option(..., "--out", help="Folder to write."),
        int8: bool = typer.Option(False, "--int8", help="Round weights to 8 bits: smaller and faster, a little off."),
        data: str = typer.Option(None, help="Compare with the model on texts of this data set; default: docstrings."),
        gate: float = typer.Option(
            None, min=-1, max=1, help="With --int8, the lowest mean cosine to the model's vectors; 0.99 by default."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Write tokenizer, graph and configuration of a model as a folder that runs without torch."""
        from limbeck.cli.early import require_data, require_model
        from limbeck.errors import LimbeckError
        from limbeck.runtimes.choice import require_runtime

        if gate is not None and not int8:
            raise LimbeckError("--gate requires --int8; leave it out")
        require_runtime("int8" if int8 else "onnx")
        require_model(model)
        require_data(data)
        from limbeck import api

        done = api.export(model, out, int8=int8, data=data, gate=gate, progress=True)
        facts = {
            "out": str(done.folder),
            "runtime": done.runtime,
            "cosine": round(done.cosine, 6),
            "measured_on": done.source,
            "bytes": done.bytes,
        }
        if as_json:
            print(json.dumps(facts, indent=2))
            return
        print(f"{out}: {done.runtime}, {done.bytes / 1e6:,.1f} MB")
        print(f"mean cosine {done.cosine:.4f} to the model's vectors, on texts of {done.source}")
