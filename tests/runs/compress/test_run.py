"""Whole runs of compress with tiny models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

import limbeck as lb
from limbeck.data import RankingData, Texts, write_run
from limbeck.errors import LimbeckError
from limbeck.evaluation import evaluate_run
from limbeck.files import alone_in
from limbeck.matchers import build, matcher_config
from limbeck.recipe import load_recipe
from limbeck.runs import given_vectors
from limbeck.runs.compress import ladder
from limbeck.runs.compress.run import Compression, compress
from limbeck.runs.compress.source import base_recipe
from limbeck.runs.compress.table import read_compressed
from limbeck.runs.run import distill
from limbeck.search.sparse import bm25_candidates


def test_a_run_gives_a_front_a_student_and_a_verdict_and_can_be_repeated(dual, beir, tmp_path, few_steps, monkeypatch):
    out = tmp_path / "out"
    found = compress(str(dual), str(beir), out, minutes=60)
    rows = {row.name: row for row in found.rows}
    assert {"teacher", "BM25", "static"} <= rows.keys()
    assert rows["teacher"].kept == 1 and rows["teacher"].bytes_per_document == 24 * 4
    assert list(rows["static"].measures) == ["ndcg@10", "agreement ndcg@10", "overlap@10"]
    expected = lb.evaluate(dual, beir, task="retrieve", measures=["ndcg@10"]).measures["ndcg@10"]
    assert rows["teacher"].measures["ndcg@10"] == pytest.approx(expected)
    tried = {path.name for path in (out / "students").iterdir()}
    assert tried == {"static", "1-layer", "2-layers", "2-layers-both-sides"}
    assert found.recommended in rows and set(found.front) <= rows.keys()

    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["compression"]["recommended"] == found.recommended and not metrics["compression"]["unfinished"]
    page = (out / "report.html").read_text()
    places = [page.index(f"<h2>{title}</h2>") for title in ("The front", "What to do next", "Comparison")]
    assert places == sorted(places)

    ours, theirs = found.student, SentenceTransformer(str(out / "student"))
    assert np.allclose(theirs.encode_query(["copy a file"]), ours.encode_query(["copy a file"]), atol=1e-5)

    card = (out / "student" / "README.md").read_text()
    assert "distilled with Limbeck from a local model" in card and f"| **{found.recommended}** |" in card
    assert "until its vector is there, tokenising included, on 1 thread of" in card and str(tmp_path) not in card
    assert " held-out queries of " in card and f"from that of {found.verdict.baseline} (95% interval" in card

    again = distill(out / "students" / "static" / "recipe.yaml", tmp_path / "again")
    own = lb.load(out / "students" / "static" / "rung-1")
    assert np.allclose(again.student.encode_query(["copy a file"]), own.encode_query(["copy a file"]), atol=1e-6)

    monkeypatch.setattr("limbeck.runs.compress.ladder.train_student", lambda *_: pytest.fail("trained again"))
    cheap = compress(str(dual), str(beir), out, budgets=["1us"], minutes=60)
    assert not cheap.meets and "comes nearest" in cheap.next_steps[0]
    assert cheap.verdict.level.name in ("MARGINAL", "REGRESSION")
    with pytest.raises(LimbeckError, match="another data"):
        compress(str(dual), "pydocs", out)


def test_without_queries_spans_of_passages_serve_and_agreement_is_the_quality(dual, beir, tmp_path, few_steps):
    found = compress(str(dual), str(beir / "corpus.jsonl"), tmp_path / "out", minutes=60)
    assert any("no queries" in line for line in found.warnings)
    measures = next(row for row in found.rows if row.kind == "teacher").measures
    assert measures == {"agreement ndcg@10": 1.0, "overlap@10": 1.0}
    recipe = load_recipe(tmp_path / "out" / "recipe.yaml")
    assert recipe.data.source == str(tmp_path / "out" / "data") and recipe.data.held_out == 200


def test_a_cross_encoder_and_its_scores_have_students_that_order_candidates(
    cross, scores, beir, tiny_bert, tmp_path, few_steps
):
    found = compress(str(cross), str(beir), tmp_path / "out", start=tiny_bert, minutes=60)
    rows = {row.name: row for row in found.rows}
    assert {"teacher", "BM25", f"{Path(tiny_bert).name}, as it is"} <= rows.keys()
    assert rows["teacher"].bytes_per_document == 0
    assert any(row.kind == "student" for row in found.rows)

    found = compress(str(scores), str(beir), tmp_path / "of-scores", start=tiny_bert, minutes=60)
    assert found.verdict.speedup is None


def test_scores_are_compared_with_bm25_on_the_same_candidates(beir, tiny_bert, tmp_path, few_steps):
    data = lb.load_data(beir)
    bm25 = bm25_candidates(data, list(data.queries), len(data.corpus))
    chosen = {query: dict(list(scores.items())[:20:2]) for query, scores in bm25.items()}
    reversed_ = {query: {document: -score for document, score in scores.items()} for query, scores in chosen.items()}
    write_run(reversed_, tmp_path / "scores.trec")
    found = compress(str(tmp_path / "scores.trec"), str(beir), tmp_path / "out", start=tiny_bert, minutes=60)
    tested = json.loads((tmp_path / "out" / "measured" / "static" / "result.json").read_text())["result"]["query_ids"]
    labels = {query: data.qrels["train"][query] for query in tested}
    expected = evaluate_run({query: chosen[query] for query in tested}, labels, ["ndcg@10"]).means["ndcg@10"]
    row = next(row for row in found.rows if row.name == "BM25")
    assert row.measures["ndcg@10"] == pytest.approx(expected)
    assert any("no better than BM25" in line for line in found.warnings)
    assert found.verdict.level.name == "REGRESSION" and found.verdict.baseline == "BM25"


def test_scores_keep_a_share_of_what_they_reach_on_the_labels(dual, beir, tmp_path, few_steps):
    lb.annotate(dual, beir, tmp_path / "scores", depth=20)
    found = compress(str(tmp_path / "scores"), str(beir), tmp_path / "out", start=str(dual), minutes=60)
    row = next(row for row in found.rows if row.kind == "student")
    measure = next(iter(row.measures))
    whole = row.measures[measure] / row.kept
    assert all(other.kept == pytest.approx(other.measures[measure] / whole) for other in found.rows)
    assert measure != "ndcg@10" or 0 < whole < 1
    with pytest.raises(LimbeckError, match="--question is for a teacher that is a model"):
        compress(str(tmp_path / "scores"), str(beir), tmp_path / "more", questions=["how"])


def test_edited_texts_and_another_teacher_of_the_same_name_are_not_mixed_with_a_run(dual, beir, tmp_path, few_steps):
    own, out = tmp_path / "own", tmp_path / "out"
    shutil.copytree(beir, own)
    compress(str(dual), str(own), out, minutes=0.001)
    corpus = own / "corpus.jsonl"
    before = corpus.read_text()
    corpus.write_text(before.replace("copy", "duplicate", 1))
    with pytest.raises(LimbeckError, match="with other texts, labels, scores or weights under the same names"):
        compress(str(dual), str(own), out, minutes=0.001)
    corpus.write_text(before)
    compress(str(dual), str(own), out, minutes=0.001)
    lengths = {"query_length": 8, "document_length": 8}
    build(matcher_config(init_from=str(dual), **lengths)).save_pretrained(dual)
    with pytest.raises(LimbeckError, match="scores or weights"):
        compress(str(dual), str(own), out, minutes=0.001)


def test_an_edited_corpus_without_queries_is_not_mixed_with_the_spans_of_a_run(dual, beir, tmp_path, few_steps):
    corpus = tmp_path / "corpus.jsonl"
    shutil.copy(beir / "corpus.jsonl", corpus)
    compress(str(dual), str(corpus), tmp_path / "out", minutes=0.001)
    compress(str(dual), str(corpus), tmp_path / "out", minutes=0.001)
    corpus.write_text(corpus.read_text().replace("copy", "duplicate", 1))
    with pytest.raises(LimbeckError, match="other texts under the same names"):
        compress(str(dual), str(corpus), tmp_path / "out", minutes=0.001)


def test_the_same_scores_go_on_wherever_they_come_from_and_another_start_does_not(
    scores, beir, tiny_bert, tmp_path, few_steps
):
    start, asked = tmp_path / "start", {"start": str(tmp_path / "start"), "minutes": 0.001}
    shutil.copytree(tiny_bert, start)
    compress(str(scores), str(beir), tmp_path / "out", **asked)
    shutil.copytree(scores, tmp_path / "copy")
    shutil.rmtree(scores)
    shutil.copytree(tmp_path / "copy", scores)  # other times and inodes
    compress(str(scores), str(beir), tmp_path / "out", **asked)
    torch.manual_seed(9)
    model = AutoModel.from_pretrained(start)
    model.embeddings.word_embeddings.weight.data.normal_()
    model.save_pretrained(start)
    with pytest.raises(LimbeckError, match="scores or weights"):
        compress(str(scores), str(beir), tmp_path / "out", **asked)


def test_a_call_that_was_killed_while_it_read_vectors_goes_on(dual, beir, tmp_path, few_steps, monkeypatch):
    vectors = lb.load(dual).encode_document([text for _, text in lb.load_data(beir).corpus.items()])
    np.save(tmp_path / "given.npy", vectors)
    whole = given_vectors._copy

    def interrupted(*copied):
        whole(*copied)
        raise KeyboardInterrupt

    given = {"vectors": str(tmp_path / "given.npy"), "minutes": 0.001}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(given_vectors, "_copy", interrupted)
        compress(str(dual), str(beir), tmp_path / "out", **given)
    assert compress(str(dual), str(beir), tmp_path / "out", **given).rows


def test_nothing_is_cleaned_in_a_folder_of_something_else(dual, beir, tmp_path, few_steps):
    other = tmp_path / "home" / "job" / ".scores.jsonl.0123abcd.partial"
    other.parent.mkdir(parents=True)
    other.touch()
    (tmp_path / "home" / ".x.partial").touch()
    with pytest.raises(LimbeckError, match="contains no run of compress"):
        compress(str(dual), str(beir), tmp_path / "home")
    assert other.exists()


def test_a_refused_call_changes_nothing_of_a_folder_that_was_there(dual, beir, tmp_path, few_steps):
    vectors = lb.load(dual).encode_document([text for _, text in lb.load_data(beir).corpus.items()])
    np.save(tmp_path / "wrong.npy", vectors[::-1])
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(LimbeckError, match="did not make"):
        compress(str(dual), str(beir), out, vectors=str(tmp_path / "wrong.npy"))
    np.save(tmp_path / "right.npy", vectors)
    found = compress(str(dual), str(beir), out, vectors=str(tmp_path / "right.npy"), minutes=0.001)
    assert found.recommended == "static" and "limbeck search INDEX --encoder" in " ".join(found.next_steps)


def test_a_folder_that_another_process_writes_is_left_alone(dual, beir, tmp_path, few_steps):
    out = tmp_path / "out"
    compress(str(dual), str(beir), out, minutes=0.001)
    recipe = (out / "recipe.yaml").stat().st_mtime_ns
    with alone_in(out), pytest.raises(LimbeckError, match="another limbeck process is writing to it"):
        compress(str(dual), str(beir), out, minutes=0.001)
    assert (out / "recipe.yaml").stat().st_mtime_ns == recipe


def test_a_users_vectors_are_kept_or_refused(dual, beir, tmp_path, few_steps):
    texts = [text for _, text in lb.load_data(beir).corpus.items()]
    vectors = lb.load(dual).encode_document(texts)
    np.save(tmp_path / "wrong.npy", vectors[::-1])
    with pytest.raises(LimbeckError, match="did not make"):
        compress(str(dual), str(beir), tmp_path / "out", vectors=str(tmp_path / "wrong.npy"))
    assert not (tmp_path / "out").exists()
    np.save(tmp_path / "narrow.npy", vectors[:, :8])
    with pytest.raises(LimbeckError, match="8 numbers per document"):
        compress(str(dual), str(beir), tmp_path / "out", vectors=str(tmp_path / "narrow.npy"))
    lb.index(dual, beir, tmp_path / "index", kind="flat")
    found = compress(str(dual), str(beir), tmp_path / "out", vectors=str(tmp_path / "index"), minutes=60)
    assert not any("both sides" in path.name for path in (tmp_path / "out" / "students").iterdir())
    hits = (
        lb.open_index(tmp_path / "index", model=tmp_path / "out" / "student").search("copy a file", mode="dense").hits
    )
    assert hits and found.student.identity(1) == lb.load(dual).identity(1)


def test_when_the_time_is_over_the_others_are_named_and_more_time_goes_on(dual, beir, tmp_path, few_steps):
    out = tmp_path / "out"
    found = compress(str(dual), str(beir), out, minutes=0.001)
    assert [row.name for row in found.rows if row.kind == "student"] == ["static"]
    assert found.notes["2 layers"] == "not tried: no time left"
    kept = (out / "students" / "static" / "rung-1" / "modules.json").stat().st_mtime_ns
    same = compress(str(dual), str(beir), out, budgets=["1s"], minutes=0.001)
    assert same.rows == found.rows and same.notes == found.notes  # its time is used up: it only chooses
    more = compress(str(dual), str(beir), out, minutes=60)
    assert not any("not tried" in note for note in more.notes.values())
    assert (out / "students" / "static" / "rung-1" / "modules.json").stat().st_mtime_ns == kept


def interrupt_training(monkeypatch, of: str) -> None:
    """Interrupt a run where it begins to train a candidate."""
    whole = ladder.train_student

    def train_student(task, recipe, name, *rest, **more):
        if name == of:
            raise KeyboardInterrupt
        return whole(task, recipe, name, *rest, **more)

    monkeypatch.setattr(ladder, "train_student", train_student)


def test_a_run_that_is_interrupted_while_its_second_student_trains_has_a_table(
    dual, beir, tmp_path, few_steps, monkeypatch
):
    out = tmp_path / "out"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_training(patched, "2 layers")
        compress(str(dual), str(beir), out, minutes=60)
    found = read_compressed(out)
    assert [row.name for row in found.rows if row.kind == "student"] == ["static"]
    assert found.recommended == "static" and found.row.ms_per_query > 0
    assert json.loads((out / "metrics.json").read_text())["compression"]["unfinished"]
    assert "not finished" in (out / "report.html").read_text()
    assert found.student.encode_query("copy a file").shape == (24,)
    compress(str(dual), str(beir), out, minutes=60)
    assert not json.loads((out / "metrics.json").read_text())["compression"]["unfinished"]


def measured_as(out, name: str) -> str:
    """The weights that a student's row belongs to."""
    return json.loads((out / "measured" / name / "result.json").read_text())["of"]


def test_a_student_that_is_measured_early_and_trained_further_is_measured_again(
    scores, beir, tiny_bert, tmp_path, few_steps, monkeypatch
):
    out = tmp_path / "out"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_training(patched, "2 layers")
        compress(str(scores), str(beir), out, start=tiny_bert, minutes=60)
    assert measured_as(out, "static") == "rung-1"
    monkeypatch.setattr("limbeck.runs.compress.ladder.Ladder._stop_dominated", lambda *_: None)
    monkeypatch.setattr(ladder, "CLEARLY_WORSE", 0.0)  # keep all students
    found = compress(str(scores), str(beir), out, start=tiny_bert, minutes=60)
    assert "static" in [row.name for row in found.rows] and measured_as(out, "static") == "rung-3"


def test_the_table_of_an_unfinished_run_has_the_students_that_are_there(
    scores, beir, tiny_bert, tmp_path, few_steps, monkeypatch
):
    """Static is measured after its first rung; when the next student is done, static has had its second."""
    whole = ladder.train_student

    def train_student(task, recipe, name, folder, **more):
        if name.startswith("ColBERT") and folder.name == "rung-2":
            raise KeyboardInterrupt
        return whole(task, recipe, name, folder, **more)

    monkeypatch.setattr(ladder, "train_student", train_student)
    monkeypatch.setattr("limbeck.runs.compress.ladder.Ladder._stop_dominated", lambda *_: None)
    monkeypatch.setattr(ladder, "CLEARLY_WORSE", 0.0)
    with pytest.raises(KeyboardInterrupt):
        compress(str(scores), str(beir), tmp_path / "out", start=tiny_bert, minutes=60)
    assert len([row for row in read_compressed(tmp_path / "out").rows if row.kind == "student"]) > 1
    assert measured_as(tmp_path / "out", "static") == "rung-2"


def test_a_student_that_is_measured_early_and_stopped_later_is_not_in_the_table(
    scores, beir, tiny_bert, tmp_path, few_steps, monkeypatch
):
    def stop_static(self, rung):
        self.progress["static"].note, self.progress["static"].over = "stopped", True

    monkeypatch.setattr("limbeck.runs.compress.ladder.Ladder._stop_dominated", stop_static)
    found = compress(str(scores), str(beir), tmp_path / "out", start=tiny_bert, minutes=60)
    assert measured_as(tmp_path / "out", "static") == "rung-1"
    assert "static" not in [row.name for row in found.rows] and found.notes["static"] == "stopped"


def test_a_finished_run_with_time_left_trains_nothing_for_another_budget(dual, beir, tmp_path, few_steps, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(ladder.Ladder, "_estimate", lambda self, name, rung: 0.0 if name == "static" else 1e9)
        found = compress(str(dual), str(beir), out, minutes=60)
    assert found.notes["2 layers"] == ladder.NOT_TRIED
    same = compress(str(dual), str(beir), out, budgets=["1s"], minutes=60)
    assert same.rows == found.rows and same.notes == found.notes
    more = compress(str(dual), str(beir), out, minutes=61)
    assert not any("no time left" in note for note in more.notes.values())


def test_a_run_that_goes_on_reserves_as_much_time_as_one_that_was_not_interrupted(
    dual, beir, tmp_path, few_steps, monkeypatch
):
    whole, seen = Compression._reserve, list[dict[str, float]]()

    def reserve(self, others):
        seen.append(dict(self.contenders.spent))
        return whole(self, others)

    monkeypatch.setattr(Compression, "_reserve", reserve)
    interrupt_training(monkeypatch, "2 layers")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compress(str(dual), str(beir), tmp_path / "out", minutes=60)
    first, resumed = seen[1], seen[2]  # both before the second student; the first student came before
    assert resumed == first and sum(first.values()) > 0


def test_a_call_that_was_killed_at_its_first_file_does_not_block_the_folder(dual, beir, tmp_path, few_steps):
    half = tmp_path / "out" / ".compress.json.0123abcd.partial"
    half.parent.mkdir()
    half.touch()
    assert compress(str(dual), str(beir), tmp_path / "out", minutes=0.001).rows and not half.exists()


def test_a_corpus_of_ten_works_and_a_single_document_is_refused(dual, beir, tmp_path, few_steps):
    lines = (beir / "corpus.jsonl").read_text().splitlines()
    (tmp_path / "ten.jsonl").write_text("\n".join(lines[:10]) + "\n")
    assert compress(str(dual), str(tmp_path / "ten.jsonl"), tmp_path / "out", minutes=0.001).rows
    (tmp_path / "one.jsonl").write_text(lines[0] + "\n")
    with pytest.raises(LimbeckError, match="has 1 document, "):
        compress(str(dual), str(tmp_path / "one.jsonl"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_teacher_that_is_no_better_than_bm25_is_reported_before_anything_is_measured(
    dual, beir, tmp_path, few_steps, monkeypatch
):
    said: list[str] = []
    monkeypatch.setattr("limbeck.runs.task.say", said.append)
    monkeypatch.setattr("limbeck.runs.compress.contenders.say", said.append)
    compress(str(dual), str(beir), tmp_path / "out", minutes=0.001)
    (warning,) = (line for line in said if "no better than BM25" in line)
    assert said.index(warning) < said.index("Measuring teacher")


def test_minilm_as_it_is_is_a_baseline_unless_it_is_the_teacher_or_vectors_are_kept(
    dual, beir, tiny_bert, tmp_path, few_steps, monkeypatch
):
    monkeypatch.setattr("limbeck.runs.compress.run.has_minilm", lambda: True)
    monkeypatch.setattr("limbeck.runs.compress.run.MINILM", tiny_bert)
    found = compress(str(dual), str(beir), tmp_path / "out", minutes=0.001)
    row = next(row for row in found.rows if row.name == f"{Path(tiny_bert).name}, as it is")
    expected = lb.evaluate(tiny_bert, beir, task="retrieve", measures=["ndcg@10"]).measures["ndcg@10"]
    assert row.kind == "baseline" and row.measures["ndcg@10"] == pytest.approx(expected)

    shutil.copytree(dual, tmp_path / "copy")
    monkeypatch.setattr("limbeck.runs.compress.run.MINILM", str(tmp_path / "copy"))
    found = compress(str(dual), str(beir), tmp_path / "same", minutes=0.001)
    assert not any("as it is" in row.name for row in found.rows)

    monkeypatch.setattr("limbeck.runs.compress.run.MINILM", tiny_bert)
    lb.index(dual, beir, tmp_path / "index", kind="flat")
    found = compress(str(dual), str(beir), tmp_path / "kept", vectors=str(tmp_path / "index"), minutes=0.001)
    assert not any("as it is" in row.name for row in found.rows)


def test_a_teacher_reads_as_many_tokens_as_it_is_told(dual, beir, tmp_path, few_steps):
    compress(str(dual), str(beir), tmp_path / "short", minutes=0.001, length=4)
    compress(str(dual), str(beir), tmp_path / "whole", minutes=0.001)
    short, whole = ((tmp_path / name / "teacher" / "lists.json").read_text() for name in ("short", "whole"))
    assert short != whole
    assert load_recipe(tmp_path / "short" / "recipe.yaml").teacher.length == 4
    with pytest.raises(LimbeckError, match="another length"):
        compress(str(dual), str(beir), tmp_path / "short", minutes=0.001)


@pytest.mark.parametrize(
    ("texts", "queries", "spans"), [(10_000, 3, 8), (5, 3, 1), (4, 3, 0), (2, 2, 0), (None, None, 8)]
)
def test_a_short_run_trains_on_fewer_texts(texts, queries, spans):
    corpus, three = ({f"{name}{at}": "a text" for at in range(count)} for name, count in (("d", 2), ("q", 3)))
    data = RankingData("few", Texts.from_dict(corpus), Texts.from_dict(three), {"test": {}})
    found = base_recipe({"model": "minilm"}, "few", data, True, 10, 0, None, texts)["data"]
    assert (found.get("train_queries"), found["spans"]) == (queries, spans)
