"""`limbeck push` against a hub on 127.0.0.1, with huggingface_hub's own client in a process of its own."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, ModelCard

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.runs.push import student_files
from tests.runs.hub_stub import TOKEN, Hub, Repository, running_hub

ROOT = Path(__file__).parents[2]
Push = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as found:
        yield found


@pytest.fixture
def push(hub: Hub, tmp_path: Path) -> Push:
    """Run `limbeck push` as a user would, logged in to the hub."""

    def run(*arguments: object, **changes: str | None) -> subprocess.CompletedProcess:
        known = {
            "HF_ENDPOINT": hub.address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": None,
        }
        merged = {**os.environ, **known, **changes, "PYTHONPATH": str(ROOT)}
        environment = {name: value for name, value in merged.items() if value is not None}
        command = [sys.executable, "-m", "limbeck", "push", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)

    return run


@pytest.fixture
def student(tiny_bert: str, tmp_path: Path) -> Path:
    folder = tmp_path / "student"
    build(matcher_config(init_from=tiny_bert, layers=1, query_length=8, document_length=8)).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlibrary_name: sentence-transformers\n---\n\n# small\n")
    return folder


def assert_refused(done: subprocess.CompletedProcess, *words: str) -> None:
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("limbeck: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_the_student_of_a_run_and_its_card_are_uploaded_and_nothing_else(push, hub, recipe, tmp_path):
    lb.distill(recipe, tmp_path / "run")
    own = tmp_path / "run" / "student"
    for other in ("work/checkpoint-1/optimizer.pt", "notes.txt", "data/corpus.jsonl"):
        (own / other).parent.mkdir(parents=True, exist_ok=True)
        (own / other).write_text("not for others")
    done = push(tmp_path / "run", "team/small", "--json")
    assert done.returncode == 0, done.stderr
    files = hub.repositories["team/small"].files
    listed = set(json.loads((own / "limbeck-files.json").read_text())["files"])
    assert set(files) == listed | {"limbeck-files.json", "README.md"} == set(json.loads(done.stdout)["files"])
    assert all((own / name).read_bytes() == content for name, content in files.items() if name != "README.md")
    assert json.loads(done.stdout)["url"] == f"{hub.address}/team/small" and not hub.repositories["team/small"].private
    text = files["README.md"].decode()
    assert 'lb.load("team/small")' in text and 'SentenceTransformer("team/small")' in text and '"."' not in text
    assert '"."' in (own / "README.md").read_text()
    (tmp_path / "there").mkdir()
    for name, content in files.items():
        (tmp_path / "there" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "there" / name).write_bytes(content)
    pair = [("copy a file", "sort a list")]
    assert lb.load(tmp_path / "there").score(pair) == lb.load(own).score(pair)


def test_a_private_student_stays_private(push, hub, student):
    assert push(student, "team/secret", "--private").returncode == 0
    assert hub.repositories["team/secret"].private
    hub.repositories["team/public"] = Repository(private=False)
    assert_refused(push(student, "team/public", "--private"), "team/public", "is public", "choose another name")
    assert hub.repositories["team/public"].files == {}


def test_a_student_is_pushed_again_but_not_over_another_model(push, hub, student):
    assert push(student, "team/small").returncode == push(student, "team/small").returncode == 0
    hub.repositories["team/small"].files["2_Dense/model.safetensors"] = b""
    assert_refused(push(student, "team/small"), "files of another model (2_Dense/model.safetensors)")


def test_a_model_without_a_card_gets_one_that_loads_it(push, hub, student, tmp_path):
    (student / "README.md").unlink()
    assert push(student, "team/small").returncode == 0
    card = ModelCard(hub.repositories["team/small"].files["README.md"].decode())
    assert card.data.library_name == "sentence-transformers" and 'lb.load("team/small")' in card.text
    assert not (student / "README.md").exists()


def test_without_a_token_or_with_a_wrong_one_the_remedy_is_to_log_in(push, hub, student):
    assert_refused(push(student, "team/small", HF_TOKEN=None), "there is none", "hf auth login", "HF_TOKEN")
    assert hub.requests == []
    assert_refused(push(student, "team/small", HF_TOKEN="hf_wrong"), "the hub answered 401", "hf auth login")
    assert hub.repositories == {}


def test_without_a_network_the_remedy_is_to_check_it(push, student):
    assert_refused(push(student, "team/small", HF_ENDPOINT="http://127.0.0.1:9"), "did not answer", "check the network")
    assert_refused(push(student, "team/small", HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE", "unset it")


def test_damaged_folders_and_folders_that_are_no_students_are_refused(push, hub, student, tmp_path, minilm):
    weights = student / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert_refused(push(student, "team/small"), "model.safetensors", "has changed since it was saved")
    weights.write_bytes(whole)
    (tmp_path / "empty").mkdir()
    assert_refused(push(tmp_path / "empty", "team/small"), "contains no student")
    assert_refused(push(tmp_path / "nowhere", "team/small"), "no such folder")
    assert_refused(push(minilm, "team/small"), "was not saved by limbeck", "hf upload")
    assert hub.requests == []


@pytest.mark.parametrize("name", ["small", "a/b/c", "/small", "team/", "team/a b", "-/..", "team/a--b", "https://x/y"])
def test_a_name_that_no_repository_has_is_refused(student, name):
    with pytest.raises(LimbeckError, match="is not the name of a repository; give owner/name"):
        lb.push(student, name)


def test_a_card_that_links_to_another_file_is_refused(student, tmp_path):
    (tmp_path / "secret").write_text("a secret")
    (student / "README.md").unlink()
    (student / "README.md").symlink_to(tmp_path / "secret")
    with pytest.raises(LimbeckError, match=r"README.md: is a link to another file"):
        student_files(student)


def test_calibration_belongs_to_the_student(student):
    (student / "calibration.json").write_text("{}")
    assert "calibration.json" in student_files(student)[1]
    shutil.rmtree(student)
    with pytest.raises(LimbeckError, match="no such folder"):
        student_files(student)


def test_the_clients_functions_take_what_push_gives_them():
    assert {"repo_id", "private", "repo_type", "exist_ok"} <= set(inspect.signature(HfApi.create_repo).parameters)
    assert {"repo_id", "folder_path", "commit_message"} <= set(inspect.signature(HfApi.upload_folder).parameters)
