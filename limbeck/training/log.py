"""The run's log: one JSON object per line, in step order even after a crash."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limbeck.files import naming_disk_errors, write_atomically
from limbeck.sealed import opened, seal


class RunLog:
    """Appends the reports of one stage of one model to `log.jsonl`."""

    def __init__(self, path: Path, model: str, stage: int) -> None:
        self.path, self.model, self.stage = path, model, stage

    def write(self, stage_step: int, **values: Any) -> None:
        entry = {"model": self.model, "stage": self.stage, "step": stage_step, **_finite(values)}
        with naming_disk_errors(self.path), open(self.path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(seal(entry), ensure_ascii=False) + "\n")

    def rewind(self, step: int) -> None:
        """Remove lines of this stage after `step`, where it resumes, and an incomplete last line."""
        if not self.path.exists():
            return
        kept = []
        for line, entry in _entries(self.path):
            own = entry.get("model") == self.model and entry.get("stage") == self.stage
            if not (own and entry.get("step", 0) > step):
                kept.append(line)
        with write_atomically(self.path, "w") as handle:
            handle.writelines(line + "\n" for line in kept)


def best_on_dev(path: Path, model: str, stage: int) -> dict[str, float] | None:
    """The measures of a stage's best evaluation on dev, by the first measure: those of the kept weights."""
    entries = [entry for _, entry in _entries(path)] if path.exists() else []
    own = [entry for entry in entries if entry.get("model") == model and entry.get("stage") == stage]
    looks = [entry["dev"] for entry in own if entry.get("dev") and None not in entry["dev"].values()]
    return max(looks, key=lambda dev: next(iter(dev.values())), default=None)


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The valid lines of a log and their content. A crash truncates the last line; a disk may damage any."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = opened(json.loads(line))
        except json.JSONDecodeError:
            entry = None
        if entry is not None:
            yield line, entry


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
