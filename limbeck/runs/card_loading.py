"""Which library loads a student, what the hub calls it, and code that runs it, for the student's card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.files import read_json
from limbeck.matchers.folder_checks import OWN_CONFIG, read_settings

CARD = "README.md"
HERE = '"."'  # the folder of the card; `limbeck push` writes the name on the hub instead
INSIDE = "  # run it in this folder"
THEIRS = "sentence_transformers."
EXAMPLE = ("how do I copy a file", "copy one file to a folder", "sort a list")


@dataclass(frozen=True)
class Loading:
    """How to load a student, by the libraries that can."""

    library: str
    pipeline: str
    tags: list[str]
    code: dict[str, str]  # by library


# Folders of sentence-transformers: the hub's task, tags as that library gives them, and what to call.
ENCODING = """queries = model.encode_query(["{0}"])
documents = model.encode_document(["{1}", "{2}"])
print(model.similarity(queries, documents))"""
THEIR_TYPES = {
    "SentenceTransformer": ("sentence-similarity", ["sentence-similarity", "feature-extraction", "dense"], ENCODING),
    "MultiVectorEncoder": ("feature-extraction", ["multi-vector", "colbert", "late-interaction"], ENCODING),
    "CrossEncoder": ("text-ranking", ["cross-encoder", "reranker"], 'print(model.predict([("{0}", "{1}")]))'),
}


def loading_of(folder: Path, outputs: int, texts: int) -> Loading:
    """How to load the model of a folder that gives `outputs` scores for `texts` texts."""
    ours = _code("import limbeck as lb", "lb.load", _scored(outputs, texts))
    theirs = read_settings(folder / "config_sentence_transformers.json").get("model_type")
    if theirs not in THEIR_TYPES or not all(name.startswith(THEIRS) for name in _module_types(folder)):
        pipeline = "text-ranking" if outputs == 1 else "text-classification"
        return Loading("limbeck", pipeline, [], {"Limbeck": ours})
    pipeline, tags, call = THEIR_TYPES[theirs]
    pipeline = pipeline if outputs == 1 else "text-classification"
    code = _code(f"from sentence_transformers import {theirs}", str(theirs), call.format(*EXAMPLE))
    return Loading("sentence-transformers", pipeline, [*tags], {"Limbeck": ours, "sentence-transformers": code})


def _code(imported: str, load: str, call: str) -> str:
    return f"{imported}\n\nmodel = {load}({HERE}){INSIDE}\n{call}"


def _scored(outputs: int, texts: int) -> str:
    question, *answers = EXAMPLE
    if outputs == 1 and texts == 2:
        return f'print(model.rank("{question}", ["{answers[0]}", "{answers[1]}"]))'
    several = ", ".join(f'"{text}"' for text in (EXAMPLE * texts)[:texts])
    return f"print(model.score([({several})]))"


def _module_types(folder: Path) -> Iterator[str]:
    """The classes of all modules of a folder, those of routers too; an own kind counts as a class of Limbeck."""
    if (folder / OWN_CONFIG).exists():
        yield OWN_CONFIG
    listed: Any = read_json(folder / "modules.json") if (folder / "modules.json").exists() else []
    yield from (str(entry["type"]) for entry in listed)
    for routers in folder.rglob("router_config.json"):
        yield from map(str, read_settings(routers).get("types", {}).values())
