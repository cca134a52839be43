"""Signals end to end: cached teacher embeddings, batches without lists, and what is trained with an objective."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.objectives.base import OBJECTIVES, Objective, objective
from limbeck.progress import reporting
from limbeck.recipe.stage import Stage
from limbeck.runs.run import distill
from limbeck.signals import Signals, Sizes, Targets
from limbeck.stores import EncodingStore
from limbeck.stores.encodings import store_path
from limbeck.training.batches import Collator
from limbeck.training.lists import TextLists
from limbeck.training.stages import Fit, fit
from limbeck.training.stored_outputs import stored_embeddings
from limbeck.training.teachers import CachedTeacher
from tests.test_progress import Watcher
from tests.training.toy import ToyLists, tiny_student

EMBEDDINGS = frozenset({"queries", "documents"})


@pytest.fixture(autouse=True)
def _own_objectives():
    """Objectives of these tests, known by name while they run."""

    @objective
    class same_queries(Objective):
        needs_student = frozenset({"queries"})
        needs_teacher = frozenset({"queries"})

        def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
            return (student.queries - teacher.queries).square().sum(-1)

    @objective
    class same_texts(Objective):
        needs_student = EMBEDDINGS
        needs_teacher = EMBEDDINGS

        def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
            queries = (student.queries - teacher.queries).square().sum(-1)
            documents = targets.per_list((student.documents - teacher.documents).square().sum(-1))
            return queries + torch.where(targets.mask, documents, 0.0).sum(-1)

    @objective
    class projected_queries(Objective):
        needs_student = frozenset({"queries"})
        needs_teacher = frozenset({"queries"})
        folds = ("projection",)

        def heads(self, sizes: Sizes) -> dict[str, nn.Module]:
            return {"projection": nn.Linear(sizes.student, sizes.teacher, bias=False)}

        def __call__(self, student, teacher, targets, heads):
            return (heads["projection"](student.queries) - teacher.queries).square().sum(-1)

    yield
    for kind in (same_queries, same_texts, projected_queries):
        del OBJECTIVES[kind.__name__]


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_cached_teacher_shows_the_embeddings_that_a_live_one_shows(tiny_bert, tmp_path, in_batch):
    student, teacher = tiny_student(tiny_bert), tiny_student(tiny_bert, dim=6)
    cached = CachedTeacher(EMBEDDINGS, stored_embeddings(teacher, tmp_path))
    batch = Collator(ToyLists(), student, teacher, cached, in_batch=in_batch)([(0, index) for index in range(5)])
    live = teacher.eval()(batch.live, EMBEDDINGS)
    assert batch.teacher.scores is None and live.scores is None
    assert batch.teacher.queries.shape == (5, 6) and len(batch.teacher.documents) == batch.student.document_count
    torch.testing.assert_close(batch.teacher.queries, live.queries, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(batch.teacher.documents, live.documents, atol=1e-5, rtol=1e-4)
    scores = teacher(batch.live).scores
    listed = (live.queries.unsqueeze(1) * batch.targets.per_list(live.documents)).sum(-1)
    torch.testing.assert_close(scores, listed, atol=1e-4, rtol=1e-4)


def test_stored_embeddings_are_computed_once(tiny_bert, tmp_path, monkeypatch):
    teacher = tiny_student(tiny_bert)
    stored_embeddings(teacher, tmp_path).add_all([["copy a file", "sort"], ["open the folder"]])
    monkeypatch.setattr(teacher, "encode", lambda *_: pytest.fail("computed again"))
    again = stored_embeddings(teacher, tmp_path)
    again.add_all([["sort"], ["open the folder"]])
    assert again(["sort"], 0).shape == (1, 32)


def test_stored_embeddings_report_one_task_for_each_side(tiny_bert, tmp_path):
    watcher = Watcher()
    with reporting(watcher):
        stored_embeddings(tiny_student(tiny_bert), tmp_path).add_all([["copy a file", "sort"], ["open the folder"]])
    seen = [(label, total, sum(counts)) for label, total, counts in watcher.seen]
    assert seen == [("Encoding queries", 2, 2), ("Encoding documents", 1, 1)]


def test_texts_make_a_batch_without_lists(tiny_bert, tmp_path):
    student, teacher = tiny_student(tiny_bert), tiny_student(tiny_bert, dim=None)
    cached = CachedTeacher(frozenset({"queries"}), stored_embeddings(teacher, tmp_path))
    texts = TextLists(["copy a file", "sort a list", "open the folder"])
    batch = Collator(texts, student, cached=cached)([(0, 0), (0, 1), (0, 2)])
    assert batch.targets.mask.shape == batch.targets.labels.shape == (3, 0)
    assert batch.student.document_count == 0
    shown = student(batch.student, frozenset({"queries"}))
    assert shown.queries.shape == batch.teacher.queries.shape == (3, 32)
    with pytest.raises(LimbeckError, match="there are no texts to train on"):
        TextLists([])


def losses(folder, name):
    import json

    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["objectives"][name] for line in lines if "objectives" in line]


def test_a_student_learns_its_teachers_embeddings_from_queries_only(recipe, tiny_bert, tmp_path):
    """No label, no document, no BM25: the other half of the recipe stays what it was."""
    tiny_student(tiny_bert, dim=8).save_pretrained(tmp_path / "teacher")
    stage = {"objectives": ["same_queries"], "steps": 80, "batch_size": 8, "lr": 3e-3}
    recipe |= {"teacher": {"model": str(tmp_path / "teacher")}, "stages": [stage]}
    recipe["student"] |= {"layers": 1, "dim": 8}
    distill(recipe, tmp_path / "run")
    found = losses(tmp_path / "run", "same_queries")
    assert found[-1] < 0.5 * found[0]
    assert (tmp_path / "run" / "teacher" / "embeddings").is_dir()


def test_embeddings_and_scores_are_learnt_side_by_side(recipe, tiny_bert, tmp_path):
    tiny_student(tiny_bert, dim=8).save_pretrained(tmp_path / "teacher")
    stage = {
        "objectives": ["0.1 * same_texts", "softmax_ce"],
        "steps": 6,
        "batch_size": 4,
        "lists": {"size": 3, "pool": 4},
    }
    recipe |= {"teacher": {"model": str(tmp_path / "teacher")}, "stages": [stage]}
    recipe["student"] |= {"layers": 1, "dim": 8}
    distill(recipe, tmp_path / "run")
    assert all(np.isfinite(losses(tmp_path / "run", "same_texts")))


def test_an_objectives_projection_is_trained_and_becomes_a_part_of_the_student(recipe, tiny_bert, tmp_path):
    tiny_student(tiny_bert, dim=6).save_pretrained(tmp_path / "teacher")
    stage = {"objectives": ["projected_queries"], "steps": 120, "batch_size": 8, "lr": 3e-3}
    recipe |= {"teacher": {"model": str(tmp_path / "teacher")}, "stages": [stage]}
    recipe["student"] |= {"layers": 1}
    recipe["student"].pop("dim", None)
    recipe["student"].pop("scale", None)
    distill(recipe, tmp_path / "run")
    student, teacher = lb.load(tmp_path / "run" / "student"), lb.load(tmp_path / "teacher")
    assert student.encode_query(["copy a file"]).shape == (1, 6)
    found = losses(tmp_path / "run", "projected_queries")
    assert found[-1] < 0.5 * found[0]
    queries = ["copy a file", "sort the list"]
    off = np.square(student.encode_query(queries) - teacher.encode_query(queries)).sum(axis=1).mean()
    assert off < 2 * found[0]
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(tmp_path / "run" / "student")).encode_query(queries)
    np.testing.assert_allclose(theirs, student.encode_query(queries), atol=1e-5)


def test_a_killed_run_with_a_projection_ends_bit_equal(tiny_bert, tmp_path, monkeypatch):
    stage = Stage(objectives=["projected_queries"], steps=6, batch_size=4, lr=1e-3, checkpoint_seconds=0)
    texts = TextLists(["copy a file", "sort a list", "open the folder", "read a line", "move"])

    def run(folder):
        student, teacher = tiny_student(tiny_bert), tiny_student(tiny_bert, dim=6)
        how = Fit("student", folder, folder / "log.jsonl", seed=3, cached_teacher=teacher)
        how.embeddings = stored_embeddings(teacher, folder / "embeddings")
        fit(student, [stage], lambda _: texts, how)
        return student

    class Killed(BaseException):
        pass

    from limbeck.training import trainer as trainer_module

    plain, calls = trainer_module.DistillationTrainer.compute_loss, []

    def compute_loss(self, *args, **kwargs):
        calls.append(None)
        if len(calls) == 4:
            raise Killed
        return plain(self, *args, **kwargs)

    whole = run(tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer_module.DistillationTrainer, "compute_loss", compute_loss)
        run(tmp_path / "killed")
    again = run(tmp_path / "killed")
    assert whole.dim == 6 and not len(whole.heads)
    for (name, one), (_, other) in zip(whole.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_without_a_dual_encoder_as_teacher_the_embeddings_are_those_of_the_start(recipe, tiny_bert, tmp_path):
    recipe["stages"] = [{"objectives": ["same_queries"], "epochs": 1, "batch_size": 4}]
    distill(recipe, tmp_path / "run")
    start = lb.load(tiny_bert)
    start.limit_tokens(recipe["student"]["document_length"])
    key = {**start.identity(0), "side": "query"}
    stored = EncodingStore.open(store_path(tmp_path / "run" / "teacher" / "embeddings", key), key, start.dim)
    texts = [text for _, text in lb.load_data(recipe["data"]["source"]).queries.items()][:18]
    assert np.allclose(stored.get(texts), start.encode_query(texts), atol=1e-5)


def test_a_start_without_an_embedding_cannot_be_a_reference(recipe, tiny_bert, tmp_path):
    torch.manual_seed(0)
    build(matcher_config("cross_encoder", init_from=tiny_bert, query_length=8, document_length=16)).save_pretrained(
        tmp_path / "cross"
    )
    recipe["stages"] = [{"objectives": ["same_queries"], "steps": 2, "batch_size": 4}]
    recipe["student"]["init_from"] = str(tmp_path / "cross")
    del recipe["teacher"]
    with pytest.raises(LimbeckError, match="a cross_encoder has no embedding to match; give a teacher"):
        distill(recipe, tmp_path / "run")
