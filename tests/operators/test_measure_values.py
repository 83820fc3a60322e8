"""Measures as numbers: encoding, comparing and decoding keep every value of every type."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.measure_values import encode_measure
from operators.range_reduction import UFUNCS

ORDERED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.sampled_from([-(2**31), -1, 0, 5, 2**31 - 1]),
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 2**63 - 1]),
    pa.float64(): st.sampled_from([-math.inf, -1.5, 0.0, 5e-324, math.inf]),
    pa.string(): st.sampled_from(["", "a", "b", "é", "日本", "\U0001f600"]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2)),
    pa.timestamp("us"): st.sampled_from([dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime.max]),
    pa.decimal128(38, 4): st.sampled_from([Decimal("-0.0001"), Decimal(0), Decimal(10**33), Decimal("1.5000")]),
}
EXACT = Context(prec=80)
columns = st.sampled_from(list(ORDERED)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.one_of(st.none(), ORDERED[kind]), min_size=1, max_size=12))
)


@given(columns, st.sampled_from(["min", "max"]))
def test_values_come_back(column: tuple[pa.DataType, list[Any]], function: str) -> None:
    kind, values = column
    measure = encode_measure(function, pa.array(values, kind))
    decoded = measure.decode(measure.numbers)
    assert decoded.type == kind
    valid = [v is not None for v in values]
    assert (measure.valid is None) == all(valid)
    if measure.valid is not None:
        assert measure.valid.tolist() == valid
    assert [v for v, ok in zip(decoded.to_pylist(), valid, strict=True) if ok] == [v for v in values if v is not None]


@given(columns, st.sampled_from(["min", "max"]))
def test_numbers_are_ordered_as_the_values(column: tuple[pa.DataType, list[Any]], function: str) -> None:
    kind, values = column
    present = [v for v in values if v is not None]
    measure = encode_measure(function, pa.array(present, kind))
    if not present:
        return
    chosen = UFUNCS[function].reduce(measure.numbers)
    assert measure.decode(np.array([chosen]))[0].as_py() == {"min": min, "max": max}[function](present)


@given(st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1)), min_size=1, max_size=6))
def test_sums_of_decimals_are_exact_to_38_digits_and_null_beyond(units: list[int | None]) -> None:
    kind = pa.decimal256(76, 10)
    column = pa.array([None if u is None else Decimal(u).scaleb(-10, EXACT) for u in units], kind)
    measure = encode_measure("sum", column)
    total = sum(measure.numbers)
    assert total == sum(u or 0 for u in units)
    (decoded,) = measure.decode(np.array([total], dtype=object)).to_pylist()
    assert measure.decode(np.array([0], dtype=object)).type == pa.decimal128(38, 10)
    assert decoded == (Decimal(total).scaleb(-10, EXACT) if abs(total) < 10**38 else None)


@pytest.mark.parametrize("kind", [pa.string(), pa.decimal128(5, 2), pa.bool_()])
def test_all_null(kind: pa.DataType) -> None:
    measure = encode_measure("max", pa.array([None] * 3, kind))
    assert measure.valid is not None
    assert not measure.valid.any()
    assert measure.decode(measure.numbers).to_pylist() == [None] * 3
