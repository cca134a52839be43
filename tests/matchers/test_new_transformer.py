"""A new small transformer over the tokenizer of a start."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from limbeck.errors import LimbeckError
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.new_transformer import head_count, principal_table

LENGTHS = {"query_length": 8, "document_length": 16}


def new(start: str, seed: int = 0, **options):
    torch.manual_seed(seed)
    return build(matcher_config(init_from=start, encoder="new", **LENGTHS, **{"layers": 2, "width": 16} | options))


def transformer(matcher):
    return matcher.tower.transformer("query")


def test_it_has_the_size_that_was_asked_for_and_the_starts_tokenizer(tiny_bert):
    found = transformer(new(tiny_bert))
    config = found.model.config
    assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == (2, 16, 64)
    start = transformer(build(matcher_config(init_from=tiny_bert, **LENGTHS)))
    assert found.tokenizer.get_vocab() == start.tokenizer.get_vocab()
    assert new(tiny_bert).encoding(0).dim == 16


def test_its_token_table_is_the_starts_on_its_principal_components(tiny_bert):
    table = AutoModel.from_pretrained(tiny_bert).get_input_embeddings().weight.detach().double().numpy()
    own = transformer(new(tiny_bert)).model.get_input_embeddings().weight.detach().double().numpy()
    centred = table - table.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    wanted = left[:, :16] * sizes[:16]
    # up to the signs of the components and one scale, which Gram matrices do not see
    gram, expected = own @ own.T, wanted @ wanted.T
    assert np.allclose(gram / np.linalg.norm(gram), expected / np.linalg.norm(expected), atol=1e-6)
    assert own.std() == pytest.approx(0.02, rel=1e-4)


def test_signs_of_components_do_not_depend_on_the_solver():
    table = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    centred = table - table.mean(0)
    found = principal_table(table, 6, 1.0)
    directions = np.linalg.lstsq(centred.astype(float), found.astype(float), rcond=None)[0]
    assert (directions[np.abs(directions).argmax(0), range(6)] > 0).all()


def test_layers_are_random_and_a_seed_repeats_them(tiny_bert):
    first, again, other = new(tiny_bert), new(tiny_bert), new(tiny_bert, seed=1)
    texts = ["copy a file", "sort the list"]
    assert np.array_equal(first.encode_query(texts), again.encode_query(texts))
    assert not np.allclose(first.encode_query(texts), other.encode_query(texts))
    assert first.identity() == again.identity() != other.identity()


def test_a_saved_folder_loads_in_sentence_transformers_and_names_no_other_folder(tiny_bert, tmp_path):
    matcher = new(tiny_bert, similarity="cosine")
    matcher.save_pretrained(tmp_path / "new")
    texts = ["copy a file", "sort the list"]
    assert np.allclose(load(tmp_path / "new").encode_query(texts), matcher.encode_query(texts), atol=1e-6)
    theirs = SentenceTransformer(str(tmp_path / "new"))
    assert np.allclose(theirs.encode_query(texts), matcher.encode_query(texts), atol=1e-5)
    written = "".join(json.dumps(json.loads(path.read_text())) for path in (tmp_path / "new").rglob("*config*.json"))
    assert "/tmp" not in written


@pytest.mark.parametrize(("width", "heads"), [(128, 4), (384, 12), (100, 2), (16, 1), (97, 1)])
def test_heads_divide_the_width(width, heads):
    assert head_count(width) == heads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 64}, "width is for encoder: new, and this is encoder: transformer; drop width"),
        ({"encoder": "static", "width": 64}, "width is for encoder: new, and this is encoder: static; drop width"),
        ({"encoder": "new"}, "encoder: new needs layers; give the number of new layers"),
        ({"encoder": "new", "layers": [0, 2]}, r"layers=\[0, 2\]: encoder: new keeps none; give the number"),
        ({"encoder": "new", "layers": "auto:2"}, "layers=auto:2: encoder: new keeps none; give the number"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        matcher_config(init_from="minilm", **options)


def test_a_width_beyond_the_starts_is_refused(tiny_bert):
    with pytest.raises(LimbeckError, match="width=64 is more than the 32 numbers per token of .*; ask for at most 32"):
        new(tiny_bert, width=64)
