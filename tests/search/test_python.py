"""Changing an index and looking things up from Python; the examples of the docstrings and of docs/search.md run."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from limbeck.data import passages
from limbeck.data.passages import Passages
from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder
from limbeck.search import index as index_module
from limbeck.search.build import build_index
from limbeck.search.changes import Changed
from limbeck.search.index import SearchIndex
from limbeck.search.results import Passage
from tests.search.conftest import passages_of
from tests.search.test_changes import answers


def test_an_opened_index_sees_what_it_added_and_deleted(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    index = build_index(model, passages_of(corpus), tmp_path / "index")
    first, *_, last = corpus
    assert index.add({"n1": "byte array", first: "first last"}, delete=[last]) == Changed(2, 1, 1)
    assert len(index) == len(corpus) and first in index and last not in index and 3 not in index
    assert index.get(first) == Passage(first, "", "first last", {}) and index.get(last) is None
    assert index.delete(["n1", "absent"]) == 1 and index.delete("absent") == 0
    assert "n1" not in index
    assert answers(index) == answers(SearchIndex.open(tmp_path / "index"))


def test_the_model_in_memory_is_not_loaded_again(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build_index(model, passages_of(corpus), tmp_path / "index")
    monkeypatch.setattr("limbeck.matchers.load", lambda *_: pytest.fail("loaded again"))
    index.add({"n1": "byte array"})
    index.search("byte", mode="dense")


def test_titles_and_fields_are_kept(corpus: dict[str, str], tmp_path: Path) -> None:
    index = build_index(None, passages_of(corpus), tmp_path / "index", dense=False)
    index.add([{"_id": "n1", "title": "Copy", "text": "a file", "year": 2023, "meta": {"lang": "en"}}, {"_id": "n2"}])
    assert index.get("n1") == Passage("n1", "Copy", "a file", {"year": 2023, "meta.lang": "en"})
    assert index.get("n2") == Passage("n2", "", "", {})


@pytest.mark.parametrize("wrong", [[{"text": "x"}], [{"_id": 3, "text": "x"}], {"a": 3}, ["text"], [{"_id": ""}]])
def test_an_invalid_passage_is_refused(wrong: Any) -> None:
    with pytest.raises(LimbeckError, match="passage 1 has no `_id`, or .*; give .* records, or texts by id"):
        Passages.of(wrong)


@pytest.mark.parametrize("name", ["get", "add", "delete", "Passages.of"])
def test_the_examples_in_docstrings_run(name: str, tmp_path: Path) -> None:
    owner = passages if name == "Passages.of" else index_module
    found = passages.Passages.of if name == "Passages.of" else getattr(SearchIndex, name)
    (example,) = doctest.DocTestFinder().find(found, name, globs={**vars(owner), "folder": tmp_path / "index"})
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.summarize(verbose=False).failed == 0 and runner.tries > 0


def test_the_python_of_the_search_page_runs(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    (code,) = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    model.save_pretrained(tmp_path / "runs" / "mine" / "student")
    data = tmp_path / "my" / "beir" / "folder"
    data.mkdir(parents=True)
    lines = ['{"_id": "d1", "text": "copy a file", "lang": "en"}', '{"_id": "d2", "text": "sort"}']
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (data / "queries.jsonl").write_text('{"_id": "q1", "text": "copy"}\n')
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["index"]) == 2 and names["index"].get("n1").fields == {"lang": "en"}
