"""Are the teacher's targets informative? A temperature that does not fit the teacher's scores fails silently.

Cosines divided by 4 are almost equal for all documents: their softmax is uniform, and a student does not learn from it.
Logits that are far apart, divided by a small number, are one-hot: the teacher gives no more information than a label.
The entropy of the targets shows both, from 0 (one-hot) to 1 (uniform).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from scipy import special
from torch import Tensor

from limbeck.matchers import Matcher
from limbeck.objectives import Objective, kl, parse, soft_binary_ce, soft_class_ce, softmax_ce
from limbeck.objectives.names import with_argument
from limbeck.recipe.stage import Stage
from limbeck.training.lists import TrainingLists

UNIFORM, ONE_HOT = 0.98, 0.01  # above or below these entropies targets have no information, or no more than labels
LOOKED_AT, LIVE = 512, 8  # number of training lists; fewer if a live teacher has to score them
COSINE_SCALE = 20.0  # usual in contrastive training: cosines that differ by 0.1 become logits that differ by 2
Standardise = Callable[[Tensor, Tensor], Tensor]


def scores_are_cosines(teacher: Matcher | None) -> bool:
    """Whether a teacher's scores are between -1 and 1: those of a dual encoder with cosines or unit vectors."""
    return teacher is not None and teacher.scores_are_cosines


def scale_cosines(scores: Tensor, mask: Tensor) -> Tensor:
    """Cosines as logits."""
    return scores * COSINE_SCALE


def poor_targets(
    stage: Stage, lists: TrainingLists, standardise: Standardise | None = None, live: Matcher | None = None
) -> Iterator[str]:
    """A line for each objective of a stage with nearly uniform or nearly one-hot targets, with a better tau."""
    texts = [text for text in stage.objectives if _temperature(parse(text)[1]) is not None]
    if not texts:
        return
    scores = [_standardised(one, standardise) for one in _teacher_scores(stage, lists, live)]
    for text in texts:
        line = _judged(text, [one for one in scores if len(one)])
        if line is not None:
            yield line


def _judged(text: str, scores: list[np.ndarray]) -> str | None:
    objective = parse(text)[1]
    tau = _temperature(objective)
    entropies = [entropy for one in scores if (entropy := _entropy(objective, one, tau)) is not None]
    found = float(np.mean(entropies)) if entropies else math.nan
    if math.isnan(found) or ONE_HOT <= found <= UNIFORM:  # NaN is refused in training
        return None
    shape, why = ("uniform", "a student learns almost nothing from them") if found > UNIFORM else ("one-hot", "")
    why = why or "they contain no more information than labels"
    better = with_argument(text, _argument(objective), f"{_suggested(objective, scores):.2g}")
    told = f"{text}: the teacher's targets are nearly {shape} (entropy {found:.3f} of 1), so {why}"
    cause = "tau does not fit the scale of the teacher's scores"
    cause += ", or it has not learnt enough" if found > UNIFORM else ""
    return f"{told}; {cause}: try {better}"


def _temperature(objective: Objective) -> float | None:
    if isinstance(objective, softmax_ce | kl):
        return objective.temperatures[0]
    return objective.tau if isinstance(objective, soft_binary_ce | soft_class_ce) else None


def _argument(objective: Objective) -> str:
    return "tau_teacher" if isinstance(objective, softmax_ce | kl) else "tau"


def _entropy(objective: Objective, scores: np.ndarray, tau: float | None) -> float | None:
    """The entropy of one list's targets, or the mean over documents if each is judged alone; 1 is uniform."""
    logits = scores / tau
    if isinstance(objective, soft_binary_ce):
        logits = np.stack([np.zeros_like(logits), logits], axis=-1)
    if logits.shape[-1] < 2:
        return None
    shares = special.softmax(logits, axis=-1)
    return float(np.mean(special.entr(shares).sum(-1)) / np.log(logits.shape[-1]))


def _suggested(objective: Objective, scores: list[np.ndarray]) -> float:
    """The temperature that gives logits a standard deviation of about 1."""
    if isinstance(objective, soft_binary_ce):
        spread = float(np.std(np.concatenate(scores)))
    else:
        spread = float(np.mean([one.std(-1).mean() for one in scores if one.shape[-1] > 1]))
    return min(max(spread, 1e-3), 1e3)


def _teacher_scores(stage: Stage, lists: TrainingLists, live: Matcher | None) -> Iterator[np.ndarray]:
    """Teacher scores of some training lists, [documents] or [documents, classes]; a live teacher computes them."""
    if live is None:
        for index in range(min(len(lists), LOOKED_AT)):
            found = lists.teacher(index, lists.pick(index, 0))
            yield found[~np.isnan(found).reshape(len(found), -1).any(1)]
        return
    picked = [lists.pick(index, 0) for index in range(min(len(lists), LIVE))]
    everything = np.unique(np.concatenate(picked))
    for index, own in islice(enumerate(picked), LIVE):
        rows = everything if stage.lists.in_batch else own
        documents = lists.texts(rows.tolist())
        pairs = [(lists.query(index), *([one] if isinstance(one, str) else one)) for one in documents]
        yield live.score(pairs)


def _standardised(scores: np.ndarray, standardise: Standardise | None) -> np.ndarray:
    if standardise is None or not len(scores):
        return scores
    tensor = torch.from_numpy(scores).unsqueeze(0)
    return standardise(tensor, torch.ones(tensor.shape[:2], dtype=torch.bool)).squeeze(0).numpy()
