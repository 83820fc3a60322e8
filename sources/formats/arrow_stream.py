"""``application/vnd.apache.arrow.stream``: columns are matched by name and cast where no value can change."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from sources.columns import one_array
from sources.errors import MalformedRequest, TooLarge
from sources.formats.coercion import complaint
from sources.formats.columns import convert_text, convert_values, nulls, one_zero
from sources.formats.decoded import Column, Decoded, assemble
from sources.formats.temporal import MAX_DAYS, MAX_US, MIN_DAYS, MIN_US
from sources.schema import Field, Schema

MOST_ROWS = 10_000_000
MOST_BYTES = 1 << 30
DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def decode_arrow_stream(body: bytes, schema: Schema) -> Decoded:
    """Decode an Arrow IPC stream.

    Raises MalformedRequest when the body is no readable stream or a column's type does not fit (values that do not fit
    make only their row malformed), and TooLarge when it unpacks to more than MOST_ROWS or MOST_BYTES.
    """
    table, names = _read(body)
    columns: list[Column] = []
    arrays: dict[str, pa.Array] = {}
    for field in schema.fields:
        position = _position(names, field.name)
        if position is None:
            columns.append(nulls(table.num_rows, field))
            continue
        array = _checked_array(table.column(position), field)
        arrays[field.name] = array
        columns.append(_convert(array, field))
    return assemble(schema, columns, {}, lambda i: f"row {i + 1}", lambda i: i + 1, partial(_raw, arrays))


def _read(body: bytes) -> tuple[pa.Table, list[str]]:
    try:
        source = pa.BufferReader(pa.py_buffer(body))
        with pa.ipc.open_stream(source) as reader:
            batches: list[pa.RecordBatch] = []
            rows = size = 0
            for batch in reader:
                rows += batch.num_rows
                size += batch.get_total_buffer_size()
                if rows > MOST_ROWS or size > MOST_BYTES:
                    raise TooLarge(
                        f"An Arrow body must unpack to at most {MOST_ROWS} rows and {MOST_BYTES} bytes;"
                        " send several smaller ones."
                    )
                batches.append(batch)
            if source.tell() != len(body):
                raise MalformedRequest(
                    f"The body must be one Arrow IPC stream; it ends at byte {source.tell()} of {len(body)}."
                    " Send each stream in a body of its own."
                )
            table = pa.Table.from_batches(batches, reader.schema)
            return table, table.schema.names  # names are decoded here, as they may not be UTF-8
    except (TooLarge, MalformedRequest):
        raise
    except Exception as problem:  # what garbage makes the library raise is not documented
        raise MalformedRequest(f"The body must be an Arrow IPC stream: {_brief(problem)}.") from None


def _position(names: list[str], name: str) -> int | None:
    """Return the position of column ``name``: of exactly that name, else one that differs in case only."""
    for positions in (
        [i for i, n in enumerate(names) if n == name],
        [i for i, n in enumerate(names) if n.lower() == name.lower()],
    ):
        if len(positions) > 1:
            raise MalformedRequest(f"The Arrow stream must have column {name!r} once, got it {len(positions)} times.")
        if positions:
            return positions[0]
    return None


def _checked_array(column: pa.ChunkedArray, field: Field) -> pa.Array:
    """Return a column as one checked array, dictionaries decoded."""
    if converter_of(column.type, field) is None:
        raise MalformedRequest(
            f"Column {field.name!r} must be castable to {field.type}, got Arrow type {str(column.type)[:100]}."
        )
    try:
        column.validate(full=True)
        if types.is_dictionary(column.type):
            if _decoded_bytes(column) > MOST_BYTES:
                raise TooLarge(f"Column {field.name!r} unpacks to more than {MOST_BYTES} bytes; send several bodies.")
            column = column.cast(column.type.value_type)
        if types.is_large_string(column.type) or types.is_string_view(column.type):
            column = column.cast(pa.string())
        array = one_array(column)
    except TooLarge:
        raise
    except Exception as problem:  # as above
        raise MalformedRequest(f"Column {field.name!r} of the Arrow stream is corrupt: {_brief(problem)}.") from None
    return array


def _decoded_bytes(column: pa.ChunkedArray) -> int:
    if not (types.is_string(column.type.value_type) or types.is_large_string(column.type.value_type)):
        return 8 * len(column)
    total = 0
    for chunk in column.chunks:
        array: Any = chunk
        lengths: Any = pc.binary_length(array.dictionary)
        total += pc.sum(lengths.cast(pa.int64()).take(array.indices)).as_py() or 0
    return total


def _convert(array: pa.Array, field: Field) -> Column:
    converter = converter_of(array.type, field)
    assert converter is not None
    return converter(array, field)


Converter = Callable[[pa.Array, Field], Column]


def converter_of(arrow_type: pa.DataType, field: Field) -> Converter | None:
    """Return what converts arrays of type ``arrow_type`` to the type of ``field``; None when nothing may."""
    if types.is_dictionary(arrow_type):
        return None if types.is_dictionary(arrow_type.value_type) else converter_of(arrow_type.value_type, field)
    if types.is_null(arrow_type):
        return _nulls
    kind = field.type.kind
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return _from_text if kind in ("VARCHAR", "DATE", "TIMESTAMP", "DECIMAL") else None
    if kind == "BOOLEAN":
        return _cast if types.is_boolean(arrow_type) else None
    if kind in ("INT", "BIGINT"):
        return _cast if types.is_integer(arrow_type) else None
    if kind == "DOUBLE" and _is_decimal(arrow_type):
        return _from_values  # Arrow's own cast is not correctly rounded
    if kind == "DOUBLE":
        return _numbers if types.is_integer(arrow_type) or types.is_floating(arrow_type) else None
    if kind == "DECIMAL":
        if types.is_integer(arrow_type) or _is_decimal(arrow_type):
            return _cast
        return _from_values if types.is_floating(arrow_type) else None
    if kind == "DATE":
        return _dates if types.is_date(arrow_type) else None
    return _timestamps if kind == "TIMESTAMP" and types.is_timestamp(arrow_type) else None


def _is_decimal(arrow_type: pa.DataType) -> bool:
    """Whether ``arrow_type`` is a decimal whose scale makes sense; Arrow reads any, and crashes when it casts some."""
    return isinstance(arrow_type, DECIMALS) and 0 <= arrow_type.scale <= arrow_type.precision


def _nulls(array: pa.Array, field: Field) -> Column:
    return nulls(len(array), field)


def _cast(array: pa.Array, field: Field) -> Column:
    try:
        return Column(array.cast(field.type.arrow), {})
    except pa.ArrowException:  # some value is out of range: find out which
        return _from_values(array, field)


def _from_text(array: pa.Array, field: Field) -> Column:
    converted = None if field.type.kind == "DECIMAL" else convert_text(field.type, array)
    return Column(converted, {}) if converted is not None else _from_values(array, field)


def _from_values(array: pa.Array, field: Field) -> Column:
    values: list[Any] = array.to_pylist()
    if types.is_floating(array.type):  # into DECIMAL: by the digits that JSON would show
        values = [v if v is None or not np.isfinite(v) else Decimal(repr(float(v))) for v in values]
    return convert_values(field, values)


def _numbers(array: pa.Array, field: Field) -> Column:
    doubles = one_zero(array.cast(pa.float64(), safe=False))
    is_finite = pc.is_finite(doubles)
    not_finite = np.flatnonzero(pc.invert(is_finite).fill_null(False).to_numpy(zero_copy_only=False))
    errors = {i: _not_finite(field, doubles[i].as_py()) for i in not_finite.tolist()}
    return Column(pc.if_else(is_finite, doubles, None) if errors else doubles, errors)


def _not_finite(field: Field, value: float) -> str:
    return complaint(field.name, field.type, value, "it must be finite and within the range of doubles")


def _dates(array: pa.Array, field: Field) -> Column:
    if types.is_date64(array.type):
        days = np.floor_divide(_integers(array), 86_400_000)
    else:
        days = _integers(array).astype(np.int64)
    return _in_range(array, days, MIN_DAYS, MAX_DAYS, days, field)


def _timestamps(array: pa.Array, field: Field) -> Column:
    numbers = _integers(array)
    per_second = PER_SECOND[array.type.unit]
    least, greatest = MIN_US * per_second // 10**6, MAX_US * per_second // 10**6
    least, greatest = max(least, -(2**63)), min(greatest, 2**63 - 1)
    finer, coarser = max(per_second // 10**6, 1), max(10**6 // per_second, 1)
    # Digits after the microseconds are cut off, as in text. A product wraps around only where a number is out of range.
    us = np.floor_divide(numbers, finer) * coarser
    return _in_range(array, numbers, least, greatest, us, field)


def _integers(array: pa.Array) -> np.ndarray:
    """Return the integers behind dates and timestamps, with 0 for NULL."""
    storage = pa.int32() if types.is_date32(array.type) else pa.int64()
    numbers: np.ndarray = array.view(storage).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _in_range(
    array: pa.Array, numbers: np.ndarray, least: int, greatest: int, converted: np.ndarray, field: Field
) -> Column:
    """Return ``converted`` (days or microseconds) as a column where ``least <= numbers <= greatest``."""
    outside = (numbers < least) | (numbers > greatest)
    reason = f"column {field.name!r} must be a {field.type} of the years 1 to 9999, got one outside"
    errors = {int(i): reason for i in np.flatnonzero(outside)}
    is_null = pc.is_null(array).to_numpy(zero_copy_only=False) | outside
    if field.type.kind == "DATE":
        converted = np.where(is_null, 0, converted).astype(np.int32)
    return Column(pa.array(converted, mask=is_null).cast(field.type.arrow), errors)


def _raw(arrays: dict[str, pa.Array], row: int) -> str:
    """Return the columns of the stream in one row as JSON text."""
    values: dict[str, Any] = {}
    for name, array in arrays.items():
        if types.is_timestamp(array.type):  # without the zone, whose name may be anything
            array = array.slice(row, 1).view(pa.timestamp(array.type.unit)).cast(pa.string())
        elif types.is_date(array.type):
            array = array.slice(row, 1).cast(pa.string())
        else:
            array = array.slice(row, 1)
        values[name] = array[0].as_py()
    return orjson.dumps(values, default=str).decode()


def _brief(problem: Exception) -> str:
    text = str(problem).splitlines()
    return (text[0] if text else type(problem).__name__)[:200].rstrip(".")
