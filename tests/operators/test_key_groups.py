"""Key groups: equal keys meet in one group, whatever else is in the batch; groups meet Spark's partitions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.state import key_groups as kg
from braid.operators.state.key_groups import key_groups, spread_over_partitions
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType

KEYS: dict[ColumnType, st.SearchStrategy[Any]] = {
    INT: st.integers(-3, 3),
    BIGINT: st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    DOUBLE: st.sampled_from([-1.5, -0.0, 0.0, 5e-324, 1e300, float("inf")]),
    VARCHAR: st.sampled_from(["", "a", "é", "日本"]),
    DATE: st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2)),
    TIMESTAMP: st.sampled_from([dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31)]),
    BOOLEAN: st.booleans(),
    ColumnType("DECIMAL", 20, 2): st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.50")]),
}


@st.composite
def key_columns(draw: st.DrawFn) -> tuple[list[ColumnType], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3))
    row = st.tuples(*(st.one_of(st.none(), KEYS[t]) for t in types))
    return types, draw(st.lists(row, min_size=1, max_size=20))


def groups_of(types: list[ColumnType], rows: list[tuple[Any, ...]], count: int) -> list[int]:
    arrays = [pa.array([r[i] for r in rows], t.arrow) for i, t in enumerate(types)]
    return key_groups(arrays, len(rows), count, "operator").tolist()


@given(key_columns(), st.integers(1, 9))
def test_the_group_follows_from_the_key_alone(keys: tuple[list[ColumnType], list[tuple[Any, ...]]], count: int) -> None:
    types, rows = keys
    together = groups_of(types, rows, count)
    assert all(0 <= group < count for group in together)
    assert together == [groups_of(types, [row], count)[0] for row in rows]
    by_key: dict[tuple[Any, ...], int] = {}
    for row, group in zip(rows, together, strict=True):  # -0.0 and 0.0 are one key of this dictionary
        assert by_key.setdefault(row, group) == group


def test_a_slice_of_an_array_hashes_as_its_values() -> None:
    array = pa.array([None, 1, 2, None, 3])
    assert key_groups([array.slice(2)], 3, 100, "x").tolist() == key_groups([array], 5, 100, "x").tolist()[2:]


def test_keys_spread_evenly() -> None:
    counts = np.bincount(key_groups([pa.array(range(10_000))], 10_000, 8, "x"))
    assert counts.min() > 1000
    texts = pa.array([f"user {i}" for i in range(10_000)])
    assert np.bincount(key_groups([texts], 10_000, 8, "x")).min() > 1000


def test_operators_without_keys_are_spread_by_name() -> None:
    groups = [int(key_groups([], 3, 8, f"operator {i}")[0]) for i in range(100)]
    assert len(set(groups)) == 8
    assert len(set(key_groups([], 3, 8, "operator 1").tolist())) == 1


@pytest.mark.parametrize(("value", "expected"), [(0, 933211791), (1, -559580957), (2, 1765031574)])
def test_murmur3_is_that_of_spark(value: int, expected: int) -> None:
    assert kg._murmur3(value) == expected


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16, 48])
def test_each_grouping_integer_lands_in_its_partition(partitions: int) -> None:
    chosen = spread_over_partitions(partitions)
    assert [kg._murmur3(value) % partitions for value in chosen] == list(range(partitions))


def test_known_placements() -> None:
    """Spark: pmod(hash(0), 2) = 1, pmod(hash(1), 2) = 1, pmod(hash(2), 2) = 0."""
    assert spread_over_partitions(2) == [2, 0]
    assert spread_over_partitions(1) == [0]
