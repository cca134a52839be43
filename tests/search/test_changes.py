from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder
from limbeck.progress import reporting
from limbeck.search.build import build_index
from limbeck.search.changes import Changed, add_passages, change_index, compact_index, delete_passages
from limbeck.search.index import SearchIndex
from limbeck.search.manifest import IndexManifest
from tests.search.conftest import make_corpus, passages_of

QUERIES = ["copy a file", "sort the list of numbers", "open close", "module function error path", "xylophone file"]
OPTIONS = [{"mode": "dense"}, {"mode": "sparse"}, {"mode": "hybrid", "alpha": 0.4}, {"mode": "hybrid", "fusion": "rrf"}]


def answers(index: SearchIndex, k: int = 12) -> list[list[tuple[str, float]]]:
    return [
        [(hit.id, hit.score) for hit in index.search(query, k, **options).hits]
        for query in QUERIES
        for options in OPTIONS
    ]


def assert_same(one: SearchIndex, two: SearchIndex) -> None:
    """The same passages in the same order, with the same scores."""
    for left, right in zip(answers(one), answers(two), strict=True):
        assert [key for key, _ in left] == [key for key, _ in right]
        assert [score for _, score in left] == pytest.approx([score for _, score in right], abs=1e-6)


@pytest.mark.parametrize("cut", [{}, {"window": 6, "stride": 3}], ids=["whole", "windows"])
def test_after_additions_deletions_and_compaction_an_exact_index_is_as_fresh(
    model: DualEncoder, tmp_path: Path, cut: dict[str, int]
) -> None:
    first, second, third = (make_corpus(count, seed, longest=20) for count, seed in ((60, 5), (25, 6), (8, 7)))
    path = tmp_path / "index"
    build_index(model, passages_of(first), path, **cut)

    def fresh(texts: dict[str, str], name: str) -> SearchIndex:
        return build_index(model, passages_of(texts), tmp_path / name, store=tmp_path / "encodings", **cut)

    assert add_passages(path, passages_of(second)) == 0
    assert_same(SearchIndex.open(path), fresh(first | second, "added"))
    gone = [*list(first)[::4], *list(second)[::5]]
    assert delete_passages(path, gone) == len(gone)
    left = {key: text for key, text in (first | second).items() if key not in gone}
    index = SearchIndex.open(path)
    assert len(index) == len(left) and index.manifest.deleted == len(gone)
    assert_same(index, fresh(left, "deleted"))
    add_passages(path, passages_of(third))
    assert len(SearchIndex.open(path).manifest.segments) == 3
    assert_same(SearchIndex.open(path), fresh(left | third, "added again"))
    compact_index(path)
    index = SearchIndex.open(path)
    assert len(index.manifest.segments) == 1 and index.manifest.deleted == 0
    assert_same(index, fresh(left | third, "compacted"))
    index.verify()
    assert len(list((path / "segments").iterdir())) == 1 and len(list((path / "sparse").iterdir())) == 1
    assert not list((path / "deleted").iterdir()) and not (path / "work").exists()


def test_an_id_that_is_there_already_is_replaced(model: DualEncoder, corpus: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "index"
    build_index(model, passages_of(corpus), path)
    key = list(corpus)[3]
    changed = {key: "byte array index count", "new": "first last new old"}
    assert add_passages(path, passages_of(changed)) == 1
    index = SearchIndex.open(path)
    assert len(index) == len(corpus) + 1
    found = [hit for hit in index.search("byte array index count", 200).hits if hit.id == key]
    assert [hit.text for hit in found] == ["byte array index count"]
    delete_passages(path, [key])
    add_passages(path, passages_of({key: corpus[key]}))
    (again,) = [hit for hit in SearchIndex.open(path).search(corpus[key], 200).hits if hit.id == key]
    assert again.text == corpus[key]


@pytest.mark.parametrize("kind", ["hnsw", "ivf-sq8", "sq8"])
def test_an_approximate_index_is_changed_and_compacted_too(kind: str, model: DualEncoder, tmp_path: Path) -> None:
    first, second = make_corpus(300, 5), make_corpus(50, 6)
    path = tmp_path / "index"
    build_index(model, passages_of(first), path, kind=kind)
    add_passages(path, passages_of(second))
    gone = list(first)[:30]
    delete_passages(path, gone)
    exact = build_index(model, passages_of({**first, **second}), tmp_path / "exact", kind="flat")
    delete_passages(tmp_path / "exact", gone)
    exact = SearchIndex.open(tmp_path / "exact")
    for compacted in (False, True):
        if compacted:
            compact_index(path)
        index = SearchIndex.open(path)
        index.verify()
        assert [segment.kind for segment in index.manifest.segments] == ([kind] if compacted else [kind, "flat"])
        shared = []
        for query in QUERIES:
            found = {hit.id for hit in index.search(query, 10, mode="dense").hits}
            assert not found & set(gone)
            shared.append(len(found & {hit.id for hit in exact.search(query, 10, mode="dense").hits}))
        assert np.mean(shared) >= 8


def test_alpha_fields_and_settings_outlive_changes(model: DualEncoder, write_corpus, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "index"
    first = write_corpus(make_corpus(30, 5), "first.jsonl", lambda number: {"year": 2000 + number})
    second = write_corpus(
        make_corpus(10, 6), "second.jsonl", lambda number: {"year": 2100.5, "tags": ["a", str(number)]}
    )
    third = write_corpus(make_corpus(5, 7), "third.jsonl")
    build_index(model, first, path, language="german", k1=1.2)
    SearchIndex.set_alpha(path, 0.2)
    add_passages(path, second)
    add_passages(path, third)
    for compacted in (False, True):
        if compacted:
            compact_index(path)
        index = SearchIndex.open(path)
        assert index.manifest.alpha == 0.2
        assert (index.manifest.sparse.language, index.manifest.sparse.k1) == ("german", 1.2)
        assert sorted(index.collection.field_names) == ["tags", "year"]
        assert int(index.allowed(["year>=2020"]).sum()) == 20
        assert int(index.allowed(["tags=a", "year>2100"]).sum()) == 10
        assert int(index.allowed("tags=7").sum()) == 1
        hits = index.search("copy a file", 50, where=["year>=2020", "year<2022"]).hits
        assert sorted(hit.fields["year"] for hit in hits) == [2020, 2021]


def test_changes_that_cannot_be_made_leave_the_index_as_it_was(
    model: DualEncoder, other_model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "index"
    build_index(model, passages_of(corpus), path)
    before = (path / "index.json").read_bytes()
    assert delete_passages(path, ["absent"]) == 0
    with pytest.raises(LimbeckError, match="no passage would be left"):
        delete_passages(path, corpus)
    with pytest.raises(LimbeckError, match="is not the one that .* was built with"):
        add_passages(path, passages_of({"new": "copy"}), other_model)
    with pytest.raises(LimbeckError, match="is not the one that .* was built with"):
        change_index(path, passages_of({"new": "copy"}), model=other_model, mix_runtimes=True)
    compact_index(path)  # there is nothing to do
    assert (path / "index.json").read_bytes() == before
    assert sorted(entry.name for entry in path.iterdir()) == ["index.json", "model", "segments", "sparse"]


class Heard:
    """A reporter that keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        yield lambda _: None

    def say(self, message: str) -> None:
        self.lines.append(message)


def test_an_id_that_is_gone_already_is_a_note(model: DualEncoder, corpus: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "index"
    build_index(model, passages_of(corpus), path)
    first, heard = next(iter(corpus)), Heard()
    with reporting(heard):
        assert delete_passages(path, ["absent", first, "absent too"]) == 1
    assert [line for line in heard.lines if "has no passage 'absent' and 1 more" in line]
    assert len(SearchIndex.open(path)) == len(corpus) - 1


def test_deleting_and_adding_is_one_change_of_the_manifest_that_can_be_made_again(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, written = tmp_path / "index", []
    build_index(model, passages_of(corpus), path)
    gone, new = list(corpus)[:5], {**make_corpus(7, 6), list(corpus)[4]: "byte array", list(corpus)[8]: "first last"}
    save = IndexManifest.save
    monkeypatch.setattr(IndexManifest, "save", lambda *given: (written.append(1), save(*given)))
    assert change_index(path, passages_of(new), gone) == Changed(added=9, replaced=2, deleted=4)
    assert len(written) == 1
    index, manifest = SearchIndex.open(path), (path / "index.json").read_bytes()
    left = {key: text for key, text in corpus.items() if key not in gone} | new
    assert len(index) == len(left)
    assert change_index(path, passages_of(new), gone) == Changed()
    assert (path / "index.json").read_bytes() == manifest
    compact_index(path)
    assert change_index(path, passages_of(new), gone) == Changed()
    fresh = build_index(model, passages_of(left), tmp_path / "fresh")
    for query in QUERIES:
        for options in OPTIONS:
            found, wanted = (
                {hit.id: pytest.approx(hit.score, abs=1e-6) for hit in each.search(query, 200, **options).hits}
                for each in (SearchIndex.open(path), fresh)
            )
            assert found == wanted if options.get("fusion") != "rrf" else found.keys() == wanted.keys()


def test_all_passages_can_be_exchanged_at_once(model: DualEncoder, corpus: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "index"
    build_index(model, passages_of(corpus), path)
    change_index(path, passages_of(make_corpus(4, 6)), corpus)
    assert len(SearchIndex.open(path)) == 4


def test_an_open_reader_continues_with_the_old_index(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    index = build_index(model, passages_of(corpus), tmp_path / "index")
    before = answers(index)
    delete_passages(index.path, list(corpus)[:50])
    compact_index(index.path)
    assert answers(index) == before


def test_a_second_writer_gets_an_error_that_says_wait(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    from limbeck.files import alone_in

    index = build_index(model, passages_of(corpus), tmp_path / "index")
    with alone_in(index.path), pytest.raises(LimbeckError, match="another limbeck process is writing to it"):
        delete_passages(index.path, list(corpus)[:1])
    assert SearchIndex.open(index.path).manifest == index.manifest


def test_a_change_removes_what_a_killed_one_left_of_the_list_of_files(model: DualEncoder, tmp_path: Path) -> None:
    path = tmp_path / "index"
    corpus = make_corpus(30, 5)
    build_index(model, passages_of(corpus), path)
    names = {entry.name for entry in path.iterdir()}
    (path / ".index.json.0123abcd.partial").write_text("{")
    delete_passages(path, list(corpus)[:2])
    assert {entry.name for entry in path.iterdir()} == names | {"deleted"}
