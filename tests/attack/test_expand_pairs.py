"""Attacks on `expand` and `pairs`: kills at random moments, and damaged files of finished and unfinished folders."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from limbeck.data import PairData, load
from limbeck.search.doc2query import QueryGenerator, Sampling
from limbeck.search.expand import expand_data
from limbeck.search.expansions import read_expansions
from limbeck.training.pair_builders import build_pairs
from tests.attack.forked import finish_forked, kill_forked_and_finish
from tests.attack.harness import ROUNDS, damaged_copies, detected, kill_and_finish, run
from tests.attack.test_index import PROCESSES, outcome, survived
from tests.search.conftest import make_corpus
from tests.search.seq2seq import write_beir, write_t5

pytestmark = pytest.mark.full

HOW = Sampling(per_document=3, top_k=5, max_length=6)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_t5(tmp_path_factory.mktemp("t5")))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("data") / "beir", documents=24)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("large") / "beir", documents=400)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def read(folder: Path) -> tuple[object, ...]:
    """What the readers of a data set and of expansions make of a folder."""
    found = load(folder)
    if isinstance(found, PairData):
        return (found.splits,)
    texts = [
        dict(table.items()) for table in (found.corpus, found.queries, read_expansions(folder / "expansions.jsonl"))
    ]
    return (*texts, found.qrels)


def test_damaged_expansions_are_refused_or_read_as_before(t5: str, data: Path, tmp_path: Path) -> None:
    expand_data(str(data), t5, tmp_path / "expanded", HOW)
    survived(tmp_path / "expanded", tmp_path / "damaged", 1, read)


def test_expand_resumes_from_a_damaged_folder_with_the_same_result(t5: str, data: Path, tmp_path: Path) -> None:
    def again(folder: Path) -> dict[str, bytes]:
        expand_data(str(data), t5, folder, HOW)
        return content(folder)

    again(tmp_path / "finished")
    survived(tmp_path / "finished", tmp_path / "damaged", 2, again)


def test_expand_goes_on_from_a_damaged_unfinished_folder_to_the_same_result(
    t5: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate, calls = QueryGenerator.generate, iter([True] * 2)

    def cut(*given: object) -> object:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return generate(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(QueryGenerator, "generate", cut)
        expand_data(str(data), t5, tmp_path / "unfinished", HOW, batch_size=6)

    def go_on(folder: Path) -> dict[str, bytes]:
        expand_data(str(data), t5, folder, HOW)
        return content(folder)

    survived(tmp_path / "unfinished", tmp_path / "damaged", 3, go_on)


def write_ranking(folder: Path, documents: int, queries: int) -> Path:
    """A BEIR folder whose queries share words with many documents."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", make_corpus(documents, 5)), ("queries", make_corpus(queries, 6, longest=5))):
        lines = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    for split, numbers in (("train", range(0, queries, 2)), ("test", range(1, queries, 2))):
        judged = [f"p6-{number}\tp5-{number % documents}\t1\n" for number in numbers]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    source = write_ranking(folder / "source", 60, 40)
    counts = build_pairs(str(source), folder / "pairs", "neighbours", below=2.0).counts
    assert set(counts) == {"train", "dev", "test", "transfer"} and min(counts.values()) > 0
    return folder / "pairs"


def test_damaged_pairs_are_refused_or_read_as_before(pairs: Path, tmp_path: Path) -> None:
    survived(pairs, tmp_path / "damaged", 4, read)


def test_pairs_accepts_its_damaged_folder_only_if_nothing_is_wrong(pairs: Path, tmp_path: Path) -> None:
    def again(folder: Path) -> object:
        build_pairs(str(pairs.parent / "source"), folder, "neighbours", below=2.0)
        return read(folder)

    survived(pairs, tmp_path / "damaged", 5, again)


def test_the_commands_refuse_damaged_data_in_one_line(pairs: Path, tmp_path: Path) -> None:
    arguments = ["pairs", pairs.parent / "source", "--how", "neighbours", "--below", "2.0"]
    for copy, what in damaged_copies(pairs, tmp_path / "damaged", 6, max(2, ROUNDS // 3)):
        assert detected(run(*arguments, "--out", copy)) or outcome(lambda copy=copy: read(copy)) == read(pairs), what


@pytest.mark.parametrize("verb", ["expand", "pairs"])
def test_killed_at_any_point_a_command_ends_with_the_same_result(
    verb: str, t5: str, large: Path, tmp_path: Path
) -> None:
    how = ["expand", large, "--model", t5, "--top-k", 5, "--max-length", 8, "--batch-size", 4]
    if verb == "pairs":
        source = write_ranking(tmp_path / "source", 3000, 1500)
        how = ["pairs", source, "--how", "neighbours", "--below", "2.0", "--near", "200"]
    seconds = finish_forked(*how, "--out", tmp_path / "whole")
    chance, hits = random.Random(7), 0
    for number in range(4 * ROUNDS):
        if number >= ROUNDS and hits >= ROUNDS // 4:
            break  # more rounds only where a busy machine let too many kills come too late
        out = tmp_path / f"killed-{number}"
        if number < PROCESSES:
            kill_and_finish(*how, "--out", out, within=2 * seconds, chance=chance)
        else:
            hit = kill_forked_and_finish(*how, "--out", out, within=seconds, chance=chance)
            hits, seconds = hits + hit, seconds if hit else 0.7 * seconds  # too late: the first run was slower
        assert content(out) == content(tmp_path / "whole")
        finish_forked(*how, "--out", out)  # once more: its own finished folder
        assert content(out) == content(tmp_path / "whole")
        shutil.rmtree(out)
    assert not [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")]
    print(f"{verb}: {number} rounds, {hits} kills hit the work, all ended the same")
    assert hits >= ROUNDS // 4
