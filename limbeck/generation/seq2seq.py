"""A seq2seq model (BART, T5, ...) with separate calls of encoder and decoder, so that the states can be changed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput

from limbeck.errors import LimbeckError
from limbeck.files import digest
from limbeck.matchers.base import tokeniser_digest, weights_digest
from limbeck.matchers.device import chosen_device
from limbeck.matchers.folder_checks import check_folder
from limbeck.matchers.names import local_folder
from limbeck.matchers.quiet import quiet
from limbeck.matchers.safe_loading import HERE_ONLY, check_vocabulary, complete_weights, naming_load_errors


class Seq2Seq:
    """A model that reads a text and writes another."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self._reads = min(_positions(model.config), tokenizer.model_max_length)
        self._writes = _positions(model.config) - 1

    @classmethod
    def load(cls, name: str, revision: str | None = None) -> Self:
        """Load a model from a folder or the hub: safetensors only, and without running code from the model."""
        path = local_folder(name, revision)
        check_folder(path)
        with naming_load_errors(name, "a seq2seq model"), quiet(), complete_weights(path):
            config = AutoConfig.from_pretrained(path, **HERE_ONLY)
            if not config.is_encoder_decoder:
                problem = f"a {config.model_type} is not a seq2seq model"
                raise LimbeckError(f"{name}: {problem}; give a model like T5 or BART that was trained to write queries")
            tokenizer = AutoTokenizer.from_pretrained(path, **HERE_ONLY)
            model = AutoModelForSeq2SeqLM.from_pretrained(path, **HERE_ONLY)
        check_vocabulary(tokenizer, model.get_input_embeddings(), path)
        return cls(model.to(chosen_device()), tokenizer)

    def identity(self) -> dict[str, Any]:
        """Everything about the model that changes its output."""
        return {
            "model": weights_digest(self.model),
            "tokenizer": tokeniser_digest(self.tokenizer),
            "generation": digest(self.model.generation_config.to_json_string()),
        }

    def tokens(self, texts: Sequence[str], length: int) -> tuple[Tensor, Tensor]:
        """Token ids and their mask: [texts, tokens] each."""
        features = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=min(length, self._reads), return_tensors="pt"
        ).to(self.model.device)
        return features["input_ids"], features["attention_mask"]

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The encoder states of the tokens: [texts, tokens, dim]."""
        with torch.inference_mode(), quiet():
            return self.model.get_encoder()(ids, attention_mask=mask).last_hidden_state

    def decode(
        self, states: Tensor, mask: Tensor, max_length: int, processors: LogitsProcessorList | None = None
    ) -> list[str]:
        """One text for each row of states, by greedy decoding."""
        with torch.inference_mode(), quiet():
            written = self.model.generate(
                encoder_outputs=BaseModelOutput(last_hidden_state=states),  # type: ignore[arg-type]
                attention_mask=mask,
                generation_config=self._settings(max_length),
                logits_processor=processors,
            )
        return [" ".join(text.split()) for text in self.tokenizer.batch_decode(written, skip_special_tokens=True)]

    def _settings(self, max_length: int) -> Any:
        """The model's own generation settings, but greedy with one beam."""
        settings = copy.deepcopy(self.model.generation_config)
        most = min(max_length, self._writes)
        settings.update(num_beams=1, do_sample=False, max_new_tokens=most, max_length=None, early_stopping=False)
        settings.update(temperature=1.0, top_p=1.0, top_k=50, length_penalty=1.0)
        return settings


def _positions(config: Any) -> int:
    """The maximum number of positions of a model; T5's positions are relative and have no limit."""
    return int(getattr(config, "max_position_embeddings", None) or 10**9)
