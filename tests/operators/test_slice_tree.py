"""Stretches of slices added up ahead: windows read fewer entries, and hold what they would without."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.aggregation import slice_tree
from braid.operators.aggregation.due import WindowedQueries
from braid.operators.aggregation.firing import fire
from braid.operators.aggregation.slice_tree import Itemized, level_above, stretches
from braid.operators.live_queries import LiveQueries
from braid.operators.query_parts import AGGREGATION, COUNT_ALL, Measure
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import COUNT_NAME
from braid.operators.state.query_runs import read_bucket
from braid.operators.stream_operators import StreamOperators
from braid.operators.windows import Window
from tests.operators.pipeline import STREAM, K, S, V, aggregation, batch_of, compare, live_of, predicate_of

CELLS, KEYS = 3, 4
MEASURES = (
    COUNT_ALL,
    *(Measure(function, V) for function in ("sum", "min", "count", "stddev_samp")),
    Measure("max", S),
)


@dataclass(frozen=True)
class Items:
    starts: npt.NDArray[np.int64]
    cell: npt.NDArray[Any]
    key: npt.NDArray[Any]
    components: Mapping[str, npt.NDArray[Any]]


def random_items(rng: np.random.Generator, items: int, max_entries: int) -> Items:
    """Return items of which each has up to so many entries, some none."""
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, max_entries, items, endpoint=True))])
    length = int(starts[-1])
    return Items(
        starts,
        rng.integers(0, CELLS, length).astype(np.int16),
        rng.integers(0, KEYS, length).astype(np.int32),
        {
            COUNT_NAME: rng.integers(1, 5, length).astype(np.int32),
            "sum(v)": rng.integers(-(2**62), 2**62, length),
            "min(v)": rng.normal(size=length),
            "pairs(v)#0": rng.integers(-9, 9, length).astype(np.complex128),
        },
    )


def totals_of(parts: list[tuple[Itemized, int, int]]) -> dict[tuple[int, int], list[Any]]:
    """Return the numbers of each cell and key, by a loop over all entries."""
    totals: dict[tuple[int, int], list[Any]] = {}
    for entries, low, high in parts:
        for i in range(low, high):
            place = int(entries.cell[i]), int(entries.key[i])
            numbers = [entries.components[name][i].item() for name in (COUNT_NAME, "sum(v)", "min(v)", "pairs(v)#0")]
            before = totals.setdefault(place, [0, 0, math.inf, 0])
            sum_ = (before[1] + numbers[1] + 2**63) % 2**64 - 2**63
            totals[place] = [before[0] + numbers[0], sum_, min(before[2], numbers[2]), before[3] + numbers[3]]
    return totals


@given(
    seed=st.integers(0, 2**32), items=st.integers(1, 200), most=st.integers(1, 12), fewer=st.integers(2, 4),
    span=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)  # fmt: skip
def test_a_span_holds_what_its_items_hold(
    seed: int, items: int, most: int, fewer: int, span: tuple[float, float]
) -> None:
    entries = random_items(np.random.default_rng(seed), items, most)
    first, after = sorted(round(part * items) for part in span)
    with mock.patch.object(slice_tree, "_FEWER", fewer):
        parts = list(stretches(entries, level_above(entries, CELLS, KEYS), first, after))
    assert totals_of(parts) == totals_of([(entries, int(entries.starts[first]), int(entries.starts[after]))])


def test_a_long_span_reads_few_entries() -> None:
    items = 20_000
    entries = random_items(np.random.default_rng(1), items, 1)
    above = level_above(entries, CELLS, KEYS)
    assert above is not None
    assert above.above is not None
    read = sum(high - low for _, low, high in stretches(entries, above, 1, items - 1))
    levels = math.log(len(entries.cell) / (CELLS * KEYS), slice_tree._FEWER)
    assert read <= levels * 2 * slice_tree._FEWER * CELLS * KEYS * 2 < len(entries.cell) / 8


@pytest.mark.parametrize(
    ("items", "most", "keys"),
    [(3, 1000, KEYS), (1000, 1, 2000), (1, 1, KEYS), (20_000, 1, 1 << 20)],
    ids=["few items", "many keys", "one item", "more keys than are addressed"],
)
def test_no_stretches_where_they_would_not_be_fewer(items: int, most: int, keys: int) -> None:
    assert level_above(random_items(np.random.default_rng(1), items, most), CELLS, keys) is None


def many_windows() -> LiveQueries:
    rng = random.Random(3)
    queries = [
        aggregation(
            compare(V, ">", rng.randrange(-3, 4)),
            (K,),
            Window(rng.randrange(200, 2000), rng.randrange(50, 200), rng.randrange(50)),
            MEASURES,
        )
        for _ in range(40)
    ]
    return live_of(*queries)


def test_windows_fire_the_same_rows_with_and_without_stretches() -> None:
    rng = random.Random(4)
    live = many_windows()
    operators = StreamOperators(live, STREAM, 1)
    buckets: list[Bucket] = []
    for start in range(0, 3000, 1000):
        rows = [
            {
                "k": rng.randrange(3),
                "v": rng.choice([None, *range(-3, 4)]),
                "s": rng.choice([None, "a", "é", "bb"]),
                "t": start + rng.randrange(1000),
            }
            for _ in range(4000)
        ]
        buckets += [read_bucket(bucket.serialize()) for _, bucket in operators.process(batch_of(rows), None).buckets]
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()

    def rows_fired() -> list[dict[str, Any]]:
        windows = fire(buckets, WindowedQueries(queries, predicate_of), 1000, 2500)
        assert windows is not None
        return windows.table.to_pylist()

    fired = rows_fired()
    assert all(bucket.above is not None for bucket in buckets)
    with mock.patch.object(Bucket, "above", None):
        for bucket in buckets:
            bucket.__dict__.pop("above")
        without_stretches = rows_fired()
    assert len(fired) == len(without_stretches) > 1000
    assert fired == without_stretches, "sums of small whole numbers are exact, whatever the order"
