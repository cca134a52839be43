"""DPR's open-domain question answering files (Natural Questions, TriviaQA, ...) in one folder; each may be gzipped.

    psgs_w100.tsv                        id, text, title; without this file, the contexts below are the corpus
    *train*.json, *dev*.json             question, answers, positive_ctxs, negative_ctxs, hard_negative_ctxs
    *train*.csv, *dev*.csv, *test*.csv   question, tab, list of answers; also .tsv

The name of a file gives its split. A question gets the id `SPLIT-NUMBER`; the same question in the JSON and the csv
file of a split is one query. Positive contexts are judged relevant. The candidate list of a question contains its
positives, then its hard negatives, then the other negatives. `answers` has the answer strings, for recall by answer.
`answered` has the questions of a split that have answers; questions from a csv file need no contexts.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from limbeck.data.cache import cached_texts, file_state
from limbeck.data.dataset import Candidates, LazySplits, Qrels, RankingData
from limbeck.data.fields import type_name
from limbeck.data.json_array import read_json_array
from limbeck.data.lines import bare_stem, bare_suffix, lines, plain_or_gz
from limbeck.data.runs import Entry, collect_lists
from limbeck.data.tables import TabSeparated, read_texts
from limbeck.data.texts import Texts, batches_of
from limbeck.errors import LimbeckError, bad_input
from limbeck.files import digest

PASSAGES = "psgs_w100.tsv"
_CONTEXTS = ("positive_ctxs", "hard_negative_ctxs", "negative_ctxs")
_LAYOUT = f"a DPR folder contains {PASSAGES} and questions as *train*.json, *dev*.json or *test*.csv"

Record = dict[str, Any]


class Questions:
    """The distinct questions of a folder, their ids and their answers."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.answers: dict[str, list[str]] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def id_of(self, split: str, question: str) -> str:
        """The id of a question; it is new if the question is new to its split."""
        key = (split, " ".join(question.split()))
        if key not in self._ids:
            number = self._counts[split] = self._counts.get(split, -1) + 1
            self._ids[key] = f"{split}-{number}"
            self.texts[self._ids[key]] = question
        return self._ids[key]

    def add_answers(self, query: str, answers: list[str]) -> None:
        """Store the distinct answers of a question."""
        kept = self.answers.setdefault(query, [])
        kept += [answer for answer in answers if answer not in kept]

    def answered(self) -> dict[str, list[str]]:
        """The questions of each split that have answers."""
        found: dict[str, list[str]] = {}
        for (split, _), query in self._ids.items():
            if self.answers.get(query):
                found.setdefault(split, []).append(query)
        return found


def is_dpr(folder: Path) -> bool:
    """Whether a folder looks like a DPR folder."""
    return plain_or_gz(folder / PASSAGES) is not None or bool(_files(folder, (".json",)))


def load_dpr(source: str | Path) -> RankingData:
    """Read a folder of DPR files, or a single JSON file of questions with contexts."""
    source = Path(source)
    passages = plain_or_gz(source / PASSAGES) if source.is_dir() else None
    json_files = _files(source, (".json",)) if source.is_dir() else {_split(source) or "train": source}
    answer_files = _files(source, (".csv", ".tsv")) if source.is_dir() else {}
    if not json_files and not answer_files:
        raise bad_input(source, "has no questions", _LAYOUT)
    if passages is None and not json_files:
        raise bad_input(source / PASSAGES, "no such file (nor with .gz)", _LAYOUT)
    corpus = _passages(passages) if passages else _context_texts(list(json_files.values()))
    questions = Questions()
    qrels: dict[str, Qrels] = {}
    for split, file in json_files.items():
        _read_judgements(split, file, questions, corpus, qrels.setdefault(split, {}))
    for split, file in answer_files.items():
        for number, question, answers in _read_answers(file):
            questions.add_answers(questions.id_of(split, _question(file, number, question)), answers)
    queries = Texts.from_dict(questions.texts)
    readers: dict[str, Callable[[], Candidates]] = {
        split: partial(_lists, split, file, questions, queries, corpus) for split, file in json_files.items()
    }
    name = source.resolve().name if source.is_dir() else bare_stem(source)
    return RankingData(name, corpus, queries, qrels, LazySplits(readers), questions.answers, questions.answered())


def _passages(path: Path) -> Texts:
    return read_texts(path, TabSeparated("passage", ("id", "text", "title"), quoted=True, may_be_empty=True))


def _context_texts(files: list[Path]) -> Texts:
    """A corpus of all contexts in the question files."""

    def rows() -> Iterator[tuple[str, str, str]]:
        seen = set()
        for file in files:
            for number, record in read_json_array(file):
                for context in _contexts(file, number, record):
                    key = _context_id(context)
                    if key not in seen:
                        seen.add(key)
                        yield key, context.get("title") or "", context["text"]
        if not seen:
            raise bad_input(files[0], "has questions without contexts", f"put {PASSAGES} next to it")

    source = " ".join(str(file.resolve()) for file in files)
    state = " ".join(file_state(file) for file in files)
    return cached_texts(f"contexts {source}", state, lambda: batches_of(rows()), _duplicate)


def _duplicate(key: str) -> LimbeckError:
    return LimbeckError(f"two passages have the id {key!r}; give every passage a different id")


def _read_judgements(split: str, path: Path, questions: Questions, corpus: Texts, qrels: Qrels) -> None:
    for number, record in read_json_array(path):
        query = questions.id_of(split, _question(path, number, record.get("question")))
        questions.add_answers(query, _strings(path, number, record.get("answers") or []))
        for context in _contexts(path, number, record, _CONTEXTS[:1]):
            key = _context_id(context)
            if key not in corpus:
                problem = f"names passage {key!r}, which the passages do not have"
                raise bad_input(path, problem, f"add it to {PASSAGES}, or remove that file to use the contexts", number)
            qrels.setdefault(query, {})[key] = 1


def _lists(split: str, path: Path, questions: Questions, queries: Texts, corpus: Texts) -> Candidates:
    return collect_lists(path, _entries(split, path, questions), queries, corpus, repeats=True).by_order()


def _entries(split: str, path: Path, questions: Questions) -> Iterator[Entry]:
    for number, record in read_json_array(path):
        query = questions.id_of(split, record["question"])
        for context in _contexts(path, number, record):
            yield number, query, _context_id(context), 0.0


def _contexts(path: Path, number: int, record: Record, kinds: tuple[str, ...] = _CONTEXTS) -> Iterator[Record]:
    for kind in kinds:
        contexts = record.get(kind) or []
        for context in contexts if isinstance(contexts, list) else [contexts]:
            if not isinstance(context, dict) or not isinstance(context.get("text"), str):
                problem = f"`{kind}` contains {type_name(context)} without a `text`"
                raise bad_input(path, problem, "give every context a title and a text", number)
            yield context


def _context_id(context: Record) -> str:
    """The id of a context in `psgs_w100.tsv`; newer files put the name of the source before it."""
    for name in ("passage_id", "psg_id", "id"):
        if context.get(name) not in (None, ""):
            return str(context[name]).removeprefix("wiki:")
    return digest(context.get("title") or "", context["text"])


def _read_answers(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in lines(path):
        try:
            fields = next(csv.reader([line], delimiter="\t"))
            question, listed = fields[0], ast.literal_eval(fields[1])
        except (csv.Error, IndexError, ValueError, SyntaxError) as error:
            remedy = 'write question, tab, ["answer", ...]'
            raise bad_input(path, "is not a question with answers", remedy, number) from error
        yield number, question, _strings(path, number, listed)


def _strings(path: Path, number: int, values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise bad_input(path, "has answers that are not a list of strings", 'write ["answer", ...]', number)
    return values


def _question(path: Path, number: int, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise bad_input(path, "has no question", "give every record a `question`", number)
    return value


def _split(file: Path) -> str | None:
    found = re.search(r"train|dev|test", file.name.replace("latest", ""))
    return found[0] if found else None


def _files(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        split = _split(file)
        if split and file.is_file() and bare_suffix(file) in suffixes:
            if split in found:
                raise bad_input(file, f"is a second file for split {split!r}, next to {found[split].name}", "keep one")
            found[split] = file
    return found
