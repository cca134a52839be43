"""A tiny random encoder of each family whose attention can be read, with the marks that its tokenizers put in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.conftest import WORDS

SIZES = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 24, "intermediate_size": 32}
SAME = {"vocab_size": 80, "pad_token_id": 0, "initializer_range": 0.4}
T5 = {"num_layers": 3, "num_heads": 2, "d_model": 24, "d_kv": 8, "d_ff": 32, "vocab_size": 80, "pad_token_id": 0}


class Marks(NamedTuple):
    """How a tokenizer joins two texts."""

    template: str
    first: int  # marks before the first text
    between: int  # marks between the texts
    types: bool = False  # whether it says which text a token is of


BERT = Marks("[CLS] $A [SEP] $B:1 [SEP]:1", 1, 1, True)
ROBERTA = Marks("[CLS] $A [SEP] [SEP] $B [SEP]", 1, 2)
PLAIN = Marks("[CLS] $A [SEP] $B [SEP]", 1, 1)
ENDS = Marks("$A [SEP] $B [SEP]", 0, 1)

FAMILIES: dict[str, tuple[str, dict, Marks]] = {
    "bert": ("Bert", SIZES | SAME | {"max_position_embeddings": 64}, BERT),
    "roberta": ("Roberta", SIZES | SAME | {"max_position_embeddings": 66}, ROBERTA),
    "xlm-roberta": ("XLMRoberta", SIZES | SAME | {"max_position_embeddings": 66}, ROBERTA),
    "electra": ("Electra", SIZES | SAME | {"max_position_embeddings": 64, "embedding_size": 16}, BERT),
    "distilbert": (
        "DistilBert",
        SAME | {"n_layers": 3, "n_heads": 2, "dim": 24, "hidden_dim": 32, "max_position_embeddings": 64},
        PLAIN,
    ),
    "mpnet": ("MPNet", SIZES | SAME | {"max_position_embeddings": 66}, ROBERTA),
    "t5": ("T5", T5, ENDS),
}


def write_family(name: str, folder: Path, **changes: object) -> str:
    """A folder with a random model of a family and a tokenizer of the tests' words."""
    kind, sizes, marks = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, marks)
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes | changes)
    model = getattr(transformers, f"{kind}EncoderModel" if kind == "T5" else f"{kind}Model")(config)
    for part, weight in model.named_parameters():
        if "relative_attention_bias" in part:
            torch.nn.init.normal_(weight)
    model.save_pretrained(folder)
    return str(folder)


def write_tokenizer(folder: Path, marks: Marks, words: list[str] = WORDS) -> None:
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]") if mark in marks.template]
    single = marks.template.split("$A")[0] + "$A [SEP]"
    backend.post_processor = processors.TemplateProcessing(single=single, pair=marks.template, special_tokens=special)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if marks.types else [])]
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=names,
    ).save_pretrained(folder)
