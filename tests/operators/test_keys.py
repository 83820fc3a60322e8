"""Keys: equal values have equal codes, in whatever tables and types they come."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.joins.matches.groups import distinct_counts
from braid.operators.state.keys import KeyColumn, encode_keys, key_columns, key_digits, unite_keys

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [None, -(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [None, -(2**63), 7, 8, 2**63 - 1],
    pa.float64(): [None, -1.5, 0.0, 1e300],
    pa.string(): [None, "", "a", "é"],
    pa.bool_(): [None, False, True],
    pa.date32(): [None, dt.date(1970, 1, 1), dt.date(2026, 1, 1)],
    pa.timestamp("us"): [None, dt.datetime(1970, 1, 1), dt.datetime(2026, 1, 1)],
}
kinds = st.lists(st.sampled_from(list(VALUES)), max_size=3)


@st.composite
def columns_of(draw: st.DrawFn, kinds: list[pa.DataType]) -> list[pa.Array]:
    rows = draw(st.integers(1, 30))
    return [pa.array(draw(st.lists(st.sampled_from(VALUES[k]), min_size=rows, max_size=rows)), k) for k in kinds]


def tuples_of(columns: list[pa.Array], rows: int) -> list[tuple[Any, ...]]:
    return [tuple(column[i].as_py() for column in columns) for i in range(rows)]


@given(st.data(), kinds, st.integers(1, 3))
def test_codes_are_rows_of_the_distinct_keys_group_by_group(
    data: st.DataObject, kinds: list[pa.DataType], groups: int
) -> None:
    columns = data.draw(columns_of(kinds))
    rows = len(columns[0]) if columns else 3
    found = encode_keys(columns, rows, groups, "salt")
    given_keys = tuples_of(columns, rows)
    distinct = tuples_of([found.keys[name] for name in key_columns(found.keys)], found.count)
    assert len(set(distinct)) == len(distinct) == found.count == len(set(given_keys))
    assert [distinct[code] for code in found.codes] == given_keys
    assert found.group_starts[0] == 0
    assert len(found.group_starts) == groups + 1
    assert sum(found.of_group(g).num_rows for g in range(groups)) == found.count
    again = encode_keys([column.slice(rows // 2) for column in columns], rows - rows // 2, groups, "salt")
    for group in range(groups):  # a key is in the same group wherever it occurs
        names = key_columns(found.keys)
        inside = set(tuples_of([found.of_group(group)[name] for name in names], found.of_group(group).num_rows))
        repeated = set(tuples_of([again.of_group(group)[name] for name in names], again.of_group(group).num_rows))
        assert repeated <= inside


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us")])
@pytest.mark.parametrize("spread", [1, 10_000])
def test_whole_numbers_close_to_each_other_and_far_apart(kind: pa.DataType, spread: int) -> None:
    numbers = np.array([5, 3, 5, 9, 3, -2]) * spread
    plain = pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    column = pa.array(numbers, plain).view(kind)
    found = encode_keys([column], 6, 1, "")
    assert found.keys["key0"].type == kind
    assert found.keys["key0"].combine_chunks().take(pa.array(found.codes)).equals(column)


def test_minus_zero_and_zero_are_one_key() -> None:
    found = encode_keys([pa.array([0.0, -0.0, None, -0.0])], 4, 1, "")
    assert found.codes[0] == found.codes[1] == found.codes[3] != found.codes[2]
    assert str(found.keys["key0"][int(found.codes[1])].as_py()) == "0.0"


@pytest.mark.parametrize("groups", [1, 8])
def test_nan_is_one_key_whatever_its_sign(groups: int) -> None:
    column = pa.array(np.array([math.nan, 1.0, -math.nan, math.nan]))
    found = encode_keys([column], 4, groups, "")
    assert found.codes[0] == found.codes[2] == found.codes[3] != found.codes[1]
    assert found.count == 2
    negated, plain = (encode_keys([pa.array([number])], 1, groups, "salt") for number in (-math.nan, math.nan))
    assert negated.group_starts.tolist() == plain.group_starts.tolist(), "other tasks find it in the same key group"
    assert distinct_counts(column, np.zeros(4, dtype=np.int32), 1).tolist() == [2]


@given(st.data(), kinds)
def test_keys_of_several_tables_get_common_codes(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    tables = []
    for _ in range(data.draw(st.integers(1, 3))):
        columns = data.draw(columns_of(kinds))
        tables.append(encode_keys(columns, len(columns[0]) if columns else 1, 1, "").keys)
    is_known = data.draw(st.booleans())
    keys, codes = unite_keys(tables, digits=(lambda: map(key_digits, tables)) if is_known else None)
    names = key_columns(keys)
    united = tuples_of([keys[name] for name in names], keys.num_rows)
    assert len(set(united)) == len(united)
    for table, mine in zip(tables, codes, strict=True):
        assert [united[code] for code in mine] == tuples_of([table[name] for name in names], table.num_rows)


def test_close_numbers_that_are_far_from_those_of_other_tables_get_common_codes_too() -> None:
    tables = [pa.table({"key0": pa.array(values, pa.int64())}) for values in ([1, 2], [2**60, 2], [None, 1], [])]
    for some in (tables[:2], tables[:1] + tables[2:], tables):
        digits = [key_digits(table) for table in some]
        keys, codes = unite_keys(some, digits=digits.copy)
        assert [keys["key0"].take(pa.array(mine)).to_pylist() for mine in codes] == [
            t["key0"].to_pylist() for t in some
        ]
        assert keys.num_rows == len(set(keys["key0"].to_pylist()))


@given(st.data(), kinds)
def test_a_column_among_the_keys_of_several_operators_gives_each_the_same_codes(
    data: st.DataObject, kinds: list[pa.DataType]
) -> None:
    columns = data.draw(columns_of(kinds))
    rows, shared = len(columns[0]) if columns else 1, [KeyColumn(column) for column in columns]
    for some in (slice(None), slice(1), slice(1, None), slice(None, None, -1)):
        found, expected = (encode_keys(each[some], rows, 3, "salt") for each in (shared, columns))
        assert found.keys.equals(expected.keys)
        assert found.codes.tolist() == expected.codes.tolist()
        assert found.group_starts.tolist() == expected.group_starts.tolist()


@given(st.data(), st.sampled_from(list(VALUES)), st.integers(1, 3))
def test_columns_in_chunks_get_the_codes_of_the_whole(data: st.DataObject, kind: pa.DataType, groups: int) -> None:
    """Close whole numbers are numbered chunk by chunk, all others together."""
    close = [value for value in VALUES[kind] if value is not None and (not isinstance(value, int) or abs(value) < 9)]
    whole = pa.array(data.draw(st.lists(st.sampled_from(close or VALUES[kind]), min_size=1, max_size=30)), kind)
    cut = data.draw(st.integers(0, len(whole)))
    pieces = pa.chunked_array([whole.slice(0, cut), whole.slice(cut)], kind)
    found, expected = (encode_keys([column], len(whole), groups, "salt") for column in (pieces, whole))
    assert found.keys.equals(expected.keys)
    assert found.codes.tolist() == expected.codes.tolist()
    assert found.group_starts.tolist() == expected.group_starts.tolist()
    assert found.keys["key0"].combine_chunks().take(pa.array(found.codes)).equals(whole)
