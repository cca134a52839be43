"""The share of its teacher's quality that a student keeps, measured from chance instead of from 0.

An AUC of 0.5 is a coin flip: a student with 0.5 has kept nothing of a teacher with 0.68, not 73% of it.
"""

from __future__ import annotations


def kept(ours: float, theirs: float, chance: float) -> float | None:
    """The student's quality above chance divided by the teacher's; None if the teacher is not above chance."""
    return max(0.0, (ours - chance) / (theirs - chance)) if theirs > chance else None
