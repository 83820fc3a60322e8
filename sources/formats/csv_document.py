"""CSV whose first row names the columns; a field that is empty and not in quotes is NULL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv

from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.columns import convert_values, find_column
from braid.sources.formats.decoded import Decoded, DecodedColumn, assemble

MAX_COLUMNS = 10_000
_NO_DELIMITERS = "\"'\\\r\n"

_WHOLE = re.compile(r"[+-]?\d{1,4000}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def check_delimiter(delimiter: str) -> None:
    """Raise NotAllowed unless fields can be set apart by ``delimiter``."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in _NO_DELIMITERS:
        raise NotAllowed(f"The delimiter must be one ASCII character, no quote, no end of a line; got {delimiter!r}.")


def decode_csv(body: bytes, schema: Schema, delimiter: str = ",") -> Decoded:
    """Decode CSV in UTF-8; rows after that of the names are numbered from 1.

    Raises MalformedRequest when the text cannot be read at all, or lacks a column.
    """
    text_types = {f"f{number}": pa.string() for number in range(MAX_COLUMNS)}
    try:
        table = csv.read_csv(
            pa.BufferReader(body if body.endswith(b"\n") else body + b"\n"),  # else a row alone is not read
            # one block: a row may be long
            read_options=csv.ReadOptions(autogenerate_column_names=True, block_size=max(1 << 20, len(body) + 1)),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            # types are told apart below, by the rules for JSON
            convert_options=csv.ConvertOptions(
                column_types=text_types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        ).combine_chunks()
    except pa.ArrowException as problem:
        raise MalformedRequest(f"The text must be CSV with a row of names: {str(problem)[:200]}.") from None
    names = [str(column[0].as_py() or "") for column in table.columns]
    rows = table.slice(1).combine_chunks()
    places = [find_column(names, field.name) for field in schema.fields]
    columns = [convert_texts(f, rows.column(i).to_pylist()) for f, i in zip(schema.fields, places, strict=True)]

    def raws(wrong: Sequence[int]) -> list[str]:
        return [delimiter.join(column[row].as_py() or "" for column in rows.columns) for row in wrong]

    return assemble(schema, columns, {}, lambda i: f"row {i + 1}", lambda i: i + 1, raws)


def convert_texts(field: Field, texts: Sequence[str | None]) -> DecodedColumn:
    """Convert fields of CSV to the type of a column; those that do not fit become NULL and an error."""
    kind = field.type.kind
    if kind in ("INT", "BIGINT"):
        return convert_values(field, [_parsed(text, _WHOLE, int) for text in texts])
    if kind == "DOUBLE":
        return convert_values(field, [_parsed(text, _NUMBER, float) for text in texts])
    if kind == "BOOLEAN":
        return convert_values(field, [None if t is None else _BOOLEANS.get(t.strip().lower(), t) for t in texts])
    if kind == "DECIMAL":
        return convert_values(field, [None if t is None else t.strip() for t in texts])
    return convert_values(field, texts)


def _parsed(text: str | None, pattern: re.Pattern[str], parse: Any) -> Any:
    """Return a text as a number; one that is none stays as it is, for the message."""
    if text is None:
        return None
    stripped = text.strip()
    return parse(stripped) if pattern.fullmatch(stripped) else text
