"""VIRT's objective: values against loops, gradients by finite differences, and what must make no difference."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.objectives import parse, virt
from limbeck.signals import AttentionSizes, CrossAttention, Signals, Targets, TextAttention

from .attention_reference import virt_by_hand

B, K, P, HEADS, D, LAYERS = 3, 3, 4, 2, 5, 2
LISTS = torch.tensor([[0, 2, 1], [1, 3, 0], [3, 0, 0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)
QUERY_TOKENS = torch.tensor([[11, 12, 13, -1], [14, -1, -1, -1], [15, 16, 17, 18]])
DOCUMENT_TOKENS = torch.tensor([[21, 22, -1], [23, 24, 25], [-1, -1, -1], [26, -1, -1]])  # the third is empty


def texts(tokens: torch.Tensor, draw, heads: int = HEADS, layers: int = LAYERS) -> TextAttention:
    def parts() -> tuple[torch.Tensor, ...]:
        return tuple(draw(len(tokens), heads, tokens.shape[1], D).requires_grad_() for _ in range(layers))

    return TextAttention(AttentionSizes(layers, heads), tuple(range(layers)), tokens, parts(), parts())


def batch(seed: int = 0, heads: int = HEADS, layers: int = LAYERS, in_batch: bool = False):
    """A student and a teacher of random attention; the teacher's maps are parts of softmaxes over more columns."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    student = Signals(text_attention=(texts(QUERY_TOKENS, draw), texts(DOCUMENT_TOKENS, draw)))
    lists = torch.arange(P).expand(B, P) if in_batch else LISTS
    mask = torch.ones(B, P, dtype=torch.bool) if in_batch else MASK
    m, n = QUERY_TOKENS.shape[1], DOCUMENT_TOKENS.shape[1]
    shape = (B, lists.shape[1], heads)
    cross = CrossAttention(
        AttentionSizes(layers, heads),
        tuple(range(layers)),
        QUERY_TOKENS[:, None].expand(-1, lists.shape[1], -1),
        DOCUMENT_TOKENS[lists],
        tuple(draw(*shape, m, n + m + 3).softmax(-1)[..., :n] for _ in range(layers)),
        tuple(draw(*shape, n, n + m + 3).softmax(-1)[..., :m] for _ in range(layers)),
    )
    labels = torch.full(mask.shape, math.nan)
    return student, Signals(cross_attention=cross), Targets(mask=mask, labels=labels, lists=None if in_batch else lists)


def leaves(student: Signals) -> list[torch.Tensor]:
    return [part for side in student.text_attention for part in (*side.queries, *side.keys)]


SAME = [(0, 0), (1, 1)]


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("block", ["whole", "renormalised"])
@pytest.mark.parametrize("average", [False, True])
def test_losses_equal_the_formula(block, average, in_batch):
    student, teacher, targets = batch(in_batch=in_batch)
    found = virt(block=block, average_heads=average)(student, teacher, targets)
    assert found.dtype == torch.float64
    expected = virt_by_hand(student, teacher, targets, SAME, block, average)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
    assert min(expected) > 0.01


@pytest.mark.parametrize(
    ("arguments", "layers", "pairs"),
    [
        ({"layers": "first:1"}, 2, [(0, 0)]),
        ({"layers": "last:1"}, 2, [(1, 1)]),
        ({"layers": "every:2"}, 2, [(1, 1)]),
        ({"map": "spread"}, 4, [(0, 1), (1, 3)]),
        ({"map": "last"}, 3, [(0, 1), (1, 2)]),
        ({"map": "first"}, 3, SAME),
        ({"map": [2, 0]}, 3, [(0, 2), (1, 0)]),
        ({"map": "spread"}, 1, [(0, 0), (1, 0)]),
    ],
)
def test_layers_of_both_sides_are_those_that_were_asked_for(arguments, layers, pairs):
    student, teacher, targets = batch(layers=layers)
    found = virt(**arguments)(student, teacher, targets)
    np.testing.assert_allclose(found.detach(), virt_by_hand(student, teacher, targets, pairs), rtol=1e-12)
    own, other = (tuple(sorted({pair[side] for pair in pairs})) for side in (0, 1))
    fewer = Signals(text_attention=tuple(_only(side, own) for side in student.text_attention))
    theirs = teacher.cross_attention
    some = replace(
        theirs,
        layers=other,
        to_documents=tuple(theirs.to_documents[layer] for layer in other),
        to_queries=tuple(theirs.to_queries[layer] for layer in other),
    )
    torch.testing.assert_close(virt(**arguments)(fewer, Signals(cross_attention=some), targets), found)


def _only(side: TextAttention, layers: tuple[int, ...]) -> TextAttention:
    queries, keys = (tuple(part[layer] for layer in layers) for part in (side.queries, side.keys))
    return replace(side, layers=layers, queries=queries, keys=keys)


@pytest.mark.parametrize("block", ["whole", "renormalised"])
def test_gradients_are_those_of_finite_differences(block):
    student, teacher, targets = batch(seed=1)
    (queries, documents), parts = student.text_attention, leaves(student)

    def loss(*given: torch.Tensor) -> torch.Tensor:
        a, b, c, d = (given[at : at + LAYERS] for at in range(0, 4 * LAYERS, LAYERS))
        sides = (replace(queries, queries=a, keys=b), replace(documents, queries=c, keys=d))
        return virt(block=block)(Signals(text_attention=sides), teacher, targets)

    assert torch.autograd.gradcheck(loss, tuple(parts))


def test_a_student_with_the_teachers_queries_and_keys_has_no_loss_and_no_gradient():
    """The teacher's block, renormalised, is the softmax over the other text's tokens alone: special tokens and its own
    text cancel out. So equal queries and keys give equal maps, and the loss is exactly where it should be.
    """
    student, teacher, targets = batch(seed=2)
    queries, documents = student.text_attention
    there, back = [], []
    generator = torch.Generator().manual_seed(5)
    for layer in range(LAYERS):
        q, k = (part[layer].detach() for part in (queries.queries, queries.keys))
        dq, dk = (part[layer].detach()[LISTS] for part in (documents.queries, documents.keys))
        for into, rows, columns in (
            (there, q[:, None].expand(-1, K, -1, -1, -1), dk),
            (back, dq, k[:, None].expand(-1, K, -1, -1, -1)),
        ):
            logits = rows @ columns.transpose(-1, -2)
            of_text = DOCUMENT_TOKENS[LISTS] if into is there else QUERY_TOKENS[:, None].expand(-1, K, -1)
            logits = logits.masked_fill((of_text < 0)[:, :, None, None], -math.inf)
            others = torch.randn(*logits.shape[:-1], 6, generator=generator, dtype=torch.float64)  # marks, own text
            into.append(torch.cat([logits, others], dim=-1).softmax(-1)[..., : logits.shape[-1]])
    cross = replace(teacher.cross_attention, to_documents=tuple(there), to_queries=tuple(back))
    loss = virt(block="renormalised")(student, Signals(cross_attention=cross), targets)
    assert loss.abs().max() < 1e-14
    assert virt(block="whole")(student, Signals(cross_attention=cross), targets).min() > 0.01


def test_maps_that_are_matched_exactly_pull_nowhere():
    """A text of one token has one map, whatever its queries: with the teacher at 1 there is no loss, no gradient."""
    student, teacher, targets = batch()
    one = torch.tensor([[7]] * B), torch.tensor([[8]] * P)
    sides = tuple(
        replace(
            side,
            tokens=tokens,
            queries=tuple(part[..., :1, :] for part in side.queries),
            keys=tuple(part[..., :1, :] for part in side.keys),
        )
        for side, tokens in zip(student.text_attention, one, strict=True)
    )
    ones = tuple(torch.ones(B, K, HEADS, 1, 1, dtype=torch.float64) for _ in range(LAYERS))
    cross = replace(
        teacher.cross_attention,
        query_tokens=one[0][:, None].expand(-1, K, -1),
        document_tokens=one[1][LISTS],
        to_documents=ones,
        to_queries=ones,
    )
    loss = virt()(Signals(text_attention=sides), Signals(cross_attention=cross), targets)
    loss.sum().backward()
    assert loss.tolist() == [0.0] * B
    assert all(part.grad is None or (part.grad == 0).all() for part in leaves(student))


@pytest.mark.parametrize("filling", [1e6, math.nan])
def test_padding_reaches_neither_loss_nor_gradient(filling):
    """Of tokens and of lists. Values where a text has no token may be anything."""
    student, teacher, targets = batch()
    clean = virt()(student, teacher, targets)
    (gradient, *_) = torch.autograd.grad(clean.sum(), leaves(student))
    theirs = teacher.cross_attention
    gone = (theirs.query_tokens < 0)[:, :, None, :, None] | (theirs.document_tokens < 0)[:, :, None, None, :]
    gone = gone | ~MASK[:, :, None, None, None]
    dirty = replace(
        theirs,
        to_documents=tuple(part.masked_fill(gone, filling) for part in theirs.to_documents),
        to_queries=tuple(part.masked_fill(gone.transpose(-1, -2), filling) for part in theirs.to_queries),
    )
    found = virt()(student, Signals(cross_attention=dirty), targets)
    torch.testing.assert_close(found, clean)
    sides = []
    for side in student.text_attention:
        padding = (side.tokens < 0)[:, None, :, None]
        queries, keys = (
            tuple(torch.where(padding, 1e3, part) for part in parts) for parts in (side.queries, side.keys)
        )
        sides.append(replace(side, queries=queries, keys=keys))
    found = virt()(Signals(text_attention=tuple(sides)), Signals(cross_attention=dirty), targets)
    torch.testing.assert_close(found, clean)
    (again, *_) = torch.autograd.grad(found.sum(), leaves(student))
    torch.testing.assert_close(again, gradient)


def test_a_wider_student_is_the_same_student():
    """With several processes the student's documents are as wide as the longest of all processes."""
    student, teacher, targets = batch()
    wide = []
    for side in student.text_attention:
        queries, keys = (
            tuple(torch.nn.functional.pad(p, (0, 0, 0, 3)) for p in ps) for ps in (side.queries, side.keys)
        )
        tokens = torch.nn.functional.pad(side.tokens, (0, 3), value=-1)
        wide.append(replace(side, tokens=tokens, queries=queries, keys=keys))
    found = virt()(Signals(text_attention=tuple(wide)), teacher, targets)
    torch.testing.assert_close(found, virt()(student, teacher, targets))


def test_a_pair_with_an_empty_text_adds_nothing():
    student, teacher, targets = batch()
    with_empty = virt()(student, teacher, targets)  # the first list has the empty document in its second place
    alone = replace(targets, mask=torch.tensor([[0, 1, 0], [1, 1, 0], [1, 0, 0]], dtype=torch.bool))
    found = virt()(student, teacher, alone)
    assert found[0] == 0 and with_empty[0] > 0
    (gradient, *_) = torch.autograd.grad(found[0], leaves(student), allow_unused=True)
    assert gradient.isfinite().all() and (gradient == 0).all()


def test_no_gradient_reaches_the_teacher():
    student, teacher, targets = batch()
    for part in teacher.cross_attention.to_documents:
        part.requires_grad_()
    virt()(student, teacher, targets).sum().backward()
    assert all(part.grad is None for part in teacher.cross_attention.to_documents)
    assert all(part.grad.abs().sum() > 0 for part in leaves(student))


def test_lower_precision_is_computed_in_float32():
    student, teacher, targets = batch()
    low, exact = [], []
    for side in student.text_attention:
        halves = [tuple(part.detach().bfloat16() for part in parts) for parts in (side.queries, side.keys)]
        low.append(replace(side, queries=halves[0], keys=halves[1]))
        whole = [tuple(part.float() for part in parts) for parts in halves]
        exact.append(replace(side, queries=whole[0], keys=whole[1]))
    with torch.autocast("cpu", torch.bfloat16):
        found = virt()(Signals(text_attention=tuple(low)), teacher, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, virt()(Signals(text_attention=tuple(exact)), teacher, targets))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("virt", "virt"),
        ("virt(layers=first:2)", "virt(layers='first:2')"),
        ("0.5 * virt(layers='every:3', block=renormalised)", "virt(block='renormalised', layers='every:3')"),
        ("virt(map=[0, 5], average_heads=true)", "virt(map=(0, 5), average_heads=True)"),
        ("virt(map=spread)", "virt(map='spread')"),
    ],
)
def test_names_read_back(text, name):
    found = parse(text)[1]
    assert str(found) == name and parse(str(found))[1] == found and hash(found) == hash(parse(name)[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("virt(layers=first:0)", "layers='first:0' is not allowed; give all, first:2, last:2 or every:2"),
        ("virt(layers=2)", "layers=2 is not allowed"),
        ("virt(block=half)", "block='half' is not allowed; give 'whole' or 'renormalised'"),
        ("virt(map=[0, -1])", r"map=\[0, -1\] is not allowed; give the teacher's layers from 0"),
        ("virt(map=evenly)", "map='evenly' is not allowed"),
        ("virt(average_heads=2)", "average_heads=2 is not allowed"),
    ],
)
def test_arguments_that_cannot_be_are_refused(text, message):
    with pytest.raises(LimbeckError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "student", "teacher", "message"),
    [
        ("virt", (2, 4), (6, 4), "the student has 2 layers, the teacher 6; say which belong together: map=spread"),
        ("virt", (6, 4), (6, 12), "the student has 4 attention heads, the teacher 12; set average_heads=true"),
        ("virt(layers=first:7)", (6, 4), (6, 4), "asks for 7 layers, and the student has 6; ask for fewer"),
        ("virt(map=[0, 6])", (2, 4), (6, 4), "asks for layer 6 of the teacher, which has 0 to 5"),
        ("virt(map=[0])", (2, 4), (6, 4), "map names 1 layers of the teacher, and the student has 2"),
        ("virt(map=first)", (3, 4), (2, 4), "asks for layer 2 of the teacher, which has 0 to 1; use map=spread"),
        ("virt(map=last)", (3, 4), (2, 4), "asks for layer -1 of the teacher"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(text, student, teacher, message):
    with pytest.raises(LimbeckError) as caught:
        parse(text)[1].attended_layers(AttentionSizes(*student), AttentionSizes(*teacher))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "depths", "pairs"),
    [
        ("virt", (3, 3), [(0, 0), (1, 1), (2, 2)]),
        ("virt(layers=every:2)", (6, 6), [(1, 1), (3, 3), (5, 5)]),
        ("virt(layers=last:2)", (6, 6), [(4, 4), (5, 5)]),
        ("virt(map=spread)", (4, 6), [(0, 1), (1, 2), (2, 4), (3, 5)]),
        ("virt(map=spread)", (6, 4), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (5, 3)]),
        ("virt(map=spread, layers=last:1)", (2, 6), [(1, 5)]),
        ("virt(map=first)", (2, 6), [(0, 0), (1, 1)]),
        ("virt(map=last)", (2, 6), [(0, 4), (1, 5)]),
    ],
)
def test_layers_belong_together_as_stated(text, depths, pairs):
    sizes = [AttentionSizes(depth, 4) for depth in depths]
    assert parse(text)[1].attended_layers(*sizes) == pairs


def test_texts_that_were_read_differently_are_named():
    student, teacher, targets = batch()
    theirs = teacher.cross_attention
    other = theirs.document_tokens.clone()
    other[0, 0, 1] = 99
    with pytest.raises(LimbeckError, match="do not read the same tokens of documents; set student.document_length"):
        virt()(student, Signals(cross_attention=replace(theirs, document_tokens=other)), targets)
    shorter = replace(theirs, query_tokens=theirs.query_tokens[..., :3])
    with pytest.raises(LimbeckError, match="do not read the same tokens of queries; set student.query_length"):
        virt()(student, Signals(cross_attention=shorter), targets)
    padded = other.clone()
    padded[0, 0, 1], padded[2, 1, 0] = DOCUMENT_TOKENS[0, 1], 99  # in a place of the list that is padding
    virt()(student, Signals(cross_attention=replace(theirs, document_tokens=padded)), targets)


def test_signals_that_are_missing_or_do_not_fit_are_named():
    student, teacher, targets = batch()
    with pytest.raises(LimbeckError, match="virt needs a live cross-encoder as teacher, and it shows no attention"):
        virt()(student, Signals(scores=torch.zeros(B, K)), targets)
    with pytest.raises(LimbeckError, match="virt needs a student that shows the attention of texts"):
        virt()(Signals(scores=torch.zeros(B, K)), teacher, targets)
    fewer = replace(targets, mask=MASK[:, :2], lists=LISTS[:, :2])
    with pytest.raises(LimbeckError, match=r"is of \[3, 3\] pairs where \[queries, documents\] = \[3, 2\]"):
        virt()(student, teacher, fewer)
