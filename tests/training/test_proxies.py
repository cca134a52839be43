"""From a cross-encoder to a dual encoder: tokens named while the teacher trains, proxies matched while it is live."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import limbeck as lb
from limbeck.errors import LimbeckError
from limbeck.matchers import TextBatch
from limbeck.matchers.chunks import texts_of_chunks
from limbeck.objectives import match_proxies, reconstruct
from limbeck.recipe.files import load_recipe
from limbeck.recipe.stage import Stage
from limbeck.runs.run import distill
from limbeck.signals import Signals, Targets
from limbeck.training.batches import Collator
from limbeck.training.corruption import pair_shares
from limbeck.training.stages import Fit, fit
from limbeck.training.teachers import live_signals
from tests.training.toy import ToyLists, first_gradients, tiny_student, torchrun
from tests.training.toy import train as train_toy

EXAMPLES = [(0, index) for index in range(5)]
SEEN = frozenset({"seen_token_logits", "scores"})
NAMING = Stage(objectives=["one_hot", "0.5 * reconstruct"], steps=6, batch_size=6, lr=1e-3)


def naming(start: str, pooling: str = "weighted", **options: object):
    teacher = tiny_student(start, "cross_encoder", pooling=pooling, **options).eval()
    teacher.add_token_head(0)
    with torch.no_grad():  # a head whose every part matters
        for parameter in teacher.token_head.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    return teacher


@pytest.mark.parametrize(("pooling", "chunk"), [("weighted", None), ("cls", 2), ("segments", 3)])
def test_the_loss_is_the_likelihood_of_each_token_from_its_own_state(tiny_bert, pooling, chunk):
    """Pair by pair without padding, head and softmax written out in numpy."""
    teacher = naming(tiny_bert, pooling)
    batch = Collator(ToyLists(), teacher, name_tokens=True, chunk=chunk)(EXAMPLES)
    with torch.no_grad():
        losses = reconstruct()(teacher(batch.student, SEEN), None, batch.targets).numpy()
    head = {name: value.detach().double().numpy() for name, value in teacher.token_head.named_parameters()}
    table = teacher.model[0].model.get_input_embeddings().weight.detach().double().numpy()
    queries, of_pair = len(EXAMPLES), {}
    for features, rows in zip(batch.student.pairs.passes, texts_of_chunks(batch.student.pairs), strict=True):
        for row, pair in enumerate(rows):
            alone = {
                name: value[row : row + 1, : int(features["attention_mask"][row].sum())]
                for name, value in features.items()
                if isinstance(value, torch.Tensor)
            }
            with torch.no_grad():
                states = teacher.model[0]({**alone, "modality": "text"})["token_embeddings"][0].double().numpy()
            chosen = np.flatnonzero(alone["chosen"][0])
            assert len(chosen) == max(1, round(0.15 * _words(alone["input_ids"][0])))
            surprise = [_surprise(states[place], int(alone["input_ids"][0, place]), head, table) for place in chosen]
            of_pair[pair] = np.mean(surprise)
    expected = np.array([of_pair[pair] for pair in range(len(of_pair))]).reshape(queries, -1).mean(axis=1)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def _words(ids: torch.Tensor) -> int:
    return int((ids > 4).sum())  # the first five of the tiny vocabulary are special


def _surprise(state: np.ndarray, token: int, head: dict[str, np.ndarray], table: np.ndarray) -> float:
    inner = head["dense.weight"] @ state + head["dense.bias"]
    inner = np.array([0.5 * value * (1 + math.erf(value / 2**0.5)) for value in inner])
    centred = inner - inner.mean()
    normed = centred / np.sqrt((centred**2).mean() + 1e-5) * head["norm.weight"] + head["norm.bias"]
    logits = table @ normed + head["bias"]
    return float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[token])


def test_every_token_has_its_turn_and_special_ones_never(tiny_bert):
    teacher = naming(tiny_bert)
    wanted, found = set(), set()
    for epoch in range(40):
        batch = Collator(ToyLists(queries=1, size=8), teacher, name_tokens=True)([(epoch, 0)])
        for chunk in batch.student.pairs.passes:
            assert torch.equal(
                chunk["input_ids"][chunk["chosen"]].sort().values.clamp(max=4).unique(), torch.tensor([4])
            )
            for ids, chosen in zip(chunk["input_ids"], chunk["chosen"], strict=True):
                words = tuple(ids[ids > 4].tolist())
                wanted |= {(words, place) for place in torch.nonzero(ids > 4).flatten().tolist()}
                found |= {(words, place) for place in torch.nonzero(chosen).flatten().tolist()}
    assert found == wanted


def test_nothing_is_hidden_from_a_model_that_names_tokens(tiny_bert):
    teacher = naming(tiny_bert)
    named, plain = (Collator(ToyLists(), teacher, name_tokens=name)(EXAMPLES) for name in (True, False))
    torch.testing.assert_close(teacher(named.student, SEEN).scores, teacher(plain.student).scores)


def test_the_tokens_to_predict_depend_only_on_seed_and_batch(tiny_bert):
    teacher = naming(tiny_bert)

    def told(**options: object) -> list[tuple[int, int]]:
        batches = [
            Collator(ToyLists(), teacher, name_tokens=True, **{"seed": 4, "world": 1, **options, "rank": rank})(
                EXAMPLES
            )
            for rank in range(int(options.get("world", 1)))
        ]
        before, found = 0, []
        for batch in batches:
            tokens = batch.targets.tokens
            found += zip((tokens.texts + before).tolist(), tokens.ids.tolist(), strict=True)
            before += len(batch.student.pairs)
        return sorted(found)

    assert told() == told(chunk=2) == told(world=2)
    assert told() != told(seed=5)


def test_pairs_count_evenly_in_their_own_query():
    mask = np.array([[True, True, False], [True, True, True]])
    wanted = [[0.5, 0.5, 0, 0, 0, 0], [0, 0, 0, 1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(pair_shares(mask), torch.tensor(wanted))


def test_a_teacher_learns_to_name_its_tokens_and_keeps_no_head(tiny_bert, tmp_path):
    stage = NAMING.model_copy(update={"objectives": ["reconstruct"], "steps": 60, "lr": 3e-3})
    teacher = tiny_student(tiny_bert, "cross_encoder", pooling="weighted")
    fit(teacher, [stage], lambda _: ToyLists(), Fit("teacher", tmp_path, tmp_path / "log.jsonl", seed=3))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [line["objectives"]["reconstruct"] for line in lines if "objectives" in line]
    assert losses[0] > 3 and losses[-1] < 0.5 * losses[0]
    assert not len(teacher.heads)
    teacher.save_pretrained(tmp_path / "model")
    saved = {path.relative_to(tmp_path / "model") for path in (tmp_path / "model").rglob("*.safetensors")}
    assert [str(path) for path in saved] == ["model.safetensors"]


def test_chunks_and_processes_have_the_same_gradients(tiny_bert, tmp_path):
    changes = {"objectives": ["one_hot", "0.5 * reconstruct"]}
    whole = first_gradients(tiny_bert, tmp_path / "one", NAMING, "cross_encoder")
    chunked = NAMING.model_copy(update={"chunk": 4})
    assert torch.allclose(whole, first_gradients(tiny_bert, tmp_path / "chunks", chunked, "cross_encoder"), atol=1e-5)
    (tmp_path / "two").mkdir()
    arguments = [tiny_bert, str(tmp_path / "two"), "False", "cross_encoder", json.dumps(changes)]
    torchrun(2, "tests.training.toy", *arguments)
    two = torch.load(tmp_path / "two" / "gradients.pt", weights_only=True)
    assert whole.abs().max() > 1e-3 and torch.allclose(whole, two, atol=1e-5)


def test_a_dual_encoder_does_not_name_tokens_of_pairs(tiny_bert, tmp_path):
    with pytest.raises(LimbeckError, match="reconstruct: a dual_encoder does not read pairs; use kind: cross_encoder"):
        train_toy(tiny_bert, tmp_path, NAMING)


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_live_teacher_shows_the_proxies_of_the_students_pairs(tiny_bert, in_batch):
    student, teacher = tiny_student(tiny_bert), tiny_student(tiny_bert, "cross_encoder", pooling="special").eval()
    lists = ToyLists()
    batch = Collator(lists, student, teacher, in_batch=in_batch)(EXAMPLES)
    shown = live_signals(teacher, batch.live, match_proxies.needs_teacher, batch.targets)
    assert shown.query_proxies.shape == (*batch.targets.mask.shape, 32) and shown.scores is None
    rows = sorted({int(row) for _, index in EXAMPLES for row in lists.pick(index, 0)})
    for number, (epoch, index) in enumerate(EXAMPLES):
        picked = rows if in_batch else lists.pick(index, epoch)
        alone = teacher(
            teacher.prepare(TextBatch([lists.query(index)], lists.texts(list(picked)), None)),
            match_proxies.needs_teacher,
        )
        torch.testing.assert_close(shown.query_proxies[number], alone.query_proxies[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(shown.document_proxies[number], alone.document_proxies[0], atol=1e-5, rtol=1e-4)


def dual_pooled(recipe: dict, pooling: str, objectives: list[str], live: bool = True) -> dict:
    teacher = recipe["teacher"] | {"live": live, "train": recipe["teacher"]["train"] | {"pooling": pooling}}
    return recipe | {"teacher": teacher, "stages": [recipe["stages"][0] | {"objectives": objectives, "steps": 60}]}


@pytest.mark.parametrize(
    ("pooling", "objective", "dim"),
    [("special", "match_proxies(documents=1)", None), ("weighted", "match_proxies", 8), ("cls", "match_joint", None)],
)
def test_a_student_learns_from_a_live_cross_encoder(recipe, tmp_path, pooling, objective, dim):
    told = dual_pooled(recipe, pooling, ["0.1 * softmax_ce(tau=20)", objective])
    told["student"] = recipe["student"] | {"dim": dim}
    if pooling != "cls":
        told["teacher"]["stages"] = [recipe["teacher"]["stages"][0] | {"objectives": ["one_hot", "0.1 * reconstruct"]}]
    distill(told, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["objectives"][objective] for line in lines if objective in line.get("objectives", {})]
    assert losses[-1] < 0.8 * losses[0]
    student = lb.load(tmp_path / "run" / "student")
    assert student.dim == (dim or 32)  # neither a projection nor a joint transform is left in it


@pytest.mark.parametrize(
    ("pooling", "live", "objective", "message"),
    [
        (
            "special",
            False,
            "match_proxies",
            "stages.0: match_proxies reads the teacher's embeddings of pairs, which are",
        ),
        (
            "cls",
            True,
            "match_proxies",
            "needs document_proxies and query_proxies, which teacher.train (a cross_encoder)",
        ),
        ("weighted", True, "match_joint", "use a cross_encoder with pooling: cls or mean"),
        (
            "weighted",
            True,
            "reconstruct",
            "reconstruct needs a cross_encoder, and student is a dual_encoder; change it",
        ),
    ],
)
def test_a_teacher_that_cannot_show_pairs_is_named_when_the_recipe_is_read(recipe, pooling, live, objective, message):
    with pytest.raises(LimbeckError) as caught:
        load_recipe(dual_pooled(recipe, pooling, [objective], live))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_loaded_teacher_without_proxies_is_named_before_training(recipe, tiny_bert, tmp_path):
    tiny_student(tiny_bert, "cross_encoder").save_pretrained(tmp_path / "teacher")
    told = recipe | {"teacher": {"model": str(tmp_path / "teacher"), "live": True}}
    told["stages"] = [recipe["stages"][0] | {"objectives": ["match_proxies"]}]
    with pytest.raises(LimbeckError, match="need document_proxies, query_proxies of the teacher, but a cross_encoder"):
        distill(told, tmp_path / "run")
    assert not (tmp_path / "run" / "student").exists()


def test_targets_without_tokens_are_named():
    targets = Targets(mask=torch.ones(2, 3, dtype=torch.bool), labels=torch.zeros(2, 3))
    with pytest.raises(LimbeckError, match="reconstruct needs a model that names the tokens of pairs; use a cross_en"):
        reconstruct()(Signals(scores=torch.zeros(2, 3)), None, targets)
