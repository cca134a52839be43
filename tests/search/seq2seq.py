"""A seq2seq model made on the spot: it answers a document about topicN with queries about synonymN."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

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
