"""Pre-aggregation and merging of partial tables."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from operators.aggregation import (
    key_columns,
    latest_measure,
    measure_functions,
    measures_of,
    merge_partials,
    pre_aggregate,
    renumber,
)
from operators.expressions import Column
from operators.queries import COUNT_ALL, Measure
from operators.tuples import Tuples
from sources.schema import DOUBLE, ColumnType
from tests.operators.pipeline import MEASURES, SCHEMA, K, S, V, aggregation, batch_of, live_of


def random_rows(seed: int, length: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "k": rng.choice([None, 0, 1]),
            "v": rng.choice([None, *range(-3, 4)]),
            "s": rng.choice([None, "a", "é"]),
            "t": rng.randint(0, 5),
        }
        for _ in range(length)
    ]


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 39))
def test_parts_merge_to_the_whole(seed: int, length: int, cut: int) -> None:
    rows = random_rows(seed, length)
    groups = np.random.default_rng(seed).integers(0, 3, length)

    def part(low: int, high: int) -> pa.Table:
        return pre_aggregate(Tuples.of(batch_of(rows[low:high])), groups[low:high], [K, S], MEASURES)

    whole = part(0, length)
    by = ["group", *key_columns(whole)]
    parts = pa.concat_tables([part(0, min(cut, length)), part(min(cut, length), length)])
    merged = merge_partials(parts, by, measure_functions(whole))
    assert merged.schema == whole.schema
    assert Counter(map(str, merged.to_pylist())) == Counter(map(str, whole.to_pylist()))


def test_the_columns_say_what_they_are() -> None:
    table = pre_aggregate(Tuples.of(batch_of(random_rows(1, 5))), np.zeros(5, dtype=np.int64), [K, S], MEASURES)
    assert key_columns(table) == ["key0", "key1"]
    assert measure_functions(table) == {
        "count(*)": "count", "sum(v)": "sum", "min(v)": "min", "max(s)": "max", "count(s)": "count",
    }  # fmt: skip


def test_measures_are_computed_once_and_always_with_count_and_latest_time() -> None:
    live = live_of(aggregation(measures=(Measure("sum", V),)), aggregation(measures=(Measure("sum", V), COUNT_ALL)))
    found = measures_of(list(live.by_slot.values()), SCHEMA)
    assert found == (COUNT_ALL, latest_measure(SCHEMA), Measure("sum", V))


def test_minus_zero_and_zero_are_one_key() -> None:
    tuples = Tuples({"d": pa.array([0.0, -0.0, None, -0.0])}, 4)
    table = pre_aggregate(tuples, np.zeros(4, dtype=np.int64), [Column("d", DOUBLE)], [COUNT_ALL])
    assert sorted(map(str, table.select(["key0", "count(*)"]).to_pylist())) == [
        "{'key0': 0.0, 'count(*)': 3}",
        "{'key0': None, 'count(*)': 1}",
    ]


def test_partial_sums_of_decimals_do_not_wrap() -> None:
    kind = ColumnType("DECIMAL", 38, 0)
    tuples = Tuples({"m": pa.array([Decimal(9 * 10**37)] * 3, kind.arrow)}, 3)
    total = Measure("sum", Column("m", kind))
    table = pre_aggregate(tuples, np.zeros(3, dtype=np.int64), [], [total])
    twice = merge_partials(pa.concat_tables([table, table]), ["group"], {total.name: "sum"})
    assert twice[total.name].to_pylist() == [Decimal(54 * 10**37)]


def test_renumber_replaces_cells() -> None:
    table = pa.table({"cell": pa.array([0, 2, 2], pa.int32()), "x": [1, 2, 3]})
    assert renumber(table, np.array([5, 6, 7]))["cell"].to_pylist() == [5, 7, 7]
    assert renumber(table, np.array([5, 6, 7])).column_names == ["cell", "x"]
