"""Pair files: two or more texts and a label in each row.

Texts are in lettered or numbered columns (`text_a`, `text_b`, ...; `text1`, ...; `sentence1`, ...), in `query` and
`document`, or in one list `texts`. The label is `label`, `labels` or `score`: whole numbers are classes or grades,
other numbers are soft labels, a list of numbers is a soft label for each class, any other string names a class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from limbeck.data.dataset import Label, Pair, PairData
from limbeck.data.fields import finite, is_utf8, type_name
from limbeck.data.lines import bare_stem, bare_suffix
from limbeck.data.records import SUFFIXES, Record, read_records
from limbeck.data.written import require_unchanged
from limbeck.errors import bad_input

SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "test": "test"}
LABELS = ("label", "labels", "score")
_NAMES = [
    *[[f"{word}_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"] for word in ("text", "sentence")],
    *[[f"{word}{joint}{number}" for number in range(1, 100)] for word in ("text", "sentence") for joint in ("", "_")],
    ["query", "document"],
]
_REMEDY = "name the texts text_a, text_b, ... or sentence1, sentence2, or query, document, or give a list `texts`"

LabelledRow = tuple[int, tuple[str, ...], Any]  # line, texts, label as written


def split_files(folder: Path) -> dict[str, Path]:
    """The pair files of a folder by split."""
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.is_file() and bare_suffix(file) in SUFFIXES and bare_stem(file) in SPLITS:
            split = SPLITS[bare_stem(file)]
            if split in found:
                raise bad_input(file, f"is a second file for split {split!r}, next to {found[split].name}", "keep one")
            found[split] = file
    return {split: found[split] for split in ("train", "dev", "test") if split in found}


def load_pairs(source: str | Path) -> PairData:
    """Read a pair file, or a folder with `{train,dev,test}` pair files.

    The split of a single file is given by its name; otherwise it is `train`.
    """
    source = Path(source)
    require_unchanged(source)
    files = split_files(source) if source.is_dir() else {SPLITS.get(bare_stem(source), "train"): source}
    if not files:
        remedy = f"a pair folder contains train, dev or test as {', '.join(SUFFIXES)}"
        raise bad_input(source, "contains no pair files", remedy)
    name = source.resolve().name if source.is_dir() else bare_stem(source)
    return pair_data(name, {split: (file, read_records(file)) for split, file in files.items()})


def place_of(source: str | Path, split: str, number: int) -> str:
    """The location `FILE:LINE:` of a pair in a split, for an error; it reads the file again."""
    path = Path(source)
    file = split_files(path).get(split) if path.is_dir() else path if path.is_file() else None
    if file is None:
        return f"{source}: of {split} pair {number}"
    line = next(islice(read_records(file), number - 1, None), (number, {}))[0]
    return f"{file}:{line}:"


def pair_data(name: str, splits: Mapping[str, tuple[str | Path, Iterable[tuple[int, Record]]]]) -> PairData:
    """Pairs from records. The type of their labels is decided once, for all splits."""
    rows: dict[str, list[LabelledRow]] = {}
    for split, (path, records) in splits.items():
        rows[split] = [_row(path, number, record) for number, record in records]
        if not rows[split]:
            raise bad_input(path, "contains no pairs", "write one pair per line")
        _refuse_uneven(path, rows[split])
    labels = [label for part in rows.values() for _, _, label in part]
    classes = sorted({label for label in labels if isinstance(label, str)})
    pairs = {
        split: [Pair(texts, _as_class(splits[split][0], number, label, classes)) for number, texts, label in part]
        for split, part in rows.items()
    }
    if any(isinstance(label, float) for label in labels):  # grades such as 0, 0.5, 1 are on one scale
        pairs = {split: [_with_float(pair) for pair in part] for split, part in pairs.items()}
    return PairData(name, pairs, classes or None)


def text_names(record: Record) -> list[str] | None:
    """The columns with the texts of a record, or None if there are none; the items of a list `texts` are numbered."""
    if isinstance(record.get("texts"), list):
        return [f"text_{number}" for number in range(1, len(record["texts"]) + 1)]
    for names in _NAMES:
        present = [name for name in names if name in record]
        if len(present) >= 2:
            return present
    return None


def texts_of(record: Record) -> tuple[Any, ...] | None:
    """The texts of a record, or None if limbeck does not know its columns."""
    if isinstance(record.get("texts"), list):
        return tuple(record["texts"])
    names = text_names(record)
    return tuple(record[name] for name in names) if names else None


def _row(path: str | Path, number: int, record: Record) -> LabelledRow:
    texts = texts_of(record)
    if texts is None or len(texts) < 2:
        problem = f"has no two texts in its columns {', '.join(map(str, record))}"
        raise bad_input(path, problem, _REMEDY, number)
    for place, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise bad_input(path, f"text {place} is {type_name(text)}, not a string", "write every text", number)
        if not text.strip():
            raise bad_input(path, f"text {place} is empty", "write every text or leave the row out", number)
        if not is_utf8(text):
            raise bad_input(path, f"text {place} contains half of a surrogate pair", "write the file as UTF-8", number)
    label = next((record[name] for name in LABELS if record.get(name) not in (None, "")), None)
    return number, texts, _value(path, number, label)


def _value(path: str | Path, number: int, label: Any) -> Any:
    """The label as a number, a tuple of numbers, a class name, or None; in csv files all labels are strings."""
    if label is None or isinstance(label, bool | int):
        return None if label is None else int(label)
    if isinstance(label, str):
        text = label.strip()
        try:
            parsed = json.loads(text)
        except json.JSONDecodeError:
            return text
        except (ValueError, RecursionError) as error:
            raise bad_input(path, "its label is too long", "give a class, a number or a list", number) from error
        return _value(path, number, parsed) if isinstance(parsed, int | float | list) else text
    if isinstance(label, float):
        return finite(path, number, label, "label")
    if isinstance(label, list) and label:
        return tuple(finite(path, number, value, "label") for value in label)
    raise bad_input(path, f"label is {type_name(label)}", "give a class, a number or a list of numbers", number)


def _refuse_uneven(path: str | Path, rows: list[LabelledRow]) -> None:
    first_number, first_texts, first_label = rows[0]
    for number, texts, label in rows:
        if len(texts) != len(first_texts):
            problem = f"has {len(texts)} texts where line {first_number} has {len(first_texts)}"
            raise bad_input(path, problem, "give every row the same number of texts", number)
        if (label is None) != (first_label is None):
            problem = f"has {'no' if label is None else 'a'} label, unlike line {first_number}"
            raise bad_input(path, problem, "label all rows of a file or none", number)
        if _length(label) != _length(first_label):
            problem = f"its label has {_length(label)} numbers where line {first_number} has {_length(first_label)}"
            raise bad_input(path, problem, "give one number for each class", number)


def _length(label: Any) -> int:
    return len(label) if isinstance(label, tuple) else 1


def _as_class(path: str | Path, number: int, label: Any, classes: list[str]) -> Label:
    if not classes or label is None:
        return label
    if not isinstance(label, str):
        problem = f"label {label!r} is a number where others are names ({', '.join(classes[:3])})"
        raise bad_input(path, problem, "write all labels as names or all as numbers", number)
    return classes.index(label)


def _with_float(pair: Pair) -> Pair:
    return Pair(pair.texts, float(pair.label)) if isinstance(pair.label, int) else pair
