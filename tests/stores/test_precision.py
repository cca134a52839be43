from __future__ import annotations

import numpy as np
import pytest

from limbeck.stores.precision import ReconstructionError, pack, reconstruction_error, unpack


def test_int8_scales_each_vector_by_its_own_largest_entry() -> None:
    vectors = np.array([[127.0, -63.5, 1.0], [0.0254, 0.0, -0.0127], [0.0, 0.0, 0.0]], dtype=np.float32)
    values, scales = pack(vectors, "int8")
    assert scales is not None
    np.testing.assert_allclose(scales, [1.0, 0.0002, 0.0], rtol=1e-6)
    # 63.5 rounds to even, 0.0127 / 0.0002 is 63.5 but for the last bit
    assert values[0].tolist() == [127, -64, 1]
    assert values[1].tolist() in ([127, 0, -64], [127, 0, -63])
    assert values[2].tolist() == [0, 0, 0]
    assert unpack(values, scales)[0].tolist() == [127.0, -64.0, 1.0]


def test_the_error_is_the_share_of_the_norm_that_is_lost() -> None:
    vectors = np.array([[127.0, -63.5, 1.0], [0.0, 3.0, 4.0]], dtype=np.float32)
    values = np.array([[127, -64, 1], [0, 3, 4]], dtype=np.int8)
    error = reconstruction_error(vectors, values, np.ones(2, dtype=np.float32))
    first = 127.0**2 + 63.5**2 + 1
    assert error.relative == pytest.approx(np.sqrt(0.25 / (first + 25)))
    assert error.worst == pytest.approx(0.5 / np.sqrt(first))


def test_errors_of_shards_add_up_to_the_error_of_the_whole() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    whole = reconstruction_error(vectors, *pack(vectors, "int8"))
    parts = [reconstruction_error(part, *pack(part, "int8")) for part in (vectors[:7], vectors[7:])]
    joined = sum((ReconstructionError.from_json(part.to_json()) for part in parts), ReconstructionError())
    assert joined.relative == pytest.approx(whole.relative)
    assert joined.worst == whole.worst


@pytest.mark.parametrize(("precision", "bound"), [("float32", 0.0), ("float16", 2.0**-11), ("int8", 0.5 / 127)])
def test_every_entry_comes_back_within_half_a_step(precision: str, bound: float) -> None:
    vectors = np.random.default_rng(0).normal(size=(100, 3, 16)).astype(np.float32)
    back = unpack(*pack(vectors, precision))
    assert back.dtype == np.float32
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    assert (np.abs(back - vectors) <= bound * largest * 1.0001).all()
    if precision != "float32":
        assert np.abs(back - vectors).max() > 0.5 * bound
