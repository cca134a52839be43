"""Conditions on the fields of passages: `lang=en`, `year>=2020`, `source!=forum`.

Numbers are compared as numbers and texts as texts, so dates such as 2020-01-31 compare correctly. A list matches `=` if
it contains the value. A passage without the field never matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limbeck.errors import LimbeckError, did_you_mean

_CLAUSE = re.compile(r"\s*([^=<>!\s]+)\s*(>=|<=|!=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True)
class Condition:
    """One comparison of a field with a value."""

    field: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{self.value}"


def parse_conditions(clauses: str | Iterable[str]) -> tuple[Condition, ...]:
    """Conditions that must all hold, each written FIELD, operator, VALUE."""
    found = []
    for clause in [clauses] if isinstance(clauses, str) else clauses:
        match = _CLAUSE.fullmatch(clause)
        if match is None or match.group(3).startswith(("=", "<", ">")):  # == and => are typing errors, not values
            raise LimbeckError(f"cannot read the condition {clause!r}; write FIELD=VALUE, or != < <= > >= for the =")
        found.append(Condition(*match.groups()))
    return tuple(found)


def matching(fields: pa.Table | None, rows: int, conditions: Sequence[Condition]) -> np.ndarray:
    """Which of `rows` passages meet all conditions: [rows] bool."""
    mask = np.ones(rows, dtype=bool)
    for condition in conditions:
        if fields is None or condition.field not in fields.column_names:
            return np.zeros(rows, dtype=bool)
        mask &= _meets(fields[condition.field], condition)
    return mask


def require_known(conditions: Sequence[Condition], known: Iterable[str], place: object) -> None:
    """Refuse a condition on a field that no passage has."""
    names = sorted(set(known))
    for condition in conditions:
        if condition.field not in names:
            remedy = did_you_mean(condition.field, names) if names else "its passages have no fields"
            raise LimbeckError(f"{place}: no passage has a field {condition.field!r}; {remedy}")


def _meets(column: pa.ChunkedArray, condition: Condition) -> np.ndarray:
    if pa.types.is_list(column.type):
        return _holds(column, condition)
    value = _value(column.type, condition)
    if pa.types.is_integer(column.type) and pa.types.is_floating(value.type):
        column = column.cast(pa.float64(), safe=False)
    found = _COMPARE[condition.operator](column, value)
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def _holds(column: pa.ChunkedArray, condition: Condition) -> np.ndarray:
    if condition.operator not in ("=", "!="):
        raise LimbeckError(f"the field of {str(condition)!r} is a list, which cannot be ordered; use = or !=")
    lists = column.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    holders = owners[pc.equal(pc.list_flatten(lists), condition.value).to_numpy(zero_copy_only=False)]
    found = np.zeros(len(lists), dtype=bool)
    found[holders] = True
    present = lists.is_valid().to_numpy(zero_copy_only=False)
    return found if condition.operator == "=" else present & ~found


def _number(kind: pa.DataType, condition: Condition) -> pa.Scalar:
    """Compare whole numbers exactly: above 2**53 a float is not exact."""
    try:
        if pa.types.is_integer(kind) and abs(whole := int(condition.value)) < 2**63:
            return pa.scalar(whole)
    except ValueError:
        pass  # 2.5, or not a number
    try:
        return pa.scalar(float(condition.value))
    except ValueError as error:
        raise LimbeckError(f"the field of {str(condition)!r} is a number; compare it with a number") from error


def _value(kind: pa.DataType, condition: Condition) -> pa.Scalar:
    if pa.types.is_boolean(kind):
        if condition.value.lower() not in ("true", "false"):
            raise LimbeckError(f"the field of {str(condition)!r} is a boolean; compare it with true or false")
        return pa.scalar(condition.value.lower() == "true")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _number(kind, condition)
    return pa.scalar(condition.value, pa.large_string())
