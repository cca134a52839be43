"""What a user asks of a student: `--budget 2ms`, `--budget 1KB/doc`, `--keep 95%`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from limbeck.errors import LimbeckError
from limbeck.report.formatting import share, three_digits

USUAL_KEEP = 0.95  # the share of the teacher's quality to keep, if a user asks for nothing else
TIMES = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
SIZES = {"b": 1.0, "kb": 1e3, "kib": 1024.0, "mb": 1e6, "mib": 1024.0**2}
BUDGET = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]+)\s*(/\s*(?:doc|document|passage))?\s*", re.IGNORECASE)
KEEP = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")
FORMS = "write a time per query or a size per document, e.g. 2ms or 1KB/doc"


@dataclass(frozen=True)
class Limits:
    """Limits of a student's cost, and the share of the teacher's quality that it should keep; None if not asked for."""

    ms: float | None = None
    bytes: float | None = None  # per document
    keep: float | None = None

    @classmethod
    def parse(cls, budgets: Sequence[str] = (), keep: str | float | None = None) -> Limits:
        """Read the options of the command."""
        found: dict[str, float] = {}
        for text in budgets:
            key, value = _budget(text)
            if key in found:
                raise LimbeckError(f"--budget {text}: there are two budgets of this kind; give one")
            found[key] = value
        return cls(found.get("ms"), found.get("bytes"), _keep(keep))

    @property
    def needed(self) -> float | None:
        """The share to keep: what was asked for, or the usual one if nothing was."""
        asked = self.ms is not None or self.bytes is not None
        return self.keep if self.keep is not None or asked else USUAL_KEEP

    def affords(self, ms: float | None, per_document: float | None) -> bool:
        """Whether a cost is within the budgets; a cost that could not be measured is not."""
        within = self.ms is None or (ms is not None and ms <= self.ms)
        return within and (self.bytes is None or (per_document is not None and per_document <= self.bytes))

    def __str__(self) -> str:
        parts = [f"at most {three_digits(self.ms)} ms per query"] if self.ms is not None else []
        parts += [f"at most {self.bytes:,.0f} bytes per document"] if self.bytes is not None else []
        parts += [f"keep {share(self.needed)} of the teacher's quality"] if self.needed is not None else []
        return ", ".join(parts)

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)


def _budget(text: str) -> tuple[str, float]:
    """`ms` or `bytes`, and how many."""
    found = BUDGET.fullmatch(text)
    units = SIZES if found and found[3] else TIMES
    unit = found[2].lower() if found else ""
    if found is None or unit not in units:
        missing = " (a size needs /doc)" if found and not found[3] and unit in SIZES else ""
        raise LimbeckError(f"cannot read --budget {text!r}{missing}; {FORMS}")
    value = float(found[1]) * units[unit]
    if not value > 0:
        raise LimbeckError(f"--budget {text}: nothing costs so little; {FORMS}")
    return ("bytes" if found[3] else "ms"), value


def _keep(given: str | float | None) -> float | None:
    if given is None:
        return None
    found = KEEP.fullmatch(str(given))
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value <= 1.5:
        raise LimbeckError(f"cannot read --keep {str(given)!r}; write a share of the teacher's quality, e.g. 95%")
    return value
