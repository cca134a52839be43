"""Attention that is read from running models, token by token against the maps of the eager model."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.matchers import TextBatch, build, matcher_config
from limbeck.matchers.attention import attention_modules, special_ids
from limbeck.matchers.chunks import texts_of_chunks
from limbeck.signals import CROSS_ATTENTION, TEXT_ATTENTION
from limbeck.training.cpu_speedups import ATTENTION, faster
from tests.matchers.families import FAMILIES, write_family, write_tokenizer

QUERIES = ["copy a file", "sort", "open the folder and read a line of text", "nonsense words count [SEP] too", ""]
DOCUMENTS = [
    "copy",
    "sort the list of text in the array and return a new list",
    "file folder " * 12,
    "read [MASK] page",
]
LISTS = torch.tensor([[0, 2, 1], [1, 3, 0], [3, 2, 1], [0, 3, 2], [1, 2, 3]])
TOKENS = (6, 14)  # of each text, as query_length 8 and document_length 16 leave them
LENGTHS = {"query_length": 8, "document_length": 16}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory) -> tuple[str, str]:
    return request.param, write_family(request.param, tmp_path_factory.mktemp(request.param))


def made(start: str, kind: str = "dual_encoder", **options: object):
    torch.manual_seed(0)
    return build(matcher_config(kind=kind, init_from=start, **LENGTHS, **options)).eval()


def cross(model, chunk: int | None = None, queries=QUERIES, documents=DOCUMENTS, lists=LISTS):
    model.read_apart(TOKENS)
    inputs = model.prepare(TextBatch(queries, documents, lists), chunk)
    with torch.no_grad():
        return inputs, model(inputs, CROSS_ATTENTION | {"scores"})


def eager_maps(model, inputs) -> dict[int, np.ndarray]:
    """Of each pair, the maps [layers, heads, tokens, tokens] of a copy of the model that computes attention eagerly."""
    transformer = model.model[0]
    eager, calls = copy.deepcopy(transformer.model), []
    eager.set_attn_implementation("eager")
    plain = transformer.model.forward

    def noted(**kwargs: object):
        calls.append(kwargs)
        return plain(**kwargs)

    transformer.model.forward = noted
    found = {}
    with torch.no_grad():
        for features, pairs in zip(inputs.pairs.passes, texts_of_chunks(inputs.pairs), strict=True):
            calls.clear()
            transformer({name: value for name, value in features.items() if name != "of_text"})
            maps = eager(**calls[0] | {"output_attentions": True, "return_dict": True}).attentions
            whole = torch.stack(maps, dim=1).numpy()
            found |= {pair: whole[row] for row, pair in enumerate(pairs)}
    del transformer.model.forward
    return found


def words(model, text: str, most: int) -> tuple[list[int], list[int]]:
    """The ids of a text's tokens, and their places in the text, marks that it contains left out."""
    tokenizer = model.model[0].tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:most]
    places = [place for place, token in enumerate(ids) if token == tokenizer.unk_token_id or token > 4]
    return [ids[place] for place in places], places


@pytest.mark.parametrize("way", ["eager", "sdpa", ATTENTION])
@pytest.mark.parametrize("chunk", [None, 4])
def test_blocks_are_those_of_the_eager_model_token_by_token(family, way, chunk):
    name, start = family
    model = made(start, "cross_encoder")
    if name != "mpnet" or way == "eager":  # which has no other
        model.model[0].model.config._attn_implementation = way
    inputs, shown = cross(model, chunk)
    maps, marks = eager_maps(model, inputs), FAMILIES[name][2]
    found = shown.cross_attention
    assert found.layers == (0, 1, 2) and found.sizes.layers == 3 and found.sizes.heads == 2
    compared = 0
    for pair, (query, document) in enumerate(np.argwhere(np.ones(LISTS.shape))):
        row, column = pair // LISTS.shape[1], pair % LISTS.shape[1]
        assert (query, document) == (row, column)
        left, left_places = words(model, QUERIES[row], TOKENS[0])
        right, right_places = words(model, DOCUMENTS[LISTS[row, column]], TOKENS[1])
        cut = len(model.model[0].tokenizer(QUERIES[row], add_special_tokens=False)["input_ids"][: TOKENS[0]])
        left_places = [place + marks.first for place in left_places]
        right_places = [place + marks.first + cut + marks.between for place in right_places]
        assert [token for token in found.query_tokens[row, column].tolist() if token >= 0] == left
        assert [token for token in found.document_tokens[row, column].tolist() if token >= 0] == right
        for layer in range(3):
            whole = maps[pair][layer]
            there, back = found.to_documents[layer][row, column], found.to_queries[layer][row, column]
            for i, a in enumerate(left_places):
                for j, b in enumerate(right_places):
                    np.testing.assert_allclose(there[:, i, j], whole[:, a, b], rtol=1e-4, atol=1e-7)
                    np.testing.assert_allclose(back[:, j, i], whole[:, b, a], rtol=1e-4, atol=1e-7)
                    compared += 1
    assert compared > 200


@pytest.mark.parametrize("pooling", ["cls", "segments", "special", "weighted"])
@pytest.mark.parametrize("across", [None, -1.5])
def test_every_pooling_has_the_blocks_of_its_own_softmax(tiny_bert, pooling, across):
    """With `segments`, or `across`, the model itself reduces the attention between the texts."""
    if pooling == "cls" and across:
        pytest.skip("across needs a vector of each text")
    model = made(tiny_bert, "cross_encoder", pooling=pooling, **({} if across is None else {"across": across}))
    inputs, shown = cross(model)
    maps, found = eager_maps(model, inputs), shown.cross_attention
    joint = pooling == "segments" or across is not None
    for row, column in ((0, 0), (2, 1), (0, 2)):
        whole = maps[row * 3 + column]
        m, n = (int((tokens[row, column] >= 0).sum()) for tokens in (found.query_tokens, found.document_tokens))
        second = 1 + m + (2 if joint else 1)
        for layer in range(3):
            there, back = found.to_documents[layer][row, column], found.to_queries[layer][row, column]
            expected = whole[layer][:, 1 : 1 + m, second : second + n]
            np.testing.assert_allclose(there[:, :m, :n], expected, rtol=1e-4, atol=1e-7)
            expected = whole[layer][:, second : second + n, 1 : 1 + m]
            np.testing.assert_allclose(back[:, :n, :m], expected, rtol=1e-4, atol=1e-7)


def test_a_whole_row_of_the_teachers_map_sums_to_one_and_a_block_to_less(tiny_bert):
    shown = cross(made(tiny_bert, "cross_encoder"))[1].cross_attention
    rows = shown.to_documents[0][0, 0].sum(-1)[:, :3]
    assert (rows > 0).all() and (rows < 1).all()


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_queries_and_keys_of_texts_have_the_ratios_of_the_eager_models_maps(family, chunk):
    """A row of the eager map, restricted to the text's own tokens and divided by its sum, is the softmax over them."""
    _, start = family
    model = made(start)
    for part, weight in model.named_parameters():
        if "relative_attention_bias" in part:  # which are in the eager map and in no virtual one
            torch.nn.init.zeros_(weight)
    transformer = model.tower.transformer("document")
    with torch.no_grad():
        _, found = model(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), chunk), TEXT_ATTENTION).text_attention
    eager = copy.deepcopy(transformer.model)
    eager.set_attn_implementation("eager")
    for number, text in enumerate(DOCUMENTS):
        features = transformer.tokenizer(text, truncation=True, max_length=16, return_tensors="pt")
        real = ~np.isin(features["input_ids"][0], [0, 2, 3, 4])
        with torch.no_grad():
            maps = eager(**features, output_attentions=True).attentions
        count = int(real.sum())
        assert found.tokens[number].tolist()[:count] == features["input_ids"][0][real].tolist()
        assert (found.tokens[number, count:] == -1).all()
        for layer in range(3):
            whole = maps[layer][0].numpy()[:, real][:, :, real]
            logits = found.queries[layer][number] @ found.keys[layer][number].transpose(-1, -2)
            ours = logits[:, :count, :count].softmax(-1)
            np.testing.assert_allclose(ours, whole / whole.sum(-1, keepdims=True), rtol=2e-4, atol=1e-6)


def own_ids(model_tokenizer, text: str, most: int) -> list[int]:
    ids = model_tokenizer(text, add_special_tokens=False)["input_ids"][:most]
    return [token for token in ids if token == model_tokenizer.unk_token_id or token > 4]


def _prompt_tokens(kind: str, position: int, options: dict) -> int:
    if kind == "colbert":
        return 3  # "[Q]" of this vocabulary: [UNK], the letter, [UNK]
    return (3, 1)[position] if "prompts" in options else 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("dual_encoder", {}),
        ("dual_encoder", {"untied": True}),
        ("dual_encoder", {"prompts": {"query": "a page of ", "document": "old "}}),
        ("colbert", {"dim": 8}),
        ("dipair", {"tokens": [2, 3]}),
        ("dipair", {"tokens": [2, 3], "untied": True}),
        ("poly_encoder", {"tokens": [3, 1]}),
        ("siamese", {}),
        ("sentence_t5", {}),
        ("virt", {}),
    ],
)
@pytest.mark.parametrize("chunk", [None, 2])
def test_towers_show_the_tokens_of_their_texts_and_nothing_else(tiny_bert, kind, options, chunk):
    model = made(tiny_bert, kind, **options)
    with torch.no_grad():
        inputs = model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), chunk)
        shown = model(inputs, TEXT_ATTENTION | {"scores"})
        plain = model(inputs)
    torch.testing.assert_close(shown.scores, plain.scores)
    assert plain.text_attention is None
    tokenizer = (model.tower.transformer("query") if hasattr(model, "tower") else model.encoder(0)).tokenizer
    for position, (texts, found) in enumerate(zip((QUERIES, DOCUMENTS), shown.text_attention, strict=True)):
        most = model.text_tokens(position)
        assert most == TOKENS[position] - _prompt_tokens(kind, position, options)
        wanted = [own_ids(tokenizer, text, most) for text in texts]
        assert [[token for token in row if token >= 0] for row in found.tokens.tolist()] == wanted
        for part in (*found.queries, *found.keys):
            assert part.shape == (len(texts), 2, found.tokens.shape[1], 16)


@pytest.mark.parametrize("kind", ["dual_encoder", "colbert", "dipair", "poly_encoder", "cross_encoder"])
def test_only_the_layers_that_are_asked_for_are_shown_and_no_hook_stays(tiny_bert, kind):
    model = made(tiny_bert, kind, **({"tokens": [3, 1]} if kind == "poly_encoder" else {}))
    signal = CROSS_ATTENTION if kind == "cross_encoder" else TEXT_ATTENTION
    if kind == "cross_encoder":
        model.read_apart(TOKENS)
    inputs = model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS))

    def shown():
        found = model(inputs, signal)
        return [found.cross_attention] if kind == "cross_encoder" else list(found.text_attention)

    with torch.no_grad():
        whole = shown()
        model.attention_layers = (1,)
        some = shown()
    for all_layers, one in zip(whole, some, strict=True):
        assert all_layers.layers == (0, 1, 2) and one.layers == (1,) and one.sizes == all_layers.sizes
        for name in ("queries", "keys") if signal == TEXT_ATTENTION else ("to_documents", "to_queries"):
            assert len(getattr(one, name)) == 1
            torch.testing.assert_close(getattr(one, name)[0], getattr(all_layers, name)[1])
    assert not any(module._forward_hooks for module in model.modules())


def test_padding_changes_nothing(family):
    """A short text beside a long one, and alone."""
    _, start = family
    model = made(start, "cross_encoder")
    both = cross(model, queries=["copy a file"], documents=DOCUMENTS, lists=None)[1].cross_attention
    alone = cross(model, queries=["copy a file"], documents=DOCUMENTS[:1], lists=None)[1].cross_attention
    for layer in range(3):
        torch.testing.assert_close(both.to_documents[layer][:, :1, :, :, :1], alone.to_documents[layer])
    assert both.document_tokens.shape[-1] == 14 and alone.document_tokens.shape[-1] == 1


def test_pairs_that_nothing_is_cut_from_score_as_ever(family):
    _, start = family
    model = made(start, "cross_encoder")
    short = [text for text in DOCUMENTS if len(text) < 20]
    pairs = [(query, document) for query in QUERIES[:2] for document in short]
    shown = cross(model, queries=QUERIES[:2], documents=short, lists=None)[1]
    np.testing.assert_allclose(shown.scores.flatten(), model.score(pairs), rtol=1e-4, atol=1e-5)


def test_a_long_query_keeps_its_own_length_whatever_the_document(tiny_bert):
    """On its own the tokenizer leaves 13 tokens of this query, since the document is short."""
    model = made(tiny_bert, "cross_encoder")
    found = cross(model, queries=["copy move open close " * 4], documents=["sort"], lists=None)[1].cross_attention
    assert found.query_tokens.shape == (1, 1, TOKENS[0]) and found.document_tokens.shape == (1, 1, 1)


def test_training_reads_the_same_queries_and_gives_them_gradients(tiny_bert):
    model = made(tiny_bert, inner_dropout=0.0).train()
    inputs = model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS), 2)
    gradients = []
    for recompute in (False, True):
        model.zero_grad()
        with faster(model):
            found, _ = model(inputs, TEXT_ATTENTION, recompute).text_attention
        sum(part.square().sum() for part in (*found.queries, *found.keys)).backward()
        gradients.append({name: each.grad for name, each in model.named_parameters() if each.grad is not None})
    assert any("query.weight" in name and each.abs().sum() > 0 for name, each in gradients[0].items())
    assert gradients[0].keys() == gradients[1].keys()
    for name, each in gradients[0].items():
        torch.testing.assert_close(each, gradients[1][name])


def test_a_text_without_tokens_shows_none(tiny_bert):
    model = made(tiny_bert)
    found, _ = model(model.prepare(TextBatch(["", "copy"], DOCUMENTS, None)), TEXT_ATTENTION).text_attention
    assert found.tokens.shape == (2, 1) and found.tokens[0].tolist() == [-1]
    nothing, _ = model(model.prepare(TextBatch([""], DOCUMENTS, None)), TEXT_ATTENTION).text_attention
    assert nothing.tokens.shape == (1, 0) and nothing.queries[0].shape == (1, 2, 0, 16)


def test_an_unknown_word_is_a_word_and_no_mark(tiny_bert):
    tokenizer = made(tiny_bert).tower.transformer("query").tokenizer
    assert tokenizer.unk_token_id not in special_ids(tokenizer).tolist()
    assert {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id} <= set(
        special_ids(tokenizer).tolist()
    )


def test_an_unknown_family_is_named(tmp_path):
    from transformers import ModernBertConfig, ModernBertModel

    write_tokenizer(tmp_path, FAMILIES["bert"][2])
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = ModernBertConfig(vocab_size=80, pad_token_id=0, max_position_embeddings=64, **sizes)
    model = ModernBertModel(config)
    with pytest.raises(LimbeckError) as caught:
        attention_modules(model)
    assert "of type modernbert cannot be read, only that of bert, roberta" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pairs_that_were_not_read_apart_show_no_attention(tiny_bert):
    model = made(tiny_bert, "cross_encoder")
    with pytest.raises(LimbeckError, match="call read_apart before prepare"):
        model(model.prepare(TextBatch(QUERIES, DOCUMENTS, LISTS)), CROSS_ATTENTION)


@pytest.mark.parametrize(
    ("options", "tokens", "message"),
    [
        ({}, (6, 16), "a pair of 25 with marks is more than the teacher's 24; make .* 1 smaller in all"),
        ({"pooling": "segments"}, (6, 12), "set student.query_length: 8 and student.document_length: 16, as the teac"),
    ],
)
def test_lengths_that_do_not_go_together_are_refused(tiny_bert, options, tokens, message):
    model = made(tiny_bert, "cross_encoder", **options)
    model.read_apart(TOKENS)
    with pytest.raises(LimbeckError, match=message):
        model.read_apart(tokens)
