"""Find a column by its name, and turn a list of JSON values into one Arrow column.

Values that are all plainly right are converted in one go; otherwise each goes through
:func:`braid.sources.formats.coercion.coerce`. Both ways give the same. Values with parts become the columns of their
parts first.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.core.schema import ColumnType, Field, Schema
from braid.sources.formats.coercion import EXACT_DOUBLES, UnfitError, coerce, complaint
from braid.sources.formats.decoded import DecodedColumn
from braid.sources.formats.nested import MAX_VALUE_BYTES, fields_of, list_column, min_part_bytes, struct_column
from braid.sources.formats.temporal import dates_of_text
from braid.sources.formats.time_formats import is_epoch, times_of

MAX_NAMES = 50
_MISSING = object()
_WITHOUT_OBJECTS = ("csv", "avro")

_PLAIN: dict[str, set[type]] = {
    "BOOLEAN": {bool, type(None)},
    "INT": {int, type(None)},
    "BIGINT": {int, type(None)},
    "DOUBLE": {int, float, type(None)},
    "VARCHAR": {str, type(None)},
    "DATE": {str, type(None)},
    "TIMESTAMP": {str, type(None)},
}


def check_paths(schema: Schema, format: str) -> None:
    """Raise NotAllowed for a path into what a format has no objects for."""
    nested = next((f for f in schema.read if len(f.path) > 1), None)
    if nested is not None and format in _WITHOUT_OBJECTS:
        raise NotAllowed(
            f"Column {nested.name!r} cannot be FROM {nested.source!r}: format {format!r} is read without objects in"
            " others. Write FROM and the name of a column, which may be a STRUCT, or use 'json'."
        )


def convert_values(field: Field, values: Sequence[Any]) -> DecodedColumn:
    """Convert JSON values to the type of ``field``; those that do not fit become NULL and an error."""
    if field.type.members:
        return _convert_nested(field, values)
    plain = _convert_plain(field, values)
    if plain is not None:
        return DecodedColumn(plain, {})
    fitting: list[Any] = []
    errors: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            fitting.append(coerce(value, field.type, field.time_format))
        except UnfitError as problem:
            errors[i] = complaint(field.name, field.type, value, str(problem))
            fitting.append(None)
    return DecodedColumn(pa.array(fitting, field.type.arrow), errors)


def _convert_nested(field: Field, values: Sequence[Any]) -> DecodedColumn:
    """Convert objects to STRUCT or MAP, arrays to ARRAY, by the columns of what is in them."""
    container: Any = list if field.type.kind == "ARRAY" else dict
    errors = {
        i: complaint(field.name, field.type, value, "")
        for i, value in enumerate(values)
        if value is not None and type(value) is not container
    }
    fields = list(fields_of(field))
    if field.type.kind != "STRUCT":
        max_elements = MAX_VALUE_BYTES // min_part_bytes(fields[-1].type)
        for i, value in enumerate(values):
            if type(value) is container and len(value) > max_elements:
                errors[i] = f"column {field.name!r} must have at most {max_elements} elements, got {len(value)}"
    is_null = np.array([type(value) is not container for value in values], dtype=bool)
    is_null[list(errors)] = True
    present = [container() if null else value for null, value in zip(is_null.tolist(), values, strict=True)]
    if field.type.kind == "STRUCT":
        members = [
            convert_values(member, members_of(present, name))
            for member, (name, _) in zip(fields, field.type.members, strict=True)
        ]
        column = struct_column(field, members, is_null)
    else:
        lengths = np.fromiter(map(len, present), np.int64, len(present))
        is_map = container is dict
        inner = [part for value in present for part in (value.values() if is_map else value)]
        keys = [key for value in present for key in value] if is_map else []
        key_column = convert_values(fields[0], keys) if is_map else None
        column = list_column(
            field,
            lengths,
            convert_values(fields[-1], inner),
            is_null,
            None if key_column is None else key_column.values,
        )
    return DecodedColumn(column.values, {**column.errors, **errors})


def members_of(objects: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """Return the members of exactly that name, else the last one that differs in case only."""
    values = [row.get(name, _MISSING) for row in objects]
    if _MISSING in values:
        lower = name.lower()
        for i, value in enumerate(values):
            if value is _MISSING:
                similar = [v for k, v in objects[i].items() if k.lower() == lower]
                values[i] = similar[-1] if similar else None
    return values


def convert_text(field: Field, texts: Any) -> pa.Array | None:
    """Return strings as DATE, TIMESTAMP or VARCHAR, or None when some need a closer look.

    Times that are numbers may come as such.
    """
    if field.type.kind == "DATE":
        return dates_of_text(texts)
    return times_of(texts, field) if field.type.kind == "TIMESTAMP" else texts


def nulls(length: int, field: Field) -> DecodedColumn:
    """Return a column without any value."""
    arrow: Any = field.type.arrow
    return DecodedColumn(pa.nulls(length, arrow), {})


def one_zero(numbers: pa.Array) -> pa.Array:
    """Return doubles with -0.0 replaced by 0.0."""
    return pc.add(numbers, 0.0)


def whole_numbers(doubles: pa.Array, column_type: ColumnType) -> pa.Array | None:
    """Return doubles as INT or BIGINT, NULL for NULL; None when some is not whole, or beyond EXACT_DOUBLES."""
    is_null = np.asarray(doubles.is_null())
    numbers = np.asarray(doubles.fill_null(0))
    if not ((np.abs(numbers) < EXACT_DOUBLES) & (numbers == np.floor(numbers))).all():
        return None
    try:
        return pa.array(numbers.astype(np.int64), mask=is_null).cast(column_type.arrow)
    except pa.ArrowInvalid:
        return None


def find_column(names: Sequence[str], name: str, place: str = "The first line") -> int:
    """Return the place of a column: of exactly that name, else of one that differs in case, or in blanks around it.

    ``place`` says where the names are. MalformedRequest when it is not there, or several times.
    """
    exact = [i for i, n in enumerate(names) if n == name]
    positions = exact or [i for i, n in enumerate(names) if n.strip().lower() == name.strip().lower()]
    if len(positions) != 1:
        known = ", ".join(map(repr, names[:MAX_NAMES]))
        if positions:
            raise MalformedRequest(f"{place} must have column {name!r} once; it has {known}.")
        close = difflib.get_close_matches(name, names[:MAX_NAMES], n=1)
        hint = f" Is it {close[0]!r}?" if close else ""
        if len(names) == 1 and (delimiters := [mark for mark in ",;\t|" if mark in names[0]]):
            hint = f" If {delimiters[0]!r} stands between its names, say so: delimiter = {delimiters[0]!r}."
        raise MalformedRequest(f"{place} lacks column {name!r}; it has {known}.{hint}")
    return positions[0]


def _convert_plain(field: Field, values: Sequence[Any]) -> pa.Array | None:
    kind = field.type.kind
    if kind not in _PLAIN:
        return None
    value_types = set(map(type, values))
    has_doubles = field.type.is_integer and float in value_types
    if is_epoch(field) and str not in value_types:
        return _convert_numbers(field, values, value_types)
    if not value_types <= (_PLAIN["DOUBLE"] if has_doubles else _PLAIN[kind]):
        return None
    try:
        if has_doubles:
            return whole_numbers(pa.array(values, pa.float64()), field.type)
        if kind in ("DATE", "TIMESTAMP", "VARCHAR"):
            return convert_text(field, pa.array(values, pa.string()))
        array = pa.array(values, field.type.arrow)
    except (pa.ArrowException, ValueError, OverflowError):  # ValueError: half a surrogate pair
        return None
    if kind != "DOUBLE":
        return array
    return one_zero(array) if pc.all(pc.is_finite(array)).as_py() is not False else None


def _convert_numbers(field: Field, values: Sequence[Any], value_types: set[type]) -> pa.Array | None:
    """Return times that are numbers."""
    if not value_types <= _PLAIN["DOUBLE"] or {int, float} <= value_types:
        return None
    try:
        return times_of(pa.array(values, pa.float64() if float in value_types else pa.int64()), field)
    except (pa.ArrowException, OverflowError):
        return None
