import json
from functools import partial
from pathlib import Path

import pytest

from limbeck.data import RankingData, load
from limbeck.data.beir import load_beir
from limbeck.data.lines import blocks
from limbeck.errors import LimbeckError
from tests.data.folders import DOCUMENTS, QRELS, QUERIES, beir_folder, jsonl, write

GOOD = jsonl(DOCUMENTS)


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_a_folder_is_read_without_changes(tmp_path: Path, gz: str) -> None:
    data = load_beir(beir_folder(tmp_path / "pets", gz=gz))
    assert data.name == "pets"
    assert dict(data.corpus.items()) == {
        "d1": "Cats purr at night",
        "d2": "dogs bark",
        "d3": "Fische schwimmen im Fluß",
        "d4": "Birds ",
    }
    assert dict(data.queries.items()) == {"q1": "what purrs", "q2": "who barks"}
    assert data.qrels == {"test": {"q1": {"d1": 2, "d3": 0}, "q2": {"d2": 1}}}


def test_splits_come_in_the_order_of_use_and_may_be_missing(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "a")
    write(folder / "qrels" / "train.tsv", "q1\td1\t1\n")
    write(folder / "qrels" / "dev.tsv", "q2 0 d2 1\n")
    assert list(load_beir(folder).qrels) == ["train", "dev", "test"]
    for file in (folder / "qrels").iterdir():
        file.unlink()
    (folder / "qrels").rmdir()
    assert load_beir(folder).qrels == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.rstrip("\n"),
    ],
    ids=["windows line ends", "byte order mark", "blank lines", "no last line end"],
)
def test_harmless_differences_change_nothing(tmp_path: Path, change) -> None:
    plain = load_beir(beir_folder(tmp_path / "plain"))
    other = load_beir(beir_folder(tmp_path / "other", change(GOOD), change(jsonl(QUERIES)), change(QRELS)))
    assert dict(plain.corpus.items()) == dict(other.corpus.items())
    assert plain.qrels == other.qrels


def test_numbers_as_ids_are_strings_even_if_only_some_are(tmp_path: Path) -> None:
    corpus = jsonl([{"_id": 1, "text": "a"}, {"_id": 12345678901234567890123, "text": "b"}, {"_id": "x", "text": "c"}])
    assert list(load_beir(beir_folder(tmp_path / "mixed", corpus, qrels="q1\t1\t1\n")).corpus) == [
        "1",
        "12345678901234567890123",
        "x",
    ]
    numbers = jsonl([{"_id": number, "text": "a"} for number in range(3)])
    assert list(load_beir(beir_folder(tmp_path / "all", numbers, qrels="q1\t2\t1\n")).corpus) == ["0", "1", "2"]


@pytest.mark.parametrize("ids", [range(5), "abcde"])
def test_sound_files_are_never_read_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids) -> None:
    def slow(*_: object) -> None:
        raise AssertionError("read line by line")

    monkeypatch.setattr("limbeck.data.tables._slow", slow)
    records = [{"_id": key, "text": "x", "metadata": {"url": [key]}} for key in ids]
    assert len(load_beir(beir_folder(tmp_path / "a", jsonl(records), qrels=f"q1\t{ids[0]}\t1\n")).corpus) == 5


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text": "x"}', "has no `_id`"),
        ('{"_id": "", "text": "x"}', "`_id` is empty"),
        ('{"_id": "  ", "text": "x"}', "`_id` is empty"),
        ('{"_id": 1.5, "text": "x"}', "`_id` is a number, not a string"),
        ('{"_id": null, "text": "x"}', "`_id` is null"),
        ('{"_id": "d1", "text": "x"}', "duplicate document id 'd1', first on line 1"),
        ('{"_id": "d9"}', "document 'd9' has no `text`"),
        ('{"_id": "d9", "text": null}', "is null, not a string"),
        ('{"_id": "d9", "text": ["x"]}', "is a list, not a string"),
        ('{"_id": "d9", "text": 3}', "is a number, not a string"),
        ('{"_id": "d9", "text": "x", "title": {}}', "`title` of document 'd9' is an object"),
        ('{"_id": "d9", "text": "x"', "is not valid JSON"),
        ('{"_id": "d9", "text": "x"}{"_id": "d8", "text": "x"}', "Extra data"),
        ("[1]", "contains a list, not an object"),
        ('{"_id": "d9", "text": "\\ud800"}', "half of a surrogate pair"),
        (b'{"_id": "d9", "text": "\xff"}', "is not valid UTF-8"),
    ],
)
@pytest.mark.parametrize(("block", "gap"), [(1 << 20, b""), (1 << 20, b"\n"), (64, b"\n")])
def test_a_bad_document_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str | bytes, problem: str, block: int, gap: bytes
) -> None:
    monkeypatch.setattr("limbeck.data.tables.blocks", partial(blocks, size=block))
    bad = line if isinstance(line, bytes) else line.encode()
    folder = beir_folder(tmp_path / "bad", GOOD.encode() + gap + bad + b'\n{"_id": "last", "text": "x"}\n')
    with pytest.raises(LimbeckError, match=problem.replace("[", r"\[")) as caught:
        load_beir(folder)
    place, _, remedy = str(caught.value).partition(": ")
    assert place == f"{folder / 'corpus.jsonl'}:{5 + len(gap)}"
    assert ";" in remedy
    assert "\n" not in remedy


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_corpus_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(LimbeckError, match=r"corpus\.jsonl: contains no document"):
        load_beir(beir_folder(tmp_path / "a", corpus=content))


def test_an_empty_query_is_refused_and_a_very_long_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match=r"queries\.jsonl:3: query 'q3' is empty"):
        load_beir(beir_folder(tmp_path / "a", queries=jsonl([*QUERIES, {"_id": "q3", "text": " \t"}])))
    long = {"_id": "q3", "text": "x" * 100_000}
    assert len(load_beir(beir_folder(tmp_path / "b", queries=jsonl([*QUERIES, long]))).queries["q3"]) == 100_000


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("q9\td1\t1", "names query 'q9', which the queries do not have"),
        ("q1\td9\t1", "names document 'd9', which the corpus does not have"),
        ("q1\td1\tgood", "grade 'good' is not a whole number"),
        ("q1\td2\t0.5", "grade '0.5' is not a whole number"),
        ("q1\td1\t0", "are judged twice, 2 and 0"),
        ("q1\td1", "has 2 fields"),
        ("\td1\t1", "names an empty id"),
    ],
)
def test_a_bad_judgement_is_named_with_its_line(tmp_path: Path, line: str, problem: str) -> None:
    folder = beir_folder(tmp_path / "a", qrels=QRELS + "\n" + line + "\nq2\td3\t1\n")
    with pytest.raises(LimbeckError, match=problem) as caught:
        load_beir(folder)
    assert str(caught.value).startswith(f"{folder / 'qrels' / 'test.tsv'}:6: ")


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_named_with_the_layout(tmp_path: Path, name: str) -> None:
    folder = beir_folder(tmp_path / "a")
    (folder / name).unlink()
    with pytest.raises(LimbeckError, match=rf"{name}: no such file .*a BEIR folder contains corpus\.jsonl"):
        load(folder)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = beir_folder(tmp_path / "a")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)  # the user who runs the tests may be root, whom nothing stops
    with pytest.raises(LimbeckError, match=r"corpus\.jsonl: cannot be read \(Permission denied\)"):
        load_beir(folder)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-8], lambda data: b"not gzip", lambda data: data[:12] + b"\0" * 9]
)
def test_a_damaged_gzip_file_is_named(tmp_path: Path, damage) -> None:
    folder = beir_folder(tmp_path / "a", gz=".gz")
    file = folder / "corpus.jsonl.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(LimbeckError, match=r"corpus\.jsonl\.gz: is not a complete gzip file"):
        load_beir(folder)


@pytest.mark.parametrize("size", [1, 40, 200, 1 << 20])
def test_the_size_of_blocks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("limbeck.data.tables.blocks", partial(blocks, size=size))
    records = [{"_id": f"d{k}", "title": "t" * (k % 3), "text": f"text {k} ü" * (k % 7)} for k in range(200)]
    data = load_beir(beir_folder(tmp_path / "a", jsonl(records), qrels="q1\td7\t1\n"))
    assert list(data.corpus.records()) == [(r["_id"], r["title"], r["text"]) for r in records]


@pytest.mark.parametrize("name", ["scifact", "medquad", "esci_us_sub", "cosqa"])
def test_public_sets_read_as_json_reads_them(shared_data, name: str) -> None:
    folder = shared_data(name)
    data = load(folder)
    assert isinstance(data, RankingData)
    with open(folder / "corpus.jsonl", encoding="utf-8") as handle:
        expected = [(r["_id"], r["title"], r["text"]) for r in map(json.loads, handle)]
    assert list(data.corpus.records()) == expected
    assert {judged for qrels in data.qrels.values() for judged in qrels} <= set(data.queries)
