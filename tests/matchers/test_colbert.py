"""ColBERT folders go both ways, its texts are read as the paper says, and its batch scores are its pair scores."""

from __future__ import annotations

import json
import shutil
import string

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder

from limbeck.errors import LimbeckError
from limbeck.file_list import NAME as MANIFEST
from limbeck.matchers import ColBERT, DualEncoder, build, load, matcher_config
from limbeck.matchers.base import TextBatch
from limbeck.matchers.splitting import USUAL
from tests.matchers.test_folders import DOCUMENTS, PAIRS, QUERIES, disturb, same


def spec(start: str, **options) -> matcher_config:
    return matcher_config(kind="colbert", start=start, query_length=16, document_length=32, **options)


def their_scores(model: MultiVectorEncoder) -> np.ndarray:
    return model.similarity(model.encode_query(QUERIES), model.encode_document(DOCUMENTS)).numpy().reshape(-1)


@pytest.mark.parametrize("options", [{}, {"dim": 32, "layers": 2}, {"similarity": "meanmaxsim"}], ids=str)
def test_a_saved_colbert_scores_the_same_in_sentence_transformers(minilm, tmp_path, options):
    ours = disturb(build(spec(minilm, **options)))
    ours.save_pretrained(tmp_path / "model")
    theirs = MultiVectorEncoder(str(tmp_path / "model"))
    assert same(their_scores(theirs), ours.score(PAIRS))
    again = load(tmp_path / "model")
    assert isinstance(again, ColBERT) and again.dim == options.get("dim", 128)
    assert same(again.score(PAIRS), ours.score(PAIRS))
    assert again.identity() == ours.identity()


def test_the_batch_gives_the_scores_of_the_pairs_in_lists_and_for_all(minilm):
    ours = disturb(build(spec(minilm, layers=2)))
    alone = ours.score(PAIRS).reshape(3, 3)
    for chunk in (None, 2):
        everything = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, None), chunk)).scores
        assert same(everything.detach().numpy(), alone)
    lists = torch.tensor([[2, 0], [1, 1], [0, 2]])
    listed = ours(ours.prepare(TextBatch(QUERIES, DOCUMENTS, lists))).scores
    assert same(listed.detach().numpy(), np.take_along_axis(alone, lists.numpy(), axis=1))


def test_recomputing_activations_changes_no_gradient(tiny_bert):
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(0)
        matcher = build(spec(tiny_bert)).eval()
        matcher(matcher.prepare(TextBatch(QUERIES, DOCUMENTS, None), 2), recompute=recompute).scores.sum().backward()
        gradients.append([p.grad for p in matcher.parameters() if p.grad is not None])
    assert all(torch.allclose(*both, atol=1e-6) for both in zip(*gradients, strict=True))


def test_queries_are_marked_and_filled_with_masks_and_documents_lose_their_punctuation(minilm):
    matcher = build(spec(minilm))
    model = matcher.tower.model
    asked = model.preprocess(["copy, a file"], prompt=matcher.tower.prompt("query"), task="query")
    tokens = model.tokenizer.convert_ids_to_tokens(asked["input_ids"][0])
    assert tokens == ["[CLS]", "[unused0]", "copy", ",", "a", "file", "[SEP]"] + ["[MASK]"] * 9
    assert len(matcher.encode_query(["copy, a file"]).vectors) == 16
    words, marks = "copy a file", "copy, a file. (%)!"
    assert matcher.encode_document([marks]).lengths == matcher.encode_document([words]).lengths == 6
    assert all(mark in string.punctuation for mark in model[2].skiplist_words)
    assert np.allclose(np.linalg.norm(matcher.encode_document([words]).vectors, axis=1), 1, atol=1e-5)


def stanford_folder(start, tmp_path):
    """As colbert-ir/colbertv2.0 lies on disk: one file with the projection in it, and artifact.metadata."""
    from safetensors.torch import save_file
    from transformers import AutoModel, AutoTokenizer

    torch.manual_seed(0)
    bert = AutoModel.from_pretrained(start)
    width = bert.config.hidden_size
    weights = {f"bert.{name}": tensor.contiguous() for name, tensor in bert.state_dict().items()}
    save_file(weights | {"linear.weight": torch.randn(8, width)}, tmp_path / "model.safetensors", {"format": "pt"})
    config = bert.config.to_dict() | {"architectures": ["HF_ColBERT"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path)
    metadata = {
        "query_maxlen": 12,
        "doc_maxlen": 20,
        "dim": 8,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
    }
    (tmp_path / "artifact.metadata").write_text(json.dumps(metadata))
    return tmp_path


def test_a_stanford_folder_loads_with_its_own_conventions(tiny_bert, tmp_path):
    stanford = stanford_folder(tiny_bert, tmp_path)
    ours = load(stanford)
    assert isinstance(ours, ColBERT) and ours.dim == 8
    assert ours.encode_query(["copy"]).lengths == [12]
    assert same(ours.score(PAIRS), their_scores(MultiVectorEncoder(str(stanford))))


def test_a_student_that_starts_from_a_stanford_folder_reads_its_markers(minilm, tmp_path):
    stanford = stanford_folder(minilm, tmp_path)
    teacher = load(stanford)
    prompts = {side: teacher.tower.prompt(side) for side in ("query", "document")}
    student = build(matcher_config(start=str(stanford), layers=1, query_length=12, document_length=20, prompts=prompts))
    student.save_pretrained(tmp_path / "student")
    for matcher in (student, load(tmp_path / "student")):
        for side, marker in (("query", "[unused0]"), ("document", "[unused1]")):
            read = matcher.tower.model.preprocess(["copy"], prompt=matcher.tower.prompt(side), task=side)
            tokens = matcher.tower.model.tokenizer.convert_ids_to_tokens(read["input_ids"][0])
            assert tokens == ["[CLS]", marker, "copy", "[SEP]"]


def test_a_pylate_folder_loads_with_its_own_conventions(tiny_bert, tmp_path):
    """As PyLate writes it: a projection listed under its own name, markers and lengths beside the prompts."""
    matcher = build(spec(tiny_bert, dim=8))
    matcher.save_pretrained(tmp_path)
    (tmp_path / MANIFEST).unlink()
    entries = json.loads((tmp_path / "modules.json").read_text())
    entries[1]["type"] = "pylate.models.Dense.Dense"
    (tmp_path / "modules.json").write_text(json.dumps(entries[:2]))
    place = tmp_path / "config_sentence_transformers.json"
    config = json.loads(place.read_text()) | {
        "model_type": "ColBERT",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 14,
        "document_length": 20,
        "attend_to_expansion_tokens": False,
        "prompts": {},
    }
    place.write_text(json.dumps(config))
    ours = load(tmp_path)
    assert isinstance(ours, ColBERT) and ours.dim == 8
    assert ours.tower.prompt("query") == "[Q] "
    assert same(ours.score(PAIRS), their_scores(MultiVectorEncoder(str(tmp_path))))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"similarity": "dot"}, "Input should be 'maxsim' or 'meanmaxsim'"),
        ({"scale": 20}, "scale belongs to a dual_encoder; drop it for a colbert"),
        ({"pooling": "cls"}, "pooling belongs to a dual_encoder or a cross_encoder"),
    ],
)
def test_options_of_other_matchers_are_refused(options, line):
    with pytest.raises(ValueError, match=line):
        spec("minilm", **options)


def test_maxsim_belongs_to_a_colbert():
    with pytest.raises(ValueError, match="Input should be 'dot' or 'cosine'"):
        matcher_config(similarity="maxsim")


def test_one_text_has_its_own_token_vectors(tiny_bert):
    matcher = build(spec(tiny_bert))
    (listed,) = matcher.encode_document(["copy a file"])
    assert np.array_equal(matcher.encode_document("copy a file"), listed)
    with pytest.raises(LimbeckError, match="put it in a list"):
        matcher.encode("one text", 0)


def test_texts_of_like_length_are_encoded_together_with_a_limit_on_tokens(tiny_bert, monkeypatch):
    matcher = disturb(build(spec(tiny_bert, dim=8)))
    texts = ["copy, a file " * (1 + number * 7 % 9) for number in range(700)]  # more than a block
    theirs = matcher.tower.model.encode_document(texts, convert_to_numpy=True)
    alone = matcher.tower.model.encode_query(texts, convert_to_numpy=True)
    shapes = []
    forward = matcher.tower.model.forward
    watched = lambda features, **rest: shapes.append(features["input_ids"].shape) or forward(features, **rest)  # noqa: E731
    monkeypatch.setattr(matcher.tower.model, "forward", watched)
    ours = matcher.encode_document(texts, batch_size=2)
    assert ours.lengths.tolist() == list(map(len, theirs))
    assert np.abs(ours.vectors - np.concatenate(theirs)).max() < 1e-6
    assert all(rows * width <= 2 * USUAL for rows, width in shapes) and len({width for _, width in shapes}) > 3
    assert sum(rows for rows, _ in shapes) == 700
    assert np.abs(matcher.encode_query(texts).vectors - np.concatenate(alone)).max() < 1e-6


def test_nothing_encoded_is_nothing(tiny_bert):
    matcher = build(spec(tiny_bert))
    assert matcher.encode_document([]).vectors.shape == (0, 128)
    assert matcher.score([]).shape == (0,)


@pytest.fixture
def released(tiny_bert, tmp_path) -> str:
    """A folder laid out like castorini/tct_colbert-msmarco: a plain BERT, and nothing that says how it reads."""
    from transformers import AutoModel, AutoTokenizer

    torch.manual_seed(0)
    folder = tmp_path / "tct_colbert-msmarco"
    AutoModel.from_pretrained(tiny_bert).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return str(folder)


def test_a_released_tct_folder_reads_texts_as_it_was_trained(released, tmp_path):
    """By hand: marks of four pieces that the average skips, [MASK] to 36 tokens for queries, no [SEP]."""
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(released).eval(), AutoTokenizer.from_pretrained(released)
    marks = {side: tokenizer(f"[CLS] [{side}] ", add_special_tokens=False)["input_ids"] for side in "QD"}
    assert {len(pieces) for pieces in marks.values()} == {4}
    asked, told = "copy a file", "Copy data from src to dst."
    left = tokenizer(asked, add_special_tokens=False)["input_ids"]
    right = tokenizer(told, add_special_tokens=False)["input_ids"]
    filled = (marks["Q"] + left + [tokenizer.mask_token_id] * 36)[:36]
    with torch.no_grad():
        query = model(torch.tensor([filled])).last_hidden_state[0, 4:].mean(dim=0)
        document = model(torch.tensor([marks["D"] + right])).last_hidden_state[0, 4:].mean(dim=0)
    ours = load(released)
    assert isinstance(ours, DualEncoder) and ours.similarity == "dot"
    assert np.allclose(ours.encode_query([asked])[0], query, atol=1e-5)
    assert np.allclose(ours.encode_document(["a longer one beside it, for padding " * 3, told])[1], document, atol=1e-5)
    assert np.allclose(ours.score([(asked, told)]), float(query @ document), rtol=1e-5)
    ours.save_pretrained(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert same(again.score([(asked, told)]), ours.score([(asked, told)]))
    batch = TextBatch(QUERIES, DOCUMENTS, None)
    assert same(again(again.prepare(batch)).scores.detach().numpy().reshape(-1), again.score(PAIRS))


def test_a_released_tct_folder_is_known_in_the_hub_s_cache_too(released, tmp_path):
    snapshot = tmp_path / "models--castorini--tct_colbert-v2-msmarco" / "snapshots" / "0123abcd"
    shutil.copytree(released, snapshot)
    assert same(load(snapshot).score(PAIRS), load(released).score(PAIRS))


def test_windows_fill_what_a_tct_model_reads_besides_its_marks(released):
    matcher = load(released)
    tokenizer, room = matcher.tower.words("document")
    length = matcher.tower.transformer("document").document_length
    for words, whole in ((room, True), (room + 1, False)):
        read = matcher.tower.model.preprocess(["copy " * words], task="document")["input_ids"]
        assert read.shape[1] == length
        assert (tokenizer.convert_ids_to_tokens(read[0])[4:] == ["copy"] * words) == whole


def test_no_token_attends_to_a_querys_masks(tiny_bert):
    """By hand: BERT sees the masks' positions as padding, whose own outputs count all the same."""
    matcher = build(spec(tiny_bert, dim=8)).eval()
    transformer, projection = matcher.tower.model[0], matcher.tower.model[1]
    read = matcher.tower.model.preprocess(["copy a file"], prompt=matcher.tower.prompt("query"), task="query")
    ids = read["input_ids"]
    real = ids != transformer.tokenizer.mask_token_id
    assert 3 < int(real.sum()) < ids.shape[1] == 16
    with torch.no_grad():
        states = transformer.model(input_ids=ids, attention_mask=real.long()).last_hidden_state[0]
        wanted = torch.nn.functional.normalize(projection.linear(states), dim=-1).numpy()
    assert np.allclose(matcher.encode_query(["copy a file"]).vectors, wanted, atol=1e-5)
    prepared = matcher.tower.prepare(["copy a file"], "query")
    assert np.allclose(matcher.tower.token_vectors(prepared).vectors[0].detach().numpy(), wanted, atol=1e-5)
    with torch.no_grad():
        seen = transformer.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
    assert not torch.allclose(seen, states, atol=1e-3)  # what attending would change
