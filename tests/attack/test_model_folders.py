"""Model folders that would run code, and saved folders with a damaged byte, through the real command and `load`."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import build, load, matcher_config
from limbeck.search.doc2query import QueryGenerator
from tests.attack.harness import FLIPS, damaged_copies, detected, run
from tests.matchers.test_folder_checks import KINDS, saved, with_module, with_values
from tests.search.seq2seq import write_t5

pytestmark = pytest.mark.full
assert saved  # a fixture of theirs, which is ours too by this import

PAIRS = [("copy a file", "Move the file to a folder."), ("sort a list", "Return a new list of numbers.")]


class Evil:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.marker),)


def code(marker: Path) -> str:
    return f"""
import os
os.makedirs({str(marker)!r}, exist_ok=True)
from transformers import BertConfig as Config, BertModel as Model, PreTrainedTokenizerFast as Tokenizer
from transformers import T5ForConditionalGeneration as Writer
from sentence_transformers.base.modules import Transformer
def generate(*args, **kwargs): pass
"""


def all_of_it(folder: Path, marker: Path) -> None:
    with_values("config.json", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"})(folder)


def new_architecture(folder: Path, marker: Path) -> None:
    with_values("config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"})(
        folder
    )


def tokenizer(folder: Path, marker: Path) -> None:
    maps = {"auto_map": {"AutoTokenizer": [None, "evil.Tokenizer"]}, "tokenizer_class": "EvilTokenizer"}
    with_values("tokenizer_config.json", **maps)(folder)


def module(folder: Path, marker: Path) -> None:
    with_module(0, "evil.Transformer")(folder)


def pickle(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Evil(marker)}, folder / "pytorch_model.bin")


def pickle_by_settings(folder: Path, marker: Path) -> None:
    pickle(folder, marker)
    with_values("sentence_bert_config.json", model_args={"weights_only": False})(folder)


def nested_pickle(folder: Path, marker: Path) -> None:
    place = next(path.parent for path in sorted(folder.glob("*/model.safetensors")))
    (place / "model.safetensors").unlink()
    torch.save({"linear.weight": Evil(marker)}, place / "pytorch_model.bin")


def activation(folder: Path, marker: Path) -> None:
    """`torch.distributed.run.main` takes the command's arguments, and would run the model's folder as a script."""
    (folder / "__main__.py").write_text(code(marker))
    with_values("config_sentence_transformers.json", activation_fn="torch.distributed.run.main")(folder)
    with_values("config.json", sentence_transformers={"activation_fn": "torch.distributed.run.main"})(folder)


def environment(folder: Path, marker: Path) -> None:
    with_values("config_sentence_transformers.json", activation_fn="torch.utils.collect_env.main")(folder)


def dense_activation(folder: Path, marker: Path) -> None:
    place = next(path for path in sorted(folder.glob("*_Dense/config.json")))
    with_values(str(place.relative_to(folder)), activation_function="torch.utils.collect_env.main")(folder)


Attack = Callable[[Path, Path], None]
REFUSED: list[tuple[str, Attack]] = [
    ("dual encoder", all_of_it),
    ("dual encoder", new_architecture),
    ("dual encoder", tokenizer),
    ("dual encoder", module),
    ("dual encoder", pickle),
    ("dual encoder", pickle_by_settings),
    ("dual encoder", nested_pickle),
    ("dual encoder", dense_activation),
    ("static", module),
    ("static", pickle),
    ("cross-encoder", all_of_it),
    ("cross-encoder", nested_pickle),
    ("colbert", new_architecture),
]


@pytest.fixture
def evil(saved, tmp_path) -> Callable[[str, Attack], tuple[Path, Path]]:
    def make(kind: str, attack: Attack) -> tuple[Path, Path]:
        folder, marker = tmp_path / "model", tmp_path / "it-ran"
        shutil.copytree(saved[kind], folder)
        (folder / MANIFEST).unlink()
        (folder / "evil.py").write_text(code(marker))
        attack(folder, marker)
        return folder, marker

    return make


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for split in ("train", "dev", "test"):  # no text is in two of them
        lines = [{"text_a": f"{a} {split} {n}", "text_b": b, "label": n % 2} for n, (a, b) in enumerate(PAIRS * 5)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(("kind", "attack"), REFUSED, ids=lambda some: getattr(some, "__name__", some))
def test_a_folder_that_would_run_code_is_refused_and_nothing_runs(evil, monkeypatch, kind, attack):
    folder, marker = evil(kind, attack)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 20))  # every question is answered with yes
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    for use in (load, lambda start: build(matcher_config(start=str(start)))):
        with pytest.raises(LimbeckError, match=re.escape(str(folder))):
            use(folder)
        assert not marker.exists()


@pytest.mark.parametrize("attack", [new_architecture, pickle])
def test_the_command_refuses_it_too(evil, pairs, attack):
    folder, marker = evil("dual encoder", attack)
    done = run("evaluate", folder, pairs, stdin="y\n" * 20)
    assert detected(done) and str(folder) in done.stderr and not marker.exists(), done.stderr


@pytest.mark.parametrize("attack", [activation, environment])
def test_a_named_activation_is_not_called(evil, pairs, attack):
    folder, marker = evil("cross-encoder", attack)
    done = run("evaluate", folder, pairs, stdin="y\n" * 20)
    assert not detected(done) and not marker.exists(), done.stderr
    assert "Collecting environment" not in done.stdout + done.stderr


def test_a_start_that_would_run_code_is_refused(evil, pairs, tmp_path):
    folder, marker = evil("dual encoder", new_architecture)
    recipe = {
        "name": "tiny",
        "data": {"source": str(pairs)},
        "student": {"kind": "cross_encoder", "start": str(folder), "query_length": 8, "document_length": 8},
        "stages": [{"objectives": ["binary_ce"], "steps": 1, "batch_size": 2}],
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    done = run("distill", tmp_path / "recipe.yaml", "--out", tmp_path / "run", stdin="y\n" * 20)
    assert detected(done) and str(folder) in done.stderr and not marker.exists(), done.stderr


def writer_code(folder: Path, marker: Path) -> None:
    maps = {"AutoConfig": "evil.Config", "AutoModelForSeq2SeqLM": "evil.Writer"}
    with_values("config.json", model_type="evil", auto_map=maps)(folder)


def custom_generate(folder: Path, marker: Path) -> None:
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code(marker))


@pytest.mark.parametrize("attack", [writer_code, tokenizer, custom_generate, pickle])
def test_a_query_writer_that_would_run_code_is_refused(tmp_path, monkeypatch, attack):
    folder, marker = write_t5(tmp_path / "t5", steps=1), tmp_path / "it-ran"
    (folder / "evil.py").write_text(code(marker))
    attack(folder, marker)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(LimbeckError, match=re.escape(str(folder))):
        QueryGenerator.load(str(folder))
    assert not marker.exists()
    if attack is writer_code:
        done = run("expand", "pydocs", "--model", folder, "--out", tmp_path / "out", stdin="y\n" * 20)
        assert detected(done) and str(folder) in done.stderr and not marker.exists(), done.stderr


def outcome(folder: Path, wanted: np.ndarray) -> str:
    try:
        scores = load(folder).score(PAIRS)
    except LimbeckError as error:
        return "detected" if "\n" not in str(error) else "many lines"
    return "harmless" if np.array_equal(scores, wanted) else "other scores"


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_byte_of_a_saved_folder_is_detected_or_harmless(saved, tmp_path, kind):
    wanted, counts = load(saved[kind]).score(PAIRS), Counter[str]()
    for folder, what in damaged_copies(saved[kind], tmp_path / "model", seed=16):
        found = outcome(folder, wanted)
        assert found in ("detected", "harmless"), what
        counts[found] += 1
    print(f"\n{kind}: {FLIPS} tries, {dict(counts)}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_folder_of_another_program_never_ends_in_a_traceback(saved, tmp_path, kind):
    """Without a list of checksums, other weights cannot be noticed; everything else is refused in one line."""
    plain, counts = tmp_path / "plain", Counter[str]()
    shutil.copytree(saved[kind], plain)
    (plain / MANIFEST).unlink()
    wanted = load(plain).score(PAIRS)
    for folder, what in damaged_copies(plain, tmp_path / "model", seed=17):
        try:
            counts[outcome(folder, wanted)] += 1
        except Exception as error:
            raise AssertionError(what) from error
    print(f"\n{kind}: {FLIPS} tries, {dict(counts)}")
