"""The folded heads give the scores of the training graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from limbeck.matchers import build, matcher_config
from limbeck.matchers.encoding import InMemory, as_encoded
from limbeck.matchers.interactions import Interaction, VirtInteraction
from limbeck.matchers.interactions.base import without_padding
from limbeck.matchers.interactions.folded import FoldedTransformer
from limbeck.matchers.pair_scorer import PairScorer
from limbeck.runtimes.onnx_head import OnnxHead
from limbeck.stores.ragged import Ragged

HEADS = {
    "two layers": {},
    "one layer": {"head_layers": 1},
    "three layers, two attention heads": {"head_layers": 3, "head_heads": 2},
    "one layer, two attention heads": {"head_layers": 1, "head_heads": 2},
    "with a cosine": {"head": "transformer+cosine"},
    "with a cosine, one layer": {"head": "transformer+cosine", "head_layers": 1, "head_heads": 2},
    "feed-forward": {"head": "ffnn"},
    "feed-forward, three layers": {"head": "ffnn", "head_layers": 3},
    "feed-forward, one layer": {"head": "ffnn", "head_layers": 1},
    "cosine": {"head": "cosine", "tokens": (1, 1)},
    "feed-forward over two vectors": {"head": "ffnn", "tokens": (1, 1)},
    "three texts": {"tokens": (2, 3, 1), "outputs": 3},
    "poly-encoder": {"kind": "poly_encoder", "dim": None, "tokens": (5, 1)},
    "poly-encoder, coded second text": {"kind": "poly_encoder", "dim": None, "tokens": (1, 3)},
}


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_folding_changes_no_score(tiny_bert, options):
    torch.manual_seed(1)
    lengths = {"layers": 1, "query_length": 8, "document_length": 8, "kind": "dipair", "dim": 16}
    matcher = build(matcher_config(start=tiny_bert, **{**lengths, **options})).eval()
    with torch.no_grad():
        for parameter in matcher.head.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)  # biases and norms that are not at their start
    generator = torch.Generator().manual_seed(2)
    vectors, rows = [], []
    for slots in matcher.settings.tokens:
        some = torch.randn(9, slots, matcher.dim, generator=generator)
        short = torch.rand(9, slots, generator=generator) < 0.3
        short[:, 0] = False
        vectors.append(as_encoded(some.masked_fill(short.unsqueeze(-1), 0.0).numpy()))
        rows.append(torch.randint(9, (40,), generator=generator))

    @torch.inference_mode()
    def scores(interaction):
        """In both ways: of texts that are picked for each pair, and of rows."""
        prepared = [interaction.prepare(some, position) for position, some in enumerate(vectors)]
        picked = [tuple(part[row] for part in text) for text, row in zip(prepared, rows, strict=True)]
        found = interaction.score(picked).numpy()
        assert np.array_equal(interaction.score_rows(prepared, rows).numpy(), found)
        return found

    plain, folded = scores(matcher.interaction), matcher.interaction.folded()
    assert np.ptp(plain) > 0.1
    assert np.allclose(scores(folded), plain, atol=1e-4)
    if isinstance(folded, FoldedTransformer):
        assert np.allclose(scores(OnnxHead(folded)), plain, atol=1e-4)
        rounded = scores(OnnxHead(folded, int8=True))
        assert 0 < np.abs(rounded - plain).max() < 0.05 * np.ptp(plain)


def test_the_batch_of_a_pair_does_not_depend_on_the_order_of_the_store():
    class Watched(Interaction):
        name = "watched"

        def __init__(self):
            super().__init__()
            self.seen = []

        def prepare(self, encoded, position):
            return (encoded,)

        def score(self, texts):
            self.seen.append([part.clone() for (part,) in texts])
            return (texts[0][0] * texts[1][0]).sum(dim=1, keepdim=True)

    generator = np.random.default_rng(0)
    vectors, pairs = generator.normal(size=(30, 4)).astype(np.float32), generator.integers(0, 30, size=(100, 2))
    order = generator.permutation(30)
    heads = Watched(), Watched()
    first = PairScorer(heads[0], [InMemory(vectors), InMemory(vectors)], batch=8).score(pairs)
    moved = vectors[order], np.argsort(order)[pairs]
    second = PairScorer(heads[1], [InMemory(moved[0]), InMemory(moved[0])], batch=8).score(moved[1])
    assert np.allclose(first[:, 0], (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(axis=1), atol=1e-5)
    assert np.array_equal(first, second)
    for one, other in zip(heads[0].seen, heads[1].seen, strict=True):
        assert all(torch.equal(*parts) for parts in zip(one, other, strict=True))


def test_texts_of_like_length_are_scored_together():
    """Of 4,000 pairs of 1 to 40 tokens each, batches are little longer than their own texts."""

    class Widths(VirtInteraction):
        def __init__(self):
            super().__init__(4, 1, 0.0)
            self.read, self.real = 0, 0

        def attended(self, texts):
            for text in texts:
                _, mask = without_padding(text)
                self.read, self.real = self.read + mask.numel(), self.real + int(mask.sum())
            return super().attended(texts)

    generator = np.random.default_rng(0)
    parts = [generator.normal(size=(count, 4)).astype(np.float32) for count in generator.integers(1, 41, size=80)]
    texts, rows = InMemory(Ragged.from_list(parts)), generator.integers(0, 80, size=(4000, 2))
    head = Widths().eval()
    found = PairScorer(head, [texts, texts], batch=64).score(rows)
    assert head.real < head.read < 1.2 * head.real
    alone = [PairScorer(head, [texts, texts]).score(row[None])[0] for row in rows[:20]]
    assert np.allclose(found[:20], alone, atol=1e-5)
