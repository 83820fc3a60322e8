"""Tuples as JSON objects, one text each, formed column by column: there may be millions.

Values look as they do in result rows (:mod:`braid.sources.formats.json_values`); numbers of streams are finite. JSON is
a text here.
"""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.formats.json_values import json_texts_of

_DAY = "2023-11-14"  # the years have four digits


def json_texts(tuples: pa.RecordBatch) -> pa.Array:
    """Return tuples as texts; there must be columns."""
    parts: list[str | pa.Array] = []
    for name, column in zip(tuples.schema.names, tuples.columns, strict=True):
        parts += [f"{',' if parts else '{'}{orjson.dumps(name).decode()}:", _values(column)]
    return pc.binary_join_element_wise(*parts, "}", "")


def times_as_text(times: pa.Array) -> pa.Array:
    """Return microseconds since 1970, numbers or timestamps, as RFC 3339 in UTC."""
    texts = times.cast(pa.timestamp("us")).cast(pa.string())  # pc.strftime takes fifteen times as long
    return pc.binary_join_element_wise(pc.binary_replace_slice(texts, len(_DAY), len(_DAY) + 1, "T"), "Z", "")


def _values(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        return pc.fill_null(pa.array(json_texts_of(column), pa.string()), "null")
    if pa.types.is_string(kind) or pa.types.is_floating(kind):
        return _dumped(column)
    if pa.types.is_timestamp(kind):
        texts = _quoted(times_as_text(column))
    elif pa.types.is_date(kind):
        texts = _quoted(column.cast(pa.string()))
    else:
        texts = column.cast(pa.string())
    return pc.fill_null(texts, "null")


def _dumped(column: pa.Array) -> pa.Array:
    """Return values as orjson writes them; between those of a list it puts a line break, in which a text has none."""
    document = orjson.dumps(column.to_pylist(), option=orjson.OPT_INDENT_2)
    texts = document.removeprefix(b"[\n  ").removesuffix(b"\n]").split(b",\n  ")
    return pa.array(texts if len(column) else [], pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
