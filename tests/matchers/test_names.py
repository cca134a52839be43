"""A name that is no folder is asked of the hub once, and the answer is one line."""

from __future__ import annotations

import httpx2
import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

from limbeck.errors import LimbeckError
from limbeck.matchers.names import resolve

GONE = httpx2.Response(404, request=httpx2.Request("HEAD", "https://hub.example/model"))


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Stands in for the hub: `hub.answer` is raised, and requests are counted."""

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
        (httpx2.ConnectError("[Errno -2] Name or service not known"), "the hub does not answer"),
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


def test_what_can_be_neither_is_not_asked_for(hub):
    for name in ("./nope", "a/b/c", "ow ner/nope"):
        with pytest.raises(LimbeckError, match="no such folder"):
            resolve(name)
    assert hub.requests == 0
