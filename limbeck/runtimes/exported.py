"""A model that `limbeck export` wrote, without torch: tokenizers, onnxruntime and numpy.

DIR/limbeck-export.json     format, runtime, routes (lengths, prompts, steps behind the transformer), encoders
DIR/limbeck-tail.safetensors  the weights of these steps, and the tables of static encoders
DIR/onnx/model.onnx         the transformer; onnx/document.onnx if documents have another one
DIR/tokenizer.json          tokenizer-document.json if documents have another one
DIR/limbeck-files.json      checksums; and the other files of a sentence-transformers folder
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from limbeck.errors import LimbeckError, bad_input, first_line
from limbeck.file_list import read_list, require_as_listed
from limbeck.files import read_json
from limbeck.matchers.folder_checks import EXPORT
from limbeck.processor import cores
from limbeck.runtimes.exported_route import Encoder, GraphEncoder, Route, TableEncoder
from limbeck.runtimes.sessions import open_session
from limbeck.runtimes.tail import STEPS, Step

FORMAT = 2
FACTS, TAIL, GRAPH, TOKENIZER = EXPORT, "limbeck-tail.safetensors", "onnx/model.onnx", "tokenizer.json"
REMEDY = "export the model again"
PAIR = "pair"  # the route of a model that reads both texts together
Compare = Callable[[np.ndarray, np.ndarray], Any]


def _cosine(query: np.ndarray, document: np.ndarray) -> Any:
    return query @ document / max(float(np.linalg.norm(query) * np.linalg.norm(document)), 1e-12)


def _max_similarities(query: np.ndarray, document: np.ndarray) -> np.ndarray:
    return (query @ document.T).max(axis=1)  # of each query token


SIMILARITIES: dict[str, Compare] = {  # of vectors [dim], or of token vectors [tokens, dim]
    "dot": lambda query, document: query @ document,
    "cosine": _cosine,
    "maxsim": lambda query, document: _max_similarities(query, document).sum(),
    "meanmaxsim": lambda query, document: _max_similarities(query, document).mean(),
}


class Exported:
    """Encodes texts and scores pairs as the model that was exported does.

    >>> from limbeck.runtimes.exported import Exported
    >>> model = Exported.load("my-export", threads=1)
    >>> model.encode_query(["copy a file", "sort a list"]).shape
    (2, 32)
    >>> model.score([("copy a file", "copy one file to a folder")]).shape
    (1,)
    """

    texts = 2  # in a pair

    def __init__(self, facts: dict[str, Any], routes: dict[str, Route]) -> None:
        self.facts, self.routes = facts, routes
        self.dim = int(facts["dim"] or 0)
        self.runtime = str(facts["runtime"])
        self.tokens = bool(facts["tokens"])  # whether a text has a vector for each token

    @property
    def outputs(self) -> int:
        """Scores per pair; 0 where only the model itself can compare its vectors."""
        return int(self.facts["outputs"])

    @classmethod
    def load(cls, folder: str | Path, threads: int | None = None) -> Exported:
        """Open a folder on a number of threads, by default one for each core of this process. Tokenizers have threads
        of their own, unless TOKENIZERS_PARALLELISM is false.
        """
        folder = Path(folder).expanduser()
        facts = _facts(folder)
        try:
            weights = load_file(folder / TAIL)
            made = [_encoder(folder, each, facts["runtime"], weights, threads) for each in facts["encoders"]]
            routes = {side: _route(side, told, made, weights) for side, told in facts["routes"].items()}
            return cls(facts, routes)
        except (KeyError, TypeError, ValueError, OSError, IndexError, SafetensorError) as error:
            raise bad_input(folder, f"is damaged ({first_line(error)})", REMEDY) from error

    def encode_query(self, texts: Sequence[str] | str, batch_size: int = 32) -> Any:
        """The vectors [n, dim] of queries, or a list of token vectors [tokens, dim]; of one text, its own."""
        return self._encode(texts, "query", batch_size)

    def encode_document(self, texts: Sequence[str] | str, batch_size: int = 32) -> Any:
        """The same of documents."""
        return self._encode(texts, "document", batch_size)

    def _encode(self, texts: Sequence[str] | str, side: str, batch_size: int) -> Any:
        if PAIR in self.routes:
            raise LimbeckError("this model reads both texts of a pair together, and encodes none; use score")
        if isinstance(texts, str):
            return self._encode([texts], side, batch_size)[0]
        found = self.routes[side].outputs(texts, batch_size)
        if self.tokens:
            return found
        return np.stack(found)[:, : self.dim] if found else np.zeros((0, self.dim), np.float32)

    def score(self, pairs: Sequence[tuple[str, str]], batch_size: int = 32) -> np.ndarray:
        """The raw scores [n] of (query, document) pairs, or [n, outputs]. A text is encoded once."""
        if PAIR in self.routes:
            scores = [np.ravel(each) for each in self.routes[PAIR].outputs([tuple(pair) for pair in pairs], batch_size)]
            found = np.stack(scores) if scores else np.zeros((0, self.outputs), np.float32)
            return found[:, 0] if self.outputs == 1 else found
        if not self.outputs:
            problem = f"scores by {self.facts['similarity']} need the model itself"
            raise LimbeckError(f"{problem}; compare the vectors another way")
        compare = SIMILARITIES[self.facts["similarity"]]
        sides = []
        for at, encode in enumerate((self.encode_query, self.encode_document)):
            texts = list(dict.fromkeys(pair[at] for pair in pairs))
            sides.append(dict(zip(texts, encode(texts, batch_size), strict=True)))
        return np.array([compare(sides[0][pair[0]], sides[1][pair[1]]) for pair in pairs], dtype=np.float32)


def _encoder(
    folder: Path, told: dict[str, Any], runtime: str, weights: dict[str, np.ndarray], threads: int | None
) -> tuple[Encoder, Tokenizer]:
    tokenizer = Tokenizer.from_file(str(folder / told["tokenizer"]))
    tokenizer.no_padding()
    if "table" in told:
        return TableEncoder(weights[told["table"]]), tokenizer
    session = open_session(runtime, (folder / told["graph"]).read_bytes(), threads or cores())
    return GraphEncoder(session, int(told["padding"])), tokenizer


def _route(
    side: str, told: dict[str, Any], made: list[tuple[Encoder, Tokenizer]], weights: dict[str, np.ndarray]
) -> Route:
    encoder, tokenizer = made[told["encoder"]]
    own = {name: value for name, value in told.items() if name not in ("encoder", "steps")}
    return Route(encoder, Tokenizer.from_str(tokenizer.to_str()), **own, steps=_steps(side, told["steps"], weights))


def _steps(side: str, listed: list[dict[str, Any]], weights: dict[str, np.ndarray]) -> list[Step]:
    unknown = next((step["kind"] for step in listed if step["kind"] not in STEPS), None)
    if unknown is not None:
        raise LimbeckError(f"a step {unknown!r} behind the transformer is not known; update limbeck, or {REMEDY}")
    starts = [f"{side}.{at}." for at in range(len(listed))]
    own = [
        {name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)}
        for start in starts
    ]
    return [Step(step["kind"], step["settings"], found) for step, found in zip(listed, own, strict=True)]


def _facts(folder: Path) -> dict[str, Any]:
    if not (folder / FACTS).is_file():
        raise bad_input(folder, f"contains no {FACTS}", "give a folder that `limbeck export` wrote")
    facts = read_json(folder / FACTS, REMEDY)
    version = facts.get("format") if isinstance(facts, dict) else None
    if isinstance(version, int) and version != FORMAT:
        age, remedy = ("a newer", f"update limbeck, or {REMEDY}") if version > FORMAT else ("an older", REMEDY)
        problem = f"was written by {age} limbeck (format {version}, this one reads {FORMAT})"
        raise bad_input(folder / FACTS, problem, remedy)
    listed = read_list(folder, REMEDY)
    if listed is None or not {FACTS, TAIL, TOKENIZER} <= set(listed.files):
        raise bad_input(folder, "is damaged (its list of files is missing or incomplete)", REMEDY)
    require_as_listed(folder, listed.files, "is damaged: its checksum does not match its content", REMEDY)
    return dict(facts)
