from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from limbeck.errors import LimbeckError
from limbeck.search import dense
from limbeck.search.dense import DenseIndex, build_dense, choose_kind, emptied, fill
from limbeck.search.recall import choose_effort, exact_top, recall
from limbeck.search.segmented import Chosen, Segmented

KINDS = ["flat", "hnsw", "ivf-sq8", "sq8"]


class Array:
    """Vectors that lie in memory."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return self.vectors.shape[1]

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.vectors[rows]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Clusters, as texts make them; the last 40 are copies of the first 40. Whole 16ths: sums of products are exact."""
    generator = np.random.default_rng(3)
    centres = generator.standard_normal((30, 24))
    made = centres[generator.integers(0, 30, size=1200)] + 0.4 * generator.standard_normal((1200, 24))
    return (np.concatenate([made, made[:40]]) * 16).round().astype(np.float32) / 16


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng(4)
    return ((vectors[:60] + 0.05 * generator.standard_normal((60, 24))) * 16).round().astype(np.float32) / 16


def brute_force(queries: np.ndarray, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """The k best rows, of equal scores the earlier one first."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    return np.stack([np.lexsort((np.arange(len(vectors)), -row))[:k] for row in scores])


@pytest.mark.parametrize("k", [1, 7, 100, 5000])
def test_flat_is_brute_force_with_ties_by_row(vectors: np.ndarray, queries: np.ndarray, k: int) -> None:
    rows, scores = build_dense("flat", Array(vectors)).search(queries, k)
    assert (rows == brute_force(queries, vectors, k)).all()
    expected = np.take_along_axis(queries @ vectors.T, rows, axis=1)
    assert (scores == expected).all()


def test_ties_are_broken_by_row_even_if_all_vectors_are_equal() -> None:
    same = np.ones((300, 8), dtype=np.float32)
    rows, scores = build_dense("flat", Array(same)).search(np.ones((25, 8), dtype=np.float32), 5)
    assert (rows == np.arange(5)).all() and (scores == 8).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_nearly_what_exact_search_finds(vectors: np.ndarray, queries: np.ndarray, kind: str) -> None:
    index = build_dense(kind, Array(vectors))
    exact = exact_top(queries, Array(vectors))
    assert (exact == brute_force(queries, vectors, 10)).all()
    reached = choose_effort(index, queries, exact)
    assert reached >= 0.9
    assert reached == recall(index.search(queries, 10)[0], exact)
    assert (index.effort is None) == (kind in ("flat", "sq8"))
    if kind == "flat":
        assert reached == 1


@pytest.mark.parametrize("kind", KINDS)
def test_two_builds_are_the_same_and_a_saved_index_is_mapped_and_finds_the_same(
    vectors: np.ndarray, queries: np.ndarray, kind: str, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        build_dense(kind, Array(vectors), seed=5).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    before = build_dense(kind, Array(vectors), seed=5)
    after = DenseIndex.open(tmp_path / "one", kind)
    assert str(tmp_path / "one") in Path("/proc/self/maps").read_text()
    assert (len(after), after.dim) == (1240, 24)
    for one, two in zip(before.search(queries, 20), after.search(queries, 20), strict=True):
        assert (one == two).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.9, 0.02])
def test_rows_that_are_not_allowed_are_never_found(
    vectors: np.ndarray, queries: np.ndarray, kind: str, share: float
) -> None:
    allowed = np.random.default_rng(1).random(len(vectors)) < share
    index = build_dense(kind, Array(vectors))
    choose_effort(index, queries, exact_top(queries, Array(vectors)))
    rows, scores = index.search(queries, 10, allowed)
    assert allowed[rows[rows >= 0]].all()
    assert np.isneginf(scores[rows < 0]).all()
    expected = brute_force(queries, vectors, 10, allowed)
    assert recall(rows, expected) >= (1 if kind == "flat" else 0.85)
    assert index.search(queries, 10, np.zeros(len(vectors), dtype=bool))[0].shape == (60, 0)


def test_few_allowed_rows_are_searched_exactly_in_a_graph(vectors: np.ndarray, queries: np.ndarray) -> None:
    allowed = np.zeros(len(vectors), dtype=bool)
    allowed[::100] = True
    rows, _ = build_dense("hnsw", Array(vectors)).search(queries, 5, allowed)
    assert (rows == brute_force(queries, vectors, 5, allowed)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_come_back(vectors: np.ndarray, kind: str, tmp_path: Path) -> None:
    build_dense(kind, Array(vectors)).save(tmp_path / "index")
    found = DenseIndex.open(tmp_path / "index", kind).take(np.array([5, 1239, 5]))
    assert found == pytest.approx(vectors[[5, 1239, 5]], abs=0 if kind in ("flat", "hnsw") else 0.05)


def test_segments_are_searched_as_one_index(vectors: np.ndarray, queries: np.ndarray) -> None:
    whole = build_dense("flat", Array(vectors))
    parts = Segmented([build_dense("flat", Array(part)) for part in np.split(vectors, [500, 501, 1100])])
    assert len(parts) == len(vectors)
    allowed = np.arange(len(vectors)) % 3 != 0
    for mask in (None, allowed):
        for one, two in zip(whole.search(queries, 12, mask), parts.search(queries, 12, mask), strict=True):
            assert (one == two).all()
    rows = np.array([1239, 0, 500, 499])
    assert (parts.take(rows) == vectors[rows]).all()


def test_an_emptied_8_bit_index_takes_its_own_vectors_back_unchanged(
    vectors: np.ndarray, queries: np.ndarray, tmp_path: Path
) -> None:
    index = build_dense("sq8", Array(vectors))
    index.save(tmp_path / "index")
    again = DenseIndex(emptied(tmp_path / "index", "sq8", 24), "sq8")
    fill(again.index, "sq8", Chosen(index, np.arange(len(vectors))))
    for one, two in zip(index.search(queries, 10), again.search(queries, 10), strict=True):
        assert (one == two).all()


def test_the_kind_depends_on_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [choose_kind("auto", size) for size in (1, 50_000, 50_001, 1_000_000, 1_000_001)] == [
        "flat", "flat", "hnsw", "hnsw", "ivf-sq8",
    ]  # fmt: skip
    assert choose_kind("sq8", 10**9) == "sq8"
    with pytest.raises(LimbeckError, match="unknown kind of index 'hsnw'; did you mean 'hnsw'"):
        choose_kind("hsnw", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_one_vector_is_enough(kind: str) -> None:
    one = np.ones((1, 8), dtype=np.float32)
    index = build_dense(kind, Array(one))
    assert choose_effort(index, one, exact_top(one, Array(one))) == 1
    assert index.search(one, 10)[0].tolist() == [[0]]


def test_what_cannot_be_searched_is_refused(vectors: np.ndarray, tmp_path: Path) -> None:
    index = build_dense("flat", Array(vectors))
    with pytest.raises(LimbeckError, match=r"shape \[2, 5\], the index has vectors of 24 numbers"):
        index.search(np.zeros((2, 5)), 3)
    with pytest.raises(LimbeckError, match="not finite"):
        index.search(np.full((1, 24), np.nan), 3)
    with pytest.raises(LimbeckError, match="no vectors to index"):
        build_dense("flat", Array(np.zeros((0, 4), dtype=np.float32)))
    (tmp_path / "nonsense").write_bytes(b"nonsense")
    with pytest.raises(LimbeckError, match="nonsense: is not a faiss index"):
        DenseIndex.open(tmp_path / "nonsense", "flat")


def test_building_a_graph_gives_threads_back(vectors: np.ndarray) -> None:
    before = dense.faiss.omp_get_max_threads()
    build_dense("hnsw", Array(vectors[:100]))
    assert dense.faiss.omp_get_max_threads() == before
