import pickle
import random

import numpy as np
import pyarrow as pa
import pytest

from limbeck.data import ids
from limbeck.data.dataset import RankingData, Texts, positives, ranked
from limbeck.errors import LimbeckError


@pytest.fixture
def texts() -> Texts:
    return Texts.build([("a", "Title", "text one"), ("b", "", "text two"), ("ß", "Only title", "")])


def many(count: int) -> dict[str, str]:
    return {f"id-{number}": f"text {number}" for number in range(count)}


def test_a_title_is_joined_to_the_text_by_one_space_and_an_empty_one_is_not(texts: Texts) -> None:
    assert [texts[key] for key in texts] == ["Title text one", "text two", "Only title "]
    assert [texts.title(key) for key in texts] == ["Title", "", "Only title"]


def test_order_ids_and_membership_are_those_of_the_input(texts: Texts) -> None:
    assert list(texts) == list(texts.ids) == ["a", "b", "ß"]
    assert texts.ids[1:] == ["b", "ß"]
    assert texts.ids[-1] == "ß"
    assert "ß" in texts
    assert "ss" not in texts
    assert 1 not in texts
    assert dict(texts.items()) == {key: texts[key] for key in texts}


def test_rows_and_texts_of_many_ids_agree_with_a_dict_over_many_batches() -> None:
    source = many(20_000)
    texts = Texts.from_dict(source)
    keys = random.Random(0).sample(list(source), 5000)
    rows = texts.rows(keys)
    assert rows.dtype == np.int64
    assert texts.ids_at(rows) == keys
    assert texts.take(rows) == [source[key] for key in keys]
    assert [texts.id_at(int(row)) for row in rows[:50]] == keys[:50]
    assert [texts.row(key) for key in keys[:50]] == rows[:50].tolist()


def test_find_marks_unknown_ids_and_rows_names_the_first_of_them(texts: Texts) -> None:
    assert texts.find(["b", "nobody", "a"]).tolist() == [1, -1, 0]
    with pytest.raises(LimbeckError, match=r"unknown id 'nobody'.*'a'"):
        texts.rows(["b", "nobody"])
    with pytest.raises(LimbeckError, match="unknown id 'x'"):
        texts["x"]


def test_rows_outside_the_table_are_an_index_error(texts: Texts) -> None:
    for row in (3, -1):
        with pytest.raises(IndexError):
            texts.id_at(row)
        with pytest.raises(IndexError):
            texts.take([0, row])


def test_duplicate_and_empty_ids_are_refused() -> None:
    with pytest.raises(LimbeckError, match="duplicate id 'b'"):
        Texts.build([("a", "", "1"), ("b", "", "2"), ("b", "", "3")])
    with pytest.raises(LimbeckError, match="empty id"):
        Texts.from_dict({"": "text"})


def test_an_empty_table_has_no_rows() -> None:
    texts = Texts.from_dict({})
    assert (len(texts), list(texts), texts.take([])) == (0, [], [])
    assert texts.find(["a"]).tolist() == [-1]


def test_one_hash_and_many_hashes_are_fnv_1a() -> None:
    known = {"": 0xCBF29CE484222325, "a": 0xAF63DC4C8601EC8C, "foobar": 0x85944171F73967E8}  # from its specification
    words = [*known, "Fluß", "x" * 500, "b"]
    hashes = ids.hash_ids(pa.array(words, pa.large_string())).tolist()
    assert hashes[:3] == list(known.values())
    assert hashes == [ids.hash_id(word) for word in words]
    sliced = pa.array(words, pa.large_string()).slice(1, 3)
    assert ids.hash_ids(sliced).tolist() == hashes[1:4]


def test_colliding_hashes_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(array: pa.Array) -> np.ndarray:
        return np.array([len(text) % 3 for text in array.to_pylist()], dtype=np.uint64)

    for module in ("limbeck.data.ids.hash_ids", "limbeck.data.texts.hash_ids"):
        monkeypatch.setattr(module, few)
    monkeypatch.setattr("limbeck.data.ids.hash_id", lambda text: len(text) % 3)
    source = many(300)
    texts = Texts.from_dict(source)
    keys = list(source)[::-1]
    assert texts.take(texts.rows(keys)) == [source[key] for key in keys]
    assert texts["id-7"] == "text 7"
    assert texts.find(["id-999", "id-1"]).tolist() == [-1, 1]
    with pytest.raises(LimbeckError, match="duplicate id 'id-5'"):
        Texts.build([*((key, "", text) for key, text in source.items()), ("id-5", "", "again")])


def test_a_pickled_table_reads_the_same(texts: Texts) -> None:
    assert dict(pickle.loads(pickle.dumps(texts)).items()) == dict(texts.items())


def test_the_fingerprint_depends_on_ids_and_their_order_only() -> None:
    one = Texts.from_dict({"a": "1", "b": "2"})
    assert one.fingerprint == Texts.from_dict({"a": "x", "b": "y"}).fingerprint
    assert one.fingerprint != Texts.from_dict({"b": "2", "a": "1"}).fingerprint


def test_an_unknown_split_names_the_known_ones() -> None:
    data = RankingData("tiny", Texts.from_dict({"d": "x"}), Texts.from_dict({"q": "y"}), {"train": {"q": {"d": 1}}})
    assert data.judgements("train") == {"q": {"d": 1}}
    with pytest.raises(LimbeckError, match="tiny has no judgements for split 'trian'; did you mean 'train'"):
        data.judgements("trian")
    with pytest.raises(LimbeckError, match="no candidate lists for split 'train'; it has none"):
        data.candidates("train")


def test_ranking_breaks_ties_by_id_and_positives_follow_the_cut() -> None:
    assert ranked({"b": 1.0, "a": 1.0, "c": 2.0}) == ["c", "b", "a"]
    grades = {"a": 0, "b": 1, "c": 2}
    assert (positives(grades), positives(grades, at_least=2)) == (["b", "c"], ["c"])
