"""`limbeck push`: a student and its card on the Hugging Face hub."""

from __future__ import annotations

import json

import typer


def register(app: typer.Typer) -> None:
    @app.command()
    def push(
        student: str = typer.Argument(help="The folder of a student, or of a run."),
        name: str = typer.Argument(help="The repository on the hub: owner/name. It is made if it does not exist."),
        private: bool = typer.Option(False, "--private", help="Only you, or your organization, can see it."),
        as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    ) -> None:
        """Upload a student and its card to the Hugging Face hub. Nothing else of a run is uploaded."""
        from limbeck.cli.early import require_pushable

        require_pushable(student, name)
        from limbeck import api

        done = api.push(student, name, private=private, progress=True)
        if as_json:
            facts = {"folder": str(done.folder), "url": done.url, "files": done.files, "bytes": done.bytes}
            print(json.dumps(facts, indent=2))
            return
        print(f"{done.folder}: {len(done.files)} files, {done.bytes / 1e6:,.1f} MB\n{done.url}")
