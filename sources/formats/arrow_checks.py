"""The one way in for Arrow of others: nothing reads an array that did not come through here.

What is not asked for is never built; sizes are known before anything is unpacked; and values are checked one by one,
those included that Arrow's own validation passes over. An array that :func:`sound_array` gives can be read, cast and
taken from without harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from braid.sources.core.columns import one_array
from braid.sources.core.errors import MalformedRequest, TooLarge
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_metadata import check_stream
from braid.sources.formats.limits import PIECE, DecodingLimits

_VIEW_BYTES = 16
MAX_ELEMENTS = 2**31 - 1
_WITH_PARTS = (types.is_struct, types.is_map, types.is_list, types.is_large_list, types.is_fixed_size_list)


def read_columns(
    body: bytes, schema: Schema, limits: DecodingLimits, check_type: Callable[[pa.DataType, Field], None]
) -> tuple[int, dict[str, pa.ChunkedArray], list[str]]:
    """Return how many rows an Arrow IPC stream has, those of its columns that ``schema`` names, and all their names.

    ``check_type`` raises for types that a column cannot have. Values are not checked yet: see :func:`sound_array`.
    Raises MalformedRequest when it is no readable stream, TooLarge when it is beyond the limits.
    """
    try:
        rows, _ = check_stream(body, limits)
        with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(body))) as reader:
            sent = reader.schema
        names = sent.names  # decoded here, as they may not be UTF-8
        positions = {field.name: position_of(names, field.input_name) for field in schema.read}
        for field in schema.read:
            position = positions[field.name]
            if position is not None:
                check_type(type_at(sent.field(position).type, field), field)
        wanted = sorted({position for position in positions.values() if position is not None})
        if not wanted:
            return rows, {}, names
        options = pa.ipc.IpcReadOptions(included_fields=wanted, ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(body)), options=options) as reader:
            batches: list[pa.RecordBatch] = []
            size = 0
            for batch in reader:
                size += batch.get_total_buffer_size()  # a dictionary counts with each batch that uses it
                limits.check_bytes(size)
                if any(len(column) != batch.num_rows for column in batch.columns):
                    raise MalformedRequest("Each column of an Arrow batch must have as many rows as the batch.")
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
    except (TooLarge, MalformedRequest):
        raise
    except Exception as problem:  # what garbage makes the library raise is not documented
        raise MalformedRequest(f"The body must be an Arrow IPC stream: {brief(problem)}.") from None
    columns = {
        name: column_at(table.column(wanted.index(position)), schema.field(name))
        for name, position in positions.items()
        if position is not None
    }
    return rows, columns, names


def type_at(arrow_type: pa.DataType, field: Field) -> pa.DataType:
    """Return the type of what the path of a column leads to in a column of type ``arrow_type``.

    MalformedRequest when there is no such member.
    """
    for step in field.path[1:]:
        position = arrow_type.get_field_index(step) if types.is_struct(arrow_type) and isinstance(step, str) else -1
        if position < 0:
            raise MalformedRequest(
                f"Column {field.name!r}, FROM {field.source!r}, must be a member of structs; {step!r} is in Arrow type"
                f" {str(arrow_type)[:100]}."
            )
        arrow_type = arrow_type.field(position).type
    return arrow_type


def column_at(column: Any, field: Field) -> Any:
    """Return what the path of a column leads to in a struct, NULL where an enclosing struct is.

    Only that is looked at; :func:`sound_array` is for it. MalformedRequest when the struct is corrupt.
    """
    try:
        for step in field.path[1:]:
            column.validate()  # lengths of members
            column = pc.struct_field(column, column.type.get_field_index(step))
    except pa.ArrowException as problem:
        raise MalformedRequest(f"Column {field.name!r} of the Arrow stream is corrupt: {brief(problem)}.") from None
    return column


def position_of(names: list[str], name: str) -> int | None:
    """Return the position of column ``name``: of exactly that name, else one that differs in case only.

    None when there is none; MalformedRequest when there are several.
    """
    for positions in (
        [i for i, n in enumerate(names) if n == name],
        [i for i, n in enumerate(names) if n.lower() == name.lower()],
    ):
        if len(positions) > 1:
            raise MalformedRequest(f"The Arrow stream must have column {name!r} once, got it {len(positions)} times.")
        if positions:
            return positions[0]
    return None


def is_fixed_plain(arrow_type: Any) -> bool:
    """Whether values are lists of one size, of values without parts of their own."""
    return bool(types.is_fixed_size_list(arrow_type) and types.is_primitive(arrow_type.value_type))


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether values are texts."""
    return bool(types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type))


def sound_array(column: pa.Array | pa.ChunkedArray, name: str, limits: DecodingLimits = PIECE) -> pa.Array:
    """Return column ``name`` as one array whose values are all checked: dictionaries decoded, texts as ``string``.

    The type must be one that a stream can have. Raises MalformedRequest when a value is not one of its type, and
    TooLarge when the column unpacks to too many bytes.
    """
    try:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return one_array(pa.chunked_array([_sound(chunk, name, limits) for chunk in chunks], _plain(column.type)))
    except (TooLarge, MalformedRequest):
        raise
    except Exception as problem:  # as above
        raise MalformedRequest(f"Column {name!r} of the Arrow stream is corrupt: {brief(problem)}.") from None


def _plain(arrow_type: Any) -> pa.DataType:
    """Return the type that :func:`sound_array` makes of another."""
    if types.is_dictionary(arrow_type):
        return _plain(arrow_type.value_type)
    if isinstance(arrow_type, pa.JsonType):
        return _plain(arrow_type.storage_type)
    if types.is_struct(arrow_type):
        return pa.struct([(member.name, _plain(member.type)) for member in arrow_type])
    if types.is_map(arrow_type):
        return pa.map_(_plain(arrow_type.key_type), _plain(arrow_type.item_type))
    if types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        return pa.list_(_plain(arrow_type.value_type))
    return pa.string() if is_text(arrow_type) else arrow_type


def _sound(array: Any, name: str, limits: DecodingLimits) -> pa.Array:
    if isinstance(array.type, pa.JsonType):
        array = array.storage
    if types.is_nested(array.type):
        return _sound_parts(array, name, limits)
    if types.is_dictionary(array.type):
        values = _sound(array.dictionary, name, limits)
        array.indices.validate(full=True)
        array = pa.DictionaryArray.from_arrays(array.indices, values)  # which checks that they are within
        limits.check_bytes(_decoded_bytes(array), f"column {name!r}")
        return array.cast(values.type)
    if types.is_string_view(array.type):
        array = _with_empty_nulls(array)
        array.validate(full=True)
        limits.check_bytes(_viewed_bytes(array), f"column {name!r}")
    else:
        array.validate(full=True)
    return array.cast(pa.string()) if is_text(array.type) and not types.is_string(array.type) else array


def _sound_parts(array: Any, name: str, limits: DecodingLimits) -> pa.Array:
    """Return values with parts put together of sound parts; lists of fixed sizes become plain ones."""
    is_fixed = types.is_fixed_size_list(array.type)
    if not any(is_one(array.type) for is_one in _WITH_PARTS) or (is_fixed and not is_fixed_plain(array.type)):
        raise MalformedRequest(f"Column {name!r} of the Arrow stream has parts of type {str(array.type)[:100]}.")
    array.validate(full=True)
    mask = array.is_null()
    if types.is_struct(array.type):
        members = [_sound(array.field(number), name, limits) for number in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(members, names=[member.name for member in array.type], mask=mask)
    if is_fixed:
        lengths = np.where(np.asarray(mask), 0, array.type.list_size)
        offsets, children = np.concatenate([[0], np.cumsum(lengths)]), [array.flatten()]
    else:
        offsets = np.asarray(array.offsets).astype(np.int64)
        whole = [array.keys, array.items] if types.is_map(array.type) else [array.values]
        children = [child.slice(offsets[0], offsets[-1] - offsets[0]) for child in whole]
    if offsets[-1] - offsets[0] > MAX_ELEMENTS:
        raise TooLarge(f"Column {name!r} must have at most {MAX_ELEMENTS} elements together.")
    starts = pa.array((offsets - offsets[0]).astype(np.int32))
    kind = pa.MapArray if types.is_map(array.type) else pa.ListArray
    return kind.from_arrays(starts, *(_sound(child, name, limits) for child in children), mask=mask)


def _decoded_bytes(array: Any) -> int:
    if not types.is_string(array.type.value_type):
        return 8 * len(array)
    lengths: Any = pc.binary_length(array.dictionary)
    return pc.sum(lengths.cast(pa.int64()).take(array.indices)).as_py() or 0


def _with_empty_nulls(array: Any) -> pa.Array:
    """Return views with those of NULLs empty: Arrow reads them, and validates only the others."""
    validity, views, *data = array.buffers()
    end = array.offset + len(array)
    if validity is None or not len(array):
        return array
    if validity.size * 8 < end or views is None or views.size < end * _VIEW_BYTES:
        raise ValueError("its buffers are too short")
    is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), count=end, bitorder="little").astype(bool)
    cleared = np.frombuffer(views, np.uint8, end * _VIEW_BYTES).reshape(end, _VIEW_BYTES) * is_valid[:, None]
    buffers = [validity, pa.py_buffer(cleared), *data]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)


def _viewed_bytes(array: Any) -> int:
    """Return how long the texts of sound views are together, many of which may show the same bytes."""
    if not len(array):
        return 0
    lengths = np.frombuffer(array.buffers()[1], "<i4")[:: _VIEW_BYTES // 4]
    return int(lengths[array.offset : array.offset + len(array)].sum(dtype=np.int64))


def brief(problem: Exception) -> str:
    """Return what the library says of garbage, shortly."""
    text = str(problem).splitlines()
    return (text[0] if text else type(problem).__name__)[:200].rstrip(".")
