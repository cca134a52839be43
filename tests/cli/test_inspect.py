"""`limbeck inspect` in a terminal and as a page."""

from __future__ import annotations

import json

import pytest
import torch

from limbeck.cli.token_maps import SHADES
from limbeck.matchers import build, matcher_config
from tests.report.test_blocks import Reader

TEXTS = ("copy a file", "open the new folder")
LENGTHS = {"query_length": 8, "document_length": 16}


@pytest.fixture(scope="module")
def folders(tiny_bert, tmp_path_factory):
    """A student and a teacher on disk."""
    place, found = tmp_path_factory.mktemp("models"), {}
    for name, kind in (("student", "dual_encoder"), ("teacher", "cross_encoder")):
        torch.manual_seed(0)
        build(matcher_config(kind=kind, init_from=tiny_bert, **LENGTHS)).save_pretrained(place / name)
        found[name] = place / name
    return found


def test_a_terminal_shows_both_maps_with_words_on_both_axes(limbeck, folders):
    done = limbeck("inspect", folders["student"], *TEXTS, "--teacher", folders["teacher"])
    assert done.code == 0 and not done.err
    lines = done.out.splitlines()
    for title in ("text 1 → text 2, model", "text 1 → text 2, teacher", "text 2 → text 1, model", "strongest links"):
        assert title in lines
    start = lines.index("text 1 → text 2, model") + 1
    heading, rows = lines[start : start + 6], lines[start + 6 : start + 9]
    assert [row.split()[0] for row in rows] == ["copy", "a", "file"]
    for place, word in enumerate(("open", "the", "new", "folder")):
        assert "".join(line.ljust(13)[5 + 2 * place] for line in heading).strip() == word
    assert all(set(row[5:]) <= set(SHADES) for row in rows)
    assert any(SHADES[-1] in line for line in lines)  # the largest value is the darkest
    assert "(teacher 0." in done.out and "distance of the maps (Eq. 4): 0." in done.out
    assert done.out.count("layer 2 of 0 to 2") == 2


def test_a_page_has_the_maps_as_pictures(limbeck, folders, tmp_path):
    page = tmp_path / "maps.html"
    done = limbeck("inspect", folders["student"], *TEXTS, "--teacher", folders["teacher"], "--out", page, "--layer", 0)
    assert done.code == 0 and done.out.splitlines()[-1] == str(page)
    reader = Reader(page.read_text())
    assert [tag for tag, _ in reader.tags].count("svg") == 4
    assert "layer 0 of 0 to 2" in reader.text and "of a token's attention to the other text" in reader.text
    assert "copy → open: " in reader.text and "folder → file: " in reader.text


def test_json_has_every_number(limbeck, folders):
    done = limbeck("inspect", folders["teacher"], *TEXTS, "--json")
    told = json.loads(done.out)
    assert told["tokens"] == [["copy", "a", "file"], ["open", "the", "new", "folder"]]
    (view,) = told["views"]
    assert not view["virtual"] and all(sum(row) == pytest.approx(1, abs=1e-5) for row in view["first_to_second"])


def test_a_narrow_terminal_cuts_columns_and_says_so(limbeck, folders, monkeypatch):
    from limbeck.console import out

    monkeypatch.setattr(out, "width", 12)
    done = limbeck("inspect", folders["student"], *TEXTS)
    assert "more columns" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("{student}", "", "a"), "limbeck: text 1 is empty; give two texts with words in them"),
        (("{student}", "a", "b", "--layer", "3"), "has layers 0 to 2; give one of these"),
        (
            ("{student}", "a", "b", "--teacher", "{student}"),
            "computes no attention between texts; give a cross_encoder",
        ),
        (("{teacher}", "a", "b", "--teacher", "{teacher}"), "is a cross_encoder itself"),
        (("/no/model", "a", "b"), "/no/model"),
        (("{student}", "a", "b", "--out", "{student}/config.json/x.html"), "config.json"),
    ],
)
def test_a_mistake_is_one_line(limbeck, folders, arguments, line):
    done = limbeck("inspect", *(str(each).format(**folders) for each in arguments))
    assert done.code == 2 and line in done.err and done.err.count("\n") == 1 and not done.out


def test_a_model_without_attention_is_refused(limbeck, tiny_bert, tmp_path):
    options = {"init_from": tiny_bert, "encoder": "static", **LENGTHS}
    build(matcher_config(kind="dual_encoder", **options)).save_pretrained(tmp_path / "static")
    done = limbeck("inspect", tmp_path / "static", *TEXTS)
    assert done.code == 2 and done.err.count("\n") == 1 and "attention" in done.err
