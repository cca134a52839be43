"""`data` in a recipe: which texts to use, and how many."""

from __future__ import annotations

from pydantic import Field

from limbeck.recipe.part import Part


class DataSpec(Part):
    """Which texts to use, and how many."""

    source: str = Field(description="a BEIR folder, MS MARCO files, a hub name, ... or `pydocs`")
    train: str = Field("train", description="split to train on")
    dev: str | None = Field("dev", description="split for early stopping and the choice of weights")
    test: str | None = Field("test", description="split to report on")
    train_queries: int | None = Field(
        None, ge=1, description="train on this many queries (or pairs), drawn with the seed"
    )
    dev_queries: int | None = Field(100, ge=1)
    test_queries: int | None = Field(None, ge=1)
    held_out: int = Field(
        0,
        ge=0,
        description="train on all but this many queries (at most a fifth), for a comparison with the teacher on them",
    )
    labelled_queries: int | None = Field(
        None, ge=0, description="keep the labels of this many training queries or pairs; the others count as unlabelled"
    )
    min_positives: int = Field(1, ge=1, description="train only on labelled queries with at least this many positives")
    keep_positives: int | None = Field(
        None,
        ge=1,
        description="keep this many positives of each training query, drawn with the seed; the others become unjudged "
        "and may be drawn as negatives: labels as sparse as MS MARCO's",
    )
    unlabelled: str | None = Field(None, description="a file with more queries (or pairs), without labels")
    unlabelled_documents: str | None = Field(
        None, description="a file with more documents, for objectives that match the embeddings of documents"
    )
    spans: int = Field(
        0,
        ge=0,
        le=100,
        description="add this many spans of each document (sentences, or a few consecutive words) as training "
        "queries without labels, for objectives that match embeddings and for `student.align`",
    )
    seed: int | None = Field(
        None, ge=0, lt=2**31, description="seed for drawing queries and negatives; the recipe's seed by default"
    )
