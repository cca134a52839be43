from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from limbeck.cli.main import main
from tests.training.conftest import beir, recipe  # noqa: F401  (fixtures)


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def limbeck(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run the command as a user would, and say what came of it."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["limbeck", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run
