"""`limbeck demo`: the main job on the built-in data, in minutes."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE

OBJECTIVES = "objective=one_hot,softmax_ce + one_hot,0.1 * margin_mse + one_hot"
QUESTIONS = [
    "how do I copy a file",
    "read a csv file into rows",
    "wait for a thread to finish",
]
NOTE = (
    "The small version: 720 training queries, 64 tokens, one seed. one_hot is the same student without distillation. "
    "Differences between objectives at this size are within noise unless the p-value says otherwise, and MiniLM as it "
    "is saw a billion pairs. Times are for re-ranking one query's candidates; what can be encoded ahead is."
)


def register(app: typer.Typer) -> None:
    @app.command()
    def demo(
        out: Path = typer.Option(Path("runs/demo"), "--out", help="Run directory."),
        override: list[str] = typer.Option([], "--set", help="Change a value of the demo's recipe."),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Distil a cross-encoder into 2-layer dual encoders on Python's own docstrings: about 5 minutes on 2 cores."""
        from limbeck import api
        from limbeck.cli.tables import print_warnings, results_table
        from limbeck.console import err
        from limbeck.console import out as console
        from limbeck.files import read_json
        from limbeck.printable import json_text
        from limbeck.runs.results import rows_as_json

        begun = "A small run on the docstrings of this Python: about 5 minutes on 2 cores."
        err.print(f"{begun} Ctrl-C stops it; the same command resumes.", highlight=False, soft_wrap=True)
        result = api.sweep(
            "demo", [OBJECTIVES], out=out, overrides=override, questions=QUESTIONS, note=NOTE, progress=True
        )
        if as_json:
            found = {"folder": str(out), "seconds": result.seconds, "rows": rows_as_json(result.rows)}
            found["warnings"] = result.warnings
            print(json_text(found))
            return
        console.print(results_table(result.rows, console.width))
        print_warnings(result.warnings)
        console.print(f"\n{NOTE}", style="dim", highlight=False, soft_wrap=True)
        for example in read_json(out / "examples.json"):
            console.print(f"\n{example['query']}?", style="bold", highlight=False)
            width = max(len(found["name"]) for found in example["lists"])
            for found in example["lists"]:
                names = ", ".join(hit["id"] for hit in found["results"])
                console.print(f"  {found['name']:<{width}}  {names}", highlight=False, soft_wrap=True)
        console.print(_next_steps(out, result.seconds), highlight=False, soft_wrap=True)


def _next_steps(out: Path, seconds: float) -> str:
    return f"""
{seconds / 60:.1f} minutes. Next:
  open {out / "report.html"}
  limbeck evaluate {out / "student"} pydocs --task retrieve
  limbeck recipes                          other recipes
  limbeck distill RECIPE --out DIR         your own data and teacher; docs/own-data.md"""
