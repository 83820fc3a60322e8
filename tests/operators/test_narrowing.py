"""Narrowed tables become again what they were, to the bit, and are smaller where numbers lie close together."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.state.narrowing import narrow, widen

INT64 = st.integers(-(2**63), 2**63 - 1)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int32(), st.integers(500, 600)),
    (pa.int64(), INT64),
    (pa.int64(), st.integers(2**62, 2**62 + 300)),
    (pa.int64(), st.sampled_from([-(2**63), 2**63 - 1])),
    (pa.timestamp("us"), st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 2))),
    (pa.timestamp("us"), st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))),
    (pa.date32(), st.dates()),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(max_size=3)),
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.none() | INT64),
]


@given(data=st.data(), rows=st.integers(0, 20))
def test_a_table_becomes_what_it_was(data: st.DataObject, rows: int) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), max_size=5))
    columns = {
        f"c{number}": pa.array(data.draw(st.lists(values, min_size=rows, max_size=rows)), kind)
        for number, (kind, values) in enumerate(kinds)
    }
    table = pa.table(columns).replace_schema_metadata(data.draw(st.sampled_from([None, {b"a": b"b"}])))
    narrowed = narrow(table)
    assert narrowed.nbytes <= table.nbytes
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, narrowed.schema) as writer:
        writer.write_table(narrowed)
    again = widen(pa.ipc.open_stream(sink.getvalue()).read_all())
    assert again.equals(table)
    assert again.schema.equals(table.schema, check_metadata=True)


@pytest.mark.parametrize(("span", "size"), [(255, 1), (256, 2), (2**16, 4), (2**32, 8)])
def test_as_few_bytes_as_the_distance_of_the_numbers_needs(span: int, size: int) -> None:
    table = narrow(pa.table({"n": pa.array([-7, span - 7], pa.int64())}))
    assert table.nbytes == 2 * size
