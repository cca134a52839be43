"""Queries that a document might answer, sampled from a seq2seq model (doc2query-T5: Nogueira and Lin, 2019).

A sample depends on the seed, the document's id and its own number alone, not on what else is in the batch: token t of a
query is argmax over the k likeliest of log p + g_t, with Gumbel noise g that belongs to the query. That is a draw from
the softmax over those k.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput

from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.base import tokeniser_digest, weights_digest
from limbeck.matchers.device import chosen_device
from limbeck.matchers.folder_checks import check_folder
from limbeck.matchers.names import local_folder
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, check_vocabulary, complete_weights, naming_load_errors

CODE_VERSION = 1  # to be raised whenever the same weights, texts and settings would give other queries


@dataclass(frozen=True)
class Sampling:
    """How queries are drawn; the defaults are doc2query-T5's, but for the number of queries."""

    per_document: int = 5
    top_k: int = 10
    max_length: int = 64  # tokens of a query
    document_length: int = 512  # tokens of a document that the model reads
    seed: int = 0


class QueryGenerator:
    """A seq2seq model that writes queries."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self._reads = min(_positions(model.config), tokenizer.model_max_length)
        self._writes = _positions(model.config) - 1

    @classmethod
    def load(cls, name: str, revision: str | None = None) -> QueryGenerator:
        """The model in a folder or under a hub name: safetensors only, and no code of its own is run."""
        path = local_folder(name, revision)
        check_folder(path)
        with naming_load_errors(name, "a seq2seq model"), quiet(), complete_weights(path):
            config = AutoConfig.from_pretrained(path, **HERE_ONLY)
            if not config.is_encoder_decoder:
                problem = f"a {config.model_type} is no seq2seq model"
                raise LimbeckError(f"{name}: {problem}; give one like T5 or BART that was trained to write queries")
            tokenizer = AutoTokenizer.from_pretrained(path, **HERE_ONLY)
            model = AutoModelForSeq2SeqLM.from_pretrained(path, **HERE_ONLY)
        check_vocabulary(tokenizer, model, path)
        return cls(model.to(chosen_device()), tokenizer)

    def identity(self) -> dict[str, Any]:
        """All of the model that changes what it writes."""
        return {
            "model": weights_digest(self.model),
            "tokenizer": tokeniser_digest(self.tokenizer),
            "generation": digest(self.model.generation_config.to_json_string()),
            "code": CODE_VERSION,
        }

    def generate(self, ids: Sequence[str], texts: Sequence[str], how: Sampling) -> list[list[str]]:
        """`per_document` queries for each document; those that came out empty are left out."""
        features = self.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=min(how.document_length, self._reads),
            return_tensors="pt",
        ).to(self.model.device)
        mask = features["attention_mask"]
        with torch.inference_mode(), quiet():
            read = self.model.get_encoder()(features["input_ids"], attention_mask=mask).last_hidden_state
            written = self.model.generate(
                encoder_outputs=BaseModelOutput(last_hidden_state=read.repeat_interleave(how.per_document, dim=0)),
                attention_mask=mask.repeat_interleave(how.per_document, dim=0),
                generation_config=self._settings(how),
                logits_processor=LogitsProcessorList([NoisyTopK(self._noise(ids, how))]),
            )
        queries = [" ".join(text.split()) for text in self.tokenizer.batch_decode(written, skip_special_tokens=True)]
        lists = [queries[start : start + how.per_document] for start in range(0, len(queries), how.per_document)]
        return [[query for query in some if query] for some in lists]

    def _settings(self, how: Sampling) -> Any:
        """The model's own settings, but for one greedy beam: the noise does the sampling."""
        settings = copy.deepcopy(self.model.generation_config)
        most = min(how.max_length, self._writes)
        settings.update(num_beams=1, do_sample=False, max_new_tokens=most, max_length=None, early_stopping=False)
        settings.update(temperature=1.0, top_p=1.0, top_k=50, length_penalty=1.0)
        return settings

    def _noise(self, ids: Sequence[str], how: Sampling) -> Tensor:
        """Gumbel noise [documents * per_document, max_length, top_k]."""
        seeds = [digest(str(how.seed), key, str(number)) for key in ids for number in range(how.per_document)]
        noise = [np.random.default_rng(int(seed, 16)).gumbel(size=(how.max_length, how.top_k)) for seed in seeds]
        return torch.from_numpy(np.stack(noise).astype(np.float32)).to(self.model.device)


class NoisyTopK(LogitsProcessor):
    """Adds a row's own noise to its likeliest tokens and rules out all others; the greedy choice is then a draw."""

    def __init__(self, noise: Tensor) -> None:
        self._noise = noise  # [rows, steps, top_k]
        self._start: int | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._start is None:
            self._start = input_ids.shape[1]
        likeliest = scores.topk(min(self._noise.shape[2], scores.shape[1]), dim=1)  # [rows, top_k]
        noise = self._noise[:, input_ids.shape[1] - self._start, : likeliest.values.shape[1]]
        return torch.full_like(scores, -torch.inf).scatter(1, likeliest.indices, likeliest.values + noise)


def _positions(config: Any) -> int:
    """How many tokens a model has positions for; T5's are relative and have no end."""
    return int(getattr(config, "max_position_embeddings", None) or 10**9)
