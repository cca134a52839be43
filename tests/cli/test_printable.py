"""A text cannot recolour, overwrite or reorder what a terminal shows."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from itertools import count

import pytest
from rich.table import Table
from rich.text import Text

from limbeck.console import Bars, Lines, PrintableConsole
from limbeck.printable import UNSAFE, json_text, printable, printable_streams

EVIL = "a\x1b[31mred\x1b]0;title\x07\rover\x08\x9b1m\u202eesrever\u2066\u200f\x00\x7f\U000e0041z"
CLEAN = "a[31mred]0;titleover1mesreverz"


def test_controls_escapes_and_bidirectional_marks_go_and_letters_stay():
    assert printable(EVIL) == CLEAN
    plain = "naïve\tcafé\n日本語 שלום مرحبا 👩‍👩‍👧 e\u0301"
    assert printable(plain) == plain


def test_json_keeps_everything_as_escapes():
    text = json_text({"id": EVIL, "name": "é"})
    assert not set(text) & UNSAFE and "é" in text
    assert json.loads(text)["id"] == EVIL


def test_all_output_passes_through(capsys):
    with printable_streams():
        print(EVIL)
        print(EVIL, file=sys.stderr)
        sys.stderr.writelines([EVIL])
    done = capsys.readouterr()
    assert done.out == CLEAN + "\n"
    assert done.err == CLEAN + "\n" + CLEAN


def terminal() -> PrintableConsole:
    console = PrintableConsole(width=200)
    console.file = io.StringIO()
    return console


def test_tables_and_styled_texts_contain_no_escapes_and_no_markup():
    console, table = terminal(), Table(EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL, style="bold"))
    for shown in (EVIL, Text(EVIL), table, "[/x] [bold]b[/bold] :smile:"):
        console.print(shown)
    text = console.file.getvalue()
    assert not set(text) & UNSAFE
    assert text.count(CLEAN) == 5 and "[/x] [bold]b[/bold] :smile:" in text


def test_a_label_with_brackets_or_escapes_is_shown_as_it_is(monkeypatch, capsys):
    from limbeck import console

    monkeypatch.setattr(console.time, "monotonic", count(0.0, 100.0).__next__)
    for reporter in (Bars(), Lines()):
        with reporter.task(f"Reading [/x] {EVIL}", None):
            pass
        reporter.say(f"[/x] {EVIL}")
    text = capsys.readouterr().err
    assert not set(text) & UNSAFE
    assert f"Reading [/x] {CLEAN}" in text


@pytest.mark.parametrize("arguments", [["evaluate", "bm25", f"/no/{EVIL}".replace("\x00", "")], ["a\x1b[2Jb"]])
def test_an_error_line_is_clean(limbeck, arguments):
    done = limbeck(*arguments)
    assert done.code == 2 and len(done.err.splitlines()) == 1
    assert not set(done.err) & UNSAFE


def test_hits_on_a_real_terminal_keep_our_colours_and_lose_those_of_the_texts(limbeck, tmp_path):
    """Through a pseudo-terminal, as a person sees it."""
    passage = {"_id": "id\u202e\x1b[5m1", "title": "t\x1b]0;owned\x07", "text": "copy a \x1b[41mfile\x9b31m \u2067x"}
    (tmp_path / "c.jsonl").write_text(json.dumps(passage) + "\n")
    assert limbeck("index", "--no-dense", tmp_path / "c.jsonl", "--out", tmp_path / "index").code == 0
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "limbeck", "search", str(tmp_path / "index"), "copy"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=environment, check=True, timeout=120)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert not done.stderr
    assert "\x1b[1;36m" in shown  # our own colour of ids
    for theirs_ in ("\x1b[5m", "\x1b[41m", "\x1b]0", "\x9b", "\u202e", "\u2067", "\x07"):
        assert theirs_ not in shown
