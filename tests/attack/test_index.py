"""Attacks on indexes: kills at every kind of write, damaged files of every kind, searches during a write."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limbeck.data.dataset import RankingData
from limbeck.data.passages import Passages
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.evaluation.rank import retrieve
from limbeck.matchers import DualEncoder, build, matcher_config
from limbeck.search import build as build_module
from limbeck.search.build import build_index
from limbeck.search.changes import change_index
from limbeck.search.index import SearchIndex
from limbeck.stores import EncodingStore, store_path
from tests.attack.forked import finish_forked, kill_forked_and_finish
from tests.attack.harness import FLIPS, ROUNDS, damaged_copies, detected, finish, kill_and_finish, run
from tests.search.conftest import make_corpus

pytestmark = pytest.mark.full

PROCESSES = 1  # kills of a whole command, imports included; the others hit the work itself
QUERIES = ["copy a file", "sort the list of numbers", "xylophone module function error path"]
Answers = list[list[tuple[str, str, dict[str, Any], float]]]


@pytest.fixture(scope="module")
def model(tiny_bert: str) -> DualEncoder:
    return build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16, similarity="cosine"))


def with_fields(texts: dict[str, str]) -> Passages:
    return Passages.of([{"_id": key, "text": text, "length": len(text)} for key, text in texts.items()], "tiny")


def answers(index: SearchIndex, k: int = 12) -> Answers:
    """All that a search shows, by every part that the index has."""
    modes = ["dense", "sparse", "hybrid"] if index.manifest.dense and index.manifest.sparse else [None]
    return [
        [(hit.id, hit.text, hit.fields, round(hit.score, 5)) for hit in index.search(query, k, mode=mode).hits]
        for query in QUERIES
        for mode in modes
    ]


def outcome(act: Callable[[], Any]) -> Any:
    """What `act` gives, or None if it refuses in one line."""
    try:
        return act()
    except LimbeckError as error:
        if "\n" in str(error):
            pytest.fail(f"more than one line: {error}")
        return None


def survived(whole: Path, place: Path, seed: int, act: Callable[[Path], Any], count: int = FLIPS) -> None:
    """Damage copies of a folder: `act` on each gives what it gives on the whole one, or refuses."""
    wanted, noticed = act(shutil.copytree(whole, place.with_name(f"{place.name}-whole"))), 0
    for copy, what in damaged_copies(whole, place, seed, count):
        found = outcome(lambda copy=copy: act(copy))
        noticed += found is None
        assert found is None or found == wanted, what
    print(f"{whole.name}: {count} damaged copies, {noticed} detected, {count - noticed} harmless, 0 wrong")


KINDS: dict[str, dict[str, Any]] = {
    "flat": {},
    "windows": {"window": 6, "stride": 3},
    "hnsw": {"kind": "hnsw"},
    "ivf-sq8": {"kind": "ivf-sq8"},
    "sq8": {"kind": "sq8"},
    "words": {"dense": False},
    "vectors": {"sparse": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_index_is_refused_or_answers_as_before(kind: str, model: DualEncoder, tmp_path: Path) -> None:
    first, second = make_corpus(80, 5, longest=16), make_corpus(20, 6)
    whole = tmp_path / kind
    build_index(model, with_fields(first), whole, **KINDS[kind])
    change_index(whole, with_fields(second), [*list(first)[:9]])  # a second segment, and deleted passages
    survived(whole, tmp_path / "damaged", 1, lambda copy: answers(SearchIndex.open(copy)))


def test_the_command_refuses_a_damaged_index_in_one_line(model: DualEncoder, tmp_path: Path) -> None:
    build_index(model, with_fields(make_corpus(80)), tmp_path / "whole")
    wanted = finish("search", tmp_path / "whole", QUERIES[0], "--json")[0].stdout
    for copy, what in damaged_copies(tmp_path / "whole", tmp_path / "damaged", 2, ROUNDS):
        done = run("search", copy, QUERIES[0], "--json")
        assert detected(done) or done.stdout == wanted, what


def test_a_damaged_unfinished_build_goes_on_to_the_same_index(
    model: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = with_fields(make_corpus(80))
    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(build_module.Builder, "segment", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        build_index(model, corpus, tmp_path / "unfinished")
    assert list((tmp_path / "unfinished" / "work" / "encodings").rglob("*.npy"))
    survived(
        tmp_path / "unfinished", tmp_path / "damaged", 3, lambda copy: answers(build_index(model, corpus, copy)), FLIPS
    )


def test_damaged_token_vectors_are_refused_or_rank_as_before(tiny_bert: str, tmp_path: Path) -> None:
    matcher = build(matcher_config(kind="colbert", start=tiny_bert, layers=1, query_length=8, document_length=16))
    texts = {
        name: Texts.from_dict(found)
        for name, found in (("corpus", make_corpus(60)), ("queries", dict(zip("abc", QUERIES, strict=True))))
    }
    data = RankingData("tiny", texts["corpus"], texts["queries"], {})
    key = {**matcher.identity(), "side": "document"}

    def ranked(folder: Path) -> Any:
        store = EncodingStore.open(store_path(folder, key), key, matcher.dim, tokens="ragged")
        found = retrieve(matcher, data, list("abc"), 10, store)
        return {query: [(key, round(score, 5)) for key, score in listed.items()] for query, listed in found.items()}

    ranked(tmp_path / "tokens")
    survived(tmp_path / "tokens", tmp_path / "damaged", 4, ranked)


@pytest.fixture(scope="module")
def place(model: DualEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, passages to index, to add and to delete, and an index that changes can be made to."""
    folder = tmp_path_factory.mktemp("place")
    model.save_pretrained(folder / "model")
    for name, corpus in (("first", make_corpus(3000, 5, longest=30)), ("second", make_corpus(800, 6, longest=30))):
        lines = [json.dumps({"_id": key, "text": text, "length": len(text)}) for key, text in corpus.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "gone.txt").write_text("\n".join(list(make_corpus(3000, 5, longest=30))[::7]) + "\n")
    finish("index", folder / "model", folder / "first.jsonl", "--out", folder / "base")
    return folder


def changes(folder: Path) -> dict[str, list[object]]:
    both: list[object] = ["--add", folder / "second.jsonl", "--delete", folder / "gone.txt"]
    return {"build": [], "add": both[:2], "delete": both[2:], "both": both, "compact": [*both, "--compact"]}


@pytest.mark.parametrize("change", ["build", "add", "delete", "both", "compact"])
def test_killed_at_any_point_an_index_ends_with_the_same_result(change: str, place: Path, tmp_path: Path) -> None:
    def arguments(out: Path) -> list[object]:
        if change == "build":
            return ["index", place / "model", place / "first.jsonl", "--kind", "hnsw", "--out", out]
        shutil.copytree(place / "base", out, dirs_exist_ok=True) if not out.exists() else None
        return ["index", "--out", out, *changes(place)[change]]

    seconds = finish_forked(*arguments(tmp_path / "whole"))
    whole = SearchIndex.open(tmp_path / "whole")
    chance, hits = random.Random(5), 0
    for number in range(4 * ROUNDS):
        if number >= ROUNDS and hits >= ROUNDS // 4:
            break  # more rounds only where a busy machine let too many kills come too late
        out = tmp_path / f"killed-{number}"
        if number < PROCESSES:
            kill_and_finish(*arguments(out), within=2 * seconds, chance=chance)
        else:
            hit = kill_forked_and_finish(*arguments(out), within=seconds, chance=chance)
            hits, seconds = hits + hit, seconds if hit else 0.7 * seconds  # too late: the first run was slower
        killed = SearchIndex.open(out)
        killed.verify()
        assert answers(killed) == answers(whole) and len(killed) == len(whole)
        assert {entry.name for entry in out.iterdir()} == {entry.name for entry in whole.path.iterdir()}
        assert killed.manifest.deleted == whole.manifest.deleted
        assert len(killed.manifest.segments) == len(whole.manifest.segments)
    print(f"{change}: {number} rounds, {hits} kills hit the work, all ended the same")
    assert hits >= ROUNDS // 4


WRITER = """
    import sys
    from limbeck.data.passages import Passages
    from limbeck.search.changes import change_index, compact_index
    from tests.search.conftest import make_corpus
    path, rounds = sys.argv[1], int(sys.argv[2])
    extra, base = make_corpus(20, 6), make_corpus(80, 5)
    gone = dict(list(base.items())[:15])
    for number in range(rounds):
        change_index(path, Passages.of(extra), gone)
        if number % 3 == 0:
            compact_index(path)
        change_index(path, Passages.of(gone), extra)
"""


def test_searches_during_a_write_see_the_old_index_or_the_new_one(model: DualEncoder, tmp_path: Path) -> None:
    base, extra = make_corpus(80, 5), make_corpus(20, 6)
    states = []
    for number, texts in enumerate((base, dict(list(base.items())[15:]) | extra)):
        states.append(by_id(build_index(model, Passages.of(texts), tmp_path / f"state-{number}")))
    build_index(model, Passages.of(base), tmp_path / "index")
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "index"), str(2 * ROUNDS)])
    seen = [0, 0]
    while writer.poll() is None:
        found = by_id(SearchIndex.open(tmp_path / "index", model))
        (state,) = [number for number, known in enumerate(states) if same(found, known)]
        seen[state] += 1
    assert writer.wait() == 0
    print(
        f"{sum(seen)} searches during {4 * ROUNDS} writes: {seen[0]} saw one state, {seen[1]} the other, none a third"
    )
    assert min(seen) > 0


def by_id(index: SearchIndex) -> list[dict[str, float]]:
    """The score of every passage: the order of equal ones depends on when they were added."""
    return [
        {hit.id: hit.score for hit in index.search(query, 200, mode=mode).hits}
        for query in QUERIES
        for mode in ("dense", "sparse")
    ]


def same(one: list[dict[str, float]], two: list[dict[str, float]]) -> bool:
    return all(left == pytest.approx(right, abs=1e-5) for left, right in zip(one, two, strict=True))
