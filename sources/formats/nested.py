"""Values with parts as columns: STRUCT, ARRAY and MAP are put together of the columns of their members.

What does not fit in a part makes the whole value not fit; the message names the part: ``column 'order.items[].price'``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.schema import ColumnType, Field, Schema
from braid.sources.formats.decoded import DecodedColumn

PART_BYTES = 8
"""How many bytes a part of a value takes, about, besides those of texts."""

MAX_VALUE_BYTES = 64 << 20
"""How many bytes the elements of one array or map take at most, about."""
MAX_STEP_BYTES = 256 << 20
"""How many bytes the elements of arrays and maps that are converted together take at most, about."""

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Lists(NamedTuple):
    """The lists of an array one after the other: how long each is (0 for NULL), their values, and of maps the keys."""

    lengths: Numbers
    values: Any
    keys: Any = None


def lists_of(array: Any) -> Lists:
    """Return what an array of lists or maps has in it."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    is_null = np.asarray(array.is_null())
    is_map = pa.types.is_map(array.type)
    children = (array.items, array.keys) if is_map else (array.values, None)
    if not (is_null & (lengths > 0)).any():
        first, last = int(offsets[0]), int(offsets[-1])
        return Lists(lengths, *(child if child is None else child.slice(first, last - first) for child in children))
    lengths = np.where(is_null, 0, lengths)
    places = pa.array(_places(offsets[:-1], lengths))
    return Lists(lengths, *(child if child is None else child.take(places) for child in children))


def _places(starts: Numbers, lengths: Numbers) -> Numbers:
    """Return the places of runs, each of which begins at one of ``starts``."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def row_bytes(array: Any) -> Numbers:
    """Return how many bytes each value has of texts and of parts; 0 for values that all are of one size."""
    if pa.types.is_string(array.type):
        return np.asarray(pc.binary_length(array).fill_null(0)).astype(np.int64)
    if pa.types.is_struct(array.type):
        return np.asarray(
            sum((_part_bytes(member) for member in array.flatten()), start=np.zeros(len(array), np.int64))
        )
    if not pa.types.is_nested(array.type):
        return np.zeros(len(array), np.int64)
    lists = lists_of(array)
    sizes = _part_bytes(lists.values) + (0 if lists.keys is None else _part_bytes(lists.keys))
    before = np.concatenate([[0], np.cumsum(sizes)])
    ends = np.cumsum(lists.lengths)
    return np.asarray(before[ends] - before[ends - lists.lengths])


def _part_bytes(array: Any) -> Numbers:
    """Return the bytes of values that are parts of others, which have places of their own."""
    return row_bytes(array) + (0 if pa.types.is_struct(array.type) else PART_BYTES)


def dicts_and_lists(array: Any, values_of: Callable[[Any], list[Any]]) -> list[Any]:
    """Return structs and maps as dicts, arrays as lists, of what ``values_of`` gives for the columns of their parts."""
    is_null = np.asarray(array.is_null()).tolist()
    if pa.types.is_struct(array.type):
        names = [member.name for member in array.type]
        members = [values_of(member) for member in array.flatten()]
        rows = zip(*members, strict=True) if members else ((),) * len(array)
        return [None if null else dict(zip(names, row, strict=True)) for null, row in zip(is_null, rows, strict=True)]
    lists = lists_of(array)
    values, lengths = values_of(lists.values), lists.lengths.tolist()
    ends = np.cumsum(lists.lengths).tolist()
    parts: list[Any] = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    if lists.keys is not None:
        keys = lists.keys.to_pylist()
        parts = [
            dict(zip(keys[end - length : end], part, strict=True))
            for end, length, part in zip(ends, lengths, parts, strict=True)
        ]
    return [None if null else part for null, part in zip(is_null, parts, strict=True)]


def min_part_bytes(kind: ColumnType) -> int:
    """Return how many bytes a value takes at least that is a part of another one."""
    if kind.kind == "STRUCT":
        return sum(min_part_bytes(member) for _, member in kind.members)
    return max(kind.min_bytes, 1)


def max_text_bytes(schema: Schema) -> int:
    """Return of how many bytes of JSON the elements do not take more than MAX_STEP_BYTES, whatever is in it.

    An element of JSON takes two bytes or more, and may be a struct of which all members are missing.
    """

    def widest(kind: ColumnType) -> int:
        inner = max((widest(member) for _, member in kind.members), default=1)
        return inner if kind.kind == "STRUCT" or not kind.members else max(inner, min_part_bytes(kind.members[-1][1]))

    return 2 * MAX_STEP_BYTES // max((widest(field.type) for field in schema.read), default=1)


def fields_of(field: Field) -> Iterator[Field]:
    """Yield the members of a column with parts as columns of their own."""
    for name, kind in field.type.members:
        inner = {"ARRAY": "[]", "MAP": "{}"}.get(field.type.kind, f".{name}")
        yield replace(field, name=f"{field.name}{inner}", type=kind, not_null=False, source="")


def struct_column(field: Field, members: Sequence[DecodedColumn], is_null: Mask) -> DecodedColumn:
    """Return a column of STRUCT, given those of its members."""
    errors: dict[int, str] = {}
    for member in members:
        for row, reason in member.errors.items():
            errors.setdefault(row, reason)
    fields = [pa.field(name, kind.arrow) for name, kind in field.type.members]
    arrays = [member.values for member in members]
    return DecodedColumn(pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(is_null)), errors)


def list_column(
    field: Field, lengths: Numbers, values: DecodedColumn, is_null: Mask, keys: pa.Array | None = None
) -> DecodedColumn:
    """Return a column of ARRAY, or of MAP with its keys, given how long each is and the column of what is in them."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    errors: dict[int, str] = {}
    for place, reason in values.errors.items():
        errors.setdefault(int(rows[place]), reason)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = pa.array(is_null)
    if keys is None:
        array: Any = pa.ListArray.from_arrays(pa.array(ends), values.values, mask=mask)
    else:
        array = pa.MapArray.from_arrays(pa.array(ends), keys, values.values, mask=mask)
    return DecodedColumn(array.cast(field.type.arrow), errors)
