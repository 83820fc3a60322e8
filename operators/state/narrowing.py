"""Whole numbers in as few bytes as they need, for tables that are written and read once or twice.

Joins write where a tuple is for every operator that it takes part in: how many bytes that is bounds how many tuples
they take.
"""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa

from braid.operators.arrays import plain_numbers
from braid.sources.core.columns import one_array

_LOWS, _SCHEMA = b"least values", b"schema"
_NARROW = (np.uint8, np.uint16, np.uint32)


def narrow(table: pa.Table) -> pa.Table:
    """Return the table with columns of whole numbers and of times without NULL as distances from their least value."""
    lows: dict[str, int] = {}
    columns: list[pa.Array | pa.ChunkedArray] = []
    types = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns.append(column)
        types.append(column.type)
        if not len(column) or pa.types.is_floating(column.type):
            continue
        numbers = plain_numbers(one_array(column)) if pa.types.is_primitive(column.type) else None
        if numbers is None:
            continue
        low, high = int(numbers.min()), int(numbers.max())
        kind = next((kind for kind in _NARROW if high - low <= np.iinfo(kind).max), None)
        if kind is None or np.dtype(kind).itemsize >= numbers.itemsize:
            continue
        distances = np.empty(len(numbers), dtype=kind)
        np.subtract(numbers, numbers.dtype.type(low), out=distances, casting="unsafe")
        columns[-1] = pa.array(distances)
        lows[name] = low
    if not lows:
        return table
    original = pa.schema(list(zip(table.column_names, types, strict=True))).serialize().to_pybytes()
    metadata = {**(table.schema.metadata or {}), _LOWS: orjson.dumps(lows), _SCHEMA: original}
    return pa.Table.from_arrays(columns, names=table.column_names).replace_schema_metadata(metadata)


def widen(table: pa.Table) -> pa.Table:
    """Return what :func:`narrow` was given."""
    metadata = dict(table.schema.metadata or {})
    if _LOWS not in metadata:
        return table
    lows = orjson.loads(metadata.pop(_LOWS))
    original = pa.ipc.read_schema(pa.py_buffer(metadata.pop(_SCHEMA)))
    columns = []
    for field, column in zip(original, table.columns, strict=True):
        array = one_array(column)
        if field.name in lows:
            kind = np.dtype(np.int32 if field.type.bit_width == 32 else np.int64)
            numbers = np.add(np.asarray(array), kind.type(lows[field.name]), dtype=kind)
            array = pa.array(numbers).view(field.type)
        columns.append(array)
    return pa.Table.from_arrays(columns, schema=original).replace_schema_metadata(metadata or None)
