"""The run's log: one JSON object a line, in step order even after a crash."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from limbeck.files import naming_disk_errors, write_atomically


class RunLog:
    """Appends to `log.jsonl` what one stage of one model reports."""

    def __init__(self, path: Path, model: str, stage: int) -> None:
        self.path, self.model, self.stage = path, model, stage

    def write(self, stage_step: int, **values: Any) -> None:
        entry = {"model": self.model, "stage": self.stage, "step": stage_step, **_finite(values)}
        with naming_disk_errors(self.path), open(self.path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def rewind(self, step: int) -> None:
        """Drop what this stage wrote after `step`, from which it goes on, and a last line that a crash cut short."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            own = entry.get("model") == self.model and entry.get("stage") == self.stage
            if not (own and entry.get("step", 0) > step):
                kept.append(line)
        with write_atomically(self.path, "w") as handle:
            handle.writelines(line + "\n" for line in kept)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
