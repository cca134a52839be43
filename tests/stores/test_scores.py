from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from limbeck.errors import LimbeckError
from limbeck.stores import ScoreStore, score_with_store

TEACHER = {"name": "teacher", "weights": "abc", "revision": "main", "lengths": [32, 200]}


def a_run(queries: int = 20, documents: int = 15) -> dict[str, dict[str, float]]:
    """Scores that float32 holds exactly, with ties."""
    rng = np.random.default_rng(0)
    return {
        f"q{query}": {f"d{document}": float(rng.integers(-20, 20)) / 4 for document in rng.permutation(30)[:documents]}
        for query in range(queries)
    }


def filled(path: Path, run: dict[str, dict[str, float]], block: int = 11) -> ScoreStore:
    """All scores, in an order that tears the queries apart, in many appends of which some were merged."""
    store = ScoreStore.open(path, TEACHER)
    pairs = [(query, document, score) for query, scores in run.items() for document, score in scores.items()]
    order = np.random.default_rng(1).permutation(len(pairs))
    for start in range(0, len(pairs), block):
        chosen = [pairs[at] for at in order[start : start + block]]
        store.append(*map(list, zip(*chosen, strict=True)))
    return store


@pytest.mark.parametrize("block", [8, 17, 1000])
def test_what_was_stored_comes_back_by_pair_by_query_and_as_a_run(tmp_path: Path, block: int) -> None:
    run = a_run()
    filled(tmp_path, run, block)
    store = ScoreStore.read(tmp_path)
    assert len(store) == 20 * 15
    assert store.to_run() == run
    assert sorted(store.query_ids()) == sorted(run)
    for query, scores in run.items():
        assert store.for_query(query) == scores
        asked = ["d0", "nowhere", "d7", "d0"]
        np.testing.assert_array_equal(store.lookup(query, asked), [scores.get(document, np.nan) for document in asked])
    assert store.lookup("q0", []).shape == (0,)
    assert store.for_query("unknown") == {}
    store.verify()


def test_merging_loses_nothing(tmp_path: Path) -> None:
    run = a_run()
    store = filled(tmp_path, run, block=11)
    before = len(store._shards.shards)
    store.compact()
    assert before > 1 == len(store._shards.shards)
    assert store.to_run() == ScoreStore.read(tmp_path).to_run() == run
    assert store.for_query("q3") == run["q3"]
    store.verify()


def test_the_top_k_are_the_highest_scores_with_ties_in_the_order_of_ids(tmp_path: Path) -> None:
    run = a_run()
    store = filled(tmp_path, run, block=7)
    for k in (1, 4, 15, 100):
        wanted = {
            query: sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k] for query, scores in run.items()
        }
        assert {query: list(scores.items()) for query, scores in store.top(k).items()} == wanted


def test_scores_are_raw_float32(tmp_path: Path) -> None:
    store = ScoreStore.open(tmp_path, TEACHER)
    store.append(["q"], ["d"], [0.1])
    assert store.lookup("q", ["d"]).dtype == np.float32
    assert store.for_query("q")["d"] == float(np.float32(0.1))


def test_several_outputs_per_pair(tmp_path: Path) -> None:
    store = ScoreStore.open(tmp_path, TEACHER, outputs=3)
    store.append(["q", "q"], ["d", "e"], np.array([[1, 2, 3], [4, 5, 6]]))
    store.append(["p"], ["d"], np.array([[7, 8, 9]]))
    store.compact()
    np.testing.assert_array_equal(store.lookup("q", ["e", "x"]), [[4, 5, 6], [np.nan] * 3])
    assert store.for_query("q", output=1) == {"d": 2, "e": 5}
    assert store.to_run(output=2) == {"q": {"d": 3, "e": 6}, "p": {"d": 9}}
    assert store.top(1, output=0) == {"q": {"e": 4}, "p": {"d": 7}}
    with pytest.raises(LimbeckError, match=r"has 3 scores per pair; .*0 to 2"):
        store.for_query("q")
    with pytest.raises(LimbeckError, match="has no output 3"):
        store.to_run(output=3)
    with pytest.raises(LimbeckError, match="outputs is 3 there and 1 here"):
        ScoreStore.open(tmp_path, TEACHER)


@pytest.mark.parametrize(("value", "named"), [(np.nan, "nan"), (np.inf, "inf"), (-1e300, "-inf")])
def test_a_score_that_is_not_finite_is_refused_and_names_the_pair(tmp_path: Path, value: float, named: str) -> None:
    store = ScoreStore.open(tmp_path / "s", TEACHER)
    with pytest.raises(LimbeckError, match=f"query 'q2' and document 'd2' is {named}; a teacher score must"):
        store.append(["q1", "q2"], ["d1", "d2"], [1.0, value])
    with pytest.raises(LimbeckError, match=f"query 'q2' and document 'd2' is {named}"):
        ScoreStore.from_run(tmp_path / "s", {"q1": {"d1": 1.0}, "q2": {"d2": value}}, TEACHER)
    assert not (tmp_path / "s").exists()


def test_a_pair_is_stored_once_and_keeps_its_first_score(tmp_path: Path) -> None:
    store = ScoreStore.open(tmp_path, TEACHER)
    assert store.append(["q", "q", "p"], ["d", "d", "d"], [1, 2, 3]) == 2
    assert store.append(["q", "q"], ["d", "e"], [4, 5]) == 1
    assert store.append(["q"], ["d"], [6]) == 0
    assert len(store) == 3
    assert store.to_run() == {"q": {"d": 1, "e": 5}, "p": {"d": 3}}


def test_missing_pairs_are_reported_by_position(tmp_path: Path) -> None:
    store = ScoreStore.open(tmp_path, TEACHER)
    store.append(["q", "qd"], ["de", "e"], [0.0, 0.0])
    assert store.missing([("q", "de"), ("qd", "e"), ("q", "e"), ("qde", ""), ("q", "e")]) == [2, 3]
    assert store.missing([("q", document) for document in ("a", "de", "b", "a")]) == [0, 2]
    assert store.missing([]) == []


def test_lists_of_unlike_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 queries, 1 documents, 1 scores"):
        ScoreStore.open(tmp_path, TEACHER).append(["q", "p"], ["d"], [1.0])


def test_scores_of_another_teacher_are_refused(tmp_path: Path) -> None:
    ScoreStore.from_run(tmp_path, {"q": {"d": 1.0}}, TEACHER)
    with pytest.raises(LimbeckError, match='revision is "main" there and "v2" here'):
        ScoreStore.open(tmp_path, TEACHER | {"revision": "v2"})
    assert ScoreStore.read(tmp_path).identity == TEACHER


def test_a_run_from_elsewhere_is_imported_and_an_interrupted_import_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limbeck.stores.scores.IMPORT_BLOCK", 40)
    run = a_run()
    ScoreStore.from_run(tmp_path, {query: run[query] for query in ("q3", "q4")}, TEACHER)
    store = ScoreStore.from_run(tmp_path, run, TEACHER)
    assert len(store) == 300
    assert store.to_run() == run


def test_a_shard_is_a_plain_arrow_file(tmp_path: Path) -> None:
    ScoreStore.from_run(tmp_path, {"q": {"d": 1.5, "e": -2.0}, "p": {"d": 0.0}}, TEACHER)
    (file,) = tmp_path.glob("shards/*/pairs.arrow")
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.to_pydict() == {"query": ["q", "q", "p"], "document": ["d", "e", "d"], "score": [1.5, -2.0, 0.0]}
    assert table.schema.field("score").type == pa.float32()


def test_a_damaged_arrow_file_is_named(tmp_path: Path) -> None:
    ScoreStore.from_run(tmp_path, a_run(), TEACHER)
    (file,) = tmp_path.glob("shards/*/pairs.arrow")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    with pytest.raises(LimbeckError, match=f"{file}: is damaged"):
        ScoreStore.read(tmp_path).for_query("q0")
    with pytest.raises(LimbeckError, match=f"{file}: is damaged"):
        ScoreStore.read(tmp_path).verify()


def test_only_missing_pairs_are_scored_in_blocks(tmp_path: Path) -> None:
    run = a_run(queries=5)
    store = ScoreStore.open(tmp_path, TEACHER)
    store.append(["q0"] * 15, list(run["q0"]), list(run["q0"].values()))
    blocks: list[list[tuple[str, str]]] = []

    def teacher(pairs: list[tuple[str, str]]) -> list[float]:
        blocks.append(pairs)
        return [run[query][document] for query, document in pairs]

    candidates = [(query, list(scores)) for query, scores in run.items()]
    assert score_with_store(store, candidates + candidates, teacher, block=25) == 60
    assert [len(pairs) for pairs in blocks] == [25, 25, 10]
    assert store.to_run() == run
    assert score_with_store(store, iter(candidates), teacher, block=25) == 0
    assert len(blocks) == 3


def test_a_reader_sees_what_was_appended_after_a_refresh(tmp_path: Path) -> None:
    store = ScoreStore.open(tmp_path, TEACHER)
    reader = ScoreStore.open(tmp_path, TEACHER)
    store.append(["q"], ["d"], [1.0])
    assert np.isnan(reader.lookup("q", ["d"])).all()
    reader.refresh()
    assert reader.lookup("q", ["d"]).tolist() == [1.0]
    store.append(["q"], ["e"], [2.0])
    store.compact()
    assert reader.for_query("q") == {"d": 1.0}
    reader.refresh()
    assert reader.for_query("q") == {"d": 1.0, "e": 2.0}


def test_stored_items_are_reported_at_once_so_that_the_remaining_time_counts_the_rest(
    tmp_path: Path, monkeypatch
) -> None:
    from contextlib import contextmanager

    from limbeck.stores import scores as scores_module

    told: list[int] = []

    @contextmanager
    def watched(label, total=None):
        yield told.append

    monkeypatch.setattr(scores_module, "progress", watched)
    store = ScoreStore.open(tmp_path / "store", {"teacher": "t"})
    candidates = [(f"q{number}", ["a", "b"]) for number in range(5)]
    score_with_store(store, candidates[:3], lambda pairs: [0.5] * len(pairs))
    told.clear()
    assert score_with_store(store, candidates, lambda pairs: [0.5] * len(pairs)) == 4
    assert [count for count in told if count] == [6, 4]
    told.clear()
    assert score_with_store(store, candidates, lambda pairs: []) == 0 and told == [10]
