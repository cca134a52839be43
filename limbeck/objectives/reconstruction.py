"""Objectives that predict the tokens of the texts themselves: no teacher and no labels."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective, objective
from limbeck.signals import ChosenTokens, Signals, Targets


@objective
class masked_lm(Objective):
    """Masked language modelling as a regulariser (Devlin et al.; Defense App. C.10).

        1 / |X| * sum_{x in X} 1 / |M_x| * sum_{m in M_x} - log softmax(z_m)_{w_m}

    z_m are the student's logits over its vocabulary at a masked token and w_m is the original token. X are the texts of
    a query, which are the query itself and the documents of its list, and M_x the masked tokens of x. So a query's loss
    is the mean over its texts of the mean over their masked tokens: it starts near log(vocabulary), about 10, for all
    lengths and K, and a weight means the same in every recipe. A document in several lists is masked once and counts in
    each. With several processes, each sums over the texts that it encodes, and the weight of a document in the lists of
    others is spread evenly over its own queries: then only the mean over all queries is the same.

    Data: texts. 15 % of each text's tokens that are not special are chosen (at least one) and become the mask token (80
    %), a random token (10 %) or stay unchanged (10 %). The student predicts them in a separate pass, with a head that
    is trained with it and not saved. Towers of dual encoders support this, cross-encoders do not. A step takes two to
    three times as long, more with fewer layers, and memory holds masked tokens x vocabulary about three times;
    `accumulate` reduces that, `chunk` does not.

    Use it with an objective that ranks, to keep a student general, or by itself in a first stage, to adapt it to the
    texts of a field. In the paper it fitted the training queries less well and the test queries no better: Table 9 has
    0.299, and 0.310 for the baseline.

    In a recipe: `0.1 * masked_lm`.
    """

    needs_student = frozenset({"token_logits"})

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        remedy = "a student that predicts masked tokens; use a dual_encoder"
        return _mean_surprise(*_checked(self, student.token_logits, targets, remedy))


@objective
class reconstruct(Objective):
    """Predict every token of a pair from its own final state (EmbedDistill Sec. 4.2), while a cross-encoder trains.

        1 / K * sum_k 1 / |M_k| * sum_{m in M_k} - log softmax(z_m)_{w_m}

    Nothing is masked: z_m are the logits at token m of the pair (q, d_k), from the same pass as its score, and w_m is
    that token. A cross-encoder that only learns to separate relevant pairs from others forgets the content of its
    texts: all its token states become "relevant" or "not". This loss keeps the texts in the states, so that the proxies
    pooled from them (`pooling: weighted`, `special` or `segments`) are useful for `match_proxies`.

    M_k are 15 % of the pair's tokens that are not special (at least one), drawn again in every step: the expectation is
    the mean over all of them, and memory holds a seventh of tokens x vocabulary. The head that predicts tokens is
    trained with the model and not saved. Padding in a list is ignored. The loss starts near log(vocabulary), about 10,
    and takes hundreds of steps to come close to 0.

    In a recipe, for a teacher that is trained: `objectives: [one_hot, "0.1 * reconstruct"]`.
    """

    needs_student = frozenset({"seen_token_logits"})

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        remedy = "a model that names the tokens of pairs; use a cross_encoder"
        return _mean_surprise(*_checked(self, student.seen_token_logits, targets, remedy))


def _mean_surprise(logits: Tensor, tokens: ChosenTokens) -> Tensor:
    """-log p of the tokens, averaged in each text, then weighted by the shares of each query's texts: [B]."""
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    losses = -log_p.gather(-1, tokens.ids.unsqueeze(-1)).squeeze(-1)  # [M]
    shares = tokens.shares.to(losses.dtype)
    chosen = tokens.texts.bincount(minlength=shares.shape[1]).clamp(min=1)  # [T]
    return ((shares / chosen)[:, tokens.texts] * losses).sum(-1)


def _checked(objective: Objective, logits: Tensor | None, targets: Targets, remedy: str) -> tuple[Tensor, ChosenTokens]:
    if logits is None or targets.tokens is None:
        raise LimbeckError(f"{objective} needs {remedy}")
    if logits.shape[:-1] != targets.tokens.ids.shape:
        found, wanted = list(logits.shape), list(targets.tokens.ids.shape)
        raise LimbeckError(
            f"{objective}: token logits have shape {found} where [tokens, vocabulary] = [{wanted[0]}, any] "
            "was expected; give the student the same texts as the targets"
        )
    return logits, targets.tokens
