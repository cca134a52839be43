"""A student that uses another model's document tower unchanged; only its query tower is new (EmbedDistill Sec. 4.2).

The student can use the other model's document index, and its document embeddings are never computed again. The student
is one sentence-transformers folder with a route for each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Normalize, Router

from limbeck.errors import LimbeckError
from limbeck.matchers.config import DEFAULT_KIND
from limbeck.matchers.loading import architecture_in
from limbeck.matchers.parts import projection, vector_size
from limbeck.matchers.safe_loading import HERE_ONLY, complete_weights, naming_load_errors
from limbeck.matchers.tower import Tower


def document_model(folder: str) -> SentenceTransformer:
    """The dual encoder whose document tower is used; `folder` was checked."""
    kind = architecture_in(Path(folder)).kind
    if kind != DEFAULT_KIND:
        problem = f"student.document: is a {kind}, which does not keep one vector of a document"
        raise LimbeckError(f"{folder}: {problem}; name a dual encoder")
    with naming_load_errors(folder, "a dual encoder"), complete_weights(folder):
        model = SentenceTransformer(folder, device="cpu", **HERE_ONLY)
    if str(model.similarity_fn_name) not in ("dot", "cosine"):
        raise LimbeckError(f"{folder}: has {model.similarity_fn_name} similarity; use a model with dot or cosine")
    return model


def with_documents_of(model: SentenceTransformer, query: Sequence[Module]) -> SentenceTransformer:
    """A model with `query` as its query tower and the frozen document tower of `model`.

    If the sizes differ, a projection maps to the size of the document tower; a final Normalize is repeated.
    """
    documents = Tower(model).route("document")
    width, dim = vector_size(query), int(model.get_embedding_dimension() or 0)
    fitted = [*query] if width == dim else [*query, projection(width, dim)]
    if isinstance(documents[-1], Normalize) and not isinstance(fitted[-1], Normalize):
        fitted.append(Normalize())
    for module in documents:
        module.requires_grad_(False)
    modules: Any = [Router.for_query_document(fitted, documents)]
    told: Any = {
        "similarity_fn_name": model.similarity_fn_name,
        "prompts": model.prompts,
        "default_prompt_name": model.default_prompt_name,
    }
    return SentenceTransformer(modules=modules, device="cpu", **told)
