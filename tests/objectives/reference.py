"""The objectives once more, from the formulas: one query at a time, plain Python loops over float64.

Each takes the student's scores s, the teacher's t (NaN: not scored) and the labels y (NaN: not judged) of the real
documents of one query, and gives the loss and its gradient with respect to s, derived by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from limbeck.objectives import (
    Objective,
    binary_ce,
    class_ce,
    focal,
    kl,
    m3se,
    margin_mse,
    masked_lm,
    mse,
    one_hot,
    rank_distil,
    reconstruct,
    soft_binary_ce,
    soft_class_ce,
    softmax_ce,
)

Loss = tuple[float, list[float]]
Formula = Callable[[list[float], list[float], list[float]], Loss]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(x: list[float]) -> list[float]:
    top = max(x)
    total = sum(math.exp(value - top) for value in x)
    return [math.exp(value - top) / total for value in x]


def scored(t: list[float]) -> list[int]:
    return [k for k in range(len(t)) if not math.isnan(t[k])]


def positives(y: list[float]) -> list[int]:
    return [k for k in range(len(y)) if y[k] > 0]


def negatives(y: list[float]) -> list[int]:
    return [k for k in range(len(y)) if y[k] <= 0]


def one_hot_by_hand(tau: float = 1.0, smoothing: float = 0.0) -> Formula:
    def formula(s: list[float], t: list[float], y: list[float]) -> Loss:
        P, N = positives(y), negatives(y)
        loss, gradient = 0.0, [0.0] * len(s)
        if not P or not N:
            return loss, gradient
        known = P + N
        p = dict(zip(known, softmax([s[k] / tau for k in known]), strict=True))
        for k in known:
            target = (1 - smoothing) / len(P) if k in P else 0.0
            target += smoothing / len(known)
            loss -= target * math.log(p[k])
            gradient[k] = (p[k] - target) / tau
        return loss, gradient

    return formula


def focal_by_hand(gamma: float, tau: float = 1.0) -> Formula:
    def formula(s: list[float], t: list[float], y: list[float]) -> Loss:
        P, N = positives(y), negatives(y)
        loss, gradient = 0.0, [0.0] * len(s)
        if not P or not N:
            return loss, gradient
        known = P + N
        p = dict(zip(known, softmax([s[k] / tau for k in known]), strict=True))
        for i in P:
            loss -= (1 - p[i]) ** gamma * math.log(p[i]) / len(P)
            slope = gamma * (1 - p[i]) ** (gamma - 1) * math.log(p[i]) - (1 - p[i]) ** gamma / p[i]
            for k in known:
                gradient[k] += slope / len(P) * p[i] * ((i == k) - p[k]) / tau
        return loss, gradient

    return formula


def binary_ce_by_hand(s: list[float], t: list[float], y: list[float]) -> Loss:
    loss, gradient = 0.0, [0.0] * len(s)
    for k in positives(y) + negatives(y):
        target = min(max(y[k], 0.0), 1.0)
        loss -= target * math.log(sigmoid(s[k])) + (1 - target) * math.log(sigmoid(-s[k]))
        gradient[k] = sigmoid(s[k]) - target
    return loss, gradient


def mse_by_hand(s: list[float], t: list[float], y: list[float]) -> Loss:
    loss, gradient = 0.0, [0.0] * len(s)
    for k in scored(t):
        loss += (t[k] - s[k]) ** 2
        gradient[k] = 2 * (s[k] - t[k])
    return loss, gradient


def softmax_by_hand(tau_teacher: float, tau_student: float, factor: float = 1.0, entropy: bool = False) -> Formula:
    def formula(s: list[float], t: list[float], y: list[float]) -> Loss:
        known = scored(t)
        loss, gradient = 0.0, [0.0] * len(s)
        if len(known) < 2:
            return loss, gradient
        p = softmax([t[k] / tau_teacher for k in known])
        q = softmax([s[k] / tau_student for k in known])
        for k, p_k, q_k in zip(known, p, q, strict=True):
            loss -= factor * p_k * math.log(q_k)
            loss += factor * p_k * math.log(p_k) if entropy else 0.0
            gradient[k] = factor * (q_k - p_k) / tau_student
        return loss, gradient

    return formula


def soft_binary_ce_by_hand(tau: float) -> Formula:
    def formula(s: list[float], t: list[float], y: list[float]) -> Loss:
        soft = [math.nan if math.isnan(value) else sigmoid(value / tau) for value in t]
        return binary_ce_by_hand(s, t, soft)

    return formula


def rank_distil_by_hand(gamma0: float) -> Formula:
    def formula(s: list[float], t: list[float], y: list[float]) -> Loss:
        loss, gradient = 0.0, [0.0] * len(s)
        for k in scored(t):
            if y[k] > 0:
                loss += (t[k] - s[k]) ** 2
                gradient[k] = 2 * (s[k] - t[k])
            elif y[k] <= 0 and s[k] > gamma0:
                loss += (s[k] - gamma0) ** 2
                gradient[k] = 2 * (s[k] - gamma0)
        return loss, gradient

    return formula


def pairs_by_hand(pairs_of: Callable[[list[float], list[float]], list[tuple[int, int]]]) -> Formula:
    def formula(s: list[float], t: list[float], y: list[float]) -> Loss:
        loss, gradient = 0.0, [0.0] * len(s)
        for i, j in pairs_of(t, y):
            error = (t[i] - t[j]) - (s[i] - s[j])
            loss += error**2
            gradient[i] -= 2 * error
            gradient[j] += 2 * error
        return loss, gradient

    return formula


def judged_pairs(t: list[float], y: list[float]) -> list[tuple[int, int]]:
    return [(i, j) for i in scored(t) if y[i] > 0 for j in scored(t) if y[j] <= 0]


def all_pairs(t: list[float], y: list[float]) -> list[tuple[int, int]]:
    return [(i, j) for i in scored(t) for j in scored(t) if t[i] > t[j] or (t[i] == t[j] and i < j)]


def m3se_by_hand(s: list[float], t: list[float], y: list[float]) -> Loss:
    P = [k for k in scored(t) if y[k] > 0]
    N = [k for k in scored(t) if y[k] <= 0]
    loss, gradient = 0.0, [0.0] * len(s)
    if not P or not N:
        return loss, gradient
    top = sorted(N, key=lambda k: (t[k], s[k]))[-1]
    for i in P:
        error = (t[i] - t[top]) - (s[i] - s[top])
        loss += error**2
        gradient[i] -= 2 * error
        gradient[top] += 2 * error
    for j in N:
        excess = max(0.0, s[j] - s[top])
        loss += excess**2
        gradient[j] += 2 * excess
        gradient[top] -= 2 * excess
    return loss, gradient


EXPECTED: dict[Objective, Formula] = {
    one_hot(): one_hot_by_hand(),
    one_hot(tau=0.3): one_hot_by_hand(tau=0.3),
    one_hot(smoothing=0.1): one_hot_by_hand(smoothing=0.1),
    one_hot(tau=2, smoothing=0.9): one_hot_by_hand(tau=2, smoothing=0.9),
    focal(): focal_by_hand(2),
    focal(gamma=0): focal_by_hand(0),
    focal(gamma=0.5, tau=3): focal_by_hand(0.5, tau=3),
    binary_ce(): binary_ce_by_hand,
    mse(): mse_by_hand,
    softmax_ce(): softmax_by_hand(1, 1),
    softmax_ce(tau=2): softmax_by_hand(2, 2),
    softmax_ce(tau_teacher=0.25): softmax_by_hand(0.25, 1),
    softmax_ce(tau=3, tau_student=0.5, scale=True): softmax_by_hand(3, 0.5, factor=0.25),
    kl(): softmax_by_hand(1, 1, entropy=True),
    kl(tau=2, tau_teacher=0.7, scale=True): softmax_by_hand(0.7, 2, factor=4, entropy=True),
    soft_binary_ce(): soft_binary_ce_by_hand(1),
    soft_binary_ce(tau=2.5): soft_binary_ce_by_hand(2.5),
    rank_distil(): rank_distil_by_hand(0),
    rank_distil(gamma0=-0.8): rank_distil_by_hand(-0.8),
    margin_mse(): pairs_by_hand(judged_pairs),
    margin_mse(pairs="all"): pairs_by_hand(all_pairs),
    m3se(): m3se_by_hand,
}


def masked_lm_by_hand(logits: list[list[float]], ids: list[int], texts: list[int], shares: list[list[float]]) -> tuple:
    """Losses [B] of M tokens, and the gradient [M, V] of their sum with respect to the logits."""
    losses, gradient = [0.0] * len(shares), [[0.0] * len(row) for row in logits]
    for m, (row, word, text) in enumerate(zip(logits, ids, texts, strict=True)):
        p = softmax(row)
        for query, share in enumerate(shares):
            weight = share[text] / texts.count(text)
            losses[query] -= weight * math.log(p[word])
            for v in range(len(row)):
                gradient[m][v] += weight * (p[v] - (v == word))
    return losses, gradient


EXPECTED_OF_TOKENS = {masked_lm(): masked_lm_by_hand, reconstruct(): masked_lm_by_hand}  # of other tokens


def expected(objective: Objective, s: np.ndarray, t: np.ndarray, y: np.ndarray, mask: np.ndarray) -> tuple:
    """Losses [B] and gradients [B, K] of a padded batch, one query after the other."""
    losses, gradients = np.zeros(len(s)), np.zeros(s.shape)
    for row in range(len(s)):
        real = np.flatnonzero(mask[row])
        loss, gradient = EXPECTED[objective](s[row, real].tolist(), t[row, real].tolist(), y[row, real].tolist())
        losses[row], gradients[row, real] = loss, gradient
    return losses, gradients


def class_ce_by_hand(owner, student, teacher, labels):
    """[pairs, 1, C] scores and [pairs, 1] class numbers, one pair at a time."""
    losses = []
    for scores, label in zip(student[:, 0], labels[:, 0], strict=True):
        if np.isnan(label):
            losses.append(0.0)
            continue
        logs = scores - np.log(np.exp(scores).sum())
        wanted = np.full(len(scores), owner.smoothing / len(scores))
        wanted[int(label)] += 1 - owner.smoothing
        losses.append(-(wanted @ logs))
    return np.array(losses)


def soft_class_ce_by_hand(owner, student, teacher, labels):
    losses = []
    for scores, told in zip(student[:, 0], teacher[:, 0], strict=True):
        soft = np.exp(told / owner.tau) / np.exp(told / owner.tau).sum()
        losses.append(-(soft @ (scores - np.log(np.exp(scores).sum()))))
    return np.array(losses)


EXPECTED_OF_CLASSES = {
    class_ce(): class_ce_by_hand,
    class_ce(smoothing=0.3): class_ce_by_hand,
    soft_class_ce(): soft_class_ce_by_hand,
    soft_class_ce(tau=2.0): soft_class_ce_by_hand,
}
