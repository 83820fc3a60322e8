"""Tuples with their slices, keys and measures: what is worked out about them once for all cell spaces."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Call, Column
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.packed_sums import Packable
from braid.operators.state.sliced_tuples import EncodedMeasures, SlicedTuples
from braid.operators.tuples import Tuples
from braid.sources.core.schema import BIGINT, VARCHAR

KEY, PRICE = Column("key", BIGINT), Column("price", BIGINT)
SUM = Measure("sum", PRICE)
GROUPS = 3

Rows = list[tuple[int, int, int]]
"""The slice, the key and the price of each tuple."""

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(-99, 99)), min_size=1, max_size=50)


def sliced_tuples(rows: Rows, spaces: int = 1) -> SlicedTuples:
    """Return tuples whose event times are their numbers."""
    slice_of, key, price = (np.array(column) for column in zip(*rows, strict=True))
    slices = slice_of.max() + 1
    tuples = Tuples({"key": pa.array(key), "price": pa.array(price)}, len(rows))
    return SlicedTuples.of(
        tuples,
        np.arange(len(rows)),
        EncodedMeasures.of_tuples(tuples),
        np.stack([np.arange(slices), np.arange(slices) + 1], axis=1),
        slice_of.astype(np.int32),
        [KEY],
        GROUPS,
        "salt",
        spaces=spaces,
    )


def keys_of(sliced: SlicedTuples) -> list[int]:
    keys: list[int] = sliced.keys.keys.column(0).to_pylist()
    return [keys[code] for code in sliced.keys.codes]


@given(ROWS)
def test_each_slice_has_the_greatest_event_time_of_its_tuples(rows: Rows) -> None:
    latest = sliced_tuples(rows).latest
    for number in range(len(latest)):
        times = [time for time, (slice_of, _, _) in enumerate(rows) if slice_of == number]
        assert latest[number] == max(times, default=np.iinfo(np.int64).min)


@given(ROWS, st.data())
def test_some_of_the_tuples_keep_their_slices_keys_and_numbers(rows: Rows, data: st.DataObject) -> None:
    sliced = sliced_tuples(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
    some = sliced.take(np.array(chosen, dtype=np.int32))
    assert some.length == len(chosen)
    assert some.slice_of.tolist() == [rows[at][0] for at in chosen]
    assert keys_of(some) == [rows[at][1] for at in chosen]
    [numbers] = some.measures.of([SUM])[SUM].numbers.values()
    assert numbers.tolist() == [rows[at][2] for at in chosen]


@given(ROWS)
def test_tuples_with_one_slice_and_key_have_one_column(rows: Rows) -> None:
    sliced = sliced_tuples(rows)
    place = {(slice_of, key): column for (slice_of, key, _), column in zip(rows, sliced.column.tolist(), strict=True)}
    assert [place[slice_of, key] for slice_of, key, _ in rows] == sliced.column.tolist()
    assert len(set(place.values())) == len(place)
    assert all(0 <= column < len(sliced.slices) * sliced.keys.count for column in place.values())


@given(ROWS)
def test_slices_that_follow_each_other_have_bounds(rows: Rows) -> None:
    bounds, slice_of = sliced_tuples(rows).bounds, [row[0] for row in rows]
    if slice_of != sorted(slice_of) and max(slice_of) > 0:
        assert bounds is None
        return
    assert bounds is not None
    for number, (first, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        assert slice_of[first:end] == [number] * slice_of.count(number)


@given(ROWS)
def test_by_group_lists_each_tuple_once_by_key_group_and_slice(rows: Rows) -> None:
    sliced = sliced_tuples(rows)
    order, starts = sliced.by_group
    assert sorted(order.tolist()) == list(range(len(rows)))
    places = [(group, number) for group in range(GROUPS) for number in range(len(sliced.slices))]
    for (group, number), first, end in zip(places, starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        low, high = sliced.keys.group_starts[group : group + 2]
        assert all(low <= sliced.keys.codes[at] < high and rows[at][0] == number for at in order[first:end])
    assert starts[-1] == len(rows)


@given(ROWS)
def test_the_sample_has_a_tuple_of_each_stretch(rows: Rows) -> None:
    sliced = sliced_tuples(rows)
    positions, column = sliced.sample
    assert positions.tolist() == list(range(len(rows)))  # so few that each is a stretch
    assert column.tolist() == sliced.column.tolist()


@given(ROWS)
def test_the_fullest_column_of_few_tuples_is_counted(rows: Rows) -> None:
    places = [row[:2] for row in rows]
    assert round(sliced_tuples(rows).fullest_column) == max(map(places.count, places))


def test_numbers_are_narrowed_to_16_bits_for_several_spaces_only() -> None:
    rows = [(0, 1, 5), (1, 2, -7)]
    several, one = sliced_tuples(rows, spaces=2), sliced_tuples(rows)
    packable = Packable.first_of(several.measures.of([SUM]), len(rows))
    assert packable is not None
    short = several.short(packable)
    assert short is not None
    columns, numbers = short
    assert (columns.dtype, numbers.dtype) == (np.uint16, np.int16)
    assert (columns.tolist(), numbers.tolist()) == (several.column.tolist(), [5, -7])
    assert one.short(packable) is None
    too_large = dataclasses.replace(packable, extent=(-7, 1 << 15, 0))
    assert several.short(too_large) is None


def test_measures_are_encoded_once() -> None:
    encoded: list[Measure] = []

    def encode(measure: Measure) -> components.Encoded:
        encoded.append(measure)
        return components.encode(measure, pa.array([1, 2]))

    measures = EncodedMeasures(encode)
    assert measures.of([SUM])[SUM] is measures.of([SUM])[SUM]
    assert measures.take(np.array([1], dtype=np.int32)).of([SUM])[SUM].numbers.popitem()[1].tolist() == [2]
    assert encoded == [SUM]


def test_a_measure_whose_argument_fails_is_null_and_says_why() -> None:
    unknown = Call("no such function", (Column("text", VARCHAR),), BIGINT)
    tuples = Tuples({"text": pa.array(["a", "b"])}, 2)
    measure = Measure("sum", unknown)
    valid = EncodedMeasures.of_tuples(tuples).of([measure])[measure].valid
    assert valid is not None
    assert not valid.any()
    assert list(tuples.failures) == [str(unknown)]
