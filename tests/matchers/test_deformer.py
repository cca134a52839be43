"""DeFormer: its layers against transformers', its inputs, its folders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, ElectraConfig, RobertaConfig
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.electra.modeling_electra import ElectraLayer
from transformers.models.roberta.modeling_roberta import RobertaLayer

from limbeck.errors import LimbeckError
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.deformer import copy_layer
from limbeck.matchers.interactions import JointLayers, interaction_named
from limbeck.matchers.interactions.layer import HeadLayer
from tests.matchers.test_folder_checks import transformers_folder
from tests.matchers.test_folders import disturb, same

SIZES = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20}
LENGTHS = {"query_length": 16, "document_length": 16}


def made(start, **options):
    torch.manual_seed(0)
    return build(matcher_config(kind="deformer", start=start, **(LENGTHS | options))).eval()


@pytest.mark.parametrize(
    ("config", "layer"),
    [(BertConfig, BertLayer), (RobertaConfig, RobertaLayer), (ElectraConfig, ElectraLayer)],
)
def test_our_layer_is_transformers_layer(config, layer):
    torch.manual_seed(0)
    theirs = layer(config(**SIZES, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    ours = HeadLayer(12, 3, 20, 0.1, 0.1, eps=1e-12).eval()
    copy_layer(theirs, ours)
    states = torch.randn(4, 7, 12, requires_grad=True)
    mask = torch.rand(4, 7) < 0.6
    mask[:, 0] = True
    hidden = torch.zeros(4, 1, 1, 7).masked_fill(~mask[:, None, None], torch.finfo(torch.float32).min)
    wanted = theirs(states, hidden)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    found = ours(states, mask)
    assert torch.allclose(found, wanted, atol=1e-5)
    gradients = [torch.autograd.grad((some * states.detach()).sum(), states)[0] for some in (found, wanted)]
    assert torch.allclose(*gradients, atol=1e-4)


def test_dropout_is_on_attention_too_and_in_training_only():
    torch.manual_seed(0)
    layer = HeadLayer(12, 3, 20, 0.0, 0.5)
    states, mask = torch.randn(2, 5, 12), torch.ones(2, 5).bool()
    mask[1, 3:] = False
    assert layer(states, mask).sub(layer(states, mask)).abs().max() > 1e-3
    assert torch.equal(layer.eval()(states, mask), layer(states, mask))
    layer.train()
    found = layer._attention(*[torch.ones(1, 3, 5, 4)] * 3, mask[:1, None, None, :])  # each weight is 1/5
    kept = (found * 5 / 2).unique()  # of the five, those that are left count twice
    assert len(kept) > 2 and torch.allclose(kept, kept.round(), atol=1e-5)


def by_transformers(start, left, right, split):
    """The mean of the states after all layers, layer by layer with transformers' own, both texts in one sequence."""
    model = AutoModel.from_pretrained(start, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(start)
    sequences = [tokenizer(left)["input_ids"], tokenizer(right)["input_ids"][1:]]  # the second without [CLS]
    states = []
    with torch.no_grad():
        for segment, ids in enumerate(sequences):
            ids = torch.tensor([ids])
            found = model.embeddings(ids, token_type_ids=torch.full_like(ids, segment))  # positions from 0
            if hasattr(model, "embeddings_project"):
                found = model.embeddings_project(found)
            for layer in model.encoder.layer[:split]:
                found = layer(found)
                found = found[0] if isinstance(found, tuple) else found
            states.append(found)
        joint = torch.cat(states, dim=1)
        for layer in model.encoder.layer[split:]:
            joint = layer(joint)
            joint = joint[0] if isinstance(joint, tuple) else joint
    return joint[0].mean(dim=0)


@pytest.mark.parametrize("split", [1, 2])
def test_the_first_pretrained_layers_read_texts_separately_and_the_rest_together(tiny_bert, split):
    model = made(tiny_bert, split_layers=split, outputs=2)
    pairs = [("copy a file", "sort the list of numbers"), ("open", ""), ("read a line of text", "a")]
    for pair, found in zip(pairs, model.score(pairs), strict=True):
        with torch.no_grad():
            wanted = model.head.output(by_transformers(tiny_bert, *pair, split))
        assert np.allclose(found, wanted.numpy(), atol=1e-5)
    assert model.encoder(0).model.config.num_hidden_layers == split


@pytest.mark.parametrize("kind", ["RobertaModel", "ElectraForPreTraining"])
def test_relatives_of_bert_can_be_split(tiny_bert, tmp_path, kind):
    folder = transformers_folder(kind, tmp_path / "model", tiny_bert)
    model = made(str(folder))
    with torch.no_grad():
        wanted = model.head.output(by_transformers(str(folder), "copy a file", "sort", 1))
    assert np.allclose(model.score([("copy a file", "sort")]), wanted.numpy(), atol=1e-5)


def test_three_quarters_of_the_layers_are_split_by_default(tiny_bert):
    assert len(made(tiny_bert).head.layers) == 1  # of three
    assert len(made(tiny_bert, layers=2).head.layers) == 1
    assert len(made(tiny_bert, layers=[0, 2], split_layers=1).head.layers) == 1
    first, last = made(tiny_bert, layers=[0, 2]), made(tiny_bert, layers=[0, 1])
    assert not torch.equal(first.head.layers[0].attend.weight, last.head.layers[0].attend.weight)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"split_layers": 3}, "split_layers=3: there are 3 layers, and none is left .*; split at most 2"),
        ({"layers": 1}, "split_layers=1: there are 1 layers, .*; keep at least 2 layers"),
    ],
)
def test_a_split_that_leaves_nothing_is_refused(tiny_bert, options, line):
    with pytest.raises(LimbeckError, match=line):
        made(tiny_bert, **options)


def test_other_families_are_refused(tiny_bert, tmp_path):
    folder = transformers_folder("DistilBertModel", tmp_path / "model", tiny_bert)
    with pytest.raises(LimbeckError, match="is a distilbert .*; a deformer needs layers as BERT has them"):
        made(str(folder))


def test_dropout_of_the_pretrained_layers_stays_and_can_be_changed(tiny_bert):
    model = made(tiny_bert)
    assert (model.head.layers[0].dropout.p, model.head.layers[0].attention_dropout.p) == (0.1, 0.1)
    model = made(tiny_bert, inner_dropout=0.3, dropout=0.2)
    assert (model.head.layers[0].dropout.p, model.head.layers[0].attention_dropout.p) == (0.3, 0.3)
    assert model.head.dropout.p == 0.2


def test_it_goes_to_disk_with_its_upper_layers(tiny_bert, tmp_path):
    model = disturb(made(tiny_bert, split_layers=1, outputs=3, untied=True))
    model.save_pretrained(tmp_path / "model")
    again = load(tmp_path / "model")
    pairs = [("copy a file", "sort the list"), ("", "open")]
    assert same(again.score(pairs), model.score(pairs))
    assert again.identity() == model.identity()
    rebuilt = interaction_named("joint_layers", model.head.arguments)
    assert isinstance(rebuilt, JointLayers)
    rebuilt.load_state_dict(model.head.state_dict())
