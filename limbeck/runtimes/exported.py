"""A dual encoder that `limbeck export` wrote, without torch: tokenizers, onnxruntime and numpy.

DIR/limbeck-export.json     format, lengths, prompts and the steps behind the transformer
DIR/limbeck-tail.safetensors  the weights of these steps
DIR/onnx/model.onnx         the transformer
DIR/tokenizer.json          and the other files of a sentence-transformers folder, for `backend="onnx"`
DIR/limbeck-files.json      checksums
"""

from __future__ import annotations

import os
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
from limbeck.matchers.splitting import USUAL, split_by_length
from limbeck.runtimes.sessions import Session, open_session
from limbeck.runtimes.tail import STEPS, Step, pooled

FORMAT = 1
FACTS, TAIL, GRAPH, TOKENIZER = "limbeck-export.json", "limbeck-tail.safetensors", "onnx/model.onnx", "tokenizer.json"
REMEDY = "export the model again"
SIMILARITIES: dict[
    str, Callable[[np.ndarray], np.ndarray]
] = {  # what is done with vectors [n, dim] before their product
    "dot": lambda vectors: vectors,
    "cosine": lambda vectors: vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12),
}


class Exported:
    """Encodes queries and documents as the model that was exported does.

    >>> from limbeck.runtimes.exported import Exported
    >>> model = Exported.load("my-export", threads=1)
    >>> model.encode_query(["copy a file", "sort a list"]).shape
    (2, 32)
    """

    def __init__(self, facts: dict[str, Any], steps: list[Step], session: Session, tokenizer: Tokenizer) -> None:
        self.facts, self.steps, self.session, self.tokenizer = facts, steps, session, tokenizer
        self.dim = int(facts["dim"])
        self.runtime = str(facts["runtime"])

    @property
    def texts(self) -> int:
        """The number of texts in a pair."""
        return 2

    @property
    def outputs(self) -> int:
        """Scores per pair; 0 where only the model itself can compare vectors."""
        return int(self.facts["similarity"] in SIMILARITIES)

    @classmethod
    def load(cls, folder: str | Path, threads: int | None = None) -> Exported:
        """Open a folder on a number of threads, by default one for each core."""
        folder = Path(folder).expanduser()
        facts = _facts(folder)
        try:
            steps = _steps(facts["steps"], load_file(folder / TAIL))
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            graph = (folder / GRAPH).read_bytes()
            runtime = str(facts["runtime"])
        except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
            raise bad_input(folder, f"is damaged ({first_line(error)})", REMEDY) from error
        tokenizer.no_padding()
        return cls(facts, steps, open_session(runtime, graph, threads or os.cpu_count() or 1), tokenizer)

    def encode_query(self, texts: Sequence[str] | str, batch_size: int = 32) -> np.ndarray:
        """The vectors [n, dim] of queries; of one text, its own [dim]."""
        return self._encode(texts, "query", batch_size)

    def encode_document(self, texts: Sequence[str] | str, batch_size: int = 32) -> np.ndarray:
        """The same of documents."""
        return self._encode(texts, "document", batch_size)

    def score(self, pairs: Sequence[tuple[str, str]], batch_size: int = 32) -> np.ndarray:
        """The scores [n] of (query, document) pairs, as the model compares vectors. A text is encoded once."""
        similarity = self.facts["similarity"]
        if not self.outputs:
            raise LimbeckError(f"scores by {similarity} need the model itself; compare the vectors another way")
        sides = []
        for at, encode in enumerate((self.encode_query, self.encode_document)):
            rows = {text: row for row, text in enumerate(dict.fromkeys(pair[at] for pair in pairs))}
            vectors = encode(list(rows), batch_size)
            sides.append(SIMILARITIES[similarity](vectors)[[rows[pair[at]] for pair in pairs]])
        return (sides[0] * sides[1]).sum(axis=1)

    def _encode(self, texts: Sequence[str] | str, side: str, batch_size: int) -> np.ndarray:
        if isinstance(texts, str):
            return self._encode([texts], side, batch_size)[0]
        found = np.zeros((len(texts), self.dim), np.float32)
        prompt, length = self.facts["prompts"].get(side, ""), int(self.facts["lengths"][side])
        self.tokenizer.enable_truncation(length, direction=self.facts["truncation_side"])
        tokens = [each.ids for each in self.tokenizer.encode_batch([prompt + text for text in texts])]
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
        for part in split_by_length([len(tokens[row]) for row in order], budget=batch_size * USUAL):
            rows = order[part]
            for row, states in zip(rows, self._states([tokens[row] for row in rows]), strict=True):
                found[row] = pooled(states[: len(tokens[row])], self.steps)[: self.dim]
        return found

    def _states(self, tokens: list[list[int]]) -> np.ndarray:
        """The transformer's states [texts, tokens, width], padded on the right."""
        width = max(map(len, tokens))
        ids = np.full((len(tokens), width), int(self.facts["padding"]), np.int64)
        mask = np.zeros_like(ids)
        for row, own in enumerate(tokens):
            ids[row, : len(own)], mask[row, : len(own)] = own, 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return self.session.run(given)[0]


def _facts(folder: Path) -> dict[str, Any]:
    if not (folder / FACTS).is_file():
        raise bad_input(folder, f"contains no {FACTS}", "give a folder that `limbeck export` wrote")
    facts = read_json(folder / FACTS, REMEDY)
    version = facts.get("format") if isinstance(facts, dict) else None
    if isinstance(version, int) and version > FORMAT:
        problem = f"was written by a newer limbeck (format {version}, this one reads {FORMAT})"
        raise bad_input(folder / FACTS, problem, f"update limbeck, or {REMEDY}")
    listed = read_list(folder, REMEDY)
    if listed is None or not {FACTS, TAIL, GRAPH, TOKENIZER} <= set(listed.files):
        raise bad_input(folder, "is damaged (its list of files is missing or incomplete)", REMEDY)
    require_as_listed(folder, listed.files, "is damaged: its checksum does not match its content", REMEDY)
    return dict(facts)


def _steps(listed: list[dict[str, Any]], weights: dict[str, np.ndarray]) -> list[Step]:
    unknown = next((step["kind"] for step in listed if step["kind"] not in STEPS), None)
    if unknown is not None:
        raise LimbeckError(f"a step {unknown!r} behind the transformer is not known; update limbeck, or {REMEDY}")
    own = [{name.partition(".")[2]: value for name, value in weights.items() if name.partition(".")[0] == str(at)}
           for at in range(len(listed))]  # fmt: skip
    return [Step(step["kind"], step["settings"], found) for step, found in zip(listed, own, strict=True)]
