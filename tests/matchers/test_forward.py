"""The training pass and the inference pass see the same scores, however texts are cut into chunks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from limbeck.matchers import TextBatch, build, matcher_config
from limbeck.matchers.gather import share
from limbeck.matchers.splitting import split_by_length

QUERIES = ["copy a file", "sort", "open the folder and read a line of text"]
DOCUMENTS = ["copy", "sort the list of numbers in place and return a new list", "file folder " * 20, "read a page"]
LISTS = torch.tensor([[0, 2, 1], [1, 3, 0], [3, 2, 1]])


def matcher(start: str, kind: str):
    torch.manual_seed(0)
    return build(matcher_config(kind=kind, start=start, query_length=8, document_length=20)).eval()


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder"])
@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_lists_and_all_pairs_have_the_scores_of_inference(tiny_bert, kind, chunk):
    model = matcher(tiny_bert, kind)
    expected = np.array([model.score([(query, document) for document in DOCUMENTS]) for query in QUERIES])
    everything = model(model.prepare(TextBatch(QUERIES, DOCUMENTS, None), chunk)).scores
    assert np.allclose(everything.detach().numpy(), expected, atol=1e-5)
    listed = model(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), chunk)).scores
    assert np.allclose(listed.detach().numpy(), np.take_along_axis(expected, LISTS.numpy(), axis=1), atol=1e-5)


def test_only_the_signals_that_are_asked_for_are_shown(tiny_bert):
    model = matcher(tiny_bert, "dual_encoder")
    inputs = model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS))
    scores = model(inputs)
    assert scores.queries is None and scores.documents is None
    shown = model(inputs, frozenset({"queries", "documents"}))
    assert shown.scores is None
    products = (shown.queries.unsqueeze(1) * shown.documents[LISTS]).sum(-1)
    assert torch.allclose(products, scores.scores, atol=1e-5)


def test_several_outputs_come_as_a_third_axis(tiny_bert):
    model = build(
        matcher_config(kind="cross_encoder", start=tiny_bert, query_length=8, document_length=20, outputs=3)
    ).eval()
    assert model(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS))).scores.shape == (3, 3, 3)


@pytest.mark.parametrize("limit", [None, 5, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_chunks_cover_all_texts_once_and_cost_no_more_than_any_other_cut(limit, seed):
    lengths = sorted(np.random.default_rng(seed).integers(2, 65, size=40).tolist())
    chunks = split_by_length(lengths, limit, overhead=50)
    assert [number for chunk in chunks for number in range(40)[chunk]] == list(range(40))
    assert limit is None or all(chunk.stop - chunk.start <= limit for chunk in chunks)

    def cost(cuts: list[slice]) -> int:
        return sum((cut.stop - cut.start) * lengths[cut.stop - 1] + 50 for cut in cuts)

    step = min(8, limit) if limit else 8
    inner = range(step, 40, step)
    for borders in itertools.chain.from_iterable(itertools.combinations(inner, n) for n in range(len(inner) + 1)):
        cuts = [slice(a, b) for a, b in itertools.pairwise([0, *borders, 40])]
        if limit is None or all(cut.stop - cut.start <= limit for cut in cuts):
            assert cost(chunks) <= cost(cuts)


@pytest.mark.parametrize("budget", [40, 128, 500, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_a_budget_bounds_the_tokens_of_a_chunk(budget, seed):
    lengths = sorted(np.random.default_rng(seed).integers(2, 65, size=40).tolist())
    chunks = split_by_length(lengths, overhead=50, budget=budget)
    assert [number for chunk in chunks for number in range(40)[chunk]] == list(range(40))
    sizes = [(chunk.stop - chunk.start, lengths[chunk.stop - 1]) for chunk in chunks]
    assert all(count * longest <= budget or count == 1 for count, longest in sizes)
    if budget == 5000:  # more than all tokens: as without a budget
        assert chunks == split_by_length(lengths, overhead=50)
    assert split_by_length([], budget=budget) == []


def test_batches_of_inference_have_as_many_tokens_as_texts_of_the_usual_length(tiny_bert):
    model = matcher(tiny_bert, "dual_encoder")
    seen = []
    forward = model.tower.transformer("query").model.forward

    def watched(**features):
        seen.append(features["input_ids"].shape)
        return forward(**features)

    model.tower.transformer("query").model.forward = watched
    texts = ["sort"] * 60 + ["copy the file to the new folder and return the first value"] * 20
    model.encode_document(texts, batch_size=2)
    assert sum(count for count, _ in seen) == len(texts)
    assert all(count * width <= 2 * 128 for count, width in seen)
    assert max(count for count, _ in seen) > 32  # short texts: many at a time


def test_sorting_by_length_computes_few_padded_tokens(tiny_bert):
    model = matcher(tiny_bert, "dual_encoder")
    generator = np.random.default_rng(0)
    texts = [" ".join(["file"] * count) for count in generator.integers(1, 18, size=200)]
    chunks = model.tower.prepare(texts, "document").passes
    padded = sum(chunk["attention_mask"].numel() for chunk in chunks)
    real = sum(int(chunk["attention_mask"].sum()) for chunk in chunks)
    assert sum(len(chunk["attention_mask"]) for chunk in chunks) == 200
    assert real / padded > 0.8
    assert real / (200 * 19) < 0.65  # what one padded batch would have been


@pytest.mark.parametrize(("count", "world"), [(0, 2), (1, 2), (7, 3), (8, 2)])
def test_shares_cover_everything_once_and_evenly(count, world):
    parts = [list(range(count))[share(count, rank, world)] for rank in range(world)]
    assert [item for part in parts for item in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("kind", ["dual_encoder", "colbert"])
@pytest.mark.parametrize("free", [True, False])
def test_a_process_without_a_share_of_the_texts_has_an_empty_part(tiny_bert, kind, free):
    """With gradients if the model learns, so that the processes' gradients meet; a frozen teacher has none."""
    model = matcher(tiny_bert, kind).requires_grad_(free)
    prepared = model.prepare(TextBatch(QUERIES, DOCUMENTS, None, document_slice=slice(0, 0))).documents
    vectors = model.tower(prepared) if kind == "dual_encoder" else model.tower.token_vectors(prepared).vectors
    assert len(vectors) == 0 and vectors.requires_grad == free


def test_a_query_of_100_000_characters_is_cut_and_scored(tiny_bert):
    for kind in ("dual_encoder", "cross_encoder"):
        scores = matcher(tiny_bert, kind).score([("copy " * 20_000, "sort a list")])
        assert np.isfinite(scores).all()


def test_no_texts_give_no_scores(tiny_bert):
    for kind in ("dual_encoder", "cross_encoder"):
        assert matcher(tiny_bert, kind).score([]).shape == (0,)


@pytest.mark.parametrize("side", ["query", "document"])
@pytest.mark.parametrize(
    "prompts", [{}, {"query": "copy ", "document": "sort "}, {"query": "", "passage": "page "}, {"corpus": "list "}]
)
def test_training_puts_the_same_prompt_before_a_text_as_inference(tiny_bert, prompts, side):
    model = build(matcher_config(start=tiny_bert, query_length=16, document_length=20, prompts=prompts)).eval()
    model.tower.model.default_prompt_name = "corpus" if "corpus" in prompts else None
    trained = model.tower(model.tower.prepare(QUERIES, side)).detach().numpy()
    assert np.allclose(trained, model.tower.encode(QUERIES, side), atol=1e-5)


def test_texts_padded_on_the_left_keep_their_tokens(tiny_bert):
    model = matcher(tiny_bert, "dual_encoder")
    model.tower.model.tokenizer.padding_side = "left"
    prepared = model.tower.prepare(DOCUMENTS, "document", chunk=1)
    for chunk in prepared.passes:
        assert chunk["attention_mask"].all()
    trained = model.tower(prepared).detach().numpy()
    alone = np.concatenate([model.tower.encode([text], "document") for text in DOCUMENTS])
    assert np.allclose(trained, alone, atol=1e-5)


@pytest.mark.parametrize("lists", [None, LISTS])
def test_scores_stay_in_float32_under_autocast(tiny_bert, lists):
    model = matcher(tiny_bert, "dual_encoder")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(model.prepare(TextBatch(QUERIES, DOCUMENTS, lists))).scores.dtype == torch.float32


def test_a_length_beyond_the_positions_is_refused(tiny_bert):
    from limbeck.errors import LimbeckError

    with pytest.raises(LimbeckError, match="a length of 65 tokens is more than .* ask for at most 64"):
        build(matcher_config(start=tiny_bert, document_length=65))


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder", "dipair"])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_dropout_inside_the_transformer_can_be_turned_off(tiny_bert, tmp_path, kind, family):
    start = tiny_bert if family == "bert" else distilbert(tiny_bert, tmp_path)
    batch = TextBatch(["copy a file"], ["open the folder", "read the list"], lists=torch.tensor([[0, 1]]))

    def two_passes(**options) -> list[torch.Tensor]:
        torch.manual_seed(0)
        matcher = build(matcher_config(kind=kind, start=start, query_length=8, document_length=8, **options)).train()
        inputs = matcher.prepare(batch)
        return [matcher(inputs).scores for _ in range(2)]

    first, second = two_passes()
    assert not torch.allclose(first, second)
    first, second = two_passes(inner_dropout=0.0)
    assert torch.equal(first, second)


def distilbert(tiny_bert, folder) -> str:
    """Keeps attention's dropout as a module of another name, and its tokeniser."""
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(folder / "distil")
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64}
    DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "distil")
    return str(folder / "distil")


@pytest.mark.parametrize("kind", ["dual_encoder", "cross_encoder", "dipair"])
def test_inference_computes_few_padded_tokens_where_characters_mislead(tiny_bert, kind):
    model = matcher(tiny_bert, kind)
    short = [f"{'x' * 90}{number}" for number in range(100)]  # many characters, one token that nobody knows
    long = [" ".join(letters) for letters in itertools.islice(itertools.permutations("abcdefghij"), 100)]
    texts = [text for both in zip(short, long, strict=True) for text in both]
    seen = []
    inner = next(module for module in model.modules() if isinstance(module, PreTrainedModel))
    table = inner.get_input_embeddings()
    table.register_forward_pre_hook(lambda _, given: seen.append(given[0] != table.padding_idx))
    scores = model.score([("copy a file", text) for text in texts])
    real, padded = sum(int(tokens.sum()) for tokens in seen), sum(tokens.numel() for tokens in seen)
    assert padded < 1.1 * real
    alone = [model.score([("copy a file", text)])[0] for text in texts[:4]]
    np.testing.assert_allclose(scores[:4], alone, atol=1e-5)
    assert abs(scores[0] - scores[1]) > 1e-4  # the difference between short and long is not only padding
