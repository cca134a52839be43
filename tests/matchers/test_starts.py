"""A model that starts from another of its kind goes on with all that was learnt, or is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import build, load, matcher_config
from limbeck.matchers.base import TextBatch
from tests.conftest import WORDS
from tests.matchers.test_colbert import stanford_folder
from tests.matchers.test_folders import CROSS, DOCUMENTS, DUAL, PAIRS, QUERIES, disturb, same

COLBERT = {"plain": {"kind": "colbert", "dim": 8}, "mean": {"kind": "colbert", "similarity": "meanmaxsim"}}
CROSSES = {name: {"kind": "cross_encoder", **options} for name, options in CROSS.items()}
SEGMENTS = {"kind": "cross_encoder", "pooling": "segments"}
SAME = {**DUAL, **CROSSES, **COLBERT, "segments": SEGMENTS, "segments, offset": {**SEGMENTS, "offset": -10.0}}


def spec(start, **options) -> matcher_config:
    return matcher_config(start=str(start), query_length=16, document_length=32, **options)


@pytest.mark.parametrize("options", SAME.values(), ids=SAME)
def test_the_same_description_from_a_saved_model_is_that_model(tiny_bert, tmp_path, options):
    first = disturb(build(spec(tiny_bert, **options)))
    first.save_pretrained(tmp_path / "first")
    again = build(spec(tmp_path / "first", **options))
    assert same(again.score(PAIRS), first.score(PAIRS))
    again.save_pretrained(tmp_path / "again")
    assert same(load(tmp_path / "again").score(PAIRS), first.score(PAIRS))


def test_a_projection_is_kept_where_the_description_has_none(tiny_bert, tmp_path):
    first = disturb(build(spec(tiny_bert, dim=8)))
    first.save_pretrained(tmp_path / "first")
    again = build(spec(tmp_path / "first"))
    assert again.dim == 8 and same(again.score(PAIRS), first.score(PAIRS))
    fewer = build(spec(tmp_path / "first", layers=1, dim=8, scale=20.0))  # what it lacks is new
    assert torch.equal(fewer.tower.model[2].linear.weight, first.tower.model[2].linear.weight)
    assert np.abs(fewer.encode_query(QUERIES)).max() > 0 and fewer.dim == 8


@pytest.mark.parametrize(
    ("saved", "options", "line"),
    [
        ({"dim": 8}, {"dim": 16}, r"has learnt Dense\(32, 8\) after its transformer, not Dense\(32, 16\)"),
        ({"dim": 8}, {"layer_norm": True}, r"has learnt Dense\(32, 8\).*, not LayerNorm\(32\)"),
        ({"scale": 20.0}, {"dim": 32}, r"has learnt Normalize, Dense\(32, 32\).*, not Dense\(32, 32\)"),
        (
            {"untied": True},
            {},
            "has a separate tower for each side; set untied: true, or start from .*query_0_Transformer",
        ),
        ({"untied": True}, {"kind": "cross_encoder"}, "has a separate tower for each side"),
        ({"kind": "colbert", "dim": 8}, {"kind": "colbert", "dim": 16}, r"Dense\(32, 8\).*not Dense\(32, 16\)"),
        ({"kind": "dipair"}, {}, "a dipair cannot be used for init_from; use its encoder: .*encoder-0"),
        ({"kind": "dipair"}, {"kind": "dipair"}, "a dipair cannot be used for init_from"),
    ],
)
def test_what_would_be_lost_is_refused(tiny_bert, tmp_path, saved, options, line):
    build(spec(tiny_bert, **saved)).save_pretrained(tmp_path / "first")
    with pytest.raises(LimbeckError, match=line):
        build(spec(tmp_path / "first", **options))


def test_another_kind_and_another_number_of_outputs_begin_with_new_parts(tiny_bert, tmp_path):
    for name, options in {"colbert": {"kind": "colbert"}, "cross": {"kind": "cross_encoder"}}.items():
        build(spec(tiny_bert, **options)).save_pretrained(tmp_path / name)
    assert build(spec(tmp_path / "colbert")).dim == build(spec(tmp_path / "cross")).dim == 32
    assert build(spec(tmp_path / "cross", kind="cross_encoder", outputs=3)).outputs == 3


def test_another_programs_projection_is_kept_with_its_activation(tiny_bert, tmp_path):
    torch.manual_seed(0)
    transformer = Transformer(tiny_bert, max_seq_length=32)
    theirs = SentenceTransformer(modules=[transformer, Pooling(32, "mean"), Dense(32, 8), Normalize()])
    theirs.save_pretrained(str(tmp_path))
    started = build(matcher_config(start=str(tmp_path), similarity="cosine", query_length=32, document_length=32))
    assert type(started.tower.model[2].activation_function) is torch.nn.Tanh
    assert same(started.score(PAIRS), load(tmp_path).score(PAIRS))


def test_the_projection_of_a_stanford_folder_is_kept(tiny_bert, tmp_path):
    stanford = stanford_folder(tiny_bert, tmp_path)
    started = build(spec(stanford, kind="colbert", dim=8))
    assert torch.equal(started.tower.model[1].linear.weight, load(stanford).tower.model[1].linear.weight)


def test_a_tct_start_is_read_as_it_was_trained(tiny_bert, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path / "tct_colbert-msmarco"
    AutoModel.from_pretrained(tiny_bert).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    teacher = load(folder)
    lengths = {"query_length": 36, "document_length": 64}
    student = build(matcher_config(start=str(folder), **lengths))
    assert same(student.score(PAIRS), teacher.score(PAIRS))
    student.save_pretrained(tmp_path / "saved")
    again = build(matcher_config(start=str(tmp_path / "saved"), **lengths))
    assert same(again.score(PAIRS), teacher.score(PAIRS))
    batch = again.eval()(again.prepare(TextBatch(QUERIES, DOCUMENTS, None))).scores
    assert same(batch.detach().numpy().reshape(-1), teacher.score(PAIRS))
    for options in ({"dim": 8}, {"similarity": "cosine"}, {"untied": True}, {"prompts": {"query": "q"}}):
        with pytest.raises(LimbeckError, match=f"{next(iter(options))} does not fit that"):
            build(matcher_config(start=str(folder), **lengths, **options))


def test_a_dipair_remembers_the_name_of_its_start(tiny_bert, tmp_path):
    build(spec(tiny_bert, kind="dipair")).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "limbeck.json").read_text())["config"]["init_from"] == tiny_bert


def test_a_transformer_in_a_subfolder_is_found(tiny_bert, tmp_path):
    """As older versions of sentence-transformers laid a model out."""
    first = disturb(build(spec(tiny_bert, dim=8)))
    first.save_pretrained(tmp_path)
    entries = json.loads((tmp_path / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (tmp_path / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", "sentence_bert_config.json"):
        (tmp_path / name).rename(tmp_path / "0_Transformer" / name)
    for file in tmp_path.glob("tokenizer*"):
        file.rename(tmp_path / "0_Transformer" / file.name)
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    (tmp_path / MANIFEST).unlink()
    assert same(load(tmp_path).score(PAIRS), first.score(PAIRS))
    assert same(build(spec(tmp_path)).score(PAIRS), first.score(PAIRS))


@pytest.fixture
def aligned(tiny_bert, tmp_path):
    """A student of one layer with a map into the space of a teacher of 24 numbers, saved."""
    torch.manual_seed(1)
    teacher = build(spec(tiny_bert, dim=24, similarity="cosine"))
    texts = [f"{first} the {second}" for first in ("copy", "move", "sort") for second in WORDS[:12]]
    student = build(spec(tiny_bert, layers=1, similarity="cosine"))
    targets = [teacher.encode(texts, position) for position in (0, 1)]
    student.align([texts, texts], targets, teacher)
    student.save_pretrained(tmp_path / "aligned")
    return student, tmp_path / "aligned"


KINDS = ["colbert", "cross_encoder", "dipair", "poly_encoder", "siamese", "sentence_t5", "virt"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_of_any_kind_starts_from_the_transformer_of_an_aligned_one(aligned, kind):
    student, folder = aligned
    made = build(spec(folder, kind=kind))
    own = dict(made.named_parameters())
    for name, value in student.tower.transformer("query").model.encoder.named_parameters():
        found = [other for other in own if other.endswith(f"encoder.{name}")]
        assert found and all(torch.equal(own[other], value) for other in found), name
    assert np.isfinite(made.score(PAIRS)).all()


def test_a_dual_encoder_from_an_aligned_one_keeps_its_map_and_scales_after_it(aligned):
    """So it starts with the aligned student's geometry: its scores are 20 times the cosines."""
    student, folder = aligned
    scaled = build(spec(folder, scale=20.0))
    assert [type(module).__name__ for module in scaled.tower.model][2:] == ["Dense", "Normalize", "Dense"]
    np.testing.assert_allclose(scaled.score(PAIRS), 20 * student.score(PAIRS), rtol=1e-4)
