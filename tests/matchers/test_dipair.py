"""DiPair: what it keeps of a text, its heads against numpy, its folders, and its batch against its pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import erf, softmax

from limbeck.errors import LimbeckError
from limbeck.matchers import DiPair, build, load, matcher_config
from limbeck.matchers.base import TextBatch
from limbeck.matchers.dipair import _take
from limbeck.matchers.interactions.dipair import CosineHead, FeedForwardHead, TransformerHead
from limbeck.matchers.interactions.layer import ALIKE
from limbeck.matchers.interactions.maxsim import TokenVectors
from tests.matchers.test_folders import DOCUMENTS, PAIRS, QUERIES, disturb, same

KINDS = {
    "transformer head": {},
    "projection, last tokens": {"dim": 16, "take": "last"},
    "feed-forward head": {"head": "ffnn", "dim": 8},
    "two vectors into a feed-forward head": {"head": "ffnn", "tokens": (1, 1)},
    "the cosine of two vectors": {"head": "cosine", "tokens": (1, 1)},
    "a transformer head beside a cosine": {"head": "transformer+cosine", "dim": 16},
    "own encoders, three classes, two attention heads": {"separate": True, "outputs": 3, "dim": 8, "head_heads": 2},
}


def spec(start: str, **options) -> matcher_config:
    usual = {"kind": "dipair", "start": start, "layers": 2, "query_length": 16, "document_length": 32}
    return matcher_config(**{**usual, **options})


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_saved_model_scores_the_same_and_a_batch_as_its_pairs(tiny_bert, tmp_path, options):
    ours = disturb(build(spec(tiny_bert, **options)))
    ours.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, DiPair) and again.identity() == ours.identity()
    alone = ours.score(PAIRS)
    assert same(again.score(PAIRS), alone)
    for chunk in (None, 1):
        batch = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, None), chunk)).scores.detach().numpy()
        assert same(batch.reshape(alone.shape), alone)
    lists = torch.tensor([[2, 0], [1, 1], [0, 2]])
    listed = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, lists))).scores.detach().numpy()
    wanted = alone.reshape(3, 3, -1)[np.arange(3)[:, None], lists.numpy()]
    assert same(listed.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    ("options", "encoded"),
    [
        ({"tokens": (2, 2), "document_length": 16}, 3),  # both sides read alike
        ({"tokens": (2, 3), "document_length": 16}, 5),  # another number of slots on each
        ({"tokens": (2, 2)}, 5),  # another length
        ({"tokens": (2, 2), "document_length": 16, "separate": True}, 5),
    ],
)
def test_a_batch_encodes_a_text_once_wherever_it_has_the_same_outputs(tiny_bert, options, encoded):
    model = disturb(build(spec(tiny_bert, **options)))
    queries, documents = ["copy file", "sort list", "copy file", "sort list"], ["copy file", "open folder", "sort list"]
    lists = torch.tensor([[1], [0], [2], [2]])
    prepared = model.prepare(TextBatch(queries, documents, lists))
    assert sum(len(chunk["input_ids"]) for some in prepared.texts for chunk in some.passes) == encoded
    scores = model(prepared).scores
    pairs = [(query, documents[int(row)]) for query, row in zip(queries, lists[:, 0], strict=True)]
    assert same(scores.detach().numpy()[:, 0], model.score(pairs))
    alone = sum(model(model.prepare(TextBatch([left], [right], None))).scores.sum() for left, right in pairs)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    found, wanted = (torch.autograd.grad(total, weights, allow_unused=True) for total in (scores.sum(), alone))
    for one, other in zip(found, wanted, strict=True):
        assert (one is None and other is None) or torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("last", [False, True])
def test_the_first_or_the_last_real_tokens_are_kept_and_missing_ones_are_zeros(last):
    states = torch.arange(1, 13, dtype=torch.float32).view(2, 6, 1)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]]).bool()
    kept = _take(states, mask, 3, last).squeeze(-1).tolist()
    assert kept == [[3.0, 4.0, 5.0] if last else [1.0, 2.0, 3.0], [7.0, 8.0, 0.0]]
    on_the_left = _take(states, mask.flip(1), 3, last).squeeze(-1).tolist()
    assert on_the_left == [[4.0, 5.0, 6.0] if last else [2.0, 3.0, 4.0], [11.0, 12.0, 0.0]]


def some_texts(slots: list[int], dim: int, batch: int = 4) -> list[TokenVectors]:
    generator = torch.Generator().manual_seed(0)
    texts = []
    for count in slots:
        mask = torch.rand(batch, count, generator=generator) < 0.7
        mask[:, 0] = True
        texts.append(TokenVectors(torch.randn(batch, count, dim, generator=generator) * mask.unsqueeze(-1), mask))
    return texts


def norm(states, layer):
    centred = states - states.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + layer.eps)
    return scaled * layer.weight.detach().double().numpy() + layer.bias.detach().double().numpy()


def linear(states, layer):
    return states @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()


def scores(head, texts):
    """Scores of pairs whose texts are in the same row."""
    return head.score([head.prepare(text, position) for position, text in enumerate(texts)])


@pytest.mark.parametrize("heads", [1, 2])
def test_the_transformer_head_is_berts_layer_over_marked_tokens(heads):
    torch.manual_seed(3)
    head = TransformerHead([2, 3], dim=8, layers=2, heads=heads, intermediate=12, outputs=2, dropout=0.1).eval()
    texts = some_texts([2, 3], 8)
    states = np.concatenate(
        [
            text.vectors.double().numpy()
            + head.positions[number].weight.detach().double().numpy()
            + head.segments.weight[number].detach().double().numpy()
            for number, text in enumerate(texts)
        ],
        axis=1,
    )
    mask = np.concatenate([text.mask.numpy() for text in texts], axis=1)
    states = norm(states, head.norm)
    for layer in head.layers:
        queries, keys, values = np.split(linear(states, layer.attend), 3, axis=-1)
        found = np.zeros_like(states)
        for number in range(heads):
            own = slice(number * 8 // heads, (number + 1) * 8 // heads)
            logits = queries[..., own] @ keys[..., own].transpose(0, 2, 1) / np.sqrt(8 / heads)
            logits = np.where(mask[:, None, :], logits, -np.inf)
            found[..., own] = softmax(logits, axis=-1) @ values[..., own]
        states = norm(states + linear(found, layer.merge), layer.first_norm)
        wide = linear(states, layer.widen)
        wide = wide * 0.5 * (1 + erf(wide / np.sqrt(2)))
        states = norm(states + linear(wide, layer.narrow), layer.second_norm)
    assert np.allclose(scores(head, texts).detach().numpy(), linear(states[:, 0], head.output), atol=1e-5)


def test_the_feed_forward_head_reads_the_vectors_side_by_side():
    torch.manual_seed(3)
    for layers in (1, 2, 3):
        head = FeedForwardHead([2, 3], dim=4, layers=layers, hidden=6, outputs=1, dropout=0.1).eval()
        texts = some_texts([2, 3], 4)
        flat = np.concatenate([text.vectors.double().numpy().reshape(4, -1) for text in texts], axis=1)
        hidden = np.maximum(linear(flat, head.first), 0)
        assert len(head.further) == layers - 1
        for layer in head.further:
            hidden = np.maximum(linear(hidden, layer), 0)
        assert np.allclose(scores(head, texts).detach().numpy(), linear(hidden, head.output), atol=1e-5)


def test_the_cosine_head_by_hand():
    head = CosineHead()
    with torch.no_grad():
        head.scale.fill_(3.0)
        head.offset.fill_(-1.0)
    texts = some_texts([1, 1], 4)
    left, right = (text.vectors[:, 0].double().numpy() for text in texts)
    cosine = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert np.allclose(scores(head, texts).detach().numpy()[:, 0], 3 * cosine - 1, atol=1e-5)
    with pytest.raises(ValueError, match="head: cosine compares two vectors"):
        spec("x", head="cosine", tokens=(2, 1))


def test_a_head_beside_a_cosine_starts_as_the_cosine_and_learns_to_add(tiny_bert):
    model = build(spec(tiny_bert, head="transformer+cosine"))
    left, right = model.encode_query(["copy a file"]), model.encode_document(["move a file"])
    one, other = left[0, 0].astype(np.float64), right[0, 0].astype(np.float64)
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert model.score([("copy a file", "move a file")]) == pytest.approx(10 * cosine - 5, abs=1e-4)
    batch = model.prepare(TextBatch(["copy a file"], ["move a file"], None))
    model(batch).scores.sum().backward()
    assert model.head.output.weight.grad.abs().max() > 0 and model.head.cosine.scale.grad.abs() > 0


def test_three_texts_have_three_encodings_in_one_head(tiny_bert):
    ours = disturb(build(spec(tiny_bert, tokens=(2, 3, 4), dim=8)))
    triples = [(query, document, document[:5]) for query in QUERIES for document in DOCUMENTS]
    told = [(document, document[:5]) for document in DOCUMENTS]
    batch = ours(ours.prepare(TextBatch(QUERIES, told, None))).scores.detach().numpy()
    assert same(batch.reshape(-1), ours.score(triples))
    assert not same(ours.score(triples), ours.score([(one, two, "another") for one, two, _ in triples]))
    with pytest.raises(LimbeckError, match="this model reads 3 texts and got 2"):
        ours.score(PAIRS)


def test_a_text_shorter_than_its_slots_is_masked_in_the_head(tiny_bert):
    """More slots than tokens change nothing but where positions are marked, and those of empty slots are not read."""
    few, many = (build(spec(tiny_bert, tokens=(3, count), dim=8)) for count in (3, 9))
    many.load_state_dict(
        few.state_dict() | {"head.positions.1.weight": torch.cat([few.head.positions[1].weight, torch.randn(6, 8)])}
    )
    pair = [("copy a file", "")]  # [CLS] [SEP]
    assert same(few.eval().score(pair), many.eval().score(pair))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"head": "transformer+cosine", "tokens": (2, 2, 2)},
            "transformer.cosine compares two texts and gives one score",
        ),
        ({"tokens": (4,)}, "give one number for each text, at least two"),
        ({"tokens": (4, 0)}, "each at least 1"),
        ({"tokens": [4, 9, 8], "document_length": 8}, "tokens: 9 is too many for document_length .8."),
        ({"tokens": [9, 8], "query_length": 8}, "tokens: 9 is too many for query_length .8."),
        ({"dim": 10, "head_heads": 4}, "dim .10. is not a multiple of head_heads .4."),
        ({"pooling": "cls"}, "pooling belongs to"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, line):
    with pytest.raises(ValueError, match=line):
        spec("minilm", **options)


def test_slots_belong_to_a_dipair():
    with pytest.raises(ValueError, match="tokens belongs to a dipair or a poly_encoder; drop it for a dual_encoder"):
        matcher_config(tokens=(2, 2))


POLY_OPTIONS = [{}, {"tokens": (1, 4), "pooling": "cls"}, {"separate": True}, {"outputs": 3}]


@pytest.mark.parametrize("options", POLY_OPTIONS, ids=str)
def test_a_poly_encoder_goes_to_disk_and_scores_batches_as_pairs(tiny_bert, tmp_path, options):
    lengths = {"layers": 2, "query_length": 16, "document_length": 32}
    ours = disturb(build(matcher_config(kind="poly_encoder", start=tiny_bert, **lengths, **options)))
    ours.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.kind == "poly_encoder" and again.identity() == ours.identity()
    alone = ours.score(PAIRS)
    assert same(again.score(PAIRS), alone)
    together = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, None))).scores.detach().numpy()
    assert same(together.reshape(np.shape(alone)), alone)


@pytest.mark.parametrize("tokens", [(3, 1), (1, 3)], ids=str)
def test_a_poly_encoder_with_classes_reads_both_vectors_in_the_order_of_the_texts(tiny_bert, tokens):
    """A network with one hidden layer over (y, c) if the first text has the codes, over (c, y) if the second has."""
    lengths = {"layers": 1, "query_length": 8, "document_length": 8}
    ours = build(matcher_config(kind="poly_encoder", start=tiny_bert, tokens=tokens, outputs=3, **lengths)).eval()
    texts = ("copy a file", "sort a list")
    kept = [ours.encode([text], position)[0].astype(np.float64) for position, text in enumerate(texts)]
    codes, single = (kept[0], kept[1][0]) if tokens[0] > 1 else (kept[1], kept[0][0])
    gathered = softmax(codes @ single) @ codes
    fused = np.concatenate([gathered, single] if tokens[0] > 1 else [single, gathered])
    weights = {name: value.double().numpy() for name, value in ours.head.classifier.state_dict().items()}
    inner = weights["hidden.weight"] @ fused + weights["hidden.bias"]
    inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
    wanted = weights["output.weight"] @ inner + weights["output.bias"]
    assert np.allclose(ours.score([texts]), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
def test_dropout_of_a_poly_encoder_acts_in_training_only(tiny_bert, outputs):
    lengths = {"layers": 1, "query_length": 8, "document_length": 8, "inner_dropout": 0}
    ours = build(matcher_config(kind="poly_encoder", start=tiny_bert, dropout=0.5, outputs=outputs, **lengths))
    batch = ours.prepare(TextBatch(QUERIES, DOCUMENTS, None))
    drawn = [ours.train()(batch).scores for _ in range(2)]
    assert not torch.equal(*drawn)
    assert torch.equal(*[ours.eval()(batch).scores for _ in range(2)])


def test_the_poly_encoders_formula_by_hand(tiny_bert):
    """Codes gather token states by softmax; the other text's mean asks the codes; then a dot product, scaled."""
    lengths = {"layers": 1, "query_length": 8, "document_length": 8}
    ours = build(matcher_config(kind="poly_encoder", start=tiny_bert, tokens=(3, 1), **lengths)).eval()
    encoder = ours.encoder(0)
    with torch.no_grad():
        left, right = (
            encoder(encoder.preprocess([text], task=task))["token_embeddings"][0].double().numpy()
            for text, task in (("copy a file", "query"), ("sort a list", "document"))
        )
    codes = ours.codes.weight.detach().double().numpy()
    gathered = softmax(codes @ left.T, axis=1) @ left  # [codes, width]
    vector = right.mean(axis=0)
    weights = softmax(gathered @ vector)
    dot = (weights @ gathered) @ vector
    assert np.allclose(ours.score([("copy a file", "sort a list")]), dot / np.sqrt(ours.width), rtol=1e-4)
    with torch.no_grad():
        ours.head.scale.fill_(2.0), ours.head.offset.fill_(-1.0)
    assert np.allclose(ours.score([("copy a file", "sort a list")]), 2 * dot - 1, rtol=1e-4)


@pytest.mark.parametrize("tokens", [(4, 4), (1, 1), (4, 1, 1)])
def test_a_poly_encoder_has_codes_on_one_side(tokens):
    with pytest.raises(ValueError, match="codes for one text and one vector for the other"):
        matcher_config(kind="poly_encoder", tokens=tokens)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_new_transformer_head_compares_tokens_from_the_start(heads):
    head = TransformerHead([2, 3], 16, 2, heads, 32, 1, 0.0)
    layer = head.layers[0]
    vectors = torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
    states = torch.nn.functional.layer_norm(vectors, (16,))
    queries, keys = (part.unflatten(-1, (heads, -1)) for part in layer.attend(states).chunk(3, dim=-1)[:2])
    logits = torch.einsum("ihd,jhd->hij", queries, keys) / (16 / heads) ** 0.5
    wanted = ALIKE * np.corrcoef(vectors.numpy())  # normalised states are alike as vectors correlate
    assert np.allclose(logits.mean(0).detach().numpy(), wanted, atol=1e-3)
    other = head.layers[1].attend.weight[:32]
    assert not torch.equal(other[:16], other[16:])  # further layers start as layers do


def test_a_text_is_projected_alike_on_every_side_until_training_parts_them(tiny_bert):
    model = build(spec(tiny_bert, dim=16, tokens=(2, 2, 2)))
    sides = [model.encode(["copy a file", "sort"], position) for position in range(3)]
    assert same(sides[1], sides[0]) and same(sides[2], sides[0])
    weights = [projection.weight for projection in model.projections]
    assert len({weight.data_ptr() for weight in weights}) == 3


def test_each_side_has_a_separate_projection(tiny_bert):
    """By hand: what a text keeps, by its own side's matrix; and what the head gets in a batch is that too."""
    model = disturb(build(spec(tiny_bert, dim=16, tokens=(2, 2), document_length=16)))
    texts = ["copy a file", "sort a list"]
    for position, projection in enumerate(model.projections):
        kept = model.keep(texts, position).astype(np.float64)
        wanted = kept @ projection.weight.detach().numpy().T + projection.bias.detach().numpy()
        assert np.allclose(model.encode(texts, position), wanted, atol=1e-5)
    assert np.abs(model.encode(texts, 0) - model.encode(texts, 1)).max() > 1e-3
    before = model(model.prepare(TextBatch(texts, texts, None))).scores.detach().numpy()
    queries = model.encode_query(texts)
    with torch.no_grad():
        model.projections[1].weight.mul_(-1)
    assert np.array_equal(model.encode_query(texts), queries)
    after = model(model.prepare(TextBatch(texts, texts, None))).scores.detach().numpy()
    assert np.abs(after - before).max() > 1e-4
    assert same(after.reshape(-1), model.score([(a, b) for a in texts for b in texts]))
