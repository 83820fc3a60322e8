"""Computed columns where tuples are decoded: in every format, row by row where some fail, and as event times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.core.schema import BIGINT, Field, StreamSchema
from braid.sources.formats import computed, decode
from braid.sources.formats.computed import compute
from braid.sources.formats.csv_records import CsvLayout, read_fast
from braid.sources.formats.ndjson import WORTH_BYTES
from braid.sources.formats.ndjson import read_fast as read_fast_json
from tests.sources.formats.every_format import FORMATS, NDJSON, Decode


def schema_of(columns: str) -> StreamSchema:
    """Return the columns of a declaration."""
    statement = parse_statement(f"CREATE STREAM s ({columns}) WITH (connector = 'push')")
    assert isinstance(statement, CreateStream)
    return statement.schema


SCHEMA = schema_of(
    "ms BIGINT, price DOUBLE, quantity INT, total AS price * quantity, half DECIMAL(8, 2) AS (total / 2),"
    " ts AS TO_TIMESTAMP(ms / 1000.0) LATENESS INTERVAL '1' SECOND"
)
NAMES = ["ms", "price", "quantity", "total", "half", "ts"]


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_columns_are_computed_from_those_that_were_read(decode: Decode) -> None:
    rows: list[dict[str, Any]] = [
        {"ms": 1_700_000_000_123, "price": 2.5, "quantity": 3},
        {"ms": None, "price": 1.0, "quantity": 1},
        {"ms": 5, "price": None, "quantity": 2},
        {"ms": 10**17, "price": 1.0, "quantity": 1},
    ]
    decoded = decode(rows, SCHEMA)
    assert decoded.tuples.schema == SCHEMA.arrow
    assert list(decoded.tuples.schema.names) == NAMES
    first, second = decoded.tuples.to_pylist()
    assert first["ts"] == datetime(2023, 11, 14, 22, 13, 20, 123000)
    assert (first["total"], float(first["half"])) == (7.5, 3.75)
    assert (second["ts"], second["total"], second["half"]) == (datetime(1970, 1, 1, 0, 0, 0, 5000), None, None)
    rule = "column 'ts' is the event time, computed as TO_TIMESTAMP(ms / 1000.0), and must not be NULL"
    assert [fault.line for fault in decoded.malformed] == [2, 4]
    for fault, value in zip(decoded.malformed, ("NULL", "100000000000000000"), strict=True):
        assert fault.detail.endswith(f"{rule}; ms is {value}")


def test_what_makes_an_event_time_null_is_shown() -> None:
    schema = schema_of(
        "tag VARCHAR, uhr VARCHAR,"
        " t AS TO_TIMESTAMP(tag || ' ' || uhr, 'dd.MM.yyyy HH:mm') LATENESS INTERVAL '0' SECOND"
    )
    decoded = decode(b'{"tag": "31.02.2026", "uhr": "10:00"}\n{"tag": "' + b"x" * 200 + b'"}', NDJSON, schema)
    first, second = (fault.detail.partition("; ")[2] for fault in decoded.malformed)
    assert first == "tag is '31.02.2026', uhr is '10:00'"
    assert second == f"tag is '{'x' * 99}…, uhr is NULL"


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_a_division_by_zero_makes_its_tuple_malformed(decode: Decode) -> None:
    schema = schema_of("a DOUBLE, b DOUBLE, ratio AS a / b, t TIMESTAMP LATENESS INTERVAL '0' SECOND")
    time = "2026-01-01T00:00:00Z"
    decoded = decode([{"a": 1.0, "b": b, "t": time} for b in (2.0, 0.0, -4.0)], schema)
    assert decoded.tuples.column("ratio").to_pylist() == [0.5, -0.25]
    (fault,) = decoded.malformed
    assert fault.line == 2
    assert fault.detail.endswith("column 'ratio', computed as a / b, must be finite, got inf")


def test_what_is_wrong_with_a_value_is_told_before_what_is_computed_from_it() -> None:
    decoded = decode(b'{"ms": "soon", "price": 1, "quantity": 1}', NDJSON, SCHEMA)
    assert "column 'ms' must be a BIGINT, got 'soon'" in decoded.malformed[0].detail


@dataclass(frozen=True)
class Failing:
    """Doubles numbers, and fails where ``wrong`` are among them; ``most`` rows at once."""

    wrong: frozenset[int]
    most: int = 1000
    text: str = "n * 2"

    def evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        numbers = columns["n"].to_pylist()
        if len(numbers) != rows or not self.wrong.isdisjoint(numbers) or rows > self.most:
            raise ValueError("too much")
        return pa.array([2 * number for number in numbers], pa.int64())

    def to_json(self) -> Any:
        return self.text


@given(st.integers(0, 40), st.frozensets(st.integers(0, 40)), st.integers(1, 50))
def test_rows_that_fail_harm_no_others(rows: int, wrong: frozenset[int], most: int) -> None:
    field = Field("x", BIGINT, computed=Failing(wrong, most))
    values, errors = compute(field, {"n": pa.array(range(rows), pa.int64())}, rows)
    assert errors.keys() == {number for number in wrong if number < rows}
    assert values.to_pylist() == [None if number in errors else 2 * number for number in range(rows)]
    assert set(errors.values()) <= {"column 'x', computed as n * 2, cannot be computed: too much"}


def test_what_takes_too_much_together_is_refused_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed, "PIECES_BYTES", 100)
    field = Field("x", BIGINT, computed=Failing(frozenset(), most=8))
    values, errors = compute(field, {"n": pa.array(range(64), pa.int64())}, 64)
    assert sorted(errors) == list(range(16, 64))
    assert values.null_count == 48
    assert "must take at most 100 bytes" in errors[63]


def test_columns_are_computed_on_the_fast_way_too() -> None:
    text = b"".join(b"%d,1.5,2\n" % n for n in range(2000))
    layout = CsvLayout.declared(SCHEMA, ",")
    assert layout.width == 3
    fast = read_fast(text, SCHEMA, layout)
    assert fast is not None
    assert fast.column("total").to_pylist() == [3.0] * 2000
    assert read_fast(text + b",1.5,2\n", SCHEMA, layout) is None, "the event time is NULL"
    body = b"\n".join(b'{"ms": %d, "price": 1.5, "quantity": 2}' % n for n in range(2000))
    assert len(body) > WORTH_BYTES
    of_json = read_fast_json(body, SCHEMA)
    assert of_json is not None
    assert of_json.equals(fast)


def test_a_batch_without_rows_has_all_columns() -> None:
    empty = decode(b"[]", "application/json", SCHEMA)
    assert empty.tuples.num_rows == 0
    assert empty.tuples.schema == SCHEMA.arrow
    table = pa.table({"ms": pa.array([], pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    assert decode(body, "application/vnd.apache.arrow.stream", SCHEMA).tuples.schema == SCHEMA.arrow
