"""Layers of a pretrained model that a matcher keeps."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from transformers import (
    AutoModel,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
)

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import build, matcher_config
from limbeck.matchers.depth import keep_layers

SMALL = {"vocab_size": 40, "max_position_embeddings": 32}
WIDE = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 4}
FAMILIES = {
    "roberta": lambda: RobertaModel(RobertaConfig(**SMALL, **WIDE)),
    "mpnet": lambda: MPNetModel(MPNetConfig(**SMALL, **WIDE)),
    "distilbert": lambda: DistilBertModel(DistilBertConfig(**SMALL, dim=16, n_heads=2, hidden_dim=24, n_layers=4)),
    "modernbert": lambda: ModernBertModel(ModernBertConfig(**SMALL, **WIDE, pad_token_id=0, global_attn_every_n_layers=2)),  # noqa: E501
    "t5": lambda: T5EncoderModel(T5Config(vocab_size=40, d_model=16, d_kv=8, num_heads=2, d_ff=24, num_layers=4)),
}  # fmt: skip


def states(model: PreTrainedModel) -> torch.Tensor:
    ids = torch.arange(5, 17).reshape(2, 6)
    with torch.inference_mode():
        return model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state


def test_a_list_of_layers_gives_the_model_that_runs_just_these(tiny_bert):
    student = build(matcher_config(start=tiny_bert, layers=(0, 2), query_length=8, document_length=16))
    whole = AutoModel.from_pretrained(tiny_bert).eval()
    tokens = student.tower.transformer("query").tokenizer(["copy a file"], return_tensors="pt")
    with torch.inference_mode():
        state = whole.embeddings(tokens["input_ids"])
        for number in (0, 2):
            state = whole.encoder.layer[number](state)
            state = state[0] if isinstance(state, tuple) else state
    ours = student.encode_query(["copy a file"])
    torch.testing.assert_close(torch.tensor(ours), state.mean(dim=1), atol=1e-5, rtol=1e-5)


def test_first_layers_are_the_same_as_a_list_and_as_a_number(tiny_bert):
    number, listed = (
        build(matcher_config(start=tiny_bert, layers=layers, document_length=16, query_length=8))
        for layers in (2, (0, 1))
    )
    assert number.identity() == listed.identity()


def test_a_student_of_chosen_layers_is_saved_and_loaded_with_the_same_vectors(tiny_bert, tmp_path):
    student = build(matcher_config(start=tiny_bert, layers=(1, 2), query_length=8, document_length=16))
    student.save_pretrained(tmp_path / "student")
    loaded = lb.load(tmp_path / "student")
    assert (loaded.encode_query(["copy a file"]) == student.encode_query(["copy a file"])).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_chosen_layers_and_records_them_on_disk(family, tmp_path):
    torch.manual_seed(0)
    model = FAMILIES[family]()
    keep_layers(model, [0, 3])
    before = states(model)
    model.save_pretrained(tmp_path)
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    torch.testing.assert_close(states(loaded), before)


def test_all_layers_chosen_change_nothing():
    torch.manual_seed(0)
    model = FAMILIES["modernbert"]()
    before = states(model)
    keep_layers(model, range(4))
    torch.testing.assert_close(states(model), before)


def test_layers_that_share_biases_of_the_first_are_refused_without_it():
    with pytest.raises(LimbeckError, match="keep layer 0"):
        keep_layers(FAMILIES["t5"](), [1, 3])


def test_a_layer_that_does_not_exist_is_named(tiny_bert):
    with pytest.raises(LimbeckError, match=r"layers=\[0, 5\]: .* has 3 layers, 0 to 2; drop 5"):
        build(matcher_config(start=tiny_bert, layers=(0, 5)))


@pytest.mark.parametrize("layers", [0, -1, [], [5, 0], [0, 0], [-1, 2]])
def test_layers_that_make_no_sense_are_refused_with_the_recipe(layers):
    with pytest.raises(ValidationError, match="layer"):
        matcher_config(layers=layers)
