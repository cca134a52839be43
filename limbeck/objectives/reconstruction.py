"""Objectives that restore the texts themselves: no teacher and no label, only the tokens that were taken out."""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective, objective
from limbeck.signals import MaskedTokens, Signals, Targets


@objective
class masked_lm(Objective):
    """Masked language modelling as a regulariser (Devlin et al.; Defense App. C.10).

        1 / |X| * sum_{x in X} 1 / |M_x| * sum_{m in M_x} - log softmax(z_m)_{w_m}

    z_m are the student's logits over its vocabulary at a masked token and w_m is the token that stood there. X are the
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

    Use it beside an objective that ranks, to keep a student general, or alone in a first stage, to make it at home in
    the texts of a field. In the paper it fitted the training queries less well and the test queries no better: Table 9
    has 0.299 for the baseline's 0.310.

    In a recipe: `0.1 * masked_lm`.
    """

    needs_student = frozenset({"token_logits"})

    def __call__(self, student: Signals, teacher: Signals | None, targets: Targets) -> Tensor:
        logits, tokens = _checked(self, student, targets)
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        losses = -log_p.gather(-1, tokens.ids.unsqueeze(-1)).squeeze(-1)  # [M]
        shares = tokens.shares.to(losses.dtype)
        masked = tokens.texts.bincount(minlength=shares.shape[1]).clamp(min=1)  # [T]
        return ((shares / masked)[:, tokens.texts] * losses).sum(-1)


def _checked(objective: Objective, student: Signals, targets: Targets) -> tuple[Tensor, MaskedTokens]:
    if student.token_logits is None or targets.tokens is None:
        raise LimbeckError(f"{objective} needs a student that restores masked tokens; use a dual_encoder")
    if student.token_logits.shape[:-1] != targets.tokens.ids.shape:
        found, wanted = list(student.token_logits.shape), list(targets.tokens.ids.shape)
        raise LimbeckError(
            f"{objective}: token logits have shape {found} where [masked tokens, vocabulary] = [{wanted[0]}, any] "
            "was expected; give the student the same masked texts as the targets"
        )
    return student.token_logits, targets.tokens
