"""Recipes at a paper's size run here on files of the same layout, with a model as small as the files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import limbeck as lb
from limbeck.matchers import build, matcher_config
from limbeck.training.pair_builders import build_pairs
from tests.runs.test_answers import as_dpr
from tests.training.toy import WORDS


@pytest.fixture
def msmarco(tmp_path):
    """MS MARCO's passage files and teacher scores in Hofstaetter's layout: 40 passages, 16 + 6 queries."""
    generator = np.random.default_rng(5)
    folder = tmp_path / "msmarco"
    folder.mkdir()
    passages = [" ".join(generator.choice(WORDS, size=8)) for _ in range(40)]
    write(folder / "collection.tsv", enumerate(passages))
    queries = {100 + n: " ".join(generator.choice(passages[n].split(), size=4)) for n in range(22)}
    train, small = list(queries)[:16], list(queries)[16:]
    for split, ids in (("train", train), ("dev.small", small)):
        write(folder / f"queries.{split}.tsv", ((query, queries[query]) for query in ids))
        write(folder / f"qrels.{split}.tsv", ((query, 0, query - 100, 1) for query in ids))
    pools = {query: generator.choice(40, size=8, replace=False) for query in queries}
    write(
        folder / "top1000.dev.tsv",
        ((query, pid, queries[query], passages[pid]) for query in small for pid in {query - 100, *pools[query]}),
    )
    scores = tmp_path / "T1-train-scores.tsv"
    write(
        scores,
        (
            (f"{generator.normal(5):.3f}", f"{generator.normal():.3f}", query, query - 100, pid)
            for query in train
            for pid in pools[query]
            if pid != query - 100
        ),
    )
    write(
        folder / "qidpidtriples.train.small.tsv",
        ((query, query - 100, pid) for query in train for pid in pools[query] if pid != query - 100),
    )
    return folder, scores


def write(path, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def test_in_defense_of_dual_encoders(msmarco, tiny_bert, tmp_path):
    folder, scores = msmarco
    result = lb.distill(
        "defense-msmarco",
        tmp_path / "run",
        [
            f"data.source={folder}",
            f"teacher.scores={scores}",
            f"student.start={tiny_bert}",
            "student.layers=2",
            "student.document_length=60",
            "stages.0.steps=3",
            "stages.0.eval_every=2",
            "stages.0.batch_size=8",
            "stages.0.workers=0",
        ],
    )
    student = result.rows[-1]
    assert student.objective == "m3se"
    assert set(student.measures) == {"ndcg@10", "mrr@10", "search ndcg@10", "search mrr@10"}
    assert "dev" in (tmp_path / "run" / "log.jsonl").read_text()


def test_tct_colbert(msmarco, tiny_bert, tmp_path):
    folder, _ = msmarco
    small = [f"{stages}.0.{key}" for stages in ("teacher.stages", "stages") for key in ("steps=3", "workers=0")]
    small += [
        f"{stages}.0.{key}" for stages in ("teacher.stages", "stages") for key in ("batch_size=8", "eval_every=2")
    ]
    small += [f"{who}.document_length=60" for who in ("teacher.train", "student")]
    result = lb.distill(
        "tct-msmarco", tmp_path / "run", [f"data.source={folder}", f"teacher.train.start={tiny_bert}", *small]
    )
    teacher, student = result.rows[0], result.rows[-1]
    assert set(student.measures) == set(teacher.measures) == {"mrr@10", "recall@1000"}
    assert not (tmp_path / "run" / "teacher" / "scores").exists()  # it was asked in every step, and nothing was stored
    weights = [
        lb.load(tmp_path / "run" / place).tower.token_embeddings("query") for place in ("teacher/model", "student")
    ]
    assert weights[0].shape == weights[1].shape
    assert lb.load(tmp_path / "run").tower.prompt("query") == lb.load(tmp_path / "run/teacher/model").tower.prompt(
        "query"
    )


def test_embeddistill_from_a_cross_encoder(msmarco, tiny_bert, tmp_path):
    folder, _ = msmarco
    small = [
        f"{stages}.0.{key}"
        for stages in ("teacher.stages", "stages")
        for key in ("steps=3", "workers=0", "batch_size=8", "eval_every=2", "chunk=16")
    ]
    small += [f"{who}.start={tiny_bert}" for who in ("teacher.train", "student")]
    small += ["teacher.train.document_length=30", "student.document_length=60"]
    result = lb.distill("embeddistill-cross-msmarco", tmp_path / "run", [f"data.source={folder}", *small])
    assert set(result.rows[-1].measures) == {"mrr@10", "ndcg@10"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    learnt = [set(line["objectives"]) for line in lines if "objectives" in line]
    assert learnt[0] == {"one_hot", "reconstruct"} and learnt[-1] == {"one_hot", "softmax_ce", "match_proxies"}
    assert "query_proxies" in (tmp_path / "run" / "analyses" / "pair_map.json").read_text()


def test_embeddistills_chain_of_teachers(msmarco, tiny_bert, tmp_path):
    """App. F: a cross-encoder teaches a dual encoder of its size, which teaches a smaller one with all three losses."""
    folder, _ = msmarco
    tiny = ("steps=3", "workers=0", "batch_size=8", "eval_every=2")
    small = [f"{stages}.0.{key}" for stages in ("teacher.stages", "stages") for key in tiny]
    small += [f"{who}.start={tiny_bert}" for who in ("teacher.train", "student")]
    small += ["teacher.train.document_length=30", "student.document_length=60", f"data.source={folder}"]
    first = lb.distill("embeddistill-teacher-msmarco", tmp_path / "first", small)
    assert [row.objective for row in first.rows if row.kind == "student"] == ["softmax_ce"]
    small = [f"stages.0.{key}" for key in tiny] + [f"student.start={tiny_bert}", "student.layers=1"]
    small += ["student.document_length=60", f"data.source={folder}", f"teacher.model={tmp_path / 'first' / 'student'}"]
    lb.distill("embeddistill-msmarco", tmp_path / "second", small)
    lines = [json.loads(line) for line in (tmp_path / "second" / "log.jsonl").read_text().splitlines()]
    learnt = [set(line["objectives"]) for line in lines if "objectives" in line]
    assert learnt[-1] == {"one_hot", "softmax_ce", "match_embeddings"}
    assert all(lb.load(tmp_path / place).dim == 32 for place in ("first", "second"))


COMBINED = (  # Table 1 of EmbedDistill has this student too: labels, scores and embeddings, over the batch
    "teacher.live=true",
    'stages.0.objectives=["one_hot", "softmax_ce", "match_embeddings(of=queries)"]',
    "stages.0.lists={size: 1, pool: 1, negatives: uniform, in_batch: true}",
)


STRICT = ("data.test=dev", "data.dev=null", "evaluation.measures=[recall@5, recall@20, recall@100]")


@pytest.mark.parametrize("more", [(), COMBINED, STRICT], ids=["embeddings", "combined", "strict"])
def test_embeddistill_on_natural_questions(beir, tiny_bert, tmp_path, more):
    """The test questions have answers and no passages, as in DPR's nq-test.qa.csv."""
    source = as_dpr(beir, tmp_path / "nq")
    questions = json.loads((source / "qa-test.json").read_text())
    (source / "qa-test.json").unlink()
    (source / "nq-test.qa.csv").write_text("".join(f"{each['question']}\t{each['answers']}\n" for each in questions))
    lengths = {"query_length": 16, "document_length": 32}
    torch.manual_seed(0)
    build(matcher_config(init_from=tiny_bert, pooling="cls", untied=True, **lengths)).save_pretrained(tmp_path / "base")
    extra = tmp_path / "near.jsonl"
    lb.generate(source, extra, per_query=2)
    small = ("steps=3", "workers=0", "batch_size=8", "eval_every=2")
    settings = [f"data.source={source}", f"data.unlabelled={extra}", f"teacher.model={tmp_path / 'base'}"]
    settings += [f"student.init_from={tiny_bert}", "student.layers=1", "student.query_length=16"]
    settings += [f"stages.0.{key}" for key in small]
    result = lb.distill("embeddistill-nq", tmp_path / "run", [*settings, "student.document_length=32", *more])
    measured = {row.kind: row.measures for row in result.rows}
    recall = "recall" if more is STRICT else "answer_recall"
    assert set(measured["student"]) == set(measured["teacher"]) == {f"{recall}@{k}" for k in (5, 20, 100)}
    assert measured["teacher"][f"{recall}@100"] > 0
    student, teacher = lb.load(tmp_path / "run"), lb.load(tmp_path / "base")
    assert student.identity(1) == teacher.identity(1)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    learnt = [set(line["objectives"]) for line in lines if "objectives" in line]
    others = {"one_hot", "softmax_ce"} if more is COMBINED else set()
    assert learnt[-1] == {"match_embeddings(of='queries')"} | others


def test_dipair(msmarco, tiny_bert, tmp_path):
    """Pairs out of MS MARCO's files, a transfer set of its training queries' neighbours, two stages."""
    folder, _ = msmarco
    built = build_pairs(str(folder), tmp_path / "q2p", "neighbours", below=100.0)
    assert {split: built.counts[split] for split in ("train", "dev", "test")} == {"train": 28, "dev": 4, "test": 12}
    assert built.counts["transfer"] > 28
    asked = {
        name: {json.loads(line)["text_a"] for line in (built.folder / f"{name}.jsonl").read_text().splitlines()}
        for name in ("train", "dev", "test", "transfer")
    }
    assert (
        not asked["dev"] & (asked["train"] | asked["transfer"] | asked["test"]) and not asked["test"] & asked["train"]
    )
    small = ["stages.0.steps=3", "stages.1.steps=3", "stages.0.eval_every=2", "stages.1.eval_every=2"]
    small += ["teacher.stages.0.workers=0", "stages.1.workers=0", "teacher.stages.0.epochs=1", "student.layers=2"]
    small += [f"{who}.document_length=28" for who in ("teacher.train", "student")]
    small += ["stages.0.batch_size=16", "stages.1.batch_size=16", "teacher.stages.0.batch_size=8"]
    places = [f"data.source={built.folder}", f"data.unlabelled={built.folder / 'transfer.jsonl'}"]
    starts = [f"{who}.start={tiny_bert}" for who in ("teacher.train", "student")]
    result = lb.distill("dipair-msmarco", tmp_path / "run", [*places, *starts, *small])
    assert list(result.rows[-1].measures) == ["auc", "ap", "f1"]
