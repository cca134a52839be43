"""`--device` and LIMBECK_DEVICE on the command line."""

from __future__ import annotations

import pytest
import torch

VERBS = "demo distill sweep annotate index search expand generate tune pairs score evaluate report".split()


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_that_runs_models_has_the_option(limbeck, verb):
    assert "--device" in limbeck(verb, "--help").out


def test_an_invalid_device_is_a_one_line_error(limbeck, tmp_path):
    done = limbeck("evaluate", "bm25", "pydocs", "--device", "gpu")
    assert done.code == 2
    assert done.err == "limbeck: device 'gpu': is not a device; use cpu, cuda, cuda:1 or mps\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_missing_device_is_a_one_line_error(limbeck, tiny_bert, beir, tmp_path, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("LIMBECK_DEVICE", "cuda")
    option = ["--device", "cuda"] if how == "option" else []
    done = limbeck("annotate", tiny_bert, beir, "--out", tmp_path / "out", *option)
    assert (done.code, done.out) == (2, "") and not (tmp_path / "out").exists()
    assert done.err == "limbeck: device cuda: torch sees no GPU; use cpu, or install torch with CUDA\n"


def test_the_option_ends_with_the_command(limbeck, tiny_bert, beir, tmp_path):
    from limbeck.matchers.device_choice import asked_device

    done = limbeck("annotate", tiny_bert, beir, "--out", tmp_path / "out", "--depth", 2, "--device", "cpu")
    assert done.code == 0, done.err
    assert asked_device() is None
