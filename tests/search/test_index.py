from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from limbeck.data.passages import Passages
from limbeck.data.texts import Texts
from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder
from limbeck.progress import reporting
from limbeck.search import build as build_module
from limbeck.search import checks
from limbeck.search.build import build_index
from limbeck.search.exact import comparable
from limbeck.search.hybrid import fuse, reciprocal_rank_fusion
from limbeck.search.index import SearchIndex
from limbeck.search.manifest import VERSION, is_an_index
from limbeck.search.sparse import bm25_index
from tests.search.conftest import make_corpus, passages_of

QUERIES = ["copy a file", "sort the list of numbers", "open close", "module function error path"]


@pytest.fixture
def index(model: DualEncoder, corpus: dict[str, str], tmp_path: Path) -> SearchIndex:
    return build_index(model, passages_of(corpus), tmp_path / "index")


def dense_by_hand(model: DualEncoder, texts: list[str], query: str) -> np.ndarray:
    """Scores of all texts in float64."""
    left = comparable(model.encode_query([query]), model.similarity).astype(np.float64)
    right = comparable(model.encode_document(texts), model.similarity).astype(np.float64)
    return (right @ left.T)[:, 0]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_dense_search_is_the_models_own_score(
    similarity: str, model: DualEncoder, dot_model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    matcher = {"cosine": model, "dot": dot_model}[similarity]
    assert matcher.similarity == similarity
    index = build_index(matcher, passages_of(corpus), tmp_path / "index")
    for query in QUERIES:
        expected = dense_by_hand(matcher, list(corpus.values()), query)
        hits = index.search(query, 7, mode="dense").hits
        assert [hit.score for hit in hits] == pytest.approx(np.sort(expected)[::-1][:7], abs=1e-4)
        for hit in hits:
            assert hit.score == pytest.approx(expected[list(corpus).index(hit.id)], abs=1e-4)
            assert hit.score == pytest.approx(matcher.score([(query, hit.text)])[0], abs=1e-4)
            assert hit.text == corpus[hit.id] and hit.sparse is None and hit.dense.rank == hit.rank


def test_sparse_search_is_bm25_and_says_what_each_word_adds(index: SearchIndex, corpus: dict[str, str]) -> None:
    bm25 = bm25_index(Texts.from_dict(corpus))
    for query in QUERIES:
        rows, scores = bm25.search(query, 6)
        hits = index.search(query, 6, mode="sparse", explain=True).hits
        assert [hit.id for hit in hits] == [list(corpus)[row] for row in rows]
        assert [hit.score for hit in hits] == pytest.approx(scores.tolist())
        for hit in hits:
            assert sum(hit.terms.values()) == pytest.approx(hit.score, rel=1e-5)
            assert set(hit.terms) <= set(index.words.stems(query)) & set(index.words.stems(hit.text))


def test_hybrid_search_fuses_the_lists_of_both_parts(index: SearchIndex) -> None:
    lists = index.candidates(QUERIES, depth=20)
    for query, dense, sparse in zip(QUERIES, lists.dense, lists.sparse, strict=True):
        assert len(dense[0]) == 20
        expected = fuse(dense, sparse, 0.3, 8)
        found = index.search(query, 8, mode="hybrid", alpha=0.3, depth=20)
        assert [hit.id for hit in found.hits] == index.collection.ids_at(expected.rows)
        assert [hit.score for hit in found.hits] == pytest.approx(expected.scores.tolist(), abs=1e-5)
        for hit, left, right in zip(found.hits, expected.dense, expected.sparse, strict=True):
            assert (hit.dense is None) == np.isnan(left) and (hit.sparse is None) == np.isnan(right)
            assert hit.dense is None or hit.dense.score == pytest.approx(dense[1][hit.dense.rank - 1], abs=1e-5)
            parts = [name for name in ("dense", "sparse") if getattr(hit, name)]
            assert hit.found_by == " and ".join(parts)
        by_rank = reciprocal_rank_fusion(dense, sparse, 8)
        found = index.search(query, 8, fusion="rrf", depth=20)
        assert [hit.score for hit in found.hits] == pytest.approx(by_rank.scores.tolist())


def test_several_queries_are_answered_as_one_by_one(index: SearchIndex) -> None:
    for mode in ("dense", "sparse", "hybrid"):
        many = index.search(QUERIES, 5, mode=mode)
        run = index.run(Texts.from_dict(dict(zip("abcd", QUERIES, strict=True))), 5, mode=mode)
        for query, key, found in zip(QUERIES, "abcd", many, strict=True):
            alone = index.search(query, 5, mode=mode)
            assert [hit.id for hit in alone.hits] == [hit.id for hit in found.hits] == list(run[key])
            assert [hit.score for hit in alone.hits] == pytest.approx([hit.score for hit in found.hits], abs=1e-5)


def test_k_larger_than_the_corpus_gives_all_of_it(index: SearchIndex, corpus: dict[str, str]) -> None:
    assert {hit.id for hit in index.search("copy", 1000, mode="dense").hits} == set(corpus)
    assert len(index.search("copy a file", 1000).hits) == len(corpus)


def test_alpha_is_kept_and_used(index: SearchIndex) -> None:
    assert index.fusion() == ("rrf", 0.0)
    with pytest.raises(LimbeckError, match="has no alpha yet; set --alpha, or find it with `limbeck tune"):
        index.search("copy", fusion="interpolate")
    SearchIndex.set_alpha(index.path, 0.25)
    again = SearchIndex.open(index.path)
    assert again.manifest.alpha == 0.25 and again.fusion() == ("interpolate", 0.25)
    given = index.search("copy a file", 5, alpha=0.25).hits
    assert [hit.score for hit in again.search("copy a file", 5).hits] == [hit.score for hit in given]
    for wrong in (float("nan"), -1.0, float("inf")):
        with pytest.raises(LimbeckError, match="alpha is"):
            SearchIndex.set_alpha(index.path, wrong)
        with pytest.raises(LimbeckError, match="alpha is"):
            index.search("copy", alpha=wrong)
    with pytest.raises(LimbeckError, match="has no alpha; leave it out"):
        index.search("copy", fusion="rrf", alpha=0.1)


def test_the_dense_part_answers_a_query_without_known_words_and_a_note_explains_it(index: SearchIndex) -> None:
    for query, reason in (("xylophone", "no word of the query is in the index"), ("of the", "no words to search for")):
        found = index.search(query, 4)
        assert reason in found.note and "dense part alone" in found.note
        assert [hit.id for hit in found.hits] == [hit.id for hit in index.search(query, 4, mode="dense").hits]
        nothing = index.search(query, 4, mode="sparse")
        assert nothing.hits == [] and reason in nothing.note
    assert index.search("copy", 4).note is None


def test_questions_that_make_no_sense_are_refused(index: SearchIndex) -> None:
    with pytest.raises(LimbeckError, match="a query is empty"):
        index.search("  ")
    with pytest.raises(LimbeckError, match="k is 0"):
        index.search("copy", 0)
    with pytest.raises(LimbeckError, match="unknown mode 'densse'; did you mean 'dense'"):
        index.search("copy", mode="densse")
    with pytest.raises(LimbeckError, match="unknown fusion"):
        index.search("copy", fusion="sum")
    with pytest.raises(LimbeckError, match=r"shape \[1, 7\], the index has vectors of 32 numbers"):
        index.dense.search(np.zeros((1, 7)), 3)


def test_an_index_may_have_one_part_only(model: DualEncoder, corpus: dict[str, str], tmp_path: Path) -> None:
    dense = build_index(model, passages_of(corpus), tmp_path / "dense", sparse=False)
    sparse = build_index(None, passages_of(corpus), tmp_path / "sparse", dense=False)
    assert (dense.mode(), sparse.mode()) == ("dense", "sparse")
    assert not (tmp_path / "sparse" / "model").exists()
    assert dense.search("copy").hits and sparse.search("copy").hits
    with pytest.raises(LimbeckError, match="has no sparse part; search with --mode dense"):
        dense.search("copy", mode="hybrid")
    with pytest.raises(LimbeckError, match="has no dense part; search with --mode sparse"):
        sparse.search("copy", mode="dense")
    with pytest.raises(LimbeckError, match="needs a dense or a sparse part"):
        build_index(None, passages_of(corpus), tmp_path / "none", dense=False, sparse=False)
    assert not (tmp_path / "none").exists()


def test_the_folder_is_self_contained_and_can_be_moved(index: SearchIndex, tmp_path: Path) -> None:
    before = [hit.id for hit in index.search("copy a file").hits]
    assert {entry.name for entry in index.path.iterdir()} == {"index.json", "model", "segments", "sparse"}
    shutil.move(index.path, tmp_path / "elsewhere")
    moved = SearchIndex.open(tmp_path / "elsewhere")
    moved.verify()
    assert [hit.id for hit in moved.search("copy a file").hits] == before


def test_a_killed_build_encodes_nothing_twice(
    model: DualEncoder, corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = type(model).encode_document
    encoded: list[str] = []

    def encode(self: DualEncoder, texts: list[str], *rest: int) -> np.ndarray:
        encoded.extend(texts)
        return plain(self, texts, *rest)

    monkeypatch.setattr(type(model), "encode_document", encode)
    with monkeypatch.context() as broken:
        broken.setattr(build_module, "build_dense", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            build_index(model, passages_of(corpus), tmp_path / "index")
    assert not is_an_index(tmp_path / "index")
    with pytest.raises(LimbeckError, match="contains an unfinished index; run `limbeck index` again"):
        SearchIndex.open(tmp_path / "index")
    with pytest.raises(LimbeckError, match="contains an unfinished index of .*; run that again"):
        build_index(None, Passages("others", Texts.from_dict({"d": "copy"})), tmp_path / "index", dense=False)
    index = build_index(model, passages_of(corpus), tmp_path / "index")
    assert sorted(encoded) == sorted(set(corpus.values()))
    assert not (index.path / "work").exists()
    encoded.clear()
    build_index(model, passages_of(corpus), tmp_path / "index")  # complete: nothing is done
    build_index(model, passages_of(corpus), tmp_path / "stored", store=tmp_path / "encodings")
    assert len(encoded) == len(set(corpus.values()))
    build_index(model, passages_of(corpus), tmp_path / "stored again", kind="sq8", store=tmp_path / "encodings")
    assert len(encoded) == len(set(corpus.values()))


def test_another_index_is_not_built_over_one(
    index: SearchIndex, model: DualEncoder, other_model: DualEncoder, corpus: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(LimbeckError, match="with other settings .with another model"):
        build_index(other_model, passages_of(corpus), index.path)
    with pytest.raises(LimbeckError, match="with other settings .with another kind"):
        build_index(model, passages_of(corpus), index.path, kind="hnsw")
    with pytest.raises(LimbeckError, match="another BM25"):
        build_index(model, passages_of(corpus), index.path, k1=1.5)
    with pytest.raises(LimbeckError, match="contains an index of other passages; add to it with --add"):
        build_index(model, passages_of(make_corpus(3, seed=9)), index.path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(LimbeckError, match="mine: contains other files"):
        build_index(model, passages_of(corpus), tmp_path / "mine")
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert SearchIndex.open(index.path).search("copy").hits


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_damage_to_any_file_is_named_and_nothing_is_searched(index: SearchIndex, damage: str) -> None:
    assert len(index.manifest.files) == 11
    for name in index.manifest.files:
        file = index.path / name
        content = file.read_bytes()
        if damage == "remove":
            file.unlink()
        elif damage == "truncate":
            file.write_bytes(content[:-1])
        else:
            middle = len(content) // 2
            file.write_bytes(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])
        with pytest.raises(
            LimbeckError, match=rf"{file.name}: is (damaged|missing).*; remove .* and build the index again"
        ):
            SearchIndex.open(index.path)
        file.write_bytes(content)
    SearchIndex.open(index.path).verify()


def test_large_files_are_read_again_only_when_they_changed(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ALWAYS_BELOW", 0)
    plain, read = checks.checksum, []
    monkeypatch.setattr(checks, "checksum", lambda file: read.append(file.name) or plain(file))
    SearchIndex.open(index.path)
    assert len(read) == 11
    read.clear()
    SearchIndex.open(index.path)
    assert read == []
    SearchIndex.open(index.path).verify()
    assert len(read) == 11
    (victim,) = index.path.glob("segments/*/dense.faiss")
    status = victim.stat()
    content = bytearray(victim.read_bytes())
    content[-3] ^= 1
    victim.write_bytes(content)
    os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nothing had happened
    with pytest.raises(LimbeckError, match=r"dense\.faiss: is damaged"):
        SearchIndex.open(index.path)


def test_a_damaged_or_newer_manifest_is_refused(index: SearchIndex, tmp_path: Path) -> None:
    path = index.path / "index.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "version": VERSION + 1}))
    with pytest.raises(
        LimbeckError, match="was written by a newer limbeck .format 2, this one reads 1.; update limbeck"
    ):
        SearchIndex.open(index.path)
    path.write_text(json.dumps({**record, "alpha": 0.5}))
    with pytest.raises(LimbeckError, match=r"index\.json: is damaged: its checksum"):
        SearchIndex.open(index.path)
    path.write_text(json.dumps(record)[:-5])
    with pytest.raises(LimbeckError, match="is not valid JSON"):
        SearchIndex.open(index.path)
    path.write_text('{"kind": "something else"}')
    with pytest.raises(LimbeckError, match="does not describe an index"):
        SearchIndex.open(index.path)
    with pytest.raises(LimbeckError, match="no such folder; make an index"):
        SearchIndex.open(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LimbeckError, match="contains no index; make one"):
        SearchIndex.open(tmp_path / "empty")


def test_another_model_is_refused(index: SearchIndex, other_model: DualEncoder) -> None:
    with pytest.raises(LimbeckError, match="the model that was given is not the one that .* was built with"):
        SearchIndex.open(index.path, other_model)
    other_model.save_pretrained(index.path / "model")
    with pytest.raises(
        LimbeckError, match="model is not the one that .* was built with, or is damaged; use the original model"
    ):
        SearchIndex.open(index.path).search("copy")
    assert SearchIndex.open(index.path).search("copy", mode="sparse").hits  # BM25 needs no model


def test_an_approximate_index_says_how_much_it_finds(model: DualEncoder, tmp_path: Path) -> None:
    texts = make_corpus(400)
    for kind in ("hnsw", "ivf-sq8", "sq8"):
        index = build_index(model, passages_of(texts), tmp_path / kind, kind=kind)
        facts = SearchIndex.open(tmp_path / kind).manifest.dense
        assert facts.kind == kind and 0.8 <= facts.recall <= 1 and facts.measured_with == "passages"
        assert index.search("copy a file", 5, mode="dense").hits


def test_windows_score_a_passage_by_its_best_window(model: DualEncoder, tmp_path: Path) -> None:
    texts = make_corpus(40, longest=40)
    index = build_index(model, passages_of(texts), tmp_path / "index", window=8, stride=4)
    windows = index.dense.windows
    assert len(windows) > len(texts) and index.manifest.dense.window == 8
    pieces = [index.collection.text_at(row)[first:last] for row, first, last in windows]
    assert max(len(piece.split()) for piece in pieces) == 8  # every word of the corpus is one token
    for row, text in enumerate(texts.values()):
        own = windows[windows[:, 0] == row]
        assert own[0, 1] == 0 and own[-1, 2] == len(text)
        assert (own[1:, 1] < own[:-1, 2]).all()  # they overlap
    for query in QUERIES:
        scores = dense_by_hand(model, pieces, query)
        best = np.array([scores[windows[:, 0] == row].max() for row in range(len(texts))])
        for k in (3, 40):
            hits = index.search(query, k, mode="dense").hits
            assert [hit.score for hit in hits] == pytest.approx(np.sort(best)[::-1][:k], abs=1e-5)
        for hit in hits:
            piece = hit.whole[slice(*hit.span)]
            assert model.score([(query, piece)])[0] == pytest.approx(hit.score, abs=1e-4)
    with pytest.raises(LimbeckError, match="a window of 15 tokens is too long for the model, which reads 14"):
        build_index(model, passages_of(texts), tmp_path / "wide", window=15)
    assert not (tmp_path / "wide").exists()
    for wrong in ({"window": 8, "stride": 9}, {"stride": 4}):
        with pytest.raises(LimbeckError, match="stride"):
            build_index(model, passages_of(texts), tmp_path / "wrong", **wrong)


def test_an_empty_corpus_and_a_model_without_vectors_are_refused(tmp_path: Path, tiny_bert: str) -> None:
    from limbeck.matchers import build, matcher_config

    with pytest.raises(LimbeckError, match="contains no passages"):
        build_index(None, passages_of({}), tmp_path / "index", dense=False)
    cross = build(matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=16))
    with pytest.raises(LimbeckError, match="is a cross_encoder, which does not give one vector per passage"):
        build_index(cross, passages_of({"a": "b"}), tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_only_bm25_uses_expansions(
    model: DualEncoder, corpus: dict[str, str], index: SearchIndex, tmp_path: Path
) -> None:
    first = next(iter(corpus))
    file = tmp_path / "expansions.jsonl"
    file.write_text(json.dumps({"_id": first, "queries": ["xylophone lessons", "xylophone"]}) + "\n")
    passages = passages_of(corpus)
    built = build_index(model, passages, tmp_path / "expanded", expansions=file)
    assert [hit.id for hit in built.search("xylophone", 3, mode="sparse").hits] == [first]
    assert not index.search("xylophone", 3, mode="sparse").hits
    ours, plain = (which.search("xylophone", 3, mode="dense").hits for which in (built, index))
    assert [(hit.id, hit.score) for hit in ours] == [(hit.id, hit.score) for hit in plain]
    assert (
        "xylophone" not in ours[0].text and "xylophone" not in built.search("xylophone", 1, mode="sparse").hits[0].text
    )
    with pytest.raises(LimbeckError, match="with other settings .another BM25, or none."):
        build_index(model, passages, tmp_path / "expanded")
    with pytest.raises(LimbeckError, match="--expansions requires BM25"):
        build_index(model, passages, tmp_path / "none", sparse=False, expansions=file)


def test_reading_a_model_deletes_nothing_beside_it(model: DualEncoder, tmp_path: Path) -> None:
    from limbeck.matchers import load

    model.save_pretrained(tmp_path / "mymodel")
    for name in (".mymodel.old", ".mymodel.limbeck-replaced", ".mymodel.0123abcd.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("x")
    load(tmp_path / "mymodel")
    assert len(list(tmp_path.glob(".mymodel.*/mine"))) == 3


@pytest.mark.parametrize("mark", [b"", b"{", b"[]", b'{"building": 3}', b"\xff\xfe", b'{"building": "tiny"}'])
def test_a_build_continues_if_its_mark_is_damaged(mark: bytes, corpus: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "index" / "work" / "encodings").mkdir(parents=True)
    (tmp_path / "index" / "work" / "unfinished-index.json").write_bytes(mark)
    index = build_index(None, passages_of(corpus), tmp_path / "index", dense=False)
    assert len(index) == len(corpus) and not (tmp_path / "index" / "work").exists()


class Watched:
    """A reporter that keeps every task, its total and its steps."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        steps: list[int] = []
        self.tasks.append((label, total, steps))
        yield steps.append

    def say(self, message: str) -> None:
        pass


def test_every_step_of_a_build_shows_how_far_it_is(model: DualEncoder, tmp_path: Path) -> None:
    watched, corpus = Watched(), make_corpus(300)
    with reporting(watched):
        build_index(model, passages_of(corpus), tmp_path / "index", kind="hnsw")
    wanted = ["Encoding documents", "Finding encodings", "Building the hnsw index", "Exact search, for comparison"]
    wanted += ["Choosing how thoroughly to search", "Reading words", "Counting words", "Weighting words"]
    shown = {label: (total, steps) for label, total, steps in watched.tasks}
    assert set(wanted) | {"Computing checksums"} <= set(shown)
    for label, total, steps in watched.tasks:
        assert total is not None and sum(steps) <= total, label
    total, steps = shown["Encoding documents"]
    assert total == sum(steps) == 300 and max(steps) < 150  # a batch at a time (4,096 tokens), not a block of 512
