"""CSV whose first row names the columns.

A field that is empty is NULL, unless it is in quotes and the column a text; so is NaN in a column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyarrow import csv

from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.columns import convert_values, find_column
from braid.sources.formats.decoded import Decoded, DecodedColumn, assemble
from braid.sources.formats.json_rows import convert_json_texts
from braid.sources.formats.time_formats import is_epoch

MAX_COLUMNS = 10_000
TOO_WIDE = f"CSV must have at most {MAX_COLUMNS} columns; its first line has more."
_NO_DELIMITERS = "\"'\\\r\n"

NAN = "nan"
_WHOLE = re.compile(r"[+-]?\d{1,4000}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def check_delimiter(delimiter: str) -> None:
    """Raise NotAllowed unless fields can be set apart by ``delimiter``."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in _NO_DELIMITERS:
        raise NotAllowed(f"The delimiter must be one ASCII character, no quote, no end of a line; got {delimiter!r}.")


def decode_csv(body: bytes, schema: Schema, delimiter: str = ",") -> Decoded:
    """Decode CSV in UTF-8; rows after that of the names are numbered from 1.

    Raises MalformedRequest when the text cannot be read at all, has too many columns, or lacks one.
    """
    _check_width(body, delimiter)
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
    places = [find_column(names, field.input_name) for field in schema.read]
    columns = [convert_texts(f, rows.column(i).to_pylist()) for f, i in zip(schema.read, places, strict=True)]

    def raws(wrong: Sequence[int]) -> list[str]:
        return [delimiter.join(column[row].as_py() or "" for column in rows.columns) for row in wrong]

    return assemble(schema, columns, {}, lambda i: f"row {i + 1}", lambda i: i + 1, raws)


def _check_width(text: bytes, delimiter: str) -> None:
    """Raise MalformedRequest where the first row has too many fields: each takes Arrow 6 kB and a tenth of a ms."""
    mark = delimiter.encode()
    field = re.compile(rb'(?:"[^"]*+"?)*[^%b\r\n]*+' % re.escape(mark))
    at = len(text) - len(text.lstrip(b"\r\n"))
    for _ in range(MAX_COLUMNS):
        found = field.match(text, at)
        assert found is not None, "it matches nothing, too"
        if text[found.end() : found.end() + 1] != mark:
            return
        at = found.end() + 1
    raise MalformedRequest(TOO_WIDE)


def convert_texts(field: Field, texts: Sequence[str | None]) -> DecodedColumn:
    """Convert fields of CSV to the type of a column; those that do not fit become NULL and an error."""
    kind = field.type.kind
    if kind == "VARCHAR":
        return convert_values(field, texts)
    if not field.type.is_plain:
        return convert_json_texts(field, [text or None for text in texts])
    read = _READERS.get("BIGINT" if is_epoch(field) else kind)
    if read is not None:
        return convert_values(field, [read(text.strip(), text) if text else None for text in texts])
    return convert_values(field, [text or None for text in texts])


def _number(read: Callable[[str], Any]) -> Callable[[str, str], Any]:
    """Return what reads a text, given without and with the blanks around it; one that is no number stays as it is."""
    return lambda text, written: None if text.lower() == NAN else read(text) if _NUMBER.fullmatch(text) else written


def _whole(text: str) -> int | float | Decimal:
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return float(text)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "INT": _number(_whole),
    "BIGINT": _number(_whole),
    "DOUBLE": _number(float),
    "DECIMAL": lambda text, _: None if text.lower() == NAN else text,
    "BOOLEAN": lambda text, written: _BOOLEANS.get(text.lower(), written),
}
