"""`limbeck export`: a model as a folder that runs without torch."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    @app.command()
    def export(
        model: str = typer.Argument(
            help="A dual encoder, ColBERT or cross-encoder: a folder, a hub name or a run directory."
        ),
        out: Path = typer.Option(..., "--out", help="Folder to write."),
        int8: bool = typer.Option(False, "--int8", help="Round weights to 8 bits: smaller and faster, a little off."),
        data: str = typer.Option(None, help="Compare with the model on texts of this data set; default: docstrings."),
        max_loss: float = typer.Option(
            None,
            min=0,
            max=100,
            help="With --int8 and judged queries in --data, the most percent of nDCG@10 to lose; 0.5.",
        ),
        gate: float = typer.Option(
            None,
            min=-1,
            max=1,
            help="With --int8, the lowest mean cosine, or correlation, to the model; 0.99 without labels.",
        ),
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Write tokenizer, graph and configuration of a model as a folder that runs without torch."""
        from limbeck.cli.early import require_data, require_model
        from limbeck.errors import LimbeckError
        from limbeck.runtimes.choice import require_runtime

        for name, value in (("--gate", gate), ("--max-loss", max_loss)):
            if value is not None and not int8:
                raise LimbeckError(f"{name} requires --int8; leave it out")
        if gate is not None and max_loss is not None:
            raise LimbeckError("--gate and --max-loss are two limits of one gate; leave one of them out")
        require_runtime("int8" if int8 else "onnx", None)
        require_model(model)
        require_data(data)
        from limbeck import api

        most = max_loss / 100 if max_loss is not None else None
        done = api.export(model, out, int8=int8, data=data, gate=gate, max_loss=most, progress=True)
        usual = gate is None and max_loss is None
        facts = {
            "out": str(done.folder),
            "runtime": done.runtime,
            "cosine": round(done.cosine, 6),
            "measured_on": done.source,
            "judged": done.judged,
            "ndcg@10": done.ndcg,
            "ndcg@10 of the model": done.exact_ndcg,
            "lost": done.lost,
            "verdict": "the quality is kept" if usual else "the quality is above the limit you set",
            "largest_difference": done.off,
            "bytes": done.bytes,
        }
        if as_json:
            print(json.dumps(facts, indent=2))
            return
        print(f"{out}: {done.runtime}, {done.bytes / 1e6:,.1f} MB")
        print(f"closeness {done.cosine:.4f} (mean cosine, or correlation) to the model, on texts of {done.source}")
        if done.lost is not None:
            change = f"{done.lost:.1%} lost" if done.lost > 0 else "nothing lost"
            print(f"nDCG@10 {done.ndcg:.4f}, and {done.exact_ndcg:.4f} of the model: {change}, on {done.judged}")
        print(facts["verdict"])
