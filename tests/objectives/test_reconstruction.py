"""Restoring masked tokens: values and gradients against loops over float64, and how tokens become queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.objectives import masked_lm, one_hot, reconstruct
from limbeck.signals import ChosenTokens, Signals, Targets

from .reference import masked_lm_by_hand

WORDS = 11


def masked(seed: int = 0, queries: int = 4, texts: int = 9, tokens: int = 20) -> tuple[np.ndarray, ChosenTokens]:
    """Tokens of some of the texts, in any order; each query has some texts, which count evenly."""
    rng = np.random.default_rng(seed)
    member = rng.random((queries, texts)) < 0.5
    member[:, 0] = True
    shares = torch.tensor(member / member.sum(-1, keepdims=True), dtype=torch.float32)
    ids, of = torch.tensor(rng.integers(WORDS, size=tokens)), torch.tensor(rng.integers(texts - 1, size=tokens))
    return rng.normal(0, 3, (tokens, WORDS)), ChosenTokens(ids, of, shares)


def call(logits: Tensor, tokens: ChosenTokens) -> Tensor:
    shape = (len(tokens.shares), 3)
    targets = Targets(mask=torch.ones(shape, dtype=torch.bool), labels=torch.full(shape, math.nan), tokens=tokens)
    return masked_lm()(Signals(token_logits=logits), None, targets)


def losses_of(logits: np.ndarray, tokens: ChosenTokens, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    shown = torch.tensor(logits, dtype=dtype, requires_grad=True)
    losses = call(shown, tokens)
    (gradient,) = torch.autograd.grad(losses.sum(), shown)
    return losses.detach(), gradient


def test_seen_tokens_count_as_masked_ones_do() -> None:
    logits, tokens = masked(seed=6)
    shown = torch.tensor(logits, requires_grad=True)
    targets = Targets(mask=torch.ones(4, 3, dtype=torch.bool), labels=torch.zeros(4, 3), tokens=tokens)
    losses = reconstruct()(Signals(seen_token_logits=shown), None, targets)
    wanted, gradient = losses_of(logits, tokens)
    torch.testing.assert_close(losses.detach(), wanted)
    torch.testing.assert_close(torch.autograd.grad(losses.sum(), shown)[0], gradient)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_losses_and_gradients_equal_the_formula(seed: int) -> None:
    logits, tokens = masked(seed)
    losses, gradient = losses_of(logits, tokens)
    parts = (tokens.ids.tolist(), tokens.texts.tolist(), tokens.shares.double().tolist())
    by_hand = masked_lm_by_hand(logits.tolist(), *parts)
    np.testing.assert_allclose(losses, by_hand[0], rtol=1e-10)
    np.testing.assert_allclose(gradient, by_hand[1], rtol=1e-10, atol=1e-14)


def test_gradients_pass_gradcheck() -> None:
    logits, tokens = masked(tokens=6)
    assert torch.autograd.gradcheck(lambda shown: call(shown, tokens), (torch.tensor(logits, requires_grad=True),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    logits, tokens = masked(seed=3)
    rounded = torch.tensor(logits, dtype=dtype)
    exact, exact_gradient = losses_of(rounded.double().numpy(), tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        losses, gradient = losses_of(logits, tokens, dtype)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=2**-7, atol=1e-4)


def test_an_untrained_student_has_loss_log_vocabulary_for_all_lengths_and_lists() -> None:
    _, tokens = masked(seed=4, texts=5, tokens=200)
    with_tokens = tokens.shares.clone()
    with_tokens[:, 4] = 0  # the text without masked tokens
    even = ChosenTokens(tokens.ids, tokens.texts, with_tokens / with_tokens.sum(-1, keepdim=True))
    losses, _ = losses_of(np.zeros((200, WORDS)), even)
    torch.testing.assert_close(losses, torch.full((4,), math.log(WORDS), dtype=torch.float64), rtol=1e-6, atol=0)


def test_a_longer_text_weighs_no_more_than_a_short_one() -> None:
    tokens = ChosenTokens(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 1, 1]), torch.tensor([[0.5, 0.5]]))
    _, gradient = losses_of(np.zeros((4, WORDS)), tokens)
    weights = gradient.abs().sum(-1) / gradient[0].abs().sum()
    torch.testing.assert_close(weights, torch.tensor([1, 1 / 3, 1 / 3, 1 / 3], dtype=torch.float64))


def test_queries_see_only_their_own_texts() -> None:
    logits, tokens = masked(seed=5)
    for query in range(4):
        alone = ChosenTokens(tokens.ids, tokens.texts, tokens.shares[query : query + 1])
        elsewhere = (tokens.shares[query] == 0)[tokens.texts].numpy()
        noisy = np.where(elsewhere[:, None], 1e3, logits)
        torch.testing.assert_close(losses_of(noisy, alone)[0][0], losses_of(logits, tokens)[0][query])


def test_without_masked_tokens_the_loss_is_zero_and_still_part_of_the_graph() -> None:
    nothing = ChosenTokens(torch.zeros(0).long(), torch.zeros(0).long(), torch.ones(3, 2))
    losses, gradient = losses_of(np.zeros((0, WORDS)), nothing)
    assert losses.tolist() == [0.0, 0.0, 0.0]
    assert gradient.shape == (0, WORDS)


def test_logits_that_are_missing_or_do_not_fit_are_named() -> None:
    logits, tokens = masked()
    plain = Targets(mask=torch.ones(4, 3, dtype=torch.bool), labels=torch.zeros(4, 3))
    with pytest.raises(LimbeckError, match="masked_lm needs a student that predicts masked tokens; use a dual_encoder"):
        masked_lm()(Signals(scores=torch.zeros(4, 3)), None, plain)
    with pytest.raises(LimbeckError, match=r"shape \[19, 11\] where \[tokens, vocabulary\] = \[20, any\]"):
        call(torch.tensor(logits[:-1]), tokens)


def test_only_masked_lm_asks_for_token_logits() -> None:
    assert masked_lm().needs_student == {"token_logits"}
    assert not masked_lm().needs_labels and not masked_lm().needs_teacher
    assert one_hot().needs_student == {"scores"}
