"""Upload a student to the hub: its own files and its card, and nothing else of its folder or its run.

Nothing is uploaded unless this is called. A folder that Limbeck did not save, or that has changed since, is refused.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from limbeck import __version__
from limbeck.errors import LimbeckError, bad_input, first_line
from limbeck.file_list import NAME as LIST
from limbeck.file_list import read_list
from limbeck.matchers.folder_checks import check_folder
from limbeck.matchers.names import is_model, model_folder
from limbeck.matchers.probabilities import CALIBRATION
from limbeck.progress import has_reporter, say
from limbeck.runs.card_loading import CARD, HERE, INSIDE

if TYPE_CHECKING:
    from huggingface_hub import HfApi

REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
STUDENT = "give the folder of a student, or of a run"
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
READ_BY_LOADERS = (".json", ".safetensors", ".txt", ".model", ".bin")


@dataclass(frozen=True)
class Pushed:
    """What was uploaded, and where it is now."""

    folder: Path
    url: str
    files: list[str]
    bytes: int


def push_student(student: str | Path, name: str, private: bool = False) -> Pushed:
    """Upload a student to the repository `name` (owner/name) of the hub, which is made if it does not exist."""
    folder, files = student_files(student)
    require_repository_name(name)
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise LimbeckError(f"{name}: the hub wants a token, and there is none; {LOG_IN}")
    with _staged(folder, files, name) as staged, _naming_hub_errors(name), _quiet_unless_watched():
        uploaded = sorted(path for path in staged.rglob("*") if path.is_file())
        size, names = sum(path.stat().st_size for path in uploaded), [_inside(path, staged) for path in uploaded]
        api = HfApi(library_name="limbeck", library_version=__version__)
        # None leaves the choice to the organization, which may make new repositories private.
        url = api.create_repo(name, private=private or None, repo_type="model", exist_ok=True)
        _check_repository(api, name, private, names)
        say(f"uploading {len(names)} files, {size / 1e6:,.1f} MB, to {url}")
        api.upload_folder(repo_id=name, folder_path=staged, commit_message="Upload a student distilled with Limbeck")
    return Pushed(folder, str(url), names, size)


def _inside(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def require_repository_name(name: str) -> None:
    """Refuse what is not a name of the form owner/name."""
    if not REPOSITORY.fullmatch(name) or "--" in name or ".." in name:
        raise LimbeckError(f"{name}: is not the name of a repository; give owner/name, e.g. my-team/my-student")


def student_files(student: str | Path) -> tuple[Path, list[str]]:
    """The folder of an undamaged student, and the files of the model in it, without the card."""
    folder = model_folder(student)
    if not folder.is_dir():
        raise LimbeckError(f"{folder}: no such folder; {STUDENT}")
    if not (is_model(folder) or (folder / "config.json").exists()):
        raise LimbeckError(f"{folder}: contains no student; {STUDENT}")
    listed = read_list(folder, "save the model again")
    if listed is None:
        remedy = "save it with limbeck, or upload it with `hf upload`"
        raise bad_input(folder, "was not saved by limbeck, so its files cannot be checked", remedy)
    check_folder(folder)
    for file in (CARD, CALIBRATION):  # no checksum protects these
        if (folder / file).is_symlink():
            raise bad_input(folder / file, "is a link to another file", "replace it with a copy")
    calibration = [CALIBRATION] if (folder / CALIBRATION).is_file() else []
    return folder, sorted({*listed.files, *calibration, LIST} - {CARD})


@contextmanager
def _staged(folder: Path, files: list[str], name: str) -> Iterator[Path]:
    """A folder with links to the files of the model, and a card that loads it by its name on the hub."""
    with TemporaryDirectory(prefix="limbeck-push-") as made:
        staged = Path(made)
        for file in files:
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
            _link((folder / file).absolute(), staged / file)
        card = _card(folder, name).replace(f"({HERE}){INSIDE}", f'("{name}")')
        (staged / CARD).write_text(card, encoding="utf-8")
        yield staged


def _card(folder: Path, name: str) -> str:
    """The card of a folder; a model that was saved without one gets a plain one."""
    if (folder / CARD).is_file():
        return (folder / CARD).read_text(encoding="utf-8")
    from limbeck.matchers import load
    from limbeck.runs.student_card import plain_card

    return plain_card(folder, name.partition("/")[2], load(folder))


def _link(file: Path, place: Path) -> None:
    try:
        os.symlink(file, place)
    except OSError:  # Windows without the permission to make links
        shutil.copy2(file, place)


def _check_repository(api: HfApi, name: str, private: bool, files: list[str]) -> None:
    """Refuse a public repository for a private student, and one with another model's files, which loaders would mix."""
    info: Any = api.repo_info(name, repo_type="model")
    if private and not info.private:
        raise LimbeckError(f"{name}: exists and is public; make it private on the hub, or choose another name")
    there = [entry.rfilename for entry in info.siblings or ()]
    others = sorted({file for file in there if file.endswith(READ_BY_LOADERS)} - set(files))
    if others:
        problem = f"has files of another model ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''})"
        raise LimbeckError(f"{name}: {problem}; choose another name, or delete them on the hub")


@contextmanager
def _quiet_unless_watched() -> Iterator[None]:
    """Without a reporter of progress, switch off the hub's own progress bars."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if has_reporter() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


@contextmanager
def _naming_hub_errors(name: str) -> Iterator[None]:
    """Turn any error of the hub, of its client or of the network into one line."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except LimbeckError:
        raise
    except OfflineModeIsEnabled as error:
        raise LimbeckError(f"{name}: HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        said = error.server_message or first_line(error)
        remedy = f"use a token that may write there: {LOG_IN}" if status in (401, 403, 404) else "try again later"
        raise LimbeckError(f"{name}: the hub answered {status} ({said}); {remedy}") from error
    except Exception as error:
        reason = first_line(error) or type(error).__name__
        raise LimbeckError(f"{name}: the hub did not answer ({reason}); check the network and run it again") from error
