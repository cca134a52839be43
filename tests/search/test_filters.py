from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from limbeck.errors import LimbeckError
from limbeck.search.filters import matching, parse_conditions, require_known

FIELDS = pa.table(
    {
        "lang": ["en", "de", None, "en"],
        "year": [2019, 2020, 2021, None],
        "score": [0.5, 1.5, 2.5, -1.0],
        "day": ["2020-01-31", "2021-05-02", "2019-12-01", ""],
        "open": [True, False, None, True],
        "tags": pa.array([["a", "b"], [], None, ["b"]], type=pa.list_(pa.large_string())),
        "meta.site": ["x y", "z", "", "x y"],
    }
)


@pytest.mark.parametrize(
    ("clauses", "rows"),
    [
        (["lang=en"], [0, 3]),
        (["lang!=en"], [1]),
        (["year>=2020"], [1, 2]),
        (["year = 2020"], [1]),
        (["year<2020.5", "lang=de"], [1]),
        (["score>-0.5", "score<2"], [0, 1]),
        (["day>2020"], [0, 1]),
        (["open=true"], [0, 3]),
        (["open!=True"], [1]),
        (["tags=b"], [0, 3]),
        (["tags!=a"], [1, 3]),
        (["meta.site=x y"], [0, 3]),
        (["meta.site="], [2]),
        ([], [0, 1, 2, 3]),
    ],
)
def test_conditions_choose_rows(clauses: list[str], rows: list[int]) -> None:
    assert np.flatnonzero(matching(FIELDS, 4, parse_conditions(clauses))).tolist() == rows


LARGE = 2**53 + 1  # a float would be 2**53


@pytest.mark.parametrize(
    ("clause", "rows"),
    [
        (f"number={LARGE}", [1]),
        (f"number<{LARGE}", [0, 2]),
        ("number>2.5", [0, 1]),
        (f"number<{2**70}", [0, 1, 2]),
        (f"price<{LARGE}", [0, 1, 2]),
    ],
)
def test_numbers_too_large_for_a_float_are_compared_all_the_same(clause: str, rows: list[int]) -> None:
    fields = pa.table({"number": [LARGE - 1, LARGE, 1], "price": [0.5, 1e3, -2.0]})
    assert np.flatnonzero(matching(fields, 3, parse_conditions(clause))).tolist() == rows


def test_passages_without_fields_meet_no_condition() -> None:
    assert not matching(None, 3, parse_conditions("lang=en")).any()
    assert matching(None, 3, ()).all()


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("lang", "cannot read the condition 'lang'; write FIELD=VALUE"),
        ("=en", "cannot read the condition"),
        ("lang==en", "cannot read the condition"),
        ("year=>2020", "cannot read the condition"),
        ("year>=new", "'year>=new' is a number; compare it with a number"),
        ("open=yes", "true or false"),
        ("tags>a", "is a list, which cannot be ordered"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(clause: str, words: str) -> None:
    with pytest.raises(LimbeckError, match=words):
        matching(FIELDS, 4, parse_conditions(clause))


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(LimbeckError, match="here: no passage has a field 'langg'; did you mean 'lang'"):
        require_known(parse_conditions("langg=en"), FIELDS.column_names, "here")
    with pytest.raises(LimbeckError, match="have no fields"):
        require_known(parse_conditions("lang=en"), [], "here")
