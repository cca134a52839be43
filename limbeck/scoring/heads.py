"""A matcher's head without its encoders: all that is needed once texts are encoded.

A job keeps it in its own folder, so that workers load kilobytes instead of a model, and a cluster's machines need not
see the model at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from limbeck.data.checked import require_folder, sum_folder
from limbeck.errors import LimbeckError, bad_input, did_you_mean
from limbeck.files import directory_atomically, read_json, write_json
from limbeck.matchers.interactions.dipair import TransformerHead
from limbeck.matchers.interactions.heads import make_head
from limbeck.matchers.spec import MatcherSpec
from limbeck.scoring.calibration import Calibration
from limbeck.scoring.folded import FoldedHead, FoldedTransformer, Prepared, fold

if TYPE_CHECKING:
    from limbeck.matchers import Matcher

HEADS = ("auto", "torch", "onnx", "int8")
FACTS, WEIGHTS = "head.json", "head.safetensors"


class FoldedDot:
    """A dual encoder as a head: nothing to fold but the norm of a cosine."""

    def __init__(self, cosine: bool) -> None:
        self.cosine = cosine

    def prepare(self, vectors: Tensor, position: int) -> Prepared:
        return (torch.nn.functional.normalize(vectors, dim=-1) if self.cosine else vectors,)

    def score(self, texts: Sequence[Prepared]) -> Tensor:
        return (texts[0][0] * texts[1][0]).sum(dim=-1, keepdim=True)


@dataclass(frozen=True)
class PairHead:
    """What scores pairs of encoded texts."""

    facts: dict[str, Any]  # of a dual encoder its similarity, of a dipair its specification and vector size
    module: nn.Module | None  # a dual encoder has no weights here

    @classmethod
    def of(cls, matcher: Matcher) -> PairHead:
        from limbeck.matchers import DiPair, DualEncoder  # not above: workers have no need of them

        if isinstance(matcher, DiPair):
            return cls({"spec": matcher.spec.model_dump(), "dim": matcher.dim}, matcher.head)
        if isinstance(matcher, DualEncoder):
            return cls({"similarity": matcher.similarity}, None)
        remedy = "distil it into a dipair or a dual_encoder first"
        raise LimbeckError(f"a {matcher.kind} has no head that is cheap enough for long lists of pairs; {remedy}")

    def save(self, folder: Path, calibration: Calibration | None = None) -> None:
        """Write a folder of the head, what makes its scores probabilities, and their checksums."""
        with directory_atomically(folder) as place:
            write_json(place / FACTS, self.facts)
            if self.module is not None:
                weights = {name: value.detach().cpu().contiguous() for name, value in self.module.state_dict().items()}
                save_file(weights, place / WEIGHTS)
            if calibration is not None:
                calibration.save(place)
            sum_folder(place)

    @classmethod
    def load(cls, folder: Path) -> PairHead:
        """The head of a job's folder, compared with its checksums; every call of the job writes it again."""
        remedy = "run the same command again, which writes it again"
        try:
            require_folder(folder)
            facts = read_json(folder / FACTS, remedy)
            if "similarity" in facts:
                return cls(facts, None)
            module = make_head(MatcherSpec.model_validate(facts["spec"]), facts["dim"])
            module.load_state_dict(load_file(folder / WEIGHTS))
        except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
            reason = str(error).partition("\n")[0]
            raise bad_input(folder, f"is damaged ({reason})", remedy) from error
        return cls(facts, module.eval())

    def require(self, how: str) -> None:
        """Refuse what cannot be had before any work is done."""
        if how not in HEADS:
            raise LimbeckError(f"--head {how}: no such head; {did_you_mean(how, list(HEADS))}")
        if how != "auto":
            self.folded(how)

    @property
    def is_transformer(self) -> bool:
        return isinstance(self.module, TransformerHead)

    def folded(self, how: str = "torch") -> FoldedHead:
        """In torch, in onnxruntime, or in onnxruntime with 8-bit weights."""
        head: FoldedHead
        if self.module is None:
            head = FoldedDot(self.facts["similarity"] == "cosine")
        else:
            head = fold(self.module, self.facts["spec"]["tokens"], self.facts["dim"])
        if how == "torch":
            return head
        if not isinstance(head, FoldedTransformer):
            raise LimbeckError(f"--head {how}: this model has no transformer head to run there; use --head torch")
        from limbeck.scoring.onnx_head import OnnxHead

        return OnnxHead(head, int8=how == "int8")
