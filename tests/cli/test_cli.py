from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from limbeck.matchers import build, matcher_config
from tests.conftest import WORDS


@pytest.fixture
def models(tiny_bert, tmp_path) -> dict[str, Path]:
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 16}
    for name, spec in {"dual": {"layers": 1}, "other": {"layers": 2}, "cross": {"kind": "cross_encoder"}}.items():
        build(matcher_config(**lengths, **spec)).save_pretrained(tmp_path / name)
    return {name: tmp_path / name for name in ("dual", "other", "cross")}


def assert_one_line_about(done, *words: str) -> None:
    """A user's mistake: exit code 2, one line on stderr with the words in it, nothing on stdout, no traceback."""
    assert done.code == 2, done
    assert done.out == ""
    lines = [line for line in done.err.strip().splitlines() if line.startswith("limbeck: ")]
    assert len(lines) == 1 and "Traceback" not in done.err, done.err
    for word in words:
        assert word in lines[0], lines[0]


def test_help_names_every_verb(limbeck):
    done = limbeck("--help")
    assert done.code == 0
    for verb in ("demo", "recipes", "distill", "annotate", "evaluate", "report"):
        assert verb in done.out


def test_recipes_lists_what_ships(limbeck):
    assert "defense-laptop" in limbeck("recipes").out
    assert "defense-laptop" in json.loads(limbeck("recipes", "--json").out)


def test_distill_prints_a_table_or_json_and_report_makes_the_page_again(limbeck, recipe, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    done = limbeck("distill", path, "--out", tmp_path / "run", "--set", "stages.0.steps=2")
    assert done.code == 0
    assert "ndcg@10" in done.out and "student" in done.out
    rows = json.loads(limbeck("distill", path, "--out", tmp_path / "run", "--set", "stages.0.steps=2", "--json").out)
    assert [row["name"] for row in rows["rows"]] == ["teacher", "BM25", "student"]
    (tmp_path / "run" / "report.html").unlink()
    assert limbeck("report", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "report.html").exists()


def test_evaluate_measures_compares_and_writes_a_run(limbeck, beir, models, tmp_path):
    done = limbeck(
        "evaluate", models["dual"], beir, "--against", models["other"], "--run", tmp_path / "run.trec", "--json"
    )
    found = json.loads(done.out)
    assert found["task"] == "retrieve" and found["count"] == 6 and found["ms_per_query"] > 0
    assert found["comparisons"][0]["measure"] == "ndcg@10"
    again = json.loads(limbeck("evaluate", tmp_path / "run.trec", beir, "--json").out)
    assert again["measures"] == pytest.approx(found["measures"])
    cross = json.loads(limbeck("evaluate", models["cross"], beir, "--json").out)
    assert cross["task"] == "rerank" and cross["ms_per_query"] > 0
    assert limbeck("evaluate", "bm25", beir).code == 0


def test_candidates_are_re_ranked_or_refused_and_never_ignored(limbeck, beir, models, tmp_path):
    done = json.loads(limbeck("evaluate", models["dual"], beir, "--candidates", "bm25", "--json").out)
    assert done["task"] == "rerank" and done["ms_per_query"] > 0
    assert json.loads(limbeck("evaluate", models["dual"], beir, "--add-judged", "--json").out)["task"] == "rerank"
    missing = limbeck("evaluate", models["dual"], beir, "--candidates", tmp_path / "no.trec")
    assert_one_line_about(missing, "no.trec")
    for options in (["--candidates", "bm25"], ["--add-judged"]):
        both = limbeck("evaluate", models["dual"], beir, "--task", "retrieve", *options)
        assert_one_line_about(both, options[0], "--task rerank")
    tokens = limbeck("evaluate", models["cross"], beir, "--task", "rerank", "--candidates", "tokens")
    assert_one_line_about(tokens, "--task retrieve")


def test_a_colbert_searches_by_its_tokens_and_says_what_that_costs(limbeck, beir, tiny_bert, tmp_path):
    lengths = {"start": tiny_bert, "query_length": 8, "document_length": 16, "dim": 8}
    torch.manual_seed(0)
    build(matcher_config(kind="colbert", **lengths)).save_pretrained(tmp_path / "colbert")
    exact = json.loads(limbeck("evaluate", tmp_path / "colbert", beir, "--json").out)
    done = json.loads(limbeck("evaluate", tmp_path / "colbert", beir, "--candidates", "tokens", "--json").out)
    assert done["task"] == "retrieve" and done["measures"] == exact["measures"]  # of so few tokens all are found
    assert done["ms_per_query"] > 0 and 0 < done["bytes_per_passage"] <= 16 * (8 * 4 + 8 + 8)


def test_a_model_can_be_measured_on_fewer_tokens_against_itself(limbeck, beir, models):
    ask = ["evaluate", models["dual"], beir, "--against", models["dual"], "--json"]
    same, fewer = (json.loads(limbeck(*ask, *more).out) for more in ([], ["--lengths", "3,4"]))
    assert same["comparisons"][0]["difference"] == 0
    assert fewer["comparisons"][0]["difference"] != 0  # the rival reads what it did
    assert_one_line_about(limbeck("evaluate", "bm25", beir, "--lengths", "8,8"), "--lengths", "bm25")
    for text in ("8", "8,x", "2,8", "8,8,8"):
        assert_one_line_about(limbeck(*ask, "--lengths", text), f"--lengths {text}:", "two numbers")


def test_evaluate_keeps_vectors_and_uses_them_again(limbeck, beir, models, tmp_path, monkeypatch):
    first = limbeck("evaluate", models["dual"], beir, "--store", tmp_path / "store", "--json")
    from limbeck.matchers.dual_encoder import DualEncoder

    plain = DualEncoder.encode_document
    asked = []
    monkeypatch.setattr(
        DualEncoder, "encode_document", lambda self, texts, *a: asked.append(len(texts)) or plain(self, texts)
    )
    second = limbeck("evaluate", models["dual"], beir, "--store", tmp_path / "store", "--json")
    assert json.loads(first.out)["measures"] == json.loads(second.out)["measures"]
    assert sum(asked) <= 60  # only the candidates of the timed queries


def test_a_gate_that_is_missed_exits_with_one(limbeck, beir, models):
    assert limbeck("evaluate", "bm25", beir, "--fail-below", "ndcg@10=0.01").code == 0
    done = limbeck("evaluate", "bm25", beir, "--fail-below", "ndcg@10=1.01")
    assert done.code == 1
    assert "ndcg@10 is" in done.err


def test_pair_tasks_are_measured(limbeck, models, tmp_path):
    lines = [{"text_a": "copy a file", "text_b": f"sort {n}", "label": n % 2} for n in range(12)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = limbeck("evaluate", models["cross"], tmp_path / "test.jsonl", "--against", models["dual"], "--json")
    found = json.loads(done.out)
    assert set(found["measures"]) == {"auc", "ap"}  # accuracy and f1 need a threshold, and no model here has one
    assert len(found["comparisons"]) == 2
    assert found["pairs_per_second"] > 0


def test_pairs_are_measured_with_the_head_that_would_score_them(limbeck, beir, models, tiny_bert, tmp_path):
    lines = [{"text_a": f"copy {n}", "text_b": f"sort a file {n * n}", "label": n % 2} for n in range(40)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = matcher_config(kind="dipair", start=tiny_bert, query_length=8, document_length=8, tokens=[2, 2], dim=16)
    build(spec).save_pretrained(tmp_path / "dipair")
    ask = ["evaluate", tmp_path / "dipair", tmp_path / "test.jsonl", "--against", tmp_path / "dipair", "--json"]
    for head in ("torch", "onnx", "int8"):
        found = json.loads(limbeck(*ask, "--head", head).out)
        assert found["pairs_per_second"] > 0
        assert abs(found["comparisons"][0]["difference"]) <= (0.1 if head == "int8" else 0.01)
    assert_one_line_about(limbeck(*ask, "--head", "int4"), "int4", "int8")
    cross = limbeck("evaluate", models["cross"], tmp_path / "test.jsonl", "--head", "onnx")
    assert_one_line_about(cross, "cross_encoder", "leave --head out")
    assert_one_line_about(limbeck("evaluate", models["dual"], beir, "--head", "int8"), "--head", "rankings")


def test_annotate_resumes_and_exports(limbeck, beir, models, tmp_path):
    first = json.loads(limbeck("annotate", models["cross"], beir, "--out", tmp_path / "s", "--depth", 5, "--json").out)
    assert first["scored_now"] == first["pairs"] > 0
    for shape, name in {"trec": "a.trec", "pylate": "b.jsonl", "flagembedding": "c.jsonl"}.items():
        done = limbeck(
            "annotate", models["cross"], beir, "--out", tmp_path / "s", "--depth", 5, "--top", 3,
            "--export", tmp_path / name, "--shape", shape, "--json",
        )  # fmt: skip
        assert json.loads(done.out)["scored_now"] == 0
        assert (tmp_path / name).stat().st_size > 0
    assert len((tmp_path / "a.trec").read_text().splitlines()) == 18 * 3


def test_scores_of_another_teacher_are_not_mixed_in(limbeck, beir, models, tmp_path):
    limbeck("annotate", models["cross"], beir, "--out", tmp_path / "s", "--depth", 3)
    assert_one_line_about(
        limbeck("annotate", models["dual"], beir, "--out", tmp_path / "s", "--depth", 3), str(tmp_path / "s")
    )


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("corpus.jsonl", None, ["corpus.jsonl"]),
        ("corpus.jsonl", "", ["corpus.jsonl"]),
        ("corpus.jsonl", '{"_id": "", "text": "x"}\n', ["corpus.jsonl:1"]),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', ["corpus.jsonl:2", "'a'"]),
        ("corpus.jsonl", '{"_id": "a", "text": "x"\n', ["corpus.jsonl:1"]),
        ("queries.jsonl", '{"_id": "q0", "text": ""}\n', ["queries.jsonl:1"]),
        ("qrels/test.tsv", "q24\tnowhere\t1\n", ["test.tsv:1", "'nowhere'"]),
        ("qrels/test.tsv", "nobody\td1\t1\n", ["test.tsv:1", "'nobody'"]),
        ("qrels/test.tsv", "q24\td1\tgood\n", ["test.tsv:1", "good"]),
    ],
)
def test_damaged_data_is_named(limbeck, beir, file, content, words):
    if content is None:
        (beir / file).unlink()
    else:
        (beir / file).write_text(content)
    assert_one_line_about(limbeck("evaluate", "bm25", beir), *words)


def test_a_nan_teacher_score_is_refused_with_its_line(limbeck, recipe, tmp_path):
    (tmp_path / "scores.trec").write_text("q0 Q0 d1 1 0.5 x\nq0 Q0 d2 2 nan x\n")
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({**recipe, "teacher": {"scores": str(tmp_path / "scores.trec")}}))
    assert_one_line_about(limbeck("distill", path, "--out", tmp_path / "run"), "scores.trec:2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["distill", "nothing.yaml"], ["nothing.yaml", "no such recipe"]),
        (["evaluate", "bm25", "/no/such/data"], ["/no/such/data"]),
        (["evaluate", "/no/such/model", "pydocs"], ["/no/such/model"]),
        (["evaluate", "bm25", "pydocs", "--split", "tset"], ["tset", "test"]),
        (["evaluate", "bm25", "pydocs", "--task", "rank"], ["rank"]),
        (["evaluate", "bm25", "pydocs", "--fail-below", "ndcg"], ["ndcg"]),
        (["evaluate", "bm25", "pydocs", "--measures", "nddcg@10"], ["nddcg@10", "ndcg"]),
        (["report", "/no/such/run"], ["/no/such/run"]),
    ],
)
def test_what_is_not_there_is_named(limbeck, arguments, words):
    assert_one_line_about(limbeck(*arguments), *words)


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(limbeck, recipe, tmp_path, monkeypatch):
    import errno
    import os

    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    plain = os.fsync
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert_one_line_about(limbeck("distill", path, "--out", tmp_path / "run"), "space")
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert limbeck("distill", path, "--out", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    "arguments",
    [["evaluate", "bm25", "pydocs", "--depth", "0"], ["evaluate", "bm25"], ["distil"], ["report", "x", "--bogus"]],
)
def test_a_wrong_option_is_a_one_line_error_too(limbeck, arguments):
    assert_one_line_about(limbeck(*arguments), "--help")


def test_ctrl_c_says_how_to_go_on(limbeck, monkeypatch):
    import limbeck.recipe.files as recipe_files

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe_files, "shipped", interrupted)
    done = limbeck("recipes")
    assert done.code == 130
    assert "run the same command again" in done.err


def test_a_gate_on_another_measure_is_computed(limbeck, beir):
    assert limbeck("evaluate", "bm25", beir, "--fail-below", "ndcg@3=0.0").code == 0


def test_models_that_cannot_both_retrieve_are_compared_by_reranking(limbeck, beir, models):
    found = json.loads(limbeck("evaluate", models["dual"], beir, "--against", models["cross"], "--json").out)
    assert found["task"] == "rerank"


def test_candidates_of_other_queries_are_refused(limbeck, beir, models, tmp_path):
    (tmp_path / "other.trec").write_text("qX Q0 d1 1 3 x\n")
    done = limbeck("annotate", models["cross"], beir, "--out", tmp_path / "s", "--candidates", tmp_path / "other.trec")
    assert_one_line_about(done, "other.trec", "qX")
    assert not (tmp_path / "s").exists()


def pair_lines(count: int, flip: int = 0) -> str:
    rows = [{"text_a": f"copy {n}", "text_b": f"sort a file {n * n}", "label": (n + flip) % 2} for n in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_accuracy_needs_a_threshold_which_is_chosen_on_dev_or_left_out(limbeck, models, tmp_path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "test.jsonl").write_text(pair_lines(40))
    done = limbeck("evaluate", models["dual"], tmp_path / "alone")
    assert "accuracy  " not in done.out and "no accuracy and F1" in done.out and "nor a dev split" in done.out
    asked = limbeck("evaluate", models["dual"], tmp_path / "alone", "--measures", "accuracy")
    assert_one_line_about(asked, "accuracy", "threshold", "dev")
    gated = limbeck("evaluate", models["dual"], tmp_path / "alone", "--fail-below", "f1=0.5")
    assert_one_line_about(gated, "f1", "threshold")
    (tmp_path / "alone" / "dev.jsonl").write_text(pair_lines(30))
    ask = ["evaluate", models["dual"], tmp_path / "alone", "--against", models["other"], "--json"]
    found = json.loads(limbeck(*ask).out)
    assert set(found["measures"]) == {"auc", "ap", "accuracy", "f1"} and len(found["comparisons"]) == 4
    assert found["settings"]["threshold"] == "best F1 on 30 pairs of dev"
    on_dev = json.loads(limbeck("evaluate", models["dual"], tmp_path / "alone", "--split", "dev", "--json").out)
    assert set(on_dev["measures"]) == {"auc", "ap"}  # it is not chosen on what it is measured with


def test_a_threshold_from_dev_is_the_one_that_accuracy_is_measured_at(limbeck, models, tmp_path):
    """All scores of a cosine may be above 0: at 0 every pair would be a match."""
    from limbeck.matchers import load
    from limbeck.matchers.calibration import calibrate

    for name, count in (("dev", 30), ("test", 40)):
        (tmp_path / f"{name}.jsonl").write_text(pair_lines(count))
    found = json.loads(limbeck("evaluate", models["dual"], tmp_path, "--json").out)
    texts = {n: [(f"copy {k}", f"sort a file {k * k}") for k in range(n)] for n in (30, 40)}
    scores = {n: load(models["dual"]).score(texts[n]) for n in texts}
    said = calibrate(scores[30], [k % 2 for k in range(30)]).logits(scores[40]) > 0
    assert found["measures"]["accuracy"] == pytest.approx(sum(said == [k % 2 == 1 for k in range(40)]) / 40)


def test_a_limit_is_drawn_by_the_seed_and_not_the_head_of_the_file(limbeck, models, tmp_path):
    rows = [
        {"text_a": f"copy {WORDS[n % 40]}", "text_b": f"sort {WORDS[n % 17]}", "label": n % 5 / 4} for n in range(200)
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ask = ["evaluate", models["dual"], tmp_path / "test.jsonl", "--limit", "100"]
    done = limbeck(*ask)
    assert "100 of 200 pairs, drawn with seed 0" in done.out
    values = [json.loads(limbeck(*ask, "--seed", seed, "--json").out)["measures"]["pearson"] for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


def test_a_limit_on_queries_is_drawn_too(limbeck, beir):
    done = limbeck("evaluate", "bm25", beir, "--limit", "3")
    assert "3 of 6 queries, drawn with seed 0" in done.out
    found = {tuple(json.loads(limbeck("evaluate", "bm25", beir, "--limit", 3, "--seed", seed, "--json").out)
                   ["measures"].values()) for seed in range(6)}  # fmt: skip
    assert len(found) > 1


def test_evaluate_says_what_it_measured(limbeck, beir, models):
    done = limbeck("evaluate", models["cross"], beir, "--depth", "7", "--relevance-level", "1")
    assert "the 7 best of bm25; relevant: grade 1 or more" in done.out
    found = json.loads(limbeck("evaluate", models["cross"], beir, "--depth", "7", "--json").out)
    assert found["model"] == str(models["cross"]) and found["data"] == str(beir) and found["against"] is None
    wanted = {"candidates": "bm25", "depth": 7, "relevance_level": 1, "add_judged": False, "seed": 0, "limit": None}
    assert wanted.items() <= found["settings"].items()
    assert "best of 60 documents" in limbeck("evaluate", models["dual"], beir).out


def test_speed_is_measured_with_the_vectors_that_are_there(limbeck, beir, models, monkeypatch):
    from limbeck.matchers.dual_encoder import DualEncoder

    plain, asked = DualEncoder.encode, []

    def watched(self, texts, position, *rest):
        asked.extend(texts if position == 1 else [])
        return plain(self, texts, position, *rest)

    monkeypatch.setattr(DualEncoder, "encode", watched)
    assert limbeck("evaluate", models["dual"], beir, "--task", "rerank", "--depth", "5").code == 0
    assert len(asked) == len(set(asked)) > 0


@pytest.mark.parametrize(
    ("grades", "options", "words"),
    [
        ("-1", [], ["relevant", "the best grade is -1"]),
        ("0", [], ["relevant", "the best grade is 0"]),
        ("1", ["--relevance-level", "2"], ["a grade of 2 or more", "--relevance-level 1"]),
    ],
)
def test_judgements_without_a_relevant_document_are_refused(limbeck, beir, grades, options, words):
    lines = (beir / "qrels" / "test.tsv").read_text().splitlines()
    changed = [
        "\t".join([*line.split("\t")[:2], grades]) if line[0] == "q" and "score" not in line else line for line in lines
    ]
    (beir / "qrels" / "test.tsv").write_text("\n".join(changed) + "\n")
    assert_one_line_about(limbeck("evaluate", "bm25", beir, *options), *words)
