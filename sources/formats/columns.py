"""Find a column by its name, and turn a list of JSON values into one Arrow column.

Values that are all plainly right are converted in one go; otherwise each goes through
:func:`braid.sources.formats.coercion.coerce`. Both ways give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import ColumnType, Field
from braid.sources.formats.coercion import UnfitError, coerce, complaint
from braid.sources.formats.decoded import DecodedColumn
from braid.sources.formats.temporal import dates_of_text, timestamps_of_text

MAX_NAMES = 50

_PLAIN: dict[str, set[type]] = {
    "BOOLEAN": {bool, type(None)},
    "INT": {int, type(None)},
    "BIGINT": {int, type(None)},
    "DOUBLE": {int, float, type(None)},
    "VARCHAR": {str, type(None)},
    "DATE": {str, type(None)},
    "TIMESTAMP": {str, type(None)},
}


def convert_values(field: Field, values: Sequence[Any]) -> DecodedColumn:
    """Convert JSON values to the type of ``field``; those that do not fit become NULL and an error."""
    plain = _convert_plain(field.type, values)
    if plain is not None:
        return DecodedColumn(plain, {})
    fitting: list[Any] = []
    errors: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            fitting.append(coerce(value, field.type))
        except UnfitError as problem:
            errors[i] = complaint(field.name, field.type, value, str(problem))
            fitting.append(None)
    return DecodedColumn(pa.array(fitting, field.type.arrow), errors)


def convert_text(column_type: ColumnType, texts: Any) -> pa.Array | None:
    """Return strings as DATE, TIMESTAMP or VARCHAR, or None when some need a closer look."""
    if column_type.kind == "DATE":
        return dates_of_text(texts)
    return timestamps_of_text(texts) if column_type.kind == "TIMESTAMP" else texts


def nulls(length: int, field: Field) -> DecodedColumn:
    """Return a column without any value."""
    arrow: Any = field.type.arrow
    return DecodedColumn(pa.nulls(length, arrow), {})


def one_zero(numbers: pa.Array) -> pa.Array:
    """Return doubles with -0.0 replaced by 0.0."""
    return pc.add(numbers, 0.0)


def find_column(names: Sequence[str], name: str) -> int:
    """Return the place of a column: of exactly that name, else of one that differs in case, or in blanks around it.

    MalformedRequest when it is not there, or several times.
    """
    exact = [i for i, n in enumerate(names) if n == name]
    positions = exact or [i for i, n in enumerate(names) if n.strip().lower() == name.strip().lower()]
    if len(positions) != 1:
        known = ", ".join(map(repr, names[:MAX_NAMES]))
        raise MalformedRequest(f"Column {name!r} must be there once, got it {len(positions)} times among {known}.")
    return positions[0]


def _convert_plain(column_type: ColumnType, values: Sequence[Any]) -> pa.Array | None:
    kind = column_type.kind
    if kind not in _PLAIN or not set(map(type, values)) <= _PLAIN[kind]:
        return None
    try:
        if kind in ("DATE", "TIMESTAMP", "VARCHAR"):
            return convert_text(column_type, pa.array(values, pa.string()))
        array = pa.array(values, column_type.arrow)
    except (pa.ArrowException, ValueError, OverflowError):  # ValueError: half a surrogate pair
        return None
    if kind != "DOUBLE":
        return array
    return one_zero(array) if pc.all(pc.is_finite(array)).as_py() is not False else None
