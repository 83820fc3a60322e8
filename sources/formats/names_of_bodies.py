"""Names that the rows of a body have and no column reads, while columns have no value in any row: likely misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import orjson

from braid.sources.core.schema import Schema
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.json_rows import elements_of

OBJECTS_LOOKED_AT = 20


def with_odd_names(decoded: Decoded, schema: Schema, body: bytes, is_document: bool) -> Decoded:
    """Return what a body of JSON gave, with ``missing`` and ``unknown`` where it has both.

    Columns that may be left out are not told alone, nor are members that a stream has no use for. The names are those
    of the first objects.
    """
    if not decoded.tuples.num_rows or all(_has_values(decoded, field.name) for field in schema.read):
        return decoded
    objects = _elements(body) if is_document else _lines(body)
    names = dict.fromkeys(name for value in islice(objects, OBJECTS_LOOKED_AT) if type(value) is dict for name in value)
    return compared(decoded, schema, names)


def compared(decoded: Decoded, schema: Schema, names: Iterable[str]) -> Decoded:
    """Return what a body whose rows have ``names`` gave, with ``missing`` and ``unknown`` where it has both."""
    found = {name.strip().lower() for name in names}
    missing = tuple(
        field.name
        for field in schema.read
        if field.input_name.strip().lower() not in found and not _has_values(decoded, field.name)
    )
    unknown = unknown_names(names, schema)
    return replace(decoded, missing=missing, unknown=unknown) if missing and unknown else decoded


def unknown_names(names: Iterable[str], schema: Schema) -> tuple[str, ...]:
    """Return the names that no column reads."""
    read = {field.input_name.strip().lower() for field in schema.read}
    return tuple(name for name in names if name.strip().lower() not in read)


def _has_values(decoded: Decoded, name: str) -> bool:
    return decoded.tuples.column(name).null_count < decoded.tuples.num_rows


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
