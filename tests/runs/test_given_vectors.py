"""`teacher.vectors`: document vectors that the user has are used, checked, and never computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.matchers.tower import Tower
from limbeck.recipe.teacher_spec import TeacherSpec
from limbeck.runs import given_vectors
from limbeck.runs.run import distill
from limbeck.training.stored_outputs import stored_embeddings

LENGTHS = {"query_length": 16, "document_length": 16}


@pytest.fixture
def given(recipe: dict, tiny_bert: str, tmp_path: Path) -> dict:
    """A student with its teacher's documents, matched on queries and documents; raw vectors have any length."""
    torch.manual_seed(3)
    build(matcher_config(init_from=tiny_bert, dim=24, **LENGTHS)).save_pretrained(tmp_path / "teacher")
    recipe["teacher"] = {"model": str(tmp_path / "teacher")}
    recipe["student"] = {"init_from": tiny_bert, "layers": 1, "document": "teacher", "align": True, **LENGTHS}
    recipe["stages"] = [{"objectives": ["match_embeddings(of=queries)"], "epochs": 1, "batch_size": 8, "lr": 1e-3}]
    recipe["data"]["spans"] = 1
    recipe["evaluation"] = {"task": "both", "depth": 10, "dev_depth": 8, "baselines": ["bm25"], "analyses": []}
    return recipe


@pytest.fixture
def encoded(monkeypatch) -> list[str]:
    """Documents that the teacher's tower, of three layers, encoded since."""
    found: list[str] = []
    original = Tower.encode

    def encode(self, texts, side, batch_size=32):
        if side == "document" and self.transformer("document").model.config.num_hidden_layers == 3:
            found.extend(texts)
        return original(self, texts, side, batch_size)

    monkeypatch.setattr(Tower, "encode", encode)
    return found


def teacher_vectors(recipe: dict) -> np.ndarray:
    corpus = lb.load_data(recipe["data"]["source"]).corpus
    return lb.load(recipe["teacher"]["model"]).encode_document([text for _, text in corpus.items()])


def with_vectors(recipe: dict, path: Path) -> dict:
    return {**recipe, "teacher": {**recipe["teacher"], "vectors": str(path)}}


def saved(recipe: dict, path: Path, vectors: np.ndarray) -> dict:
    np.save(path, vectors)
    return with_vectors(recipe, path)


def test_a_store_of_an_index_serves_the_run_and_is_not_changed(given, tmp_path, encoded):
    lb.index(tmp_path / "teacher", given["data"]["source"], tmp_path / "index", store=tmp_path / "store")
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert len(set(encoded)) == 60
    encoded.clear()
    distill(with_vectors(given, tmp_path / "store"), tmp_path / "run")
    assert not encoded
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before


def test_a_store_gives_what_it_has_and_the_run_computes_the_rest(given, tmp_path, encoded):
    teacher = lb.load(tmp_path / "teacher")
    theirs = stored_embeddings(teacher, tmp_path / "theirs")
    theirs.add(["copy a file", "sort"], 1)
    encoded.clear()
    ours = stored_embeddings(teacher, tmp_path / "ours")
    ours.given[1] = theirs.stores[1]
    ours.add_all([[], ["sort", "open the folder", "copy a file"]])
    texts = ["open the folder", "copy a file", "move", "sort"]
    found = ours(texts, 1)
    assert encoded == ["open the folder", "move"] and len(theirs.stores[1]) == 2
    assert np.allclose(found, teacher.encode_document(texts), atol=1e-5)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_an_index_with_whole_vectors_serves_the_run(given, tmp_path, encoded, kind):
    lb.index(tmp_path / "teacher", given["data"]["source"], tmp_path / "index", kind=kind)
    encoded.clear()
    distill(with_vectors(given, tmp_path / "index"), tmp_path / "run")
    assert len(encoded) == given_vectors.COMPARED


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_vector_file_serves_the_run(given, tmp_path, encoded, monkeypatch, dtype):
    """In blocks, also for the targets of documents; the result is that of a run without the file."""
    monkeypatch.setattr(given_vectors, "BLOCK", 7)
    given["student"].pop("document")
    given["stages"][0]["objectives"] = ["match_embeddings"]
    recipe = saved(given, tmp_path / "vectors.npy", teacher_vectors(given).astype(dtype))
    encoded.clear()
    texts = {text for _, text in lb.load_data(given["data"]["source"]).corpus.items()}
    with_file = distill(recipe, tmp_path / "run").student
    assert len(encoded) == given_vectors.COMPARED
    without = distill(given, tmp_path / "plain").student
    some = sorted(texts)[:5]
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    assert np.allclose(with_file.encode_document(some), without.encode_document(some), atol=tolerance)


def test_a_killed_run_does_not_read_the_file_again(given, tmp_path, monkeypatch):
    recipe = saved(given, tmp_path / "vectors.npy", teacher_vectors(given))
    monkeypatch.setattr("limbeck.runs.train_student.start_student", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        distill(recipe, tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr(given_vectors, "_copy", lambda *_: 1 / 0)
    assert distill(recipe, tmp_path / "run").student is not None


def wrong_vectors(recipe: dict, case: str) -> np.ndarray:
    vectors = teacher_vectors(recipe)
    if case == "rows":
        return vectors[:-1]
    if case == "size":
        return np.ascontiguousarray(vectors[:, :8])
    if case == "order":
        return np.roll(vectors, 1, axis=0)
    if case == "scaled":
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    if case == "integers":
        return vectors.astype(np.int64)
    vectors[1, 3] = np.nan  # not among those that are compared
    return vectors


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("rows", "has 59 rows, and the corpus has 60 documents; give one row for each document, in the order of"),
        ("size", "has 8 numbers per document, the teacher's embeddings have 24; give vectors that the teacher made"),
        ("order", r"vectors that the teacher did not make: that of document 'd\d+' has a cosine of -?\d\.\d+ to"),
        ("scaled", "has scaled vectors: that of document 'd0' has length 1, the teacher's .*; save what the teacher"),
        ("integers", r"is an array \[60, 24\] of int64, not \[documents, dim\] of floats; save one float vector"),
        ("nan", r"row 1 \(document 'd1'\) has a number that is not finite; encode that document again"),
    ],
)
def test_a_wrong_vector_file_is_refused_before_training(given, tmp_path, monkeypatch, case, line):
    recipe = saved(given, tmp_path / "vectors.npy", wrong_vectors(given, case))
    monkeypatch.setattr("limbeck.runs.train_student.start_student", lambda *_: pytest.fail("too late"))
    with pytest.raises(LimbeckError, match=rf"^{tmp_path}/vectors.npy: teacher.vectors: .*{line}"):
        distill(recipe, tmp_path / "run")


def test_an_invalid_vector_file_is_refused_before_the_teacher_is_loaded(given, tmp_path):
    given["teacher"]["model"] = str(tmp_path / "absent")
    (tmp_path / "vectors.npy").write_text("no array")
    (tmp_path / "vectors.txt").write_text("1 2 3")
    for name, line in (
        ("vectors.npy", "cannot be read .*; write it with numpy.save"),
        ("vectors.txt", "is not a .npy file; give a folder of `limbeck index --store`"),
        ("nothing", "no such file or folder; give a folder of"),
    ):
        with pytest.raises(LimbeckError, match=line):
            distill(with_vectors(given, tmp_path / name), tmp_path / "run")


def test_folders_without_the_teachers_vectors_are_refused(given, tiny_bert, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LimbeckError, match="empty: teacher.vectors: has no vectors; give a folder of"):
        distill(with_vectors(given, tmp_path / "empty"), tmp_path / "run")
    source = given["data"]["source"]
    lb.index(tiny_bert, source, tmp_path / "other", store=tmp_path / "store")
    with pytest.raises(LimbeckError, match="has only vectors of other models or lengths; set teacher.model, teacher.l"):
        distill(with_vectors(given, tmp_path / "store"), tmp_path / "run")
    with pytest.raises(LimbeckError, match="built with another model than the teacher, or another length; set teach"):
        distill(with_vectors(given, tmp_path / "other"), tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"kind": "sq8"}, r"keeps only 8 bits of each number \(sq8\); build the index again with --store DIR"),
        ({"window": 8}, "has vectors of windows, not of whole documents; build the index again with --store"),
        ({"dense": False}, "is an index without vectors; build it without --no-dense"),
    ],
)
def test_an_index_that_does_not_keep_whole_vectors_is_refused(given, tmp_path, options, line):
    lb.index(tmp_path / "teacher", given["data"]["source"], tmp_path / "index", **options)
    with pytest.raises(LimbeckError, match=line):
        distill(with_vectors(given, tmp_path / "index"), tmp_path / "run")


def test_an_index_of_cosines_has_unit_vectors_which_are_not_the_teachers(given, tiny_bert, tmp_path):
    torch.manual_seed(3)
    build(matcher_config(init_from=tiny_bert, similarity="cosine", **LENGTHS)).save_pretrained(tmp_path / "cosine")
    given["teacher"]["model"] = str(tmp_path / "cosine")
    lb.index(tmp_path / "cosine", given["data"]["source"], tmp_path / "index")
    with pytest.raises(LimbeckError, match="has scaled vectors: .*; build the index again with --store DIR, and give"):
        distill(with_vectors(given, tmp_path / "index"), tmp_path / "run")


def test_a_teacher_without_document_vectors_is_refused(given, tiny_bert, tmp_path):
    recipe = saved(given, tmp_path / "vectors.npy", teacher_vectors(given))
    build(matcher_config("cross_encoder", init_from=tiny_bert, **LENGTHS)).save_pretrained(tmp_path / "cross")
    recipe["teacher"]["model"] = str(tmp_path / "cross")
    recipe["student"].pop("document")
    with pytest.raises(LimbeckError, match="a cross_encoder has no document vectors; drop vectors, or give a teacher"):
        distill(recipe, tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"scores": "scores"}, "vectors belong to a model that is used as it is; give model, or drop vectors"),
        ({"model": "minilm", "live": True}, "a live teacher uses no stored vectors; drop vectors, or live"),
    ],
)
def test_vectors_need_a_model_whose_embeddings_are_stored(options, line):
    with pytest.raises(ValueError, match=line):
        TeacherSpec(vectors="vectors.npy", **options)
