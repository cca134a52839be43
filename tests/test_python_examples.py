"""The examples in the docstrings of `limbeck`'s functions, in docs/python.md and in the README run as they are."""

from __future__ import annotations

import doctest
import inspect
import json
import shutil
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml

import limbeck as lb

ROOT = Path(__file__).parents[1]
FUNCTIONS = [
    "load",
    "distill",
    "sweep",
    "compress",
    "evaluate",
    "annotate",
    "index",
    "open_index",
    "score",
    "inspect",
    "recipes",
    "measure_runtimes",
    "export",
    "push",
]
TEXTS = {
    "d1": "copy one file to a folder",
    "d2": "sort a list",
    "d3": "read the first line of a text",
    "d4": "write a byte array",
    "d5": "count the number of words",
    "d6": "open a new page",
}
SPLITS = {"train": ["d1", "d2", "d3", "d4"], "dev": ["d5", "d3"], "test": ["d6", "d1"]}


def write_data(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": key, "text": text}) for key, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = {f"{split}-{key}": TEXTS[key] for split, keys in SPLITS.items() for key in keys}
    lines = [json.dumps({"_id": key, "text": text.split(maxsplit=1)[1]}) for key, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    for split, keys in SPLITS.items():
        rows = ["query-id\tcorpus-id\tscore", *(f"{split}-{key}\t{key}\t1" for key in keys)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")


def recipe_of(start: str) -> dict[str, Any]:
    lengths = {"init_from": start, "query_length": 8, "document_length": 8}
    stage = {"steps": 2, "batch_size": 2, "lists": {"size": 2, "pool": 2}}
    return {
        "name": "mine",
        "data": {"source": "my-data"},
        "teacher": {
            "train": {"kind": "cross_encoder", **lengths},
            "stages": [{"objectives": ["one_hot"], **stage}],
        },
        "student": {"layers": 1, **lengths},
        "stages": [{"objectives": ["softmax_ce"], **stage}],
        "evaluation": {"depth": 4, "dev_depth": 3, "baselines": ["bm25"], "analyses": []},
    }


@pytest.fixture(scope="module")
def finished(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the files that the examples name, and a run."""
    place = tmp_path_factory.mktemp("examples")
    write_data(place / "my-data")
    (place / "mine.yaml").write_text(yaml.safe_dump(recipe_of(tiny_bert)))
    (place / "pairs.csv").write_text("text1,text2\ncopy a file,sort a list\nopen a page,open a new page\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        lb.distill("mine.yaml")
        lb.index("runs/mine", TEXTS, "my-index")
        shutil.copytree("runs/mine/student", "my-model")
    return place


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in."""
    shutil.copytree(finished, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_each_function_runs(place: Path, name: str) -> None:
    if name in ("distill", "sweep"):
        shutil.rmtree(place / "runs")
    if name == "index":
        shutil.rmtree(place / "my-index")
    (example,) = doctest.DocTestFinder().find(getattr(lb, name), name, globs={})
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.summarize(verbose=False).failed == 0 and runner.tries > 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_typed_and_listed(name: str) -> None:
    function = getattr(lb, name)
    assert name in dir(lb) and name in lb.__all__
    assert {*inspect.signature(function).parameters, "return"} == set(function.__annotations__)


def python_of(page: Path) -> list[str]:
    return [block.split("```")[0] for block in page.read_text().split("```python\n")[1:]]


def test_the_python_of_the_page_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(place / "runs")
    shutil.rmtree(place / "my-index")
    (code,) = python_of(ROOT / "docs" / "python.md")
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["index"]) == len(TEXTS) + 1 and names["done"].scored == 2
    assert {row.name for row in names["grid"].rows} >= {"one_hot", "softmax_ce"}
    assert "ndcg@10" in capsys.readouterr().out and (place / "scores.jsonl").stat().st_size > 0


def test_the_python_of_the_readme_runs(place: Path) -> None:
    (code,) = python_of(ROOT / "README.md")
    names: dict[str, Any] = {}
    exec(code, names)
    assert {row.name for row in names["found"].rows} >= {"teacher", "BM25", "static"}


def test_options_of_commands_are_arguments_of_functions() -> None:
    """What a command offers, its function offers by the same name; but for what only a terminal needs."""
    import typer

    from limbeck.cli.main import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    elsewhere = {
        "distill": {"override"},
        "sweep": {"override"},
        "evaluate": {"fail_below", "milvus"},  # in Python: limbeck.search.milvus_address.trust
        "index": {"no_dense", "no_sparse", "add", "delete", "mix_runtimes", "compact", "verify", "milvus"},
    }
    for name in ("distill", "sweep", "evaluate", "annotate", "index", "score", "inspect", "push"):
        options = {each.name for each in commands[name].params} - {"as_json", "help"} - elsewhere.get(name, set())
        assert options <= set(inspect.signature(getattr(lb, name)).parameters), name


def test_hints_can_be_resolved() -> None:
    assert get_type_hints(lb.recipes)["return"] == dict[str, str]
