"""Seq2seq models made on the spot: a T5 that answers a document about topicN with queries about synonymN, and a BART
that writes again what it reads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

TOPICS = 12
FILLERS = "copy move open close read write file folder list sort".split()
WORDS = [*(f"topic{n}" for n in range(TOPICS)), *(f"synonym{n}" for n in range(TOPICS)), *FILLERS]


def tokenizer() -> PreTrainedTokenizerFast:
    """A token a word; a text ends with </s>."""
    vocabulary = {word: number for number, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    whole = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Whitespace()
    whole.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=whole, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=64
    )


def masking_tokenizer() -> PreTrainedTokenizerFast:
    """The same with a mask token, as BART has one."""
    words = tokenizer()
    words.add_special_tokens({"mask_token": "<mask>"})
    return words


def write_bart(folder: Path, steps: int = 100, seed: int = 0) -> Path:
    """Train a BART of one layer to write a text of three words again, of which one may be masked, and save it."""
    torch.manual_seed(seed)
    chance, words = random.Random(seed), masking_tokenizer()
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 1}
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "forced_eos_token_id": None}
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(words), max_position_embeddings=32, init_std=0.1, dropout=0.0, **sizes, **heads, **ids
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        batch = words([" ".join(chance.sample(FILLERS, k=3)) for _ in range(64)], return_tensors="pt")
        hidden = torch.rand(batch["input_ids"].shape) < 0.1
        hidden[:, -1] = False
        inputs = batch["input_ids"].masked_fill(hidden, words.mask_token_id)
        model(input_ids=inputs, attention_mask=batch["attention_mask"], labels=batch["input_ids"]).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def document(topic: int, chance: random.Random) -> str:
    words = [f"topic{topic}", *chance.choices(FILLERS, k=chance.randrange(3, 9))]
    chance.shuffle(words)
    return " ".join(words)


def write_t5(folder: Path, steps: int = 120, seed: int = 0) -> Path:
    """Train a T5 of one layer to write `synonymN filler` for a document with topicN, and save it."""
    torch.manual_seed(seed)
    chance, words = random.Random(seed), tokenizer()
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    size = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(words), dropout_rate=0.0, **size, **ids))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        topics = [chance.randrange(TOPICS) for _ in range(32)]
        inputs = words([document(topic, chance) for topic in topics], padding=True, return_tensors="pt")
        targets = [f"synonym{topic} {chance.choice(FILLERS)}" for topic in topics]
        labels = words(targets, padding=True, return_tensors="pt")["input_ids"]
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        model(**inputs, labels=labels.masked_fill(labels == 0, -100)).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def write_beir(folder: Path, documents: int = 24, seed: int = 3) -> Path:
    """Documents about topics; the queries, one a topic, use the synonyms that no document has."""
    chance = random.Random(seed)
    (folder / "qrels").mkdir(parents=True)
    texts = [document(number % TOPICS, chance) for number in range(documents)]
    lines = [{"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    queries = [{"_id": f"q{topic}", "text": f"synonym{topic}"} for topic in range(TOPICS)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries))
    judged = [f"q{number % TOPICS}\td{number}\t1" for number in range(documents)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return folder
