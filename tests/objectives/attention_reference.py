"""VIRT's loss, written out pair by pair, head by head and row by row."""

from __future__ import annotations

import numpy as np

from limbeck.objectives import virt


def virt_by_hand(student, teacher, targets, pairs, block: str = "whole", average: bool = False) -> list[float]:
    """Losses [B]; `pairs` are the (student, teacher) layers that count, as places among those that are shown."""
    (queries, documents), theirs = student.text_attention, teacher.cross_attention
    losses = []
    for row in range(len(targets.mask)):
        each = []
        for place in range(targets.mask.shape[1]):
            if not targets.mask[row, place]:
                continue
            column = place if targets.lists is None else int(targets.lists[row, place])
            m, n = int((queries.tokens[row] >= 0).sum()), int((documents.tokens[column] >= 0).sum())
            total = 0.0
            for own, other in pairs:
                there = [(queries.queries[own][row], documents.keys[own][column], theirs.to_documents[other], m, n)]
                back = [(documents.queries[own][column], queries.keys[own][row], theirs.to_queries[other], n, m)]
                for query, key, map_of_teacher, rows, columns in there + back:
                    maps = [
                        _maps(
                            query[head, :rows].detach().numpy(),
                            key[head, :columns].detach().numpy(),
                            map_of_teacher[row, place, head, :rows, :columns].numpy(),
                            block,
                        )
                        for head in range(query.shape[0])
                    ]
                    if average:
                        maps = [tuple(np.mean(side, axis=0) for side in zip(*maps, strict=True))]
                    norms = [np.sqrt(((ours - its) ** 2).sum()) for ours, its in maps]
                    total += np.mean(norms) / max(rows, 1) / 2 / len(pairs)
            each.append(total)
        losses.append(float(np.mean(each)) if each else 0.0)
    return losses


def _maps(query: np.ndarray, key: np.ndarray, block_of_teacher: np.ndarray, block: str):
    ours, theirs = np.zeros((len(query), len(key))), np.zeros((len(query), len(key)))
    for i in range(len(query)):
        logits = [float(query[i] @ key[j]) for j in range(len(key))]
        if not logits:
            continue
        ours[i] = np.exp(np.array(logits) - max(logits)) / np.exp(np.array(logits) - max(logits)).sum()
        theirs[i] = block_of_teacher[i] / (block_of_teacher[i].sum() if block == "renormalised" else 1.0)
    return ours, theirs


EXPECTED_OF_ATTENTION = {virt(): virt_by_hand}
