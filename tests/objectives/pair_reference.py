"""Objectives on a teacher's vectors of pairs, written out pair by pair."""

from __future__ import annotations

import math

import numpy as np

from limbeck.objectives import match_joint, match_proxies


def proxies_by_hand(student, teacher, targets, documents: float, squared: bool):
    """Losses [B] and the gradients of their sum for queries and documents."""
    q, d = student.queries.detach().numpy(), student.documents.detach().numpy()
    losses, query_gradient, document_gradient = np.zeros(len(q)), np.zeros_like(q), np.zeros_like(d)
    for row in range(len(q)):
        real = [place for place in range(targets.mask.shape[1]) if targets.mask[row, place]]
        for place in real:
            apart = q[row] - teacher.query_proxies[row, place].numpy()
            size = np.sqrt((apart**2).sum())
            losses[row] += (size**2 if squared else size) / len(real)
            query_gradient[row] += (2 * apart if squared else apart / size) / len(real)
            column = int(targets.lists[row, place])
            apart = d[column] - teacher.document_proxies[row, place].numpy()
            size = np.sqrt((apart**2).sum())
            losses[row] += documents * (size**2 if squared else size) / len(real)
            document_gradient[column] += documents * (2 * apart if squared else apart / size) / len(real)
    return losses, query_gradient, document_gradient


def joint_by_hand(student, teacher, targets, heads, squared: bool) -> list[float]:
    """Losses [B]."""
    q, d = student.queries.detach().numpy(), student.documents.detach().numpy()
    first, _, second = heads["joint"]
    weights = [each.detach().numpy() for each in (first.weight, first.bias, second.weight, second.bias)]
    losses = []
    for row in range(len(q)):
        each = []
        for place in range(targets.mask.shape[1]):
            if targets.mask[row, place]:
                inner = weights[0] @ np.concatenate([q[row], d[int(targets.lists[row, place])]]) + weights[1]
                inner = np.array([0.5 * value * (1 + math.erf(value / 2**0.5)) for value in inner])
                apart = weights[2] @ inner + weights[3] - teacher.pair_embeddings[row, place].numpy()
                each.append((apart**2).sum() if squared else np.sqrt((apart**2).sum()))
        losses.append(float(np.mean(each)))
    return losses


EXPECTED_OF_PAIRS = {match_proxies(): proxies_by_hand, match_joint(): joint_by_hand}
