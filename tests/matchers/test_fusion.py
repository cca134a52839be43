"""The fusions and VIRT's adapted interaction against numpy, folded and not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import erf, softmax

from limbeck.matchers.encoding import InMemory, TokenVectors
from limbeck.matchers.interactions import Fusion, Interaction, VirtInteraction, interaction_named
from limbeck.matchers.pair_scorer import PairScorer
from limbeck.stores.ragged import Ragged

FUSIONS = ["siamese", "sentence_t5", "virt"]
CLASSIFIERS = ["linear", "mlp", "residual"]


def disturbed(head: Interaction) -> Interaction:
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return head.eval()


def linear(values, layer):
    return values @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


def gelu(values):
    return values * 0.5 * (1 + erf(values / np.sqrt(2)))


def fused(u, v, fusion):
    parts = {"siamese": (u, v), "sentence_t5": (u, v, u - v), "virt": (u, v, u - v, np.maximum(u, v))}
    return np.concatenate(parts[fusion], axis=-1)


def classified(r, classifier):
    if classifier.kind == "residual":
        r = linear(gelu(linear(r, classifier.inner)), classifier.back) + r
    return linear(r if classifier.kind == "linear" else gelu(linear(r, classifier.hidden)), classifier.output)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_fusion_by_hand_and_folded(fusion, classifier):
    head = disturbed(Fusion(6, fusion, classifier, 3, 0.1))
    generator = np.random.default_rng(0)
    left, right = (generator.normal(size=(9, 6)).astype(np.float32) for _ in range(2))
    rows = generator.integers(0, 9, size=(40, 2))
    u, v = left[rows[:, 0]].astype(np.float64), right[rows[:, 1]].astype(np.float64)
    wanted = classified(fused(u, v, fusion), head.classifier)
    stores = [InMemory(left), InMemory(right)]
    assert np.ptp(wanted) > 0.5
    assert np.allclose(PairScorer(head, stores).score(rows), wanted, atol=1e-5)
    assert np.allclose(PairScorer(head.folded(), stores).score(rows), wanted, atol=1e-5)


@pytest.mark.parametrize(("kind", "size"), [("linear", 0), ("mlp", 24), ("residual", 24)])
def test_the_hidden_layer_is_four_times_as_wide_as_a_vector(kind, size):
    head = Fusion(6, "virt", kind, 2, 0.0)
    assert kind == "linear" or head.classifier.hidden.out_features == size
    assert kind != "residual" or (head.classifier.inner.out_features, head.classifier.back.out_features) == (size, 24)


def test_a_linear_classifier_cannot_compare():
    """s(a, x) - s(a, y) does not depend on a, for any fusion without a maximum; with a hidden layer it does."""
    for fusion, classifier, compares in (("siamese", "linear", False), ("sentence_t5", "linear", False),
                                         ("siamese", "mlp", True), ("virt", "linear", True)):  # fmt: skip
        head = disturbed(Fusion(6, fusion, classifier, 1, 0.0))
        a, b, x, y = np.random.default_rng(1).normal(size=(4, 1, 6)).astype(np.float32)
        found = {}
        for left, right in ((a, x), (a, y), (b, x), (b, y)):
            pair = [head.prepare(torch.from_numpy(text), at) for at, text in enumerate((left, right))]
            found[left.tobytes(), right.tobytes()] = head.score(pair).item()
        keys = [found[left.tobytes(), x.tobytes()] - found[left.tobytes(), y.tobytes()] for left in (a, b)]
        assert (abs(keys[0] - keys[1]) > 1e-3) == compares


def token_texts(counts, dim, seed=0) -> Ragged:
    generator = np.random.default_rng(seed)
    return Ragged.from_list([generator.normal(size=(count, dim)).astype(np.float32) for count in counts])


def virt_by_hand(head, x, y):
    """Eq. 5 and 6 for one pair of token matrices, as they are printed."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    to_y = softmax(x @ y.T / np.sqrt(x.shape[1]), axis=1)
    to_x = softmax(y @ x.T / np.sqrt(x.shape[1]), axis=1)
    u, v = (to_y @ y).mean(axis=0), (to_x @ x).mean(axis=0)
    return classified(fused(u, v, "virt"), head.classifier)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_adapted_interaction_is_the_papers_for_any_padding(outputs):
    head = disturbed(VirtInteraction(6, outputs, 0.1))
    left, right = token_texts([3, 1, 7, 2], 6), token_texts([2, 9, 4], 6, seed=1)
    rows = np.array([[a, b] for a in range(4) for b in range(3)])
    wanted = np.stack([virt_by_hand(head, list(left)[a], list(right)[b]) for a, b in rows])
    assert np.ptp(wanted) > 0.5
    for scored in (head, head.folded()):
        for batch in (1, 5, 32):  # alone, or next to longer ones
            found = PairScorer(scored, [InMemory(left), InMemory(right)], batch).score(rows)
            assert np.allclose(found, wanted, atol=1e-5)


def test_padding_changes_no_score_and_gets_no_gradient():
    head = disturbed(VirtInteraction(4, 2, 0.0))
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]).bool()  # padded on the right, and on the left
    scores = []
    for filling in (0.0, 50.0):
        vectors = torch.randn(2, 5, 4, generator=generator.manual_seed(0))
        vectors = vectors.masked_fill(~mask.unsqueeze(-1), filling).requires_grad_()
        texts = [head.prepare(TokenVectors(vectors, mask), position) for position in (0, 1)]
        scores.append(head(texts, None))
        scores[-1].sum().backward()
        assert vectors.grad[~mask].abs().max() == 0 < vectors.grad[mask].abs().min()
    assert torch.equal(*scores)


def test_the_gradient_of_the_adapted_interaction_by_differences():
    head = disturbed(VirtInteraction(3, 2, 0.0)).double()
    masks = [torch.tensor([[1, 1, 0], [1, 1, 1]]).bool(), torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]]).bool()]

    def scores(left, right):
        logits = []
        for vectors, mask in zip((left, right), masks, strict=True):
            logits.append((vectors * mask.unsqueeze(-1), mask))
        return head.score(logits)

    torch.manual_seed(0)
    inputs = [torch.randn(*mask.shape, 3, dtype=torch.float64, requires_grad=True) for mask in masks]
    assert torch.autograd.gradcheck(scores, inputs)


def test_a_text_without_tokens_gives_finite_scores():
    head = disturbed(VirtInteraction(4, 1, 0.0))
    empty, some = token_texts([0, 0], 4), token_texts([0, 3], 4)
    for left, right in ((empty, some), (some, empty), (empty, empty)):
        for scored in (head, head.folded()):
            found = PairScorer(scored, [InMemory(left), InMemory(right)]).score(np.array([[0, 0], [1, 1], [0, 1]]))
            assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "head", [Fusion(4, "sentence_t5", "mlp", 2, 0.25), VirtInteraction(4, 3, 0.5)], ids=lambda head: head.name
)
def test_an_interaction_is_built_again_from_its_arguments(head):
    disturbed(head)
    again = interaction_named(head.name, head.arguments)
    again.load_state_dict(head.state_dict())
    assert again.arguments == head.arguments and again.outputs == head.outputs
    assert again.classifier.dropout.p == head.classifier.dropout.p > 0
