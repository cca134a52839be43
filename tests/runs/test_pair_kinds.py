"""Siamese, Sentence-T5, VIRT and DeFormer students: from a recipe to scores, through code that knows none of them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from limbeck.data.dataset import RankingData, Texts
from limbeck.evaluation.pair_speed import pair_speed, score_by_head
from limbeck.evaluation.rank import rerank
from limbeck.evaluation.speed import rerank_speed
from limbeck.matchers import build, load, matcher_config
from limbeck.runs import distill
from limbeck.runs.sweep import sweep
from limbeck.scoring.heads import save_head
from limbeck.scoring.job import score_pairs
from limbeck.scoring.local import LocalEngine
from tests.runs.test_pairs import pairs, recipe, write_classes  # noqa: F401
from tests.scoring.test_job import result
from tests.training.toy import WORDS

STUDENTS = {
    "siamese": {"kind": "siamese"},
    "sentence-t5": {"kind": "sentence_t5"},
    "virt": {"kind": "virt"},
    "virt without adapted interaction": {"kind": "virt", "adapted": False},
    "deformer": {"kind": "deformer"},
}
EACH = pytest.mark.parametrize("student", STUDENTS.values(), ids=STUDENTS)


def learning(recipe, student, tiny_bert, **options):  # noqa: F811
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 8}
    recipe["student"] = {**lengths, "layers": 2, **student, **options}
    return recipe


@EACH
def test_a_student_is_distilled_saved_and_evaluated(recipe, tiny_bert, tmp_path, student):  # noqa: F811
    result = distill(learning(recipe, student, tiny_bert), tmp_path / "run")
    row = result.rows[-1]
    assert list(row.measures) == ["auc", "ap", "accuracy", "f1"] and row.pairs_per_second
    fresh = build(matcher_config(**recipe["student"]))
    trained = load(tmp_path / "run")
    assert trained.kind == student["kind"]
    encoders = [dict(model.encoders.named_parameters()) for model in (fresh, trained)]
    moved = [name for name, value in encoders[1].items() if not torch.equal(value, encoders[0][name])]
    assert moved and not any("pooler" in name for name in moved)


@EACH
def test_several_classes_are_learnt(recipe, pairs, tiny_bert, tmp_path, student):  # noqa: F811
    write_classes(pairs, classes=3)
    recipe["teacher"]["stages"][0]["objectives"] = ["class_ce"]
    for stage in recipe["stages"]:
        stage["objectives"] = ["soft_class_ce", "0.5 * class_ce"]
    rows = distill(learning(recipe, student, tiny_bert), tmp_path / "run").rows
    assert list(rows[-1].measures) == ["accuracy", "f1"]
    assert load(tmp_path / "run").score([("copy", "move")]).shape == (1, 3)


def test_grades_are_learnt(recipe, pairs, tiny_bert, tmp_path):  # noqa: F811
    write_classes(pairs, classes=6)
    rows = distill(learning(recipe, STUDENTS["virt"], tiny_bert), tmp_path / "run").rows
    assert list(rows[-1].measures) == ["pearson", "spearman"]


def test_one_grid_compares_them(recipe, tiny_bert, tmp_path):  # noqa: F811
    recipe["stages"] = recipe["stages"][1:]
    kinds = "siamese,sentence_t5,virt,deformer"
    rows = sweep(learning(recipe, {}, tiny_bert), over=[f"student.kind={kinds}"], out=tmp_path / "sweep").rows
    assert [row.name for row in rows if row.kind == "student"] == [f"kind={kind}" for kind in kinds.split(",")]


def saved(tiny_bert, folder, **options):
    torch.manual_seed(0)
    model = build(matcher_config(start=tiny_bert, layers=2, query_length=8, document_length=16, **options))
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return load(folder)


def some_pairs(count=60):
    generator = np.random.default_rng(3)
    sides = [
        [" ".join(generator.choice(WORDS, size=generator.integers(1, most))) for _ in range(12)] for most in (6, 14)
    ]
    return [tuple(side[generator.integers(12)] for side in sides) for _ in range(count)]


@pytest.mark.parametrize("outputs", [1, 3])
@EACH
def test_stored_pairs_get_the_models_scores(tiny_bert, tmp_path, student, outputs):
    model, listed = saved(tiny_bert, tmp_path / "model", **student, outputs=outputs), some_pairs()
    lines = [json.dumps({"text_a": left, "text_b": right}) + "\n" for left, right in listed]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    score_pairs(str(tmp_path / "model"), tmp_path / "pairs.jsonl", tmp_path / "out", LocalEngine(1), shard=25)
    names = ["score"] if outputs == 1 else [f"score_{number}" for number in range(outputs)]
    found = np.array([[row[name] for name in names] for row in result(tmp_path / "out")])
    wanted = model.score(listed).reshape(found.shape)
    assert np.ptp(wanted) > 0.01 and np.allclose(found, wanted, atol=1e-5)
    assert np.allclose(score_by_head(model, listed).reshape(found.shape), wanted, atol=1e-5)
    assert pair_speed(model, listed[:8]) > 0


@EACH
def test_candidates_are_ranked_by_the_models_scores(tiny_bert, tmp_path, student):
    model, listed = saved(tiny_bert, tmp_path / "model", **student), some_pairs()
    corpus = {f"d{number}": right for number, (_, right) in enumerate(listed)}
    queries = {f"q{number}": left for number, (left, _) in enumerate(listed[:4])}
    data = RankingData("toy", Texts.from_dict(corpus), Texts.from_dict(queries), {"test": {}})
    lists = {query: [f"d{(7 * number + step) % 60}" for step in range(9)] for number, query in enumerate(queries)}
    for query, scores in rerank(model, data, lists).items():
        wanted = model.score([(queries[query], corpus[document]) for document in scores])
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert np.allclose(list(scores.values()), wanted, atol=1e-5)
    assert rerank_speed(model, data, lists).ms_per_query > 0


@EACH
def test_a_head_is_rebuilt_without_a_library_of_models(tiny_bert, tmp_path, student):
    model = saved(tiny_bert, tmp_path / "model", **student)
    save_head(model.interaction, tmp_path / "head")
    code = (
        "import sys; from pathlib import Path; from limbeck.scoring.heads import load_head, running; "
        f"running(load_head(Path({str(tmp_path / 'head')!r}))); "
        "print([name for name in ('transformers', 'sentence_transformers', 'tokenizers') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
