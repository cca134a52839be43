"""A model folder is data: what would run code, or is not all there, is refused in one line before it is loaded."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.folder_checks import check_folder
from tests.matchers.test_folders import PAIRS, same

KINDS = {
    "dual encoder": {"dim": 8, "scale": 20.0, "layer_norm": True},
    "separate towers": {"separate": True, "dim": 8},
    "static": {"encoder": "static"},
    "cross-encoder": {"kind": "cross_encoder"},
    "segments": {"kind": "cross_encoder", "pooling": "segments"},
    "dual pooling": {"kind": "cross_encoder", "pooling": "weighted", "across": -4.0},
    "colbert": {"kind": "colbert", "dim": 8},
    "dipair": {"kind": "dipair", "dim": 8, "separate": True},
    "poly-encoder": {"kind": "poly_encoder"},
    "siamese": {"kind": "siamese"},
    "virt": {"kind": "virt", "outputs": 3, "separate": True},
    "deformer": {"kind": "deformer"},
}
Change = Callable[[Path], None]


@pytest.fixture(scope="session")
def saved(tiny_bert, tmp_path_factory) -> dict[str, Path]:
    """A folder of each kind of model, as limbeck saves it."""
    home = tmp_path_factory.mktemp("kinds")
    torch.manual_seed(0)
    for name, options in KINDS.items():
        spec = matcher_config(start=tiny_bert, query_length=8, document_length=16, **options)
        build(spec).save_pretrained(home / name)
    return {name: home / name for name in KINDS}


@pytest.fixture
def foreign(saved, tmp_path) -> Callable[[str], Path]:
    """A copy of a kind's folder as another program would have written it: without a list of its files."""

    def copy(kind: str) -> Path:
        folder = tmp_path / kind
        shutil.copytree(saved[kind], folder)
        (folder / MANIFEST).unlink()
        return folder

    return copy


def with_values(name: str, **values) -> Change:
    """Change keys of a JSON file."""

    def change(folder: Path) -> None:
        place = folder / name
        place.write_text(json.dumps((json.loads(place.read_text()) if place.exists() else {}) | values))

    return change


def with_module(position: int, kind: str) -> Change:
    def change(folder: Path) -> None:
        entries = json.loads((folder / "modules.json").read_text())
        entries[position]["type"] = kind
        (folder / "modules.json").write_text(json.dumps(entries))

    return change


def pickled(name: str) -> Change:
    """Weights as a pickle instead of safetensors."""

    def change(folder: Path) -> None:
        place = folder / name
        torch.save(load_file(place), place.with_name("pytorch_model.bin"))
        place.unlink()

    return change


def weights(alter: Callable[[dict], dict], name: str = "model.safetensors") -> Change:
    def change(folder: Path) -> None:
        save_file(alter(load_file(folder / name)), folder / name, {"format": "pt"})

    return change


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def lose(tensors: dict) -> dict:
    return {name: value for name, value in tensors.items() if "layer.1.attention.self.query.weight" not in name}


def rename(tensors: dict) -> dict:
    return {f"x.{name}": value for name, value in tensors.items()}


def widen(tensors: dict) -> dict:
    return {
        name: torch.zeros(65, 32) if name.endswith("layer.0.intermediate.dense.weight") else value
        for name, value in tensors.items()
    }


CODE = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
RUNS = "torch.distributed.run.main"
BAD: dict[str, tuple[str, Change, str]] = {
    "a module of another package": ("dual encoder", with_module(1, "os.system"), "class 'os.system', which limbeck"),
    "a module of the folder": ("dual encoder", with_module(0, "evil.Module"), "class 'evil.Module'"),
    "a function of the library": (
        "dual encoder",
        with_module(1, "sentence_transformers.util.misc.os"),
        "does not know",
    ),
    "a module that is no text": ("dual encoder", with_module(1, 5), "an entry without a name, a type"),
    "a router's module": (
        "separate towers",
        with_values("router_config.json", types={"query_0_Transformer": "evil.Module"}),
        "class 'evil.Module'",
    ),
    "an activation that is a function": (
        "dual encoder",
        with_values("3_Dense/config.json", activation_function=RUNS),
        "activation_function: 'torch.distributed.run.main'",
    ),
    "an activation of a router": (
        "separate towers",
        with_values("query_2_Dense/config.json", activation_function="torch.utils.collect_env.main"),
        "activation_function",
    ),
    "remote code in config.json": ("dual encoder", with_values("config.json", auto_map=CODE), "auto_map"),
    "remote code of the tokenizer": (
        "colbert",
        with_values("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]}),
        "auto_map",
    ),
    "remote code of a processor": ("cross-encoder", with_values("processor_config.json", auto_map=CODE), "auto_map"),
    "remote code of an encoder": ("dipair", with_values("encoder-1/config.json", auto_map=CODE), "auto_map"),
    "a kernel from the hub": (
        "dual encoder",
        with_values("config.json", _attn_implementation="owner/kernel"),
        "_attn_implementation: 'owner/kernel' is not known",
    ),
    "a pickle by way of settings": (
        "dual encoder",
        with_values("sentence_bert_config.json", model_kwargs={"weights_only": False, "use_safetensors": False}),
        "model_kwargs: use_safetensors = False is not allowed",
    ),
    "shapes that do not matter": (
        "dual encoder",
        with_values("sentence_bert_config.json", model_args={"ignore_mismatched_sizes": True}),
        "model_kwargs: ignore_mismatched_sizes",
    ),
    "another configuration": (
        "dual encoder",
        with_values("sentence_bert_config.json", config_args={"num_hidden_layers": 1}),
        "config_kwargs: num_hidden_layers",
    ),
    "a tokenizer from elsewhere": (
        "dual encoder",
        with_values("sentence_bert_config.json", tokenizer_name_or_path="owner/other"),
        "takes its tokenizer from another folder",
    ),
    "another method": (
        "dual encoder",
        with_values("sentence_bert_config.json", modality_config={"text": {"method": "save_pretrained"}}),
        "modality_config",
    ),
    "pickled weights": ("dual encoder", pickled("model.safetensors"), "pytorch_model.bin: is a pickle.*convert it"),
    "a pickled projection": ("dual encoder", pickled("3_Dense/model.safetensors"), "3_Dense.*is a pickle"),
    "a pickled tower": ("separate towers", pickled("query_0_Transformer/model.safetensors"), "is a pickle"),
    "a pickled encoder": ("dipair", pickled("encoder-1/model.safetensors"), "encoder-1.*is a pickle"),
    "a pickled pooling": ("segments", pickled("1_SegmentPooling/model.safetensors"), "is a pickle"),
    "no vocabulary": ("dual encoder", without("tokenizer.json"), "tokenizer.json: no such file, nor any other"),
    "no vocabulary in a tower": ("separate towers", without("query_0_Transformer/tokenizer.json"), "tokenizer.json"),
    "no list of modules": ("dual encoder", without("modules.json"), "modules.json: no such file"),
    "no head": ("poly-encoder", without("head.safetensors"), "head.safetensors"),
    "a missing tensor": ("dual encoder", weights(lose), "1 weights .*layer.1.attention.self.query.weight"),
    "another shape": ("dual encoder", weights(widen), "1 weights .*layer.0.intermediate.dense.weight"),
    "a layer that is left out": (
        "dual encoder",
        with_values("config.json", num_hidden_layers=2),
        "16 weights do not fit the model",
    ),
    "zero attention heads": (
        "dual encoder",
        with_values("config.json", num_attention_heads=0),
        "num_attention_heads: 0 is not a number from 1 to 1000",
    ),
    "a billion layers": ("dual encoder", with_values("config.json", num_hidden_layers=10**9), "num_hidden_layers"),
    "layers that are a text": ("dual encoder", with_values("config.json", num_hidden_layers="3"), "num_hidden_layers"),
    "an adapter": ("dual encoder", with_values("adapter_config.json", peft_type="LORA"), "is an adapter"),
    "quantized weights": (
        "dual encoder",
        with_values("config.json", quantization_config={"quant_method": "gptq"}),
        "quantization_config: is not supported",
    ),
    "deep JSON": ("dual encoder", text("config.json", "[" * 100_000), "config.json: is not valid JSON"),
    "a long number": ("dual encoder", text("config.json", '{"a": ' + "1" * 5000 + "}"), "config.json: is not valid"),
    "a list where an object belongs": ("dual encoder", text("config.json", "[]"), "must be a JSON object"),
    "damaged weights": ("dual encoder", text("model.safetensors", "x"), "cannot be loaded as a model"),
    "an unknown architecture": ("dual encoder", with_values("config.json", model_type="evil"), "cannot be loaded"),
}


@pytest.mark.parametrize(("kind", "change", "line"), BAD.values(), ids=BAD)
def test_a_bad_folder_is_refused_in_one_line(foreign, kind, change, line):
    folder = foreign(kind)
    change(folder)
    with pytest.raises(LimbeckError, match=line) as error:
        load(folder)
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "static"])  # which has no configuration
@pytest.mark.parametrize("harm", ["renamed", "missing", "more layers"])
def test_no_kind_loads_with_made_up_weights(foreign, kind, harm):
    folder = foreign(kind)
    place = next(file.parent for file in sorted(folder.rglob("tokenizer.json")))
    if harm == "more layers":
        with_values("config.json", num_hidden_layers=50)(place)
    else:
        weights({"renamed": rename, "missing": lose}[harm])(place)
    with pytest.raises(LimbeckError, match="weights that its configuration asks for are missing"):
        load(folder)
    with pytest.raises(LimbeckError, match="weights that its configuration asks for are missing"):
        build(matcher_config(start=str(place)))


def test_a_cross_encoders_activation_is_never_called(foreign):
    """sentence-transformers would call any function of torch's that the configuration names."""
    folder = foreign("cross-encoder")
    before = load(folder).score(PAIRS)
    with_values("config_sentence_transformers.json", activation_fn="torch.set_num_threads")(folder)
    with_values("config.json", sentence_transformers={"activation_fn": "torch.set_num_threads"})(folder)
    assert np.array_equal(load(folder).score(PAIRS), before)


def test_a_tokenizer_of_another_model_is_refused(foreign):
    folder = foreign("dual encoder")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["extra"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(LimbeckError, match="has token ids up to 5000, but embeddings for 97"):
        load(folder)


def test_lengths_beyond_the_positions_are_refused(foreign):
    folder = foreign("dual encoder")
    with_values("sentence_bert_config.json", document_length=65)(folder)
    with pytest.raises(LimbeckError, match="reads up to 65 tokens, but has positions for 64"):
        load(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_weights_that_may_not_be_read_are_called_so(foreign):
    folder = foreign("dual encoder")
    (folder / "model.safetensors").chmod(0)
    with pytest.raises(LimbeckError, match="model.safetensors: cannot be read .Permission denied."):
        load(folder)


def test_weights_that_are_not_a_file_are_reported_as_such(foreign):
    folder = foreign("dual encoder")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(LimbeckError, match="model.safetensors: is not a file"):
        load(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_folder_names_the_file_that_changed(saved, tmp_path, kind):
    folder = tmp_path / "model"
    shutil.copytree(saved[kind], folder)
    (folder / "calibration.json").write_text("{}")  # added later, and none of the folder's files
    before = load(folder).score(PAIRS[:2])
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "calibration.json"):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(LimbeckError, match=f"{file.name}:.* .*delete {MANIFEST}"):
            check_folder(folder)
        file.write_bytes(content)
    (folder / MANIFEST).unlink()
    assert np.array_equal(load(folder).score(PAIRS[:2]), before)


def transformers_folder(kind: str, place: Path, tiny_bert: str, change: Callable[[dict], dict] | None = None) -> Path:
    """A tiny model of an architecture as transformers saves it, with tiny BERT's vocabulary."""
    import transformers

    sizes = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    names = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2, "vocab_size": 97}
    model = getattr(transformers, kind)
    config = model.config_class(**(names if "DistilBert" in kind else sizes | {"intermediate_size": 64}))
    torch.manual_seed(0)
    model(config).save_pretrained(place)
    transformers.AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(place)
    if change is not None:
        weights(change)(place)
    return place


def old_names(tensors: dict) -> dict:
    """As TensorFlow's checkpoints name the parts of a layer norm."""
    changed = ((name.replace("LayerNorm.weight", "LayerNorm.gamma"), value) for name, value in tensors.items())
    return {name.replace("LayerNorm.bias", "LayerNorm.beta"): value for name, value in changed}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("BertModel", None),
        ("BertModel", old_names),
        ("BertForMaskedLM", None),
        ("BertForPreTraining", None),
        ("BertForSequenceClassification", None),
        ("DistilBertModel", None),
        ("DistilBertForMaskedLM", None),
        ("DistilBertForSequenceClassification", None),
        ("MPNetModel", None),
        ("MPNetForMaskedLM", None),
        ("RobertaModel", None),
        ("RobertaForMaskedLM", None),
        ("XLMRobertaForSequenceClassification", None),
        ("ElectraForPreTraining", None),
        ("ElectraForSequenceClassification", None),
    ],
)
def test_released_layouts_load_and_start_a_student(tiny_bert, tmp_path, kind, change):
    folder = transformers_folder(kind, tmp_path / "model", tiny_bert, change)
    scores = load(folder).score(PAIRS[:3])
    assert same(load(folder).score(PAIRS[:3]), scores)
    students = [
        build(matcher_config(start=str(folder), layers=1, query_length=8, document_length=16)) for _ in range(2)
    ]
    assert same(*(student.score(PAIRS[:3]) for student in students))


def test_weights_in_several_files_load(tiny_bert, tmp_path):
    from transformers import AutoModel

    shutil.copytree(tiny_bert, tmp_path / "model")
    whole = load(tmp_path / "model").score(PAIRS)
    AutoModel.from_pretrained(tiny_bert).save_pretrained(tmp_path / "model", max_shard_size="20KB")
    (tmp_path / "model" / "model.safetensors").unlink()
    shards = sorted((tmp_path / "model").glob("model-*.safetensors"))
    assert len(shards) > 1 and same(load(tmp_path / "model").score(PAIRS), whole)
    shards[1].unlink()
    with pytest.raises(LimbeckError, match=f"{shards[1].name}: no such file"):
        load(tmp_path / "model")


def test_a_classifier_that_was_never_trained_is_refused(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "model")
    with_values("config.json", architectures=["BertForSequenceClassification"])(tmp_path / "model")
    with pytest.raises(LimbeckError, match="2 weights .*classifier.bias, classifier.weight"):
        load(tmp_path / "model")
