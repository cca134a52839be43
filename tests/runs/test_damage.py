"""Files of an unfinished run that a disk has changed are noticed: their work is done again, with the same result."""

from __future__ import annotations

import json

import pytest

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.runs import finish_run as finish_module
from limbeck.runs import ranking_bench
from limbeck.sealed import opened, read_if_whole, read_sealed, seal, write_sealed
from limbeck.training import trainer as trainer_module
from limbeck.training.stages import BEST
from limbeck.training.weights import is_whole, load_weights, save_weights


def flip(path, at=-40):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def weights(folder):
    return (folder / "student" / "model.safetensors").read_bytes()


@pytest.fixture
def two_stages(recipe):
    recipe["stages"] = [recipe["stages"][0] | {"checkpoint_seconds": 0}] * 2
    return recipe


def stop_in(monkeypatch, stage, step):
    """Let a run be cut short at a step of a stage of the student, once."""
    plain, armed = trainer_module.DistillationTrainer.training_step, [True]

    def training_step(self, *args, **kwargs):
        if armed and (self.run_log.model, self.run_log.stage, self.state.global_step) == ("student", stage, step):
            armed.clear()
            raise KeyboardInterrupt
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(trainer_module.DistillationTrainer, "training_step", training_step)


@pytest.mark.parametrize("name", ["student-stage-0.safetensors", f"student-stage-1/{BEST}", "student-stage-1/check*/*"])
def test_a_flipped_bit_in_unfinished_weights_costs_a_stage_and_changes_nothing(two_stages, tmp_path, monkeypatch, name):
    two_stages["stages"][1] = two_stages["stages"][1] | {"eval_every": 1}
    lb.distill(two_stages, tmp_path / "whole")
    stop_in(monkeypatch, stage=1, step=3)
    with pytest.raises(KeyboardInterrupt):
        lb.distill(two_stages, tmp_path / "run")
    found = [path for path in (tmp_path / "run" / "work").glob(name) if path.suffix == ".safetensors"]
    assert found
    for path in found:
        flip(path)
        assert "checkpoint" in str(path) or not is_whole(path)
    lb.distill(two_stages, tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_every_byte_of_a_file_of_weights_counts(tiny_bert, tmp_path):
    matcher = build(matcher_config(start=tiny_bert, layers=1, query_length=8, document_length=8))
    save_weights(matcher, tmp_path / "weights")
    load_weights(matcher, tmp_path / "weights")
    content = (tmp_path / "weights").read_bytes()
    for at in [*range(0, 200, 7), *range(200, len(content), len(content) // 60), len(content) - 1]:
        flip(tmp_path / "weights", at)
        changed = (tmp_path / "weights").read_bytes()
        assert not is_whole(tmp_path / "weights"), f"byte {at}: {changed[: at + 1][-20:]!r}"
        (tmp_path / "weights").write_bytes(content)


def test_a_run_that_is_killed_while_measuring_measures_only_what_is_left(recipe, tmp_path, monkeypatch):
    plain, seen = ranking_bench.RankingBench.model, []

    def model(self, name, *given):
        seen.append(name)
        if seen.count("student") == 1 and name == "student":
            raise KeyboardInterrupt
        return plain(self, name, *given)

    monkeypatch.setattr(ranking_bench.RankingBench, "model", model)
    with pytest.raises(KeyboardInterrupt):
        lb.distill(recipe, tmp_path / "run")
    result = lb.distill(recipe, tmp_path / "run")
    assert seen == ["teacher", "student", "student"]
    assert [row.name for row in result.rows] == ["teacher", "BM25", "student"]
    assert not (tmp_path / "run" / "work").exists()


def test_a_measurement_of_other_weights_is_made_again(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(finish_module, "write_results", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        lb.distill(recipe, tmp_path / "run")
    monkeypatch.undo()
    kept = tmp_path / "run" / "work" / "measured" / "student" / "result.json"
    record = read_sealed(kept)
    record["row"]["measures"]["ndcg@10"] = 9.0
    write_sealed(kept, record | {"of": "other weights"})
    assert lb.distill(recipe, tmp_path / "run").rows[-1].measures["ndcg@10"] <= 1


def test_changed_results_of_a_finished_run_are_refused(recipe, tmp_path):
    lb.distill(recipe, tmp_path / "run")
    path = tmp_path / "run" / "metrics.json"
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1'))
    with pytest.raises(LimbeckError, match=r"metrics.json: is damaged; remove it and run the command again"):
        lb.distill(recipe, tmp_path / "run")
    path.unlink()
    assert lb.distill(recipe, tmp_path / "run").rows


def test_a_record_is_known_by_its_checksum_and_an_older_one_is_taken_as_it_is(tmp_path):
    record = {"auc": 0.1 + 0.2, "names": ["ä"], "none": None}
    assert opened(json.loads(json.dumps(seal(record)))) == record == opened(record)
    assert opened(seal(record) | {"auc": 0.31}) is None and opened([1]) is None
    write_sealed(tmp_path / "record.json", record)
    assert read_if_whole(tmp_path / "record.json") == record and read_if_whole(tmp_path / "absent.json") is None
    (tmp_path / "record.json").write_text("{")
    assert read_if_whole(tmp_path / "record.json") is None
