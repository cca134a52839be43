"""Fusions with everything precomputed that depends on a single text or on no text.

The first map of a classifier is linear in r, and u, v and u - v are linear in the two vectors. So of W r

    W (u, v, u - v, max(u, v)) = (W_1 + W_3) u + (W_2 - W_3) v + W_4 max(u, v)

the first two terms are precomputed for each text, and a pair costs their sum. In MLP(MLP(r) + r) the second network's
first map W sees r and the first network's output B gelu(A r + a) + b. That is W r + (W B) gelu(A r + a) + (W b + c), so
W and A are applied to r together and W B is multiplied out once. Nothing here is an approximation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from limbeck.matchers.encoding import Encoded
from limbeck.matchers.interactions.base import Interaction, Prepared
from limbeck.matchers.interactions.fusion import PARTS, Classifier, FusedPair, Fusion
from limbeck.matchers.interactions.virt import VirtInteraction


class FoldedClassifier:
    """`Classifier` as a map of u, one of v, one of max(u, v), their sum, and the rest."""

    @torch.no_grad()
    def __init__(self, head: FusedPair) -> None:
        self.classifier = head.classifier
        maps, bias = _first_maps(head.classifier)
        parts = list(maps.split(head.dim, dim=1))  # [rows, dim] for each vector in r
        self.left, self.right, self.bias = parts[0].clone(), parts[1].clone(), bias.clone()
        if len(parts) > 2:
            self.left += parts[2]
            self.right -= parts[2]
        self.largest = parts[3].clone() if len(parts) > 3 else None
        self.between = _between(head.classifier)

    def finished(self, summed: Tensor) -> Tensor:
        """Scores [pairs, outputs] from the sum of the maps [pairs, rows]."""
        classifier = self.classifier
        if classifier.kind == "linear":
            return summed
        if self.between is not None:
            inner, summed = summed.chunk(2, dim=-1)
            summed = torch.addmm(summed, F.gelu(inner), self.between)
        return classifier.output(F.gelu(summed))


def _first_maps(classifier: Classifier) -> tuple[Tensor, Tensor]:
    """Everything that is applied to r directly: [rows, parts * dim] and its bias [rows]."""
    if classifier.kind == "linear":
        return classifier.output.weight, classifier.output.bias
    if classifier.kind == "mlp":
        return classifier.hidden.weight, classifier.hidden.bias
    bias = classifier.hidden.bias + classifier.hidden.weight @ classifier.back.bias
    return torch.cat([classifier.inner.weight, classifier.hidden.weight]), torch.cat([classifier.inner.bias, bias])


def _between(classifier: Classifier) -> Tensor | None:
    """(W B)^T [hidden, hidden] of a residual classifier."""
    return (classifier.hidden.weight @ classifier.back.weight).T if classifier.kind == "residual" else None


class FoldedFusion(Interaction):
    """`Fusion`, folded."""

    name = "folded fusion"

    def __init__(self, head: Fusion) -> None:
        super().__init__()
        self.head, self.outputs = head.eval(), head.outputs
        self.maps = FoldedClassifier(head)

    @torch.inference_mode()
    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        """The text's part of the sum [texts, rows]; also its vector if max(u, v) is used."""
        (vectors,) = self.head.prepare(encoded, position)
        part = F.linear(vectors, self.maps.right) if position else F.linear(vectors, self.maps.left, self.maps.bias)
        return (part,) if PARTS[self.head.fusion] < 4 else (part, vectors)

    @torch.inference_mode()
    def score(self, texts: Sequence[Prepared]) -> Tensor:
        left, right = texts
        summed = left[0] + right[0]
        if self.maps.largest is not None:
            summed = torch.addmm(summed, torch.maximum(left[1], right[1]), self.maps.largest.T)
        return self.maps.finished(summed)


class FoldedVirt(Interaction):
    """`VirtInteraction`, folded: u and v belong to the pair, so only the steps after them can be folded."""

    name = "folded virt"

    def __init__(self, head: VirtInteraction) -> None:
        super().__init__()
        self.head, self.outputs = head.eval(), head.outputs
        self.maps = FoldedClassifier(head)
        assert self.maps.largest is not None
        self.all = torch.cat([self.maps.left, self.maps.right, self.maps.largest], dim=1)

    @torch.inference_mode()
    def prepare(self, encoded: Encoded, position: int) -> Prepared:
        return self.head.prepare(encoded, position)

    @torch.inference_mode()
    def score(self, texts: Sequence[Prepared]) -> Tensor:
        left, right = self.head.attended(texts)
        seen = torch.cat([left, right, torch.maximum(left, right)], dim=-1)
        return self.maps.finished(F.linear(seen, self.all, self.maps.bias))
