"""Small models of several families, with the words of the tiny BERT."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.training.conftest import beir  # noqa: F401  (fixture)

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
    "initializer_range": 0.2,
}
FAMILIES = ("bert", "distilbert", "mpnet", "roberta", "modernbert")
TEXTS = [
    "copy a file",
    "how do i sort a list of numbers in the old module and return the first value",
    "",
    "read",
    "the new page is a line of text and the last line is an error of the class",
] * 3
QUERIES = ["open the folder", "sort", "how do i write a string to the file"]


def _model(family: str, words: int) -> torch.nn.Module:
    import transformers as library

    sizes = {"vocab_size": words, "pad_token_id": 0, **SIZES}
    if family == "distilbert":
        names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
        names["intermediate_size"] = "hidden_dim"
        return library.DistilBertModel(
            library.DistilBertConfig(**{names.get(key, key): value for key, value in sizes.items()})
        )
    if family == "modernbert":
        marks = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
        local = {"local_attention": 8, "global_attn_every_n_layers": 2}
        return library.ModernBertModel(library.ModernBertConfig(**sizes, **marks, **local))
    kind = {"bert": "Bert", "mpnet": "MPNet", "roberta": "Roberta"}[family]
    config = getattr(library, f"{kind}Config")(**sizes)
    return getattr(library, f"{kind}Model")(config, add_pooling_layer=False)


@pytest.fixture(scope="session")
def family_folder(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A transformers folder of a family, made once."""
    made: dict[str, str] = {}

    def find(family: str) -> str:
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            for file in Path(tiny_bert).iterdir():
                if file.name not in ("config.json", "model.safetensors"):
                    shutil.copy(file, folder / file.name)
            words = len((Path(tiny_bert) / "vocab.txt").read_text().split())
            torch.manual_seed(0)
            _model(family, words).save_pretrained(folder)
            made[family] = str(folder)
        return made[family]

    return find
