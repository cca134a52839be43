"""What an index says of vectors that another runtime computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from limbeck.errors import LimbeckError
from limbeck.search.manifest import DenseFacts
from limbeck.search.mixing import mixed_with

SEVEN, EIGHT = ({"runtime": "int8", "bits": bits} for bits in (7, 8))
FITTED, OTHER = ({"runtime": "openvino-int8", "bits": 8, "calibrated": name} for name in ("a", "b"))
FACTS = DenseFacts("flat", 8, "dot", "digest")
PLACE = Path("index")


@pytest.mark.parametrize(
    ("own", "computed", "problem", "remedy"),
    [
        (None, SEVEN, "precision (float32) than these (int8, with weights of 7 bits)", "use --runtime torch"),
        (SEVEN, {}, "precision (int8, with weights of 7 bits) than these (float32)", "use --runtime int8"),
        (
            EIGHT,
            SEVEN,
            "of 8 bits) than these (int8, with weights of 7 bits)",
            "use a processor of the kind that it was",
        ),
        (FITTED, OTHER, "by openvino-int8, calibrated on the texts that it was built from", "best with --runtime int8"),
    ],
)
def test_vectors_of_another_runtime_are_refused_with_what_fits(own, computed, problem, remedy):
    with pytest.raises(LimbeckError) as refused:
        mixed_with(replace(FACTS, computed=own), computed, PLACE, False)
    assert problem in str(refused.value) and remedy in str(refused.value)
    assert str(refused.value).endswith("or add --mix-runtimes")


def test_what_is_mixed_in_is_kept_once_and_needs_no_second_permission():
    assert mixed_with(FACTS, {}, PLACE, False) == FACTS
    mixed = mixed_with(mixed_with(FACTS, SEVEN, PLACE, True), EIGHT, PLACE, True)
    assert mixed.mixed == [SEVEN, EIGHT] and mixed.computed is None
    assert mixed_with(mixed, SEVEN, PLACE, False) == mixed_with(mixed, {}, PLACE, False) == mixed
    with pytest.raises(LimbeckError, match="another precision"):
        mixed_with(mixed, FITTED, PLACE, False)
