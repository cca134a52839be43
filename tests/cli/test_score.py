"""`limbeck score` and `limbeck pairs` as a user meets them."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from tests.cli.test_cli import assert_one_line_about
from tests.scoring.test_job import listed, model, sides_of, texts, write_ids  # noqa: F401


def ask(model, file, tmp_path, *more):  # noqa: F811
    sides = [part for name, path in sides_of(tmp_path).items() for part in (f"--{name}", path)]
    return ["score", model, str(file), "--out", str(tmp_path / "out"), *sides, "--workers", "1", *more]


def test_it_says_what_it_did_and_does_it_once(limbeck, model, texts, listed, tmp_path):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    done = limbeck(*ask(model, file, tmp_path, "--json"))
    assert done.code == 0, done
    facts = json.loads(done.out)
    assert (facts["pairs"], facts["scored_now"]) == (90, 90) and facts["texts_encoded_now"] > 0
    assert pq.read_table(tmp_path / "out" / "scores" / "part-0000000.parquet").num_rows == 90
    again = limbeck(*ask(model, file, tmp_path))
    assert again.code == 0 and "90 pairs, 0 scored now, 0 texts encoded now" in again.out


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--engine", "rey"], "--engine rey: no such engine; did you mean 'ray'?"),
        (["--address", "there:6379"], "--address names a Ray cluster; add --engine ray"),
        (["--head", "int4"], "--head int4: no such head; did you mean 'int8'?"),
        (["--dtype", "int4"], "cannot store vectors as 'int4'"),
    ],
)
def test_impossible_options_are_one_line_errors(limbeck, model, texts, listed, tmp_path, more, line):  # noqa: F811
    file = write_ids(tmp_path / "pairs.csv", listed)
    done = limbeck(*ask(model, file, tmp_path, *more))
    assert_one_line_about(done, line)


def test_pairs_for_a_pair_set_name_the_set_for_the_next_command(limbeck, beir, tmp_path):
    assert limbeck("pairs", str(beir), "--out", str(tmp_path / "pairs")).code == 0
    done = limbeck("pairs", str(tmp_path / "pairs"), "--how", "neighbours", "--out", str(tmp_path / "more"))
    assert done.code == 0, done
    shown = " ".join(done.out.split())
    assert f"--set data.source={tmp_path / 'pairs'} --set data.unlabelled={tmp_path / 'more'}/transfer.jsonl" in shown


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ("--titles", "--set 'student.tokens=[4,4,8]'"),
        ("--how=judged", "--set 'evaluation.measures=[pearson,spearman]'"),
    ],
)
def test_the_next_command_for_pairs_fits_them(limbeck, beir, tmp_path, asked, more):
    done = limbeck("pairs", str(beir), asked, "--out", str(tmp_path / "pairs"))
    assert f"--set data.source={tmp_path / 'pairs'} {more}" in " ".join(done.out.split())
