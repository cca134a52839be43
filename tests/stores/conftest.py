from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/test_files.py` checks that everything is fsynced; here it would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
