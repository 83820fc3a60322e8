"""``application/vnd.apache.arrow.stream``: columns are matched by name and cast where no value can change."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_checks import is_fixed_plain, is_text, position_of, read_columns, sound_array
from braid.sources.formats.coercion import RANGES, complaint
from braid.sources.formats.columns import convert_text, convert_values, nulls, one_zero
from braid.sources.formats.decoded import Decoded, DecodedColumn, Gathered, assemble, row_bytes, whole_batch
from braid.sources.formats.json_rows import convert_json_texts
from braid.sources.formats.limits import BODY, PIECE, DecodingLimits
from braid.sources.formats.names_of_bodies import compared
from braid.sources.formats.nested import dicts_and_lists, fields_of, list_column, lists_of, struct_column
from braid.sources.formats.temporal import MAX_DAYS, MAX_US, MIN_DAYS, MIN_US
from braid.sources.formats.time_formats import is_epoch, times_of

ROWS_AT_ONCE = 1 << 16
DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def decode_arrow_stream(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode an Arrow IPC stream.

    Raises MalformedRequest when the body is no readable stream or a column's type does not fit (values that do not fit
    make only their row malformed), and TooLarge when there are too many rows or bytes once it is unpacked.
    """
    rows, columns, names = read_columns(body, schema, limits, check_castable)
    arrays = {name: sound_array(column, name, limits) for name, column in columns.items()}
    return compared(decode_arrays(arrays, rows, schema, limits), schema, names)


def decode_arrays(arrays: Mapping[str, pa.Array], rows: int, schema: Schema, limits: DecodingLimits = PIECE) -> Decoded:
    """Decode sound arrays of ``rows`` values each, by the names of the stream's columns; others are NULL.

    Raises as :func:`decode_arrow_stream` does.
    """
    limits.check_bytes(rows * row_bytes(schema), "the columns of the stream")
    gathered = Gathered(schema, limits)
    if rows > ROWS_AT_ONCE:
        tuples = _take_over(arrays, rows, schema)
        if tuples is not None:
            gathered.add(Decoded(tuples, ()))
            return gathered.decoded()
    for first in range(0, max(rows, 1), ROWS_AT_ONCE):
        length = min(ROWS_AT_ONCE, rows - first)
        gathered.add(_decode_slice({n: a.slice(first, length) for n, a in arrays.items()}, first, length, schema))
    return gathered.decoded()


def _take_over(arrays: Mapping[str, pa.Array], rows: int, schema: Schema) -> pa.RecordBatch | None:
    """Return all rows at once, or None when some do not fit, or values must be gone through one by one."""
    columns: list[pa.Array] = []
    for field in schema.read:
        values = _at_once(arrays[field.name], field) if field.name in arrays else nulls(rows, field).values
        if values is None:
            return None
        columns.append(values)
    return whole_batch(schema, columns)


def _at_once(array: pa.Array, field: Field) -> pa.Array | None:
    """Return a column whose values all fit, None where that takes a closer look."""
    converter = converter_of(array.type, field)
    assert converter is not None
    if converter in _CAREFUL:
        return _CAREFUL[converter](array, field)
    column = converter(array, field)
    return None if column.errors else column.values


def _decode_slice(arrays: Mapping[str, pa.Array], first: int, rows: int, schema: Schema) -> Decoded:
    columns = [
        _convert(arrays[field.name], field) if field.name in arrays else nulls(rows, field) for field in schema.read
    ]
    number = first + 1
    return assemble(schema, columns, {}, lambda i: f"row {i + number}", lambda i: i + number, partial(_raw, arrays))


def check_castable(arrow_type: pa.DataType, field: Field) -> None:
    """Raise MalformedRequest unless a column of the stream may be of that type."""
    if converter_of(arrow_type, field) is None:
        hint = ""
        if field.type.kind == "TIMESTAMP" and (types.is_integer(arrow_type) or types.is_floating(arrow_type)):
            hint = " For numbers declare the stream with 'timestamp.format' = 'epoch-millis', or another unit."
        raise MalformedRequest(
            f"Column {field.name!r} must be castable to {field.type}, got Arrow type {str(arrow_type)[:100]}.{hint}"
        )


def _convert(array: pa.Array, field: Field) -> DecodedColumn:
    converter = converter_of(array.type, field)
    assert converter is not None
    return converter(array, field)


Converter = Callable[[pa.Array, Field], DecodedColumn]


def converter_of(arrow_type: pa.DataType, field: Field) -> Converter | None:
    """Return what converts arrays of type ``arrow_type`` to the type of ``field``; None when nothing may."""
    if types.is_dictionary(arrow_type):
        return None if types.is_dictionary(arrow_type.value_type) else converter_of(arrow_type.value_type, field)
    if types.is_null(arrow_type):
        return _nulls
    if isinstance(arrow_type, pa.JsonType):
        return _json_texts if field.type.kind == "JSON" else None
    kind = field.type.kind
    if field.type.members:
        return _parts if _fits_parts(arrow_type, field) else None
    if kind == "JSON":
        return _json_texts if is_text(arrow_type) else None
    if kind == "VARCHAR" and _is_bytes(arrow_type):
        return _base64
    if is_text(arrow_type):
        return _from_text if kind in ("VARCHAR", "DATE", "TIMESTAMP", "DECIMAL") else None
    if kind == "BOOLEAN":
        return _cast if types.is_boolean(arrow_type) else None
    if kind in ("INT", "BIGINT"):
        if types.is_integer(arrow_type) or _is_decimal(arrow_type):
            return _cast
        return _whole_numbers if types.is_floating(arrow_type) else None
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
    if types.is_timestamp(arrow_type):
        return _timestamps if kind == "TIMESTAMP" else None
    return _epochs if is_epoch(field) and (types.is_integer(arrow_type) or types.is_floating(arrow_type)) else None


def _is_bytes(arrow_type: pa.DataType) -> bool:
    return types.is_binary(arrow_type) or types.is_large_binary(arrow_type) or types.is_fixed_size_binary(arrow_type)


def _base64(array: pa.Array, field: Field) -> DecodedColumn:  # noqa: ARG001 - a converter
    texts = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
    return DecodedColumn(pa.array(texts, pa.string()), {})


def _fits_parts(arrow_type: Any, field: Field) -> bool:
    """Whether all that is in values of an Arrow type may be what is in the values of a column."""
    members = list(fields_of(field))
    if field.type.kind == "STRUCT":
        if not types.is_struct(arrow_type) or not arrow_type.num_fields:
            return False
        places = _places_of(arrow_type, field)
        kinds = [None if place is None else arrow_type.field(place).type for place in places]
        return all(kind is None or converter_of(kind, member) for kind, member in zip(kinds, members, strict=True))
    if field.type.kind == "MAP":
        is_map = types.is_map(arrow_type) and is_text(arrow_type.key_type)
        return is_map and converter_of(arrow_type.item_type, members[-1]) is not None
    is_list = types.is_list(arrow_type) or types.is_large_list(arrow_type) or is_fixed_plain(arrow_type)
    return is_list and converter_of(arrow_type.value_type, members[0]) is not None


def _places_of(arrow_type: Any, field: Field) -> list[int | None]:
    names = [arrow_type.field(number).name for number in range(arrow_type.num_fields)]
    return [position_of(names, name) for name, _ in field.type.members]


def _parts(array: Any, field: Field) -> DecodedColumn:
    """Convert values with parts by their parts."""
    is_null = np.asarray(array.is_null())
    members = list(fields_of(field))
    if field.type.kind == "STRUCT":
        arrays = array.flatten()
        columns = [
            nulls(len(array), member) if place is None else _convert(arrays[place], member)
            for place, member in zip(_places_of(array.type, field), members, strict=True)
        ]
        return struct_column(field, columns, is_null)
    lists = lists_of(array)
    keys = None if lists.keys is None else _convert(lists.keys, members[0]).values
    return list_column(field, lists.lengths, _convert(lists.values, members[-1]), is_null, keys)


def _json_texts(array: pa.Array, field: Field) -> DecodedColumn:
    return convert_json_texts(field, array.to_pylist())


def _is_decimal(arrow_type: pa.DataType) -> bool:
    """Whether ``arrow_type`` is a decimal whose scale makes sense; Arrow reads any, and crashes when it casts some."""
    return isinstance(arrow_type, DECIMALS) and 0 <= arrow_type.scale <= arrow_type.precision


def _nulls(array: pa.Array, field: Field) -> DecodedColumn:
    return nulls(len(array), field)


def _cast(array: pa.Array, field: Field) -> DecodedColumn:
    cast = _cast_at_once(array, field)
    return DecodedColumn(cast, {}) if cast is not None else _from_values(array, field)


def _cast_at_once(array: pa.Array, field: Field) -> pa.Array | None:
    try:
        return array.cast(field.type.arrow)
    except pa.ArrowException:  # some value is out of range: find out which
        return None


def _from_text(array: pa.Array, field: Field) -> DecodedColumn:
    converted = _text_at_once(array, field)
    return DecodedColumn(converted, {}) if converted is not None else _from_values(array, field)


def _text_at_once(array: pa.Array, field: Field) -> pa.Array | None:
    return None if field.type.kind == "DECIMAL" else convert_text(field, array)


def _epochs(array: pa.Array, field: Field) -> DecodedColumn:
    times = _epochs_at_once(array, field)
    return DecodedColumn(times, {}) if times is not None else _from_numbers(array, field)


def _from_numbers(array: pa.Array, field: Field) -> DecodedColumn:
    numbers = _without_nan(array) if types.is_floating(array.type) else array
    return convert_values(field, numbers.to_pylist())


def _epochs_at_once(array: pa.Array, field: Field) -> pa.Array | None:
    if types.is_floating(array.type):
        return times_of(_without_nan(array), field)
    try:
        return times_of(array.cast(pa.int64()), field)
    except pa.ArrowInvalid:
        return None


def _from_values(array: pa.Array, field: Field) -> DecodedColumn:
    values: list[Any] = array.to_pylist()
    if types.is_floating(array.type):  # into DECIMAL: by the digits that JSON would show
        values = [v if v is None or np.isinf(v) else None if np.isnan(v) else Decimal(repr(float(v))) for v in values]
    return convert_values(field, values)


_CAREFUL: Mapping[Converter, Callable[[pa.Array, Field], pa.Array | None]] = {
    _cast: _cast_at_once,
    _from_text: _text_at_once,
    _epochs: _epochs_at_once,
    _from_values: lambda array, field: None,  # noqa: ARG005
}
"""What goes through values one by one where they do not all fit at once, and what says whether they do."""


def _numbers(array: pa.Array, field: Field) -> DecodedColumn:
    doubles = _without_nan(array)
    is_finite = pc.is_finite(doubles)
    not_finite = np.flatnonzero(pc.invert(is_finite).fill_null(False).to_numpy(zero_copy_only=False))
    errors = {i: _not_finite(field, doubles[i].as_py()) for i in not_finite.tolist()}
    return DecodedColumn(pc.if_else(is_finite, doubles, None) if errors else doubles, errors)


def _without_nan(array: pa.Array) -> pa.Array:
    """Return numbers as doubles with one zero, NULL for NaN: that is what pandas and numpy have for no value."""
    doubles = one_zero(array.cast(pa.float64(), safe=False))
    is_nan = pc.is_nan(doubles)
    return pc.if_else(is_nan, None, doubles) if pc.any(is_nan).as_py() else doubles


def _whole_numbers(array: pa.Array, field: Field) -> DecodedColumn:
    doubles = _without_nan(array)
    numbers = np.asarray(doubles.fill_null(0))
    least, greatest = RANGES[field.type.kind]
    unfit = (numbers < least) | (numbers >= greatest + 1) | (numbers != np.floor(numbers))
    is_null = np.asarray(doubles.is_null()) | unfit
    integers = np.where(is_null, 0, numbers).astype(np.int64)
    reason = "it must be whole, and in the range of the type"
    errors = {i: complaint(field.name, field.type, float(numbers[i]), reason) for i in np.flatnonzero(unfit).tolist()}
    return DecodedColumn(pa.array(integers, mask=is_null).cast(field.type.arrow), errors)


def _not_finite(field: Field, value: float) -> str:
    return complaint(field.name, field.type, value, "it must be finite and within the range of doubles")


def _dates(array: pa.Array, field: Field) -> DecodedColumn:
    if types.is_date64(array.type):
        days = np.floor_divide(_integers(array), 86_400_000)
    else:
        days = _integers(array).astype(np.int64)
    return _in_range(array, days, MIN_DAYS, MAX_DAYS, days, field)


def _timestamps(array: pa.Array, field: Field) -> DecodedColumn:
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
) -> DecodedColumn:
    """Return ``converted`` (days or microseconds) as a column where ``least <= numbers <= greatest``."""
    outside = (numbers < least) | (numbers > greatest)
    reason = f"column {field.name!r} must be a {field.type} of the years 1 to 9999, got one outside"
    errors = {int(i): reason for i in np.flatnonzero(outside)}
    is_null = pc.is_null(array).to_numpy(zero_copy_only=False) | outside
    if field.type.kind == "DATE":
        converted = np.where(is_null, 0, converted).astype(np.int32)
    return DecodedColumn(pa.array(converted, mask=is_null).cast(field.type.arrow), errors)


def _raw(arrays: Mapping[str, pa.Array], rows: Sequence[int]) -> list[str]:
    """Return the columns of the stream in some rows as JSON texts."""
    places = pa.array(rows, pa.int64())
    columns = {name: _shown(array.take(places)) for name, array in arrays.items()}
    return [
        orjson.dumps({name: values[i] for name, values in columns.items()}, default=str).decode()
        for i in range(len(rows))
    ]


def _shown(array: pa.Array) -> list[Any]:
    """Return values as JSON can show them."""
    if types.is_timestamp(array.type):  # without the zone, whose name may be anything
        array = array.view(pa.timestamp(array.type.unit)).cast(pa.string())
    elif types.is_date(array.type):
        array = array.cast(pa.string())
    elif types.is_nested(array.type):
        return dicts_and_lists(array, _shown)
    return list(array.to_pylist())
