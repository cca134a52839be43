"""MaxSim: against loops, against sentence-transformers, its gradients, and what it holds in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers.util.similarity import maxsim as their_maxsim

from limbeck.matchers.encoding import TokenVectors
from limbeck.matchers.interactions.maxsim import NOTHING, MaxSim, MeanMaxSim, max_similarities
from limbeck.stores.ragged import Ragged

QUERIES, DOCUMENTS, DIM = (3, 5), (7, 11), 4


def some_texts(shape: tuple[int, int], seed: int, dtype=torch.float32) -> TokenVectors:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(*shape, DIM, generator=generator, dtype=dtype)
    mask = torch.rand(shape, generator=generator) < 0.7
    mask[:, 0] = True
    return TokenVectors(vectors, mask)


def all_pairs(interaction: MaxSim, queries: TokenVectors, documents: TokenVectors, lists=None) -> torch.Tensor:
    """As training scores a batch."""
    return interaction([interaction.prepare(queries, 0), interaction.prepare(documents, 1)], lists)


def by_loops(queries: TokenVectors, documents: TokenVectors) -> np.ndarray:
    scores = np.zeros((len(queries.vectors), len(documents.vectors)))
    for b, query in enumerate(queries.vectors.double().numpy()):
        for p, document in enumerate(documents.vectors.double().numpy()):
            for i in np.flatnonzero(queries.mask[b].numpy()):
                scores[b, p] += max(query[i] @ document[j] for j in np.flatnonzero(documents.mask[p].numpy()))
    return scores


@pytest.mark.parametrize("at_once", [1, 100, 10**9])
def test_every_pair_is_scored_as_in_a_loop_for_any_memory_limit(at_once):
    queries, documents = some_texts(QUERIES, 0), some_texts(DOCUMENTS, 1)
    scores = all_pairs(MaxSim(at_once=at_once), queries, documents)
    assert np.allclose(scores.numpy(), by_loops(queries, documents), atol=1e-5)
    lists = torch.tensor([[0, 6], [3, 3], [5, 1]])
    assert torch.equal(all_pairs(MaxSim(at_once=at_once), queries, documents, lists), scores.gather(1, lists))


@pytest.mark.parametrize("mean", [False, True])
def test_scores_are_those_of_sentence_transformers(mean):
    queries, documents = some_texts(QUERIES, 2), some_texts(DOCUMENTS, 3)
    theirs = their_maxsim(
        queries.vectors, documents.vectors, a_mask=queries.mask, b_mask=documents.mask, length_normalize=mean
    )
    assert torch.allclose(all_pairs(MeanMaxSim() if mean else MaxSim(), queries, documents), theirs, atol=1e-5)


@pytest.mark.parametrize("at_once", [60, 10**9])
def test_gradients_are_those_of_the_plain_formula(at_once):
    queries, documents = some_texts(QUERIES, 4), some_texts(DOCUMENTS, 5)
    weights = torch.randn(QUERIES[0], DOCUMENTS[0], generator=torch.Generator().manual_seed(6))
    left, right = queries.vectors.clone().requires_grad_(), documents.vectors.clone().requires_grad_()
    (
        all_pairs(MaxSim(at_once=at_once), TokenVectors(left, queries.mask), TokenVectors(right, documents.mask))
        * weights
    ).sum().backward()
    plain_left, plain_right = (part.vectors.double().requires_grad_() for part in (queries, documents))
    similar = torch.einsum("bid,pjd->bpij", plain_left, plain_right)
    similar = similar.masked_fill(~documents.mask[None, :, None, :], -torch.inf).amax(dim=-1)
    ((similar * queries.mask[:, None, :]).sum(dim=-1) * weights).sum().backward()
    assert torch.allclose(left.grad.double(), plain_left.grad, atol=1e-5)
    assert torch.allclose(right.grad.double(), plain_right.grad, atol=1e-5)


def test_a_document_without_tokens_ranks_below_all_and_has_no_gradient():
    queries, documents = some_texts(QUERIES, 7), some_texts(DOCUMENTS, 8)
    documents.mask[2] = False
    right = documents.vectors.clone().requires_grad_()
    scores = all_pairs(MaxSim(), queries, TokenVectors(right, documents.mask))
    assert (scores[:, 2] == NOTHING).all()
    scores.sum().backward()
    assert torch.isfinite(right.grad).all() and (right.grad[2] == 0).all()


@pytest.mark.parametrize("mean", [False, True])
def test_inference_over_texts_without_padding_gives_the_same_scores(mean):
    queries, documents = some_texts((19, 6), 9), some_texts((300, 13), 10)
    documents.mask[4] = False
    packed = [Ragged.from_list([v[m].numpy() for v, m in zip(*side, strict=True)]) for side in (queries, documents)]
    found = max_similarities(*packed, mean=mean)
    assert np.allclose(
        found, all_pairs(MeanMaxSim() if mean else MaxSim(), queries, documents).numpy(), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize("kind", [MaxSim, MeanMaxSim])
def test_single_pairs_have_the_scores_of_the_whole_batch(kind):
    queries, documents = some_texts(QUERIES, 13), some_texts(DOCUMENTS, 14)
    documents.mask[4] = False
    rows, columns = torch.tensor([0, 2, 2, 1]), torch.tensor([4, 0, 6, 4])
    left, right = kind().prepare(queries, 0), kind().prepare(documents, 1)
    scores = kind().score([tuple(part[rows] for part in left), tuple(part[columns] for part in right)])
    assert torch.allclose(scores[:, 0], all_pairs(kind(), queries, documents)[rows, columns], atol=1e-5)


def test_memory_holds_a_slice_of_the_similarities(monkeypatch):
    """64 queries of 32 tokens and 128 documents of 64 tokens have 16.8 million similarities; 1/16 is made at a time."""
    largest = 0
    plain = torch.Tensor.masked_fill_

    def watching(tensor, *args):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return plain(tensor, *args)

    monkeypatch.setattr(torch.Tensor, "masked_fill_", watching)
    queries, documents = some_texts((64, 32), 11), some_texts((128, 64), 12)
    all_pairs(MaxSim(at_once=2**20), queries, documents)
    assert 2**19 < largest <= 2**20
