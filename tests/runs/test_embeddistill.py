"""EmbedDistill through whole runs: asymmetric and symmetric students, closed forms, texts without lists."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel, BertTokenizerFast

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import DualEncoder, build, matcher_config
from limbeck.matchers.alignment import mean_cosine
from limbeck.recipe.files import parse_recipe
from limbeck.runs.open_task import open_task
from limbeck.runs.run import distill
from limbeck.runs.student_start import start_student
from limbeck.runs.sweep import sweep
from limbeck.runs.teacher_step import prepare_teacher


@pytest.fixture
def asymmetric(recipe: dict, tiny_bert: str, tmp_path: Path) -> dict:
    """A teacher of 24 numbers per text, and a student of one layer that keeps its document tower."""
    torch.manual_seed(3)
    teacher = build(
        matcher_config(init_from=tiny_bert, dim=24, similarity="cosine", query_length=16, document_length=16)
    )
    teacher.save_pretrained(tmp_path / "teacher")
    recipe["teacher"] = {"model": str(tmp_path / "teacher")}
    lengths = {"query_length": 8, "document_length": 16}
    recipe["student"] = {"init_from": tiny_bert, "layers": 1, "document": "teacher", "align": True, **lengths}
    recipe["stages"] = [{"objectives": ["match_embeddings(of=queries)"], "epochs": 4, "batch_size": 8, "lr": 1e-3}]
    recipe["data"]["spans"] = 1
    recipe["evaluation"] = {"task": "both", "depth": 10, "dev_depth": 8, "baselines": ["bm25"], "analyses": []}
    return recipe


def queries(recipe: dict) -> list[str]:
    return [text for _, text in lb.load_data(recipe["data"]["source"]).queries.items()]


def closeness(student, teacher, texts: list[str]) -> float:
    return mean_cosine(student.encode_query(texts), teacher.encode_query(texts))


def test_a_query_encoder_is_distilled_for_the_teachers_document_index(asymmetric, tmp_path):
    result = distill(asymmetric, tmp_path / "run")
    teacher, student = lb.load(tmp_path / "teacher"), result.student
    texts = queries(asymmetric)
    assert student.identity(1) == teacher.identity(1)
    assert np.allclose(student.encode_document(texts), teacher.encode_document(texts), atol=1e-5)
    theirs = SentenceTransformer(str(tmp_path / "run" / "student"))
    assert np.allclose(theirs.encode_query(texts), student.encode_query(texts), atol=1e-5)
    unaligned = distill(
        {**asymmetric, "student": {**asymmetric["student"], "align": False}}, tmp_path / "plain"
    ).student
    assert closeness(student, teacher, texts) > closeness(unaligned, teacher, texts)


def test_a_closed_form_needs_no_stage(asymmetric, tmp_path):
    teacher, texts = lb.load(tmp_path / "teacher"), queries(asymmetric)
    fitted = distill({**asymmetric, "stages": []}, tmp_path / "run").student
    options = {name: value for name, value in asymmetric["student"].items() if name != "align"}
    started = build(matcher_config(**options | {"document": str(tmp_path / "teacher")}))
    assert closeness(fitted, teacher, texts) > 0.95 > closeness(started, teacher, texts)


def test_a_teacher_of_scores_reads_its_stored_document_vectors(asymmetric, tmp_path):
    asymmetric["student"] = {name: asymmetric["student"][name] for name in ("init_from", "layers")}
    stage = {"objectives": ["softmax_ce"], "steps": 1, "batch_size": 2, "lists": {"size": 2, "pool": 2}}
    asymmetric["data"]["spans"] = 0
    task = open_task(parse_recipe({**asymmetric, "stages": [stage]}, "scores"), tmp_path / "run")
    teacher = prepare_teacher(task)
    query, documents = next(iter(task.data.queries)), list(task.data.corpus)[:3]
    alone = teacher.score([(task.data.queries[query], task.data.corpus[key]) for key in documents])
    found = task.teacher_run({query: documents})[query]
    assert teacher.reads_stored_outputs
    assert np.allclose([found[key] for key in documents], alone, atol=1e-6)


def test_two_static_students_share_one_closed_form(asymmetric, tmp_path, monkeypatch):
    asymmetric["student"] = {
        "init_from": "teacher", "encoder": "static", "document": "teacher", "align": True, "document_length": 16
    }  # fmt: skip
    recipe = parse_recipe({**asymmetric, "stages": []}, "static")
    task = open_task(recipe, tmp_path / "run")
    prepare_teacher(task)
    fits, align = [], DualEncoder.align
    monkeypatch.setattr(DualEncoder, "align", lambda *given: fits.append(1) or align(*given))
    first, second = (start_student(task, recipe, tmp_path / "work") for _ in range(2))
    assert len(fits) == 1
    texts = queries(asymmetric)
    assert (first.encode_query(texts) == second.encode_query(texts)).all()
    assert not {id(each) for each in first.parameters()} & {id(each) for each in second.parameters()}
    start_student(task, recipe.model_copy(update={"seed": 1}), tmp_path / "work")
    assert len(fits) == 2


def test_a_static_query_encoder_searches_the_teachers_index(asymmetric, tmp_path):
    asymmetric["student"] = {
        "init_from": "teacher", "encoder": "static", "document": "teacher", "align": True, "document_length": 16
    }  # fmt: skip
    result = distill({**asymmetric, "stages": []}, tmp_path / "run")
    teacher = lb.load(tmp_path / "teacher")
    assert result.student.identity(1) == teacher.identity(1)
    assert closeness(result.student, teacher, queries(asymmetric)) > 0.5
    theirs = SentenceTransformer(str(tmp_path / "run" / "student"))
    assert np.allclose(theirs.encode_query(["copy a file"]), result.student.encode_query(["copy a file"]), atol=1e-5)


def test_a_new_small_query_encoder_is_led_into_the_teachers_space(asymmetric, tmp_path):
    """Its 16 numbers become the teacher's 24 by `align`; its token table stays where it is if a stage freezes it."""
    asymmetric["student"] |= {"encoder": "new", "layers": 2, "width": 16}
    asymmetric["stages"][0]["freeze"] = ["token_embeddings"]
    student = distill(asymmetric, tmp_path / "run").student
    teacher, texts = lb.load(tmp_path / "teacher"), queries(asymmetric)
    assert student.identity(1) == teacher.identity(1) and student.encode_query(texts).shape == (len(texts), 24)
    theirs = SentenceTransformer(str(tmp_path / "run" / "student"))
    assert np.allclose(theirs.encode_query(texts), student.encode_query(texts), atol=1e-5)
    assert closeness(student, teacher, texts) > 0.8


def test_documents_of_the_teacher_are_encoded_once_for_all_students(asymmetric, tmp_path, monkeypatch):
    from limbeck.matchers.tower import Tower

    encoded: list[str] = []
    original = Tower.encode

    def encode(self, texts, side, batch_size=32):
        if side == "document":
            encoded.extend(texts)
        return original(self, texts, side, batch_size)

    monkeypatch.setattr(Tower, "encode", encode)
    sweep(asymmetric, over=["student.layers=1,2"], seeds=1, out=tmp_path / "sweep")
    assert encoded and len(encoded) == len(set(encoded))


def test_layers_are_chosen_by_a_run_and_the_choice_is_kept(asymmetric, tmp_path, monkeypatch):
    from limbeck.runs import student_start

    asymmetric["student"]["layers"] = "auto:1"
    tried = []
    monkeypatch.setattr(
        student_start, "closeness", lambda outputs, targets, seed: tried.append(1) or float(-len(tried))
    )
    result = distill(asymmetric, tmp_path / "run")
    config = json.loads(next((tmp_path / "run" / "student").rglob("query_0_Transformer/config.json")).read_text())
    assert len(tried) == 3 and config["num_hidden_layers"] == 1
    assert result.student.encoding(0).dim == 24


def test_a_teacher_with_two_towers_gives_layers_of_its_query_tower(asymmetric, tiny_bert, tmp_path):
    torch.manual_seed(4)
    lengths = {"query_length": 16, "document_length": 16}
    teacher = build(matcher_config(init_from=tiny_bert, untied=True, similarity="cosine", **lengths))
    with torch.no_grad():  # so that the towers differ
        for parameter in teacher.tower.transformer("document").parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    teacher.save_pretrained(tmp_path / "teacher")
    asymmetric["student"] |= {"init_from": "teacher", "layers": "auto:1"}
    student = distill(asymmetric, tmp_path / "run").student
    teacher = lb.load(tmp_path / "teacher")
    assert student.identity(1) == teacher.identity(1) != teacher.identity(0)
    assert closeness(student, teacher, queries(asymmetric)) > 0.9


def test_texts_of_both_sides_are_examples_and_no_label_is_needed(asymmetric, tmp_path):
    asymmetric["student"].pop("document")
    asymmetric["student"]["similarity"] = "cosine"
    asymmetric["stages"] = [{"objectives": ["match_embeddings"], "epochs": 2, "batch_size": 16, "lr": 1e-3}]
    (Path(asymmetric["data"]["source"]) / "qrels" / "train.tsv").unlink()
    extra = tmp_path / "documents.txt"
    extra.write_text("move the folder\nsort every list\n")
    asymmetric["data"]["unlabelled_documents"] = str(extra)
    result = distill(asymmetric, tmp_path / "run")
    teacher = lb.load(tmp_path / "teacher")
    texts = ["move the folder", "sort every list"]
    student = result.student
    assert mean_cosine(student.encode_document(texts), teacher.encode_document(texts)) > 0.5


def test_without_any_query_spans_of_the_documents_serve(asymmetric, tmp_path):
    texts = queries(asymmetric)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "corpus.jsonl").write_bytes((Path(asymmetric["data"]["source"]) / "corpus.jsonl").read_bytes())
    asymmetric["data"] |= {"source": str(alone), "spans": 2}
    student = distill(asymmetric, tmp_path / "run").student
    teacher = lb.load(tmp_path / "teacher")
    assert student.identity(1) == teacher.identity(1)
    assert closeness(student, teacher, texts) > 0.9  # of queries that it never saw
    asymmetric["data"]["spans"] = 0
    with pytest.raises(LimbeckError, match=r"queries.jsonl: no such file"):
        distill(asymmetric, tmp_path / "none")
    asymmetric["data"]["spans"] = 1
    lists = {"size": 2, "pool": 4, "negatives": "bm25"}
    asymmetric["stages"].append({"objectives": ["softmax_ce"], "steps": 2, "lists": lists})
    with pytest.raises(LimbeckError, match="there are no training queries, and softmax_ce needs some; add queries"):
        distill(asymmetric, tmp_path / "lists")


def test_a_student_of_another_size_gets_a_projection_that_is_saved(asymmetric, tmp_path):
    asymmetric["student"].pop("document")
    asymmetric["student"].pop("align")
    student = distill(asymmetric, tmp_path / "run").student
    assert student.encoding(0).dim == 24
    assert [type(module).__name__ for module in student.tower.model][-1] == "Dense"


def test_nothing_to_train_is_refused(asymmetric, tmp_path):
    asymmetric["student"]["align"] = False
    with pytest.raises(LimbeckError, match="nothing is trained; add one, or set student.align"):
        distill({**asymmetric, "stages": []}, tmp_path / "run")


@pytest.mark.parametrize("kind", ["cross_encoder", "colbert"])
def test_documents_of_a_model_without_one_vector_are_refused(asymmetric, tiny_bert, tmp_path, kind):
    lengths = {"query_length": 8, "document_length": 16}
    build(matcher_config(kind, init_from=tiny_bert, **lengths)).save_pretrained(tmp_path / "other")
    line = f"other: student.document: is a {kind}, which does not keep one vector of a document; name a dual encoder"
    asymmetric["student"]["document"] = str(tmp_path / "other")
    with pytest.raises(LimbeckError, match=line):
        distill(asymmetric, tmp_path / "run")
    asymmetric["student"]["document"], asymmetric["teacher"]["model"] = "teacher", str(tmp_path / "other")
    with pytest.raises(LimbeckError, match=line):
        distill(asymmetric, tmp_path / "run-2")


@pytest.mark.parametrize("dim", [24, 12])
def test_queries_do_not_learn_another_space_than_that_of_their_documents(asymmetric, tiny_bert, tmp_path, dim):
    torch.manual_seed(5)
    other = build(matcher_config(init_from=tiny_bert, dim=dim, query_length=16, document_length=16))
    other.save_pretrained(tmp_path / "other")
    asymmetric["student"]["document"] = str(tmp_path / "other")
    with pytest.raises(LimbeckError, match="document is another model than the one whose embeddings the queries learn"):
        distill(asymmetric, tmp_path / "run")
    asymmetric["student"]["document"] = asymmetric["teacher"]["model"]  # the same model by its own name
    assert distill({**asymmetric, "stages": []}, tmp_path / "same").student.encoding(0).dim == 24


def test_more_layers_than_there_are_cannot_be_chosen(asymmetric, tmp_path):
    asymmetric["student"]["layers"] = "auto:4"
    with pytest.raises(LimbeckError, match=r"layers=auto:4: .* has 3 layers; ask for at most auto:3"):
        distill(asymmetric, tmp_path / "run")


@pytest.mark.parametrize("layers", [[0, 9], 4, "auto:5"])
def test_layers_that_a_teacher_will_not_have_are_refused_before_it_is_trained(
    asymmetric, tiny_bert, tmp_path, layers, monkeypatch
):
    monkeypatch.setattr("limbeck.runs.teacher_step._train", lambda *given: pytest.fail("trained a teacher"))
    lists = {"size": 2, "pool": 8, "negatives": "bm25"}
    stage = {"objectives": ["one_hot"], "steps": 2, "batch_size": 4, "lists": lists}
    spec = {"kind": "dual_encoder", "init_from": tiny_bert, "query_length": 8, "document_length": 16}
    asymmetric["teacher"] = {"train": spec, "stages": [stage]}
    asymmetric["student"] |= {"init_from": "teacher", "layers": layers}
    with pytest.raises(LimbeckError, match="the teacher has"):
        distill(asymmetric, tmp_path / "run")
    asymmetric["teacher"]["train"]["layers"] = 1  # fewer than its start has
    asymmetric["student"]["layers"] = [0, 1]
    with pytest.raises(LimbeckError, match="the teacher has 1 layers, 0 to 0"):
        distill(asymmetric, tmp_path / "other")


def test_a_smaller_pretrained_model_with_another_tokenizer_becomes_the_query_encoder(asymmetric, tmp_path):
    """Its texts are cut into other tokens and its vectors have another size; only its vectors have to match."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "file", "copy", "list", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(str(other / "vocab.txt"), model_max_length=64).save_pretrained(other)
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    small = BertConfig(vocab_size=len(words), max_position_embeddings=64, initializer_range=0.2, **sizes)
    BertModel(small).save_pretrained(other)
    asymmetric["student"] |= {"init_from": str(other), "layers": None}
    student = distill(asymmetric, tmp_path / "run").student
    teacher, texts = lb.load(tmp_path / "teacher"), queries(asymmetric)
    assert student.identity(1) == teacher.identity(1) and student.encode_query(texts).shape == (len(texts), 24)
    theirs = SentenceTransformer(str(tmp_path / "run" / "student"))
    assert np.allclose(theirs.encode_query(texts), student.encode_query(texts), atol=1e-5)
    assert closeness(student, teacher, texts) > 0.8


def test_a_contrastive_stage_may_follow_the_matching(asymmetric, tmp_path):
    """The query tower goes on, and the teacher's documents stay where they are."""
    lists = {"size": 2, "pool": 8, "negatives": "bm25", "in_batch": True}
    contrast = {"objectives": ["one_hot(tau=0.05)"], "steps": 4, "batch_size": 8, "lr": 1e-3, "lists": lists}
    texts = queries(asymmetric)
    matched = distill(asymmetric, tmp_path / "matched").student.encode_query(texts)
    asymmetric["stages"].append(contrast)
    student = distill(asymmetric, tmp_path / "run").student
    assert student.identity(1) == lb.load(tmp_path / "teacher").identity(1)
    assert not np.allclose(student.encode_query(texts), matched, atol=1e-3)


def test_a_static_encoder_may_have_another_tokenizer_than_its_reference(asymmetric, tiny_bert, tmp_path):
    """Then nothing is known of its tokens before the fit but its own table."""
    from transformers import BertModel, BertTokenizerFast

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "file", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "other")
    model = BertModel.from_pretrained(tiny_bert)
    model.resize_token_embeddings(len(words))
    model.save_pretrained(tmp_path / "other")
    asymmetric["student"] = {
        "init_from": str(tmp_path / "other"), "encoder": "static", "document": "teacher", "align": True,
        "document_length": 16,
    }  # fmt: skip
    student = distill({**asymmetric, "stages": []}, tmp_path / "run").student
    assert student.tower.transformer("query").num_embeddings == len(words)
    assert closeness(student, lb.load(tmp_path / "teacher"), queries(asymmetric)) > 0.5


def test_a_student_searches_an_index_that_its_teacher_made_and_no_other(asymmetric, tmp_path):
    folder, source = tmp_path / "index", asymmetric["data"]["source"]
    lb.index(tmp_path / "teacher", source, folder)
    run = distill(asymmetric, tmp_path / "run").folder
    student, data = lb.load(run), lb.load_data(source)
    opened = lb.open_index(folder, model=run)
    hits = opened.search("copy the file", k=5, mode="dense").hits
    scores = student.score([("copy the file", text) for _, text in data.corpus.items()])
    assert [hit.id for hit in hits] == [list(data.corpus)[row] for row in np.argsort(-scores, kind="stable")[:5]]
    with pytest.raises(LimbeckError, match="is not the one that .* a student that has its document tower"):
        lb.open_index(folder, model=asymmetric["student"]["init_from"])


def test_the_report_compares_the_spaces_of_student_and_teacher(asymmetric, tmp_path):
    asymmetric["evaluation"]["analyses"] = ["distances", "query_cost"]
    folder = distill(asymmetric, tmp_path / "run").folder
    costs = {each["name"]: each for each in json.loads((folder / "analyses" / "query_cost.json").read_text())["models"]}
    assert costs["teacher"]["kept"] == 1 and costs["student"]["ms"] > 0
    assert costs["student"]["parameters"] < costs["teacher"]["parameters"]  # without the teacher's document tower
    found = json.loads((folder / "analyses" / "distances.json").read_text())
    assert found["reference"] == "teacher" and {model["name"] for model in found["models"]} >= {"student"}
    assert "comes nearest to the space of teacher" in (folder / "report.html").read_text()
