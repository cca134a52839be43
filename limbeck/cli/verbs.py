"""The commands by the job that they do, as `limbeck --help` lists them, and what `limbeck` alone tells a newcomer."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

VERBS = {  # the panel of `limbeck --help`: its commands, each a module of this package
    "Start here": ("demo", "recipes"),
    "Make a student": ("compress", "distill", "sweep"),
    "Prepare texts and teacher scores": ("annotate", "generate", "expand", "pairs"),
    "Search and score": ("index", "search", "tune", "score"),
    "Measure and understand": ("evaluate", "runtimes", "inspect", "report"),
    "Publish": ("push", "export"),
}
FIRST_STEPS = {  # a line is shown once its command exists
    "demo": ("limbeck demo", "to see what it does: minutes, and you need nothing of your own"),
    "compress": ("limbeck compress TEACHER DATA --out DIR", "to get the cheapest model that does the job of yours"),
    "distill": ("limbeck distill RECIPE", "to choose data, teacher, student and objectives yourself"),
}
FIRST_SENTENCE = 1000  # maximum characters of a command's line, which may be wrapped


class GroupedCommands(TyperGroup):
    """Lists commands by panel in plain text: typer does so with rich, which takes a second to import."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Other commands"
                panels.setdefault(panel, []).append((name, command.get_short_help_str(FIRST_SENTENCE)))
        width = max(len(name) for rows in panels.values() for name, _ in rows)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])


def register_verbs(app: typer.Typer) -> None:
    """Add every command to the app, in its panel."""
    for panel, verbs in VERBS.items():
        for verb in verbs:
            import_module(f"limbeck.cli.{verb}").register(app)
            app.registered_commands[-1].rich_help_panel = panel


def first_steps(about: str) -> str:
    """What to run first, for somebody who typed `limbeck` and nothing else."""
    known = {verb for verbs in VERBS.values() for verb in verbs}
    steps = [step for verb, step in FIRST_STEPS.items() if verb in known]
    width = max(len(command) for command, _ in steps)
    lines = [f"  {command:<{width}}   {purpose}" for command, purpose in steps]
    return "\n".join([about, "", "Start with one of these:", *lines, "", "`limbeck --help` lists all commands."])
