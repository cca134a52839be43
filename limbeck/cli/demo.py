"""`limbeck demo`: `compress` on documentation that is installed already, in minutes."""

from __future__ import annotations

from pathlib import Path

import typer

from limbeck.cli.options import DEVICE

TEACHER, DATA, LENGTH = "minilm", "pydocs:all", 64
QUESTIONS = [
    "how do I sort a list by a key",
    "make a temporary directory",
    "eigenvalues of a symmetric matrix",
]


def register(app: typer.Typer) -> None:
    @app.command()
    def demo(
        out: Path = typer.Option(Path("runs/demo"), "--out", help="Run directory."),
        minutes: float = typer.Option(5, "--minutes", help="Time for the whole run."),
        device: str = DEVICE,
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Make cheaper query encoders for MiniLM's index of the Python documentation: about 5 minutes on 2 cores."""
        from limbeck import api
        from limbeck.cli.compress import show, show_what_is_there
        from limbeck.console import err
        from limbeck.console import out as console
        from limbeck.files import read_json
        from limbeck.printable import json_text

        begun = "MiniLM indexes the documentation of the installed Python packages. Then it gets cheaper query encoders"
        err.print(
            f"{begun} for the same index: about {minutes:g} minutes on 2 cores. Ctrl-C stops it; the same command "
            "resumes.", highlight=False, soft_wrap=True,
        )  # fmt: skip
        try:
            found = api.compress(TEACHER, DATA, out, minutes=minutes, length=LENGTH, questions=QUESTIONS, progress=True)
        except KeyboardInterrupt:
            show_what_is_there(out)
            raise
        examples = read_json(out / "examples.json")
        if as_json:
            print(json_text(found.as_json() | {"examples": examples}))
            return
        for example in examples:
            console.print(f"\n{example['query']}?", style="bold", highlight=False)
            width = max(len(each["name"]) for each in example["lists"])
            for each in example["lists"]:
                names = ", ".join(hit["id"] for hit in each["results"])
                console.print(f"  {each['name']:<{width}}  {names}", highlight=False, soft_wrap=True)
        console.print()
        show(found)
        console.print(_next_steps(out, found.seconds), highlight=False, soft_wrap=True)


def _next_steps(out: Path, seconds: float) -> str:
    return f"""
{seconds / 60:.1f} minutes. Next:
  open {out / "report.html"}
  limbeck compress MODEL DATA --out DIR    your own model and texts
  limbeck recipes                          one objective, one student: the papers"""
