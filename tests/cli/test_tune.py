"""`limbeck tune` as a user runs it: the curve, the alpha in the index, the page, and every mistake in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limbeck.data import load
from limbeck.errors import LimbeckError
from limbeck.evaluation import evaluate_run
from limbeck.evaluation.tune_index import drawn, held_out
from limbeck.matchers import build, matcher_config
from limbeck.progress import reporting
from limbeck.search.build import build_index
from limbeck.search.index import SearchIndex
from tests.cli.test_cli import assert_one_line_about


@pytest.fixture
def index(beir, tiny_bert, tmp_path) -> Path:
    build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=16)).save_pretrained(
        tmp_path / "dual"
    )
    build_index(tmp_path / "dual", beir, tmp_path / "index")
    return tmp_path / "index"


def test_tune_writes_the_alpha_and_what_it_is_worth(limbeck, index, beir, tmp_path):
    done = limbeck("tune", index, beir, "--write", "--json", "--out", tmp_path / "tune.html")
    found = json.loads(done.out)
    assert found["written"] and found["comparison_with_rrf"]["against"] == "rrf"
    assert found["split"] == "dev" and found["queries"] == 6 and found["measure"] == "ndcg@10"
    opened = SearchIndex.open(index)
    assert opened.manifest.alpha == found["alpha"]
    data = load(beir)
    queries = {query: data.queries[query] for query in data.qrels["dev"]}
    for mode, expected in (("hybrid", found["value"]), ("dense", found["dense"]), ("sparse", found["sparse"])):
        rankings = opened.rank(list(queries.values()), 10, mode=mode)
        run = {
            query: {key: -rank for rank, key in enumerate(opened.collection.ids_at(ranking.rows))}
            for query, ranking in zip(queries, rankings, strict=True)
        }
        assert evaluate_run(run, data.qrels["dev"], ["ndcg@10"])["ndcg@10"] == pytest.approx(expected)
    tuned, ranks, given = (
        json.loads(limbeck("evaluate", index, beir, "--split", "dev", "--mode", "hybrid", *how, "--json").out)[
            "measures"
        ]
        for how in ([], ["--fusion", "rrf"], ["--alpha", found["alpha"]])
    )
    assert tuned["ndcg@10"] == pytest.approx(found["value"]) and given == tuned
    by_ranks = opened.run(data.queries, 100, list(queries), fusion="rrf")
    assert ranks["ndcg@10"] == pytest.approx(evaluate_run(by_ranks, data.qrels["dev"], ["ndcg@10"])["ndcg@10"])
    assert ranks != tuned
    page = (tmp_path / "tune.html").read_text()
    assert f"{found['alpha']:g}" in page and "6 queries of dev" in page


def test_tune_prints_the_curve_with_both_ends(limbeck, index, beir):
    done = limbeck("tune", index, beir, "--alphas", "0,0.5,2", "--measure", "MRR@10", "--split", "train")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["alpha", "mrr@10"]
    names = [line.split("  ")[0].strip() for line in lines[1:8]]
    assert names == ["dense alone", "0", "0.5", "2", "sparse alone", "reciprocal ranks", "hybrid, cross-fitted"]
    shown, said = float(lines[7].split()[2]), " ".join(lines[8:])  # the table and the sentence agree
    assert f"MRR@10 {shown:.3f} against" in said and said.count(f" {shown:.3f} against") == 2


def test_a_few_queries_do_not_replace_reciprocal_rank_fusion_by_default(limbeck, index, beir):
    done = limbeck("tune", index, beir, "--alphas", "0.3,0.5")
    said = " ".join(done.out.split())
    assert done.code == 0 and SearchIndex.open(index).manifest.alpha is None
    assert f"{index} keeps reciprocal rank fusion: 6 queries do not show that alpha" in said and "--write" in said
    done = limbeck("tune", index, beir, "--alphas", "0.3", "--write")
    assert "now has alpha 0.3 instead of reciprocal rank fusion, though 6 queries" in " ".join(done.out.split())
    assert SearchIndex.open(index).manifest.alpha == 0.3
    done = limbeck("tune", index, beir, "--alphas", "0.5", "--no-write")
    assert "keeps alpha 0.3" in done.out and SearchIndex.open(index).manifest.alpha == 0.3


def test_tuning_on_test_is_only_done_when_asked_for_and_then_with_a_warning(limbeck, index, beir):
    done = limbeck("tune", index, beir, "--split", "test", "--alphas", "0.5,1")
    assert done.code == 0 and "tuned on test" in done.err
    for split in ("dev", "train"):
        (beir / "qrels" / f"{split}.tsv").unlink()
    assert_one_line_about(limbeck("tune", index, beir), "no judgements for dev or train", "only test", "--split")


def test_without_dev_it_is_tuned_on_train_with_a_warning(beir):
    (beir / "qrels" / "dev.tsv").unlink()
    data, said = load(beir), []

    class Listener:
        def task(self, label, total):
            raise AssertionError

        def say(self, message):
            said.append(message)

    with reporting(Listener()):
        assert held_out(data, None) == "train" and "tuned on train" in said[0]
        assert held_out(data, "test") == "test" and "tuned on test" in said[1]
    with pytest.raises(LimbeckError, match="no judgements for split 'dev'"):
        held_out(data, "dev")


def test_a_limit_draws_the_same_queries_each_time():
    qrels = {f"q{number}": {"d1": 1} for number in range(50)}
    assert len(drawn(qrels, 10)) == 10 and drawn(qrels, 10) == drawn(dict(reversed(qrels.items())), 10)
    assert drawn(qrels, 50) == qrels
    assert list(drawn(qrels, 10)) != sorted(qrels)[:10]


def test_mistakes_are_one_line_and_leave_the_index_as_it_was(limbeck, index, beir, tiny_bert, tmp_path):
    before = SearchIndex.open(index).manifest.alpha
    assert_one_line_about(limbeck("tune", index, beir, "--alphas", "0.1,many"), "--alphas", "not a list of numbers")
    assert_one_line_about(limbeck("tune", index, beir, "--alphas", "0.1,nan"), "alpha is nan")
    assert_one_line_about(limbeck("tune", index, beir, "--alphas", "-1"), "alpha is -1")
    assert_one_line_about(limbeck("tune", index, beir, "--measure", "ndgc@10"), "unknown measure")
    assert_one_line_about(limbeck("tune", index, beir, "--split", "dve"), "did you mean 'dev'?")
    assert_one_line_about(limbeck("tune", tmp_path / "no", beir), str(tmp_path / "no"))
    assert_one_line_about(limbeck("tune", index, tmp_path / "no"), "no such file or folder")
    other = tmp_path / "other"
    (other / "qrels").mkdir(parents=True)
    (other / "corpus.jsonl").write_text('{"_id": "x", "text": "copy"}\n')
    (other / "queries.jsonl").write_text('{"_id": "q", "text": "copy"}\n')
    (other / "qrels" / "dev.tsv").write_text("q\tx\t1\n")
    assert_one_line_about(limbeck("tune", index, other), "none of the 1 documents", "built from")
    assert SearchIndex.open(index).manifest.alpha == before


def test_without_relevant_documents_alpha_is_not_changed(limbeck, index, beir):
    judged = (beir / "qrels" / "dev.tsv").read_text().splitlines()
    lines = [judged[0], *(line.rpartition("\t")[0] + "\t0" for line in judged[1:])]
    (beir / "qrels" / "dev.tsv").write_text("\n".join(lines) + "\n")
    done = limbeck("tune", index, beir)
    assert done.code == 2 and "judged relevant" in done.err
    (beir / "qrels" / "dev.tsv").write_text("\n".join([judged[0], judged[1].rpartition("\t")[0] + "\t" + "9" * 20]))
    done = limbeck("tune", index, beir)
    assert done.code == 2 and "dev.tsv:2: grade 99999999999999999999 is too large" in done.err
    assert SearchIndex.open(index).manifest.alpha is None


def test_an_index_without_one_of_the_parts_cannot_be_tuned(limbeck, beir, tmp_path):
    build_index(None, beir, tmp_path / "sparse", dense=False)
    assert_one_line_about(limbeck("tune", tmp_path / "sparse", beir), "has no dense part")
