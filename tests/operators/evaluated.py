"""Expressions over columns of each type, and the values that they have."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression, Literal
from braid.operators.functions.coercion import decimal_type, integer_type
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, TIMESTAMP, VARCHAR, ColumnType

MONEY = ColumnType("DECIMAL", 10, 2)
TYPES = {
    "i": INT,
    "b": BIGINT,
    "d": DOUBLE,
    "m": MONEY,
    "s": VARCHAR,
    "t": TIMESTAMP,
    "day": DATE,
    "ok": BOOLEAN,
}
COLUMNS = {name: Column(name, kind) for name, kind in TYPES.items()}
N, B, D, M, S, T, DAY, OK = COLUMNS.values()
MIN, MAX = -(2**63), 2**63 - 1
EDGES = [0, 1, -1, 2, 7, -7, 2**31, 2**32 + 1, -(2**32), MAX, MAX - 1, MIN, MIN + 1]
INTEGERS = st.none() | st.sampled_from(EDGES) | st.integers(MIN, MAX) | st.integers(-100, 100)
MOMENT = dt.datetime(2024, 2, 29, 23, 59, 58, 123456)
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)


def lit(value: Any) -> Literal:
    """Return a literal as the SQL front end types it."""
    if value is None:
        return Literal(None, NULL)
    kinds: dict[type, ColumnType] = {
        bool: BOOLEAN,
        float: DOUBLE,
        str: VARCHAR,
        dt.date: DATE,
        dt.datetime: TIMESTAMP,
    }
    kind = kinds.get(type(value))
    if isinstance(value, Decimal):
        kind = decimal_type(value)
    elif isinstance(value, int) and kind is None:
        kind = integer_type(value)
    assert kind is not None
    return Literal(value, kind)


def values(expression: Expression, **columns: list[Any]) -> list[Any]:
    """Return the values of an expression over columns called as in TYPES."""
    arrays = {name: pa.array(column, TYPES[name].arrow) for name, column in columns.items()}
    length = len(next(iter(columns.values()))) if columns else 1
    result = evaluate(expression, arrays, length)
    assert isinstance(result, pa.Array)
    assert result.type == expression.type.arrow
    assert len(result) == length
    result.validate(full=True)
    return list(result.to_pylist())
