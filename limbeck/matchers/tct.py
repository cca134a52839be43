"""Released TCT-ColBERT checkpoints read texts in a special way, and reach published scores only with it.

`castorini/tct_colbert-msmarco` and its successors are plain BERT folders. They expect "[CLS] [Q] " or "[CLS] [D] "
before the text, which a BERT vocabulary splits into four word pieces; no [SEP]; and queries filled with [MASK] to 36
tokens, all of which are attended to. The average leaves out the four pieces; for a query it uses all other positions,
for a document the real tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from limbeck.matchers.safe_loading import HERE_ONLY

FAMILY = "tct_colbert"
QUERY_LENGTH, DOCUMENT_LENGTH = 36, 512
MARKS = {"query": "[CLS] [Q] ", "document": "[CLS] [D] "}
MARK_PIECES = 4


class TctTransformer(Transformer):
    """Tokenises as in the training of the released checkpoints; the pooling after it skips the prompt."""

    def preprocess(
        self, inputs: Any, prompt: str | None = None, processing_kwargs: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        asks = kwargs.get("task") == "query"
        length = (self.query_length if asks else self.document_length) or DOCUMENT_LENGTH
        tokenizer: Any = self.tokenizer
        filling = tokenizer.mask_token * length if asks else ""
        tokens = tokenizer(
            [MARKS["query" if asks else "document"] + str(text) + filling for text in inputs],
            add_special_tokens=False,
            truncation=True,
            max_length=length,
            padding=True,
            return_tensors="pt",
        )
        return {**tokens, "modality": "text", "prompt_length": MARK_PIECES}


def load_tct(path: str) -> SentenceTransformer | None:
    """A checkpoint of the family, recognised by its name, or one that Limbeck saved; None for others."""
    if not is_tct(path):
        return None
    listing = Path(path) / "modules.json"
    if listing.exists():
        entries = json.loads(listing.read_text(encoding="utf-8"))
        modules = [TctTransformer.load(path, **HERE_ONLY), Pooling.load(str(Path(path) / entries[1]["path"]))]
        return SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu")
    return _released(path)


def is_tct(path: str) -> bool:
    """Whether to read texts in this way: released folders are recognised by name, saved ones by their modules."""
    listing = Path(path) / "modules.json"
    if not listing.exists():
        return _is_of_the_family(path)
    entries = json.loads(listing.read_text(encoding="utf-8"))
    return bool(entries) and entries[0]["type"] == f"{TctTransformer.__module__}.{TctTransformer.__name__}"


def _is_of_the_family(path: str) -> bool:
    """By its own name, or by that of the repository in the hub's cache (models--castorini--tct_colbert-...)."""
    cached = [part.rsplit("--", 1)[-1] for part in Path(path).parts if part.startswith("models--")]
    return any(name.lower().startswith(FAMILY) for name in (Path(path).name, *cached))


def _released(path: str) -> SentenceTransformer:
    transformer = TctTransformer(
        path,
        max_seq_length=DOCUMENT_LENGTH,
        query_length=QUERY_LENGTH,
        document_length=DOCUMENT_LENGTH,
        model_kwargs=dict(HERE_ONLY),
        processor_kwargs=dict(HERE_ONLY),
        config_kwargs=dict(HERE_ONLY),
    )
    positions = getattr(transformer.config, "max_position_embeddings", DOCUMENT_LENGTH)
    transformer.max_seq_length = transformer.document_length = min(DOCUMENT_LENGTH, positions)
    pooling = Pooling(transformer.get_embedding_dimension(), "mean", include_prompt=False)
    return SentenceTransformer(modules=[transformer, pooling], similarity_fn_name="dot", device="cpu")
