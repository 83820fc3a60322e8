"""Decimals become the doubles that are nearest to them."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.decimals import nearest_doubles

EXACT = Context(prec=38)


@given(st.data(), st.integers(1, 38))
def test_they_are_what_python_makes_of_them(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, precision))
    least = data.draw(st.integers(1, precision))
    number = st.integers(-(10**least) + 1, 10**least - 1).map(lambda n: EXACT.scaleb(Decimal(n), -scale))
    values = data.draw(st.lists(st.none() | number, min_size=2))
    column = pa.array(values, pa.decimal128(precision, scale))
    expected = [None if value is None else float(value) for value in values]
    assert nearest_doubles(column).to_pylist() == expected
    assert nearest_doubles(column.slice(1)).to_pylist() == expected[1:]


@pytest.mark.parametrize("kind", [pa.decimal256(40, 2), pa.decimal128(10, -2)])
def test_other_decimals_are_read_from_their_text(kind: pa.DataType) -> None:
    assert nearest_doubles(pa.array([Decimal(700), None], kind)).to_pylist() == [700.0, None]
