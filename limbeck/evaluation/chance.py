"""What a student keeps of its teacher's quality. "Kept" counts from chance, not from 0.

An AUC of 0.5 is a coin flip; a student with 0.5 has kept nothing of a teacher with 0.68, not 73% of it.
"""

from __future__ import annotations


def kept(ours: float, theirs: float, chance: float) -> float | None:
    """The share of what a teacher has above chance that a student has; None where the teacher has nothing."""
    return max(0.0, (ours - chance) / (theirs - chance)) if theirs > chance else None
