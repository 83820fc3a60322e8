"""Encode tuples for a push and decode result rows into Python values, strictly by the contract."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import pyarrow as pa

from tests.oracle.model import Kind, Row, StreamSchema, Value

CONTENT_TYPES = {
    "ndjson": "application/x-ndjson",
    "json": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
}
ARROW_TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.DECIMAL: pa.decimal128(12, 2),
    Kind.VARCHAR: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|\+00:00)")


class WireError(ValueError):
    """A value does not look as the contract says."""


def encode(schema: StreamSchema, rows: Sequence[Row], form: Literal["ndjson", "json", "arrow"]) -> bytes:
    """Encode tuples as a push body."""
    if form == "arrow":
        fields = [pa.field(column.name, ARROW_TYPES[column.kind]) for column in schema.columns]
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()
    objects = [{name: _to_json(value) for name, value in row.items()} for row in rows]
    if form == "json":
        return json.dumps(objects[0] if len(objects) == 1 else objects).encode()
    return "".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects).encode()


def _to_json(value: Value) -> Any:
    match value:
        case dt.datetime():
            # every other second is written without an offset, which the contract reads as UTC
            return value.isoformat(timespec="microseconds") + ("Z" if value.second % 2 else "")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return float(value)  # at most 12 digits: the shortest text of the double is the same number
        case _:
            return value


def parse_time(text: Any) -> dt.datetime:
    """Parse a time that the service wrote: RFC 3339, UTC, microseconds. Returns a naive UTC time."""
    if not isinstance(text, str) or RFC_3339.fullmatch(text) is None:
        raise WireError(f"a time must be RFC 3339 UTC with microseconds, got {text!r}")
    return dt.datetime.fromisoformat(text).replace(tzinfo=None)


def decode_value(kind: Kind, value: Any) -> Value:
    """Decode one result value, from JSON (numbers as int or Decimal) or from Arrow.

    Raises:
        WireError: the value does not fit the type.
    """
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    match kind:
        case _ if value is None:
            return None
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.INT | Kind.BIGINT if is_number and isinstance(value, int):
            return value
        case Kind.DOUBLE if is_number:
            return float(value)
        case Kind.DECIMAL if (is_number and not isinstance(value, float)) or isinstance(value, str):
            try:
                return Decimal(value)
            except InvalidOperation as error:
                raise WireError(f"a DECIMAL must be a number, got {value!r}") from error
        case Kind.VARCHAR if isinstance(value, str):
            return value
        case Kind.TIMESTAMP if isinstance(value, dt.datetime):
            if value.tzinfo is None:
                return value
            return value.astimezone(dt.UTC).replace(tzinfo=None)
        case Kind.TIMESTAMP:
            return parse_time(value)
        case Kind.DATE if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        case Kind.DATE if isinstance(value, str):
            try:
                return dt.date.fromisoformat(value)
            except ValueError as error:
                raise WireError(f"a DATE must be written 2025-01-31, got {value!r}") from error
    raise WireError(f"a {kind.value} was expected, got {value!r}")


def decode_row(output: Mapping[str, Kind], row: Mapping[str, Any]) -> Row:
    """Decode one result row and check that it has exactly the columns it must have."""
    if set(row) != set(output):
        raise WireError(f"a row must have the columns {sorted(output)}, got {sorted(row)}")
    decoded: Row = {}
    for name, kind in output.items():
        try:
            decoded[name] = decode_value(kind, row[name])
        except WireError as error:
            raise WireError(f"column {name}: {error}") from error
    return decoded
