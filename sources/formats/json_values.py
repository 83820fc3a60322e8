"""Columns as JSON has them: timestamps RFC 3339 UTC with microseconds, DATE ISO, DECIMAL a number with its digits.

JSON has no numbers for NaN and infinities, which are not NULL: they are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa

from braid.sources.formats.nested import dicts_and_lists

_NOT_FINITE = {float("inf"): "Infinity", float("-inf"): "-Infinity"}


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as orjson takes them; those with parts are JSON already."""
    if _has_parts(column.type):
        return [None if text is None else orjson.Fragment(text) for text in json_texts_of(column)]
    return _values(column)


def json_texts_of(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Return values with parts as JSON texts; NULL stays NULL."""
    return [None if value is None else orjson.dumps(value).decode() for value in _values(column)]


def _has_parts(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) or isinstance(kind, pa.JsonType)


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column.cast(pa.timestamp("us")), "us", "Z")
    if pa.types.is_date(kind):
        return _times(column.cast(pa.date32()), "D", "")
    if pa.types.is_decimal(kind):
        return _raw(column.cast(pa.string()))
    if pa.types.is_floating(kind):
        return _doubles(column)
    if pa.types.is_integer(kind) and not column.null_count:
        numbers: list[Any] = np.asarray(column).tolist()
        return numbers
    if _has_parts(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return [value for chunk in chunks for value in _of_chunk(chunk)]
    return column.to_pylist()


def _of_chunk(array: Any) -> list[Any]:
    return _raw(array.storage) if isinstance(array.type, pa.JsonType) else dicts_and_lists(array, _values)


def _raw(texts: pa.Array | pa.ChunkedArray) -> list[Any]:
    return [None if text is None else orjson.Fragment(text) for text in texts.to_pylist()]


def _doubles(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    numbers = np.asarray(column)  # NULL is NaN here
    values: list[Any] = numbers.tolist()
    for row in np.flatnonzero(~np.isfinite(numbers)).tolist():
        value = values[row]
        values[row] = _NOT_FINITE.get(value, "NaN" if column[row].is_valid else None)
    return values


def _times(column: pa.Array | pa.ChunkedArray, unit: Literal["us", "D"], suffix: str) -> list[Any]:
    stamps = np.asarray(column).astype(f"datetime64[{unit}]")
    texts: list[str] = np.datetime_as_string(stamps, unit=unit).tolist()
    return [None if text == "NaT" else text + suffix for text in texts]
