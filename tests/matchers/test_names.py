"""A name that is no folder is asked of the hub once, and the answer is one line."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

from limbeck.errors import LimbeckError
from limbeck.matchers import load
from limbeck.matchers.names import has_minilm, resolve

GONE = httpx2.Response(404, request=httpx2.Request("HEAD", "https://hub.example/model"))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Replaces the hub: `hub.answer` is raised, and requests are counted."""

    class Hub:
        answer: Exception | None = None
        requests = 0

        def metadata(self, url, **_):
            self.requests += 1
            if self.answer is not None:
                raise self.answer

    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", hub.metadata)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return hub


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx2.ConnectError("[Errno -2] Name or service not known"), "the hub did not answer"),
        (RepositoryNotFoundError("no", response=GONE), "no such model on the hub"),
        (GatedRepoError("no", response=GONE), "hf auth login"),
    ],
)
def test_a_mistyped_folder_is_one_request_and_one_line(hub, answer, message):
    hub.answer = answer
    with pytest.raises(LimbeckError, match=message) as error:
        resolve("runs/nope")
    assert hub.requests == 1
    assert str(error.value).startswith("runs/nope: no such folder")
    assert "\n" not in str(error.value)


def test_a_hub_name_passes_even_if_its_config_is_elsewhere(hub):
    assert resolve("owner/name") == "owner/name"
    hub.answer = EntryNotFoundError("no")
    assert resolve("owner/name") == "owner/name"


def test_labels_that_can_be_neither_are_not_requested(hub):
    for name in ("./nope", "a/b/c", "ow ner/nope"):
        with pytest.raises(LimbeckError, match="no such folder"):
            resolve(name)
    assert hub.requests == 0


def test_minilm_without_its_package_has_to_be_in_the_hubs_cache(monkeypatch):
    monkeypatch.setattr("limbeck.matchers.names.find_spec", lambda _: None)
    for cached, there in (("model.safetensors", True), (None, False)):
        monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, found=cached: found)
        assert has_minilm() is there


@pytest.fixture
def model_on_hub(hub, tiny_bert, tmp_path, monkeypatch) -> Path:
    """`owner/name` on the hub is tiny BERT; what is downloaded lies in `downloads`."""
    there = tmp_path / "there"
    shutil.copytree(tiny_bert, there)

    def snapshot_download(name, revision=None, allow_patterns=(), ignore_patterns=()):
        assert name == "owner/name"
        downloads = tmp_path / "downloads"
        downloads.mkdir(exist_ok=True)
        for file in there.iterdir():
            if any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, downloads)
        return str(downloads)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return there


def test_a_model_of_the_hub_is_the_folder_that_is_there(model_on_hub, tiny_bert):
    pairs = [("copy a file", "move a file")]
    assert load("owner/name").score(pairs) == load(tiny_bert).score(pairs)


def test_a_model_of_the_hub_that_names_code_is_refused_before_its_weights_are_downloaded(model_on_hub, tmp_path):
    config = json.loads((model_on_hub / "config.json").read_text()) | {"auto_map": {"AutoModel": "evil.Model"}}
    (model_on_hub / "config.json").write_text(json.dumps(config))
    with pytest.raises(LimbeckError, match="auto_map"):
        load("owner/name")
    assert not list((tmp_path / "downloads").glob("*.safetensors"))


def test_a_model_of_the_hub_without_safetensors_is_refused(model_on_hub, tmp_path):
    (model_on_hub / "model.safetensors").rename(model_on_hub / "pytorch_model.bin")
    with pytest.raises(LimbeckError, match="owner/name: has no safetensors weights on the hub; convert it once"):
        load("owner/name")
    assert not (tmp_path / "downloads" / "pytorch_model.bin").exists()
