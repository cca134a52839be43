"""Help and a mistyped path cost no import of torch: what is imported is checked, as times depend on the machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from limbeck.cli.main import app
from limbeck.cli.verbs import VERBS

HEAVY = "torch transformers sentence_transformers sklearn scipy pandas faiss bm25s ir_measures onnxruntime ray".split()

HELP = [[], ["--help"], ["--version"], ["recipes"], *([verb, "--help"] for verbs in VERBS.values() for verb in verbs)]
WRONG = [
    ["distill", "/no/recipe.yaml"],
    ["sweep", "/no/recipe.yaml", "--over", "seed=1,2"],
    ["distill", "defense-laptop", "--report-to", "nothing"],
    ["export", "/dev/null", "--out", "/no/out"],
    ["export", "/etc", "--out", "/no/out"],
    ["annotate", "/no/model", "/no/data", "--out", "/no/out"],
    ["annotate", "/no/model", "pydocs", "--out", "/no/out"],
    ["index", "/no/model", "/no/data", "--out", "/no/out"],
    ["index", "/no/model", "pydocs", "--out", "/no/out"],
    ["index", "--compact", "--out", "/no/index"],
    ["search", "/no/index", "query"],
    ["expand", "/no/data", "--model", "/no/model", "--out", "/no/out"],
    ["tune", "/no/index", "/no/data"],
    ["pairs", "/no/data", "--out", "/no/out"],
    ["score", "/no/model", "/no/pairs", "--out", "/no/out"],
    ["evaluate", "/no/model", "/no/data"],
    ["evaluate", "/no/model", "pydocs"],
    ["evaluate", "bm25", "pydocs", "--against", "/no/model"],
    ["evaluate", "bm25", "pydocs", "--fail-below", "nothing"],
    ["inspect", "/no/model", "a", "b"],
    ["inspect", "minilm", "", "b"],
    ["report", "/no/run"],
]

# One process runs them all: whatever one of them imports is found at the end of it.
SCRIPT = """
import contextlib, io, sys
from limbeck.cli.main import main
for arguments in {calls!r}:
    sys.argv = ["limbeck", *arguments]
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
    heavy = [name for name in {heavy!r} if name in sys.modules]
    assert code == {code}, (arguments, code, stream.getvalue())
    assert not heavy, (arguments, heavy)
"""


@pytest.mark.parametrize(
    ("calls", "code"),
    [(HELP, 0), (WRONG, 2)],
    ids=["help", "mistakes"],
)
def test_help_and_mistakes_import_nothing_heavy(calls, code):
    script = SCRIPT.format(calls=calls, heavy=HEAVY, code=code)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_limbeck_alone_names_the_commands_to_start_with(limbeck):
    done = limbeck()
    assert done.code == 0 and not done.err
    commands = [line.split()[1] for line in done.out.splitlines() if line.startswith("  limbeck ")]
    registered = {command.callback.__name__ for command in app.registered_commands}
    assert commands == [verb for verb in ("demo", "compress", "distill") if verb in registered]
    assert "limbeck --help" in done.out


def test_help_lists_every_command_once_under_its_job(limbeck):
    sections: dict[str, list[str]] = {}
    for line in limbeck("--help").out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            names = sections.setdefault(line.rstrip(":"), [])
        elif line.startswith("  ") and line[2] != " " and sections:
            names.append(line.split()[0])
    options = sections.pop("Options")
    assert "--version" in options and sections == {panel: list(verbs) for panel, verbs in VERBS.items()}
    named = [verb for verbs in sections.values() for verb in verbs]
    assert sorted(named) == sorted(command.callback.__name__ for command in app.registered_commands)


def test_no_place_for_a_temporary_file_is_a_one_line_error(limbeck, monkeypatch):
    """Libraries ask for one as they are imported: a full disk, or `ulimit -f 0`."""

    def nowhere(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("limbeck.data.require_source", nowhere)
    done = limbeck("evaluate", "bm25", "anything")
    assert done.code == 2 and done.err.startswith("limbeck: cannot write any file") and done.err.count("\n") == 1
