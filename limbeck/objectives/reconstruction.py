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

    z_m are the student's logits over its vocabulary at a masked token and w_m is the original token. X are the
    texts of a query, which are itself and the documents of its list, and M_x the masked tokens of x. So a query's loss
    is the mean over its texts of the mean over their masked tokens: it starts near log(vocabulary), about 10, whatever
    the lengths and K, and a weight means the same in every recipe. A document in several lists is masked once and
    counts in each. With several processes each adds up the texts that it encodes, and what a document weighs in the
    lists of others is spread evenly over its own queries: only the mean over all queries is the same then.

    Data: texts. Of each text's tokens that are not special 15 % are chosen (one at least) and become the mask token
    (80 %), a random one (10 %) or stay as they are (10 %). The student restores them in a pass of its own, through a
    head that is trained with it and not saved; the towers of a dual encoder can, a cross-encoder cannot. A step takes
    two to three times as long, the more the fewer layers there are, and memory holds masked tokens x vocabulary about
    three times over; `accumulate` makes that less, `chunk` does not.

    Use it with an objective that ranks, to keep a student general, or alone in a first stage, to adapt it to
    the texts of a field. In the paper it fitted the training queries less well and the test queries no better: Table 9
    has 0.299 for the baseline's 0.310.

    In a recipe: `0.1 * masked_lm`.
    """

    needs_student = frozenset({"token_logits"})

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        remedy = "a student that predicts masked tokens; use a dual_encoder"
        return _mean_surprise(*_checked(self, student.token_logits, targets, remedy))


@objective
class reconstruct(Objective):
    """Every token of a pair named from its own final state (EmbedDistill Sec. 4.2), while a cross-encoder trains.

        1 / K * sum_k 1 / |M_k| * sum_{m in M_k} - log softmax(z_m)_{w_m}

    Nothing is masked: z_m are the logits at token m of the pair (q, d_k), from the same pass as its score, and w_m is
    that token. A cross-encoder that learns only to tell relevant from other pairs forgets what its texts say: all its
    token states turn to "relevant" or "not". This loss keeps the texts in the states, so that the proxies pooled from
    them (`pooling: weighted`, `special` or `segments`) are worth matching by `match_proxies`.

    M_k are 15 % of the pair's tokens that are not special (one at least), drawn again in every step: in expectation
    that is the mean over all of them, and memory holds a seventh of tokens x vocabulary. The head that names tokens is
    trained with the model and not saved. A padded place in a list counts for nothing. It starts near log(vocabulary),
    about 10, and takes hundreds of steps to come close to 0.

    In a recipe, of a teacher that is trained: `objectives: [one_hot, "0.1 * reconstruct"]`.
    """

    needs_student = frozenset({"seen_token_logits"})

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        remedy = "a model that names the tokens of pairs; use a cross_encoder"
        return _mean_surprise(*_checked(self, student.seen_token_logits, targets, remedy))


def _mean_surprise(logits: Tensor, tokens: ChosenTokens) -> Tensor:
    """-log p of the tokens, averaged in each text, then over each query's texts by their shares: [B]."""
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
