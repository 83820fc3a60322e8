"""Names that the rows of a body have and no column reads, while columns have no value there: likely misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np
import orjson
import pyarrow.compute as pc

from braid.sources.core.schema import Field, Schema
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.json_rows import elements_of

OBJECTS_LOOKED_AT = 20
_MOST_NAMES, _LONGEST_NAME = 50, 100
_CLOSE = 0.75


def with_odd_names(decoded: Decoded, schema: Schema, body: bytes, is_document: bool) -> Decoded:
    """Return what a body of JSON gave, with ``missing`` and ``unknown`` as of the objects that lack columns.

    Columns that may be left out are not listed alone, nor are members that a stream has no use for. Where a column has
    values in other rows, a name is listed that is close to its own.
    """
    lacking = [field for field in schema.read if decoded.tuples.column(field.name).null_count]
    if not lacking and decoded.tuples.num_rows:
        return decoded
    objects = list(islice(_elements(body) if is_document else _lines(body), OBJECTS_LOOKED_AT))
    with_names = compared(decoded, schema, _names_in(objects))
    if with_names.missing or is_document:
        return with_names
    malformed = {fault.line for fault in decoded.malformed}
    lines = [line for at, line in enumerate(body.split(b"\n"), 1) if line.strip() and at not in malformed]
    close = dict.fromkeys(name for field in lacking for name in _close_names(decoded, schema, field, lines))
    return replace(decoded, unknown=tuple(close))


def compared(decoded: Decoded, schema: Schema, names: Iterable[str]) -> Decoded:
    """Return what a body whose rows have ``names`` gave, with ``missing`` and ``unknown`` where it has both."""
    names = tuple(names)
    found = {name.strip().lower() for name in names}
    missing = tuple(
        field.name
        for field in schema.read
        if field.input_name.strip().lower() not in found and not _has_values(decoded, field.name)
    )
    unknown = unknown_names(names, schema)
    return replace(decoded, missing=missing, unknown=unknown) if missing and unknown else decoded


def unknown_names(names: Iterable[str], schema: Schema) -> tuple[str, ...]:
    """Return the first names that no column reads, each cut where it is long, as UTF-8 can have them."""
    read = {field.input_name.strip().lower() for field in schema.read}
    unknown = islice((name for name in names if name.strip().lower() not in read), _MOST_NAMES)
    return tuple(name[:_LONGEST_NAME].encode("utf-8", "backslashreplace").decode() for name in unknown)


def _close_names(decoded: Decoded, schema: Schema, field: Field, lines: Sequence[bytes]) -> list[str]:
    """Return the names close to a column's that rows without a value there have; a line for each row."""
    if len(lines) != decoded.tuples.num_rows:
        return []
    rows = np.flatnonzero(pc.is_null(decoded.tuples.column(field.name)))[:OBJECTS_LOOKED_AT]
    names = _names_in(_lines(b"\n".join(lines[row] for row in rows)))
    return difflib.get_close_matches(field.input_name, unknown_names(names, schema), cutoff=_CLOSE)


def _has_values(decoded: Decoded, name: str) -> bool:
    return decoded.tuples.column(name).null_count < decoded.tuples.num_rows


def _names_in(objects: Iterable[object]) -> dict[str, None]:
    return dict.fromkeys(name for value in objects if type(value) is dict for name in value)


def _lines(body: bytes) -> Iterator[object]:
    begin = 0
    while begin < len(body):
        end = body.find(b"\n", begin)
        end = len(body) if end < 0 else end
        with suppress(orjson.JSONDecodeError):  # blank, malformed, or a number beyond doubles: others tell the names
            yield orjson.loads(body[begin:end])
        begin = end + 1


def _elements(body: bytes) -> Iterator[object]:
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        yield from _lines(body.replace(b"\n", b" "))  # one object
        return
    with suppress(ValueError):  # what is no JSON ends them
        yield from elements_of(body, exact=False)
