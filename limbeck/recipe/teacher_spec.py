"""`teacher` in a recipe: a model, one that is trained first, scores, or the teacher of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from limbeck.matchers.config import TEACHER, AnyMatcherConfig
from limbeck.recipe.part import Part
from limbeck.recipe.stage import Stage


class TeacherSpec(Part):
    """Where the teacher comes from: a model, a matcher that is trained first, or existing scores."""

    model: str | None = Field(None, description="a folder or a hub name")
    revision: str | None = None
    train: AnyMatcherConfig | None = Field(None, description="a matcher to fine-tune first, with `stages`")
    stages: list[Stage] = Field([])
    scores: str | None = Field(None, description="scores on disk: an annotated directory, a TREC run or a jsonl file")
    vectors: str | None = Field(
        None,
        description="the model's document vectors, if you have them: the folder of `limbeck index --store`, an index, "
        "or a .npy file in the order of corpus.jsonl",
    )
    length: int | None = Field(
        None, ge=4, description="read at most so many tokens of a text; its own limit by default"
    )
    bf16: bool = Field(False, description="score in bfloat16: faster on GPUs and on some CPUs")
    live: bool = Field(False, description="run the teacher inside every step instead of storing its scores")
    standardise: Literal["auto", "none", "list", "global"] = Field(
        "auto",
        description="shift and scale the teacher's scores to mean 0 and deviation 1, per list or over all; auto "
        "multiplies a dual encoder's cosines by 20 (for pairs: global) and leaves other scores as they are",
    )
    seed: int | None = Field(
        None, ge=0, lt=2**31, description="seed for a teacher that is trained; the recipe's seed by default"
    )

    @property
    def only_scores(self) -> bool:
        return self.model is None and self.train is None

    @model_validator(mode="after")
    def _one_source(self) -> TeacherSpec:
        if self.model is not None and self.train is not None:
            raise ValueError("give either model (used as it is) or train (fine-tuned first), not both")
        if self.only_scores and self.scores is None:
            raise ValueError("give a model, a matcher to train, or scores")
        if self.train is not None and self.train.init_from == TEACHER:
            raise ValueError("train.init_from: a teacher cannot start from itself; name a model")
        if self.train is not None and not self.stages:
            raise ValueError("a teacher to train needs stages")
        if self.train is None and self.stages:
            raise ValueError("stages are for a teacher to train; give train, or drop the stages")
        if any(stage.needs_teacher or stage.lists.asks_teacher for stage in self.stages):
            problem = "a teacher's own stages learn from labels; use one_hot or binary_ce"
            raise ValueError(f"{problem}, pick: sample and no false_negative_margin")
        if self.revision is not None and self.model is None:
            raise ValueError("revision belongs to a model on the hub; give model, or drop revision")
        if self.length is not None and self.model is None:
            raise ValueError("length limits a model that is used as it is; give model, or set lengths in train")
        if self.vectors is not None and self.model is None:
            raise ValueError("vectors belong to a model that is used as it is; give model, or drop vectors")
        if self.vectors is not None and self.live:
            raise ValueError("a live teacher uses no stored vectors; drop vectors, or live")
        if self.bf16 and self.only_scores:
            raise ValueError("bf16 requires a teacher's model, and there are only scores; drop bf16")
        if self.live and self.scores is not None:
            raise ValueError("a live teacher uses no stored scores; drop scores, or live")
        if self.live and self.only_scores:
            raise ValueError("a live teacher needs a model, not only scores")
        if self.live and self.standardise == "global":
            raise ValueError("standardise: global needs stored scores; use list, or a teacher that is not live")
        return self


def teacher_of(run: Path, source: Any) -> dict[str, Any]:
    """`teacher: NAME` in full. A run gives its teacher with the same settings, and its scores if the data are the same
    and the teacher was not live. Any other name is a model.
    """
    place = run / "recipe.yaml"
    if not place.is_file():
        return {"model": str(run)}
    try:
        told = yaml.safe_load(place.read_text(encoding="utf-8"))
        theirs, same = told["teacher"] or {}, told["data"]["source"] == source
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ValueError(f"teacher: {place} cannot be read; name a whole run, or a model") from error
    names = ["live", "standardise", "bf16", "length", *(["vectors"] if same else [])]
    kept = {name: theirs[name] for name in names if name in theirs}
    if theirs.get("train"):
        if (run / "shared").is_dir():
            raise ValueError(f"teacher: {run} has several; name the model of one, {run}/shared/*/teacher/model")
        if not (run / "teacher" / "model").is_dir():
            raise ValueError(f"teacher: {run} has not trained its teacher yet; run it first")
        theirs = {"model": str(run / "teacher" / "model")}
    if not theirs.get("model"):
        raise ValueError(f"teacher: {run} has no teacher's model; name another run, or a model")
    found = {"model": theirs["model"], "revision": theirs.get("revision"), **kept}
    return found | (
        {"scores": theirs.get("scores") or str(run / "teacher" / "scores")} if same and not kept.get("live") else {}
    )
