"""CSV piece by piece: where records end, and a run of whole records as tuples.

A record ends with a newline outside of quotes. A quote counts at the beginning of a field only, and twice inside of
quotes it is one; text after the closing quote belongs to the field. Records without any text are skipped.

Text is parsed by Arrow where that surely gives the same as reading field by field, which is the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from braid.sources.core.columns import one_array
from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.columns import convert_text, find_column, nulls, one_zero, whole_numbers
from braid.sources.formats.csv_document import MAX_COLUMNS, TOO_WIDE, convert_texts
from braid.sources.formats.decoded import Decoded, assemble, whole_batch
from braid.sources.formats.texts import NEWLINE, is_utf8, line_ends
from braid.sources.formats.time_formats import has_fractions, is_epoch

QUOTE, RETURN = b'"\r'
WITH_CARE_AT_ONCE = 500
_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
_READ_AS_TEXT = ("VARCHAR", "DATE", "TIMESTAMP")


@dataclass(frozen=True)
class CsvLayout:
    """How the records of one file are made up: ``width`` fields, and where among them the columns of a stream are.

    The place of a column that they lack is None.
    """

    delimiter: str
    width: int
    places: tuple[int | None, ...]

    @classmethod
    def declared(cls, schema: Schema, delimiter: str) -> CsvLayout:
        """Return the layout of a file without names: the columns in the order of their declaration."""
        return cls(delimiter, len(schema.read), tuple(range(len(schema.read))))

    @classmethod
    def named(cls, record: bytes, schema: Schema, delimiter: str, may_lack: bool = False) -> CsvLayout:
        """Return the layout that a record of names says; MalformedRequest when a column is missing.

        With ``may_lack`` only when all are, or one that must not be NULL.
        """
        fields = split_fields(record, delimiter)
        if fields is not None and len(fields) > MAX_COLUMNS:
            raise MalformedRequest(TOO_WIDE)
        if fields is None:
            raise MalformedRequest("The names of columns must be closed by quotes as they are opened; they are not.")
        try:
            names = [(field or b"").decode() for field in fields]
        except UnicodeDecodeError:
            raise MalformedRequest(
                "The names of columns must be UTF-8, got others. Convert them: iconv -f WINDOWS-1252 -t UTF-8."
            ) from None
        if names == [""]:
            wanted_names = delimiter.join(field.input_name for field in schema.read)
            raise MalformedRequest(f"The first line is empty; it must name the columns: {wanted_names}")
        lacking = tuple(f for f in schema.read if may_lack and not _has(names, f) and f.name not in schema.required)
        wanted = schema.read if len(lacking) == len(schema.read) else (f for f in schema.read if f not in lacking)
        try:
            places = {field.name: find_column(names, field.input_name) for field in wanted}
        except MalformedRequest as problem:
            if any(_has(names, field) for field in schema.read):
                raise
            wanted_names = delimiter.join(field.input_name for field in schema.read)
            raise MalformedRequest(f"{problem.detail} It must name columns of the stream: {wanted_names}") from None
        return cls(delimiter, len(names), tuple(places.get(field.name) for field in schema.read))


def _has(names: Sequence[str], field: Field) -> bool:
    """Whether some name is that of a column, in another case or not."""
    return any(name.strip().lower() == field.input_name.strip().lower() for name in names)


def record_ends(text: bytes, delimiter: str) -> np.ndarray:
    """Return the positions after the records that ``text``, which begins with one, has whole; ascending int64."""
    ends = line_ends(text)
    if b'"' not in text:
        return ends
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == QUOTE)
    if _are_regular(text, quotes, delimiter):
        return ends[np.searchsorted(quotes, ends) % 2 == 0]
    matched_ends: list[int] = []
    position, pattern = 0, _patterns(delimiter).record
    while (match := pattern.match(text, position)) is not None:
        position = match.end()
        matched_ends.append(position)
    return np.array(matched_ends, dtype=np.int64)


def split_fields(record: bytes, delimiter: str) -> list[bytes | None] | None:
    """Return the fields of one record, None for one that is empty and not in quotes; None when a quote stays open."""
    text = without_end(record)
    fields: list[bytes | None] = []
    position, pattern = 0, _patterns(delimiter).field
    while (match := pattern.match(text, position)) is not None:
        quoted, trailing, plain = match.groups()
        fields.append(plain or None if quoted is None else quoted.replace(b'""', b'"') + trailing)
        position = match.end() + 1
        if position > len(text):
            return fields
    return None


def read_carefully(text: bytes, schema: Schema, layout: CsvLayout) -> Decoded:
    """Decode whole records field by field; they are numbered from 1, and those that do not fit are told as rows."""
    ends = record_ends(text, layout.delimiter).tolist()
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    records = [
        (n, text[a:b]) for n, (a, b) in enumerate(zip([0, *ends], ends, strict=False), 1) if without_end(text[a:b])
    ]
    return decode_records(records, schema, layout, {}, "row")


def decode_records(
    records: Sequence[tuple[int, bytes]], schema: Schema, layout: CsvLayout, faults: Mapping[int, str], unit: str
) -> Decoded:
    """Decode numbered records field by field; ``unit`` and its number name one in messages.

    ``faults`` says of records, by their places in ``records``, why they cannot be read.
    """
    unreadable = dict(faults)
    rows: list[Sequence[str | None]] = []
    no_fields: list[str | None] = [None] * layout.width
    for i, (_, record) in enumerate(records):
        if i in faults:
            rows.append(no_fields)
            continue
        fields = split_fields(record, layout.delimiter)
        if fields is None:
            unreadable[i] = " must close the quotes that it opens"
        elif len(fields) != layout.width:
            unreadable[i] = f" must have {layout.width} fields, got {len(fields)}"
        else:
            try:
                rows.append([None if field is None else field.decode() for field in fields])
                continue
            except UnicodeDecodeError:
                unreadable[i] = " must be UTF-8"
        rows.append(no_fields)
    columns = [
        nulls(len(rows), field) if place is None else convert_texts(field, [row[place] for row in rows])
        for field, place in zip(schema.read, layout.places, strict=True)
    ]

    def raws(wrong: Sequence[int]) -> list[str]:
        return [without_end(records[i][1]).decode(errors="replace") for i in wrong]

    return assemble(schema, columns, unreadable, lambda i: f"{unit} {records[i][0]}", lambda i: records[i][0], raws)


def decode_pieces(
    text: bytes, records: int, schema: Schema, layout: CsvLayout, first: int = 0
) -> Iterator[tuple[int, int, Decoded, int]]:
    """Yield runs of whole records: the number of the first (from ``first``), how many, what they are, and their bytes.

    Reading with care is slow, so that is done only to few records around those that need it.
    """
    tuples = read_fast(text, schema, layout)
    if tuples is not None:
        yield first, records, Decoded(tuples, ()), len(text)
    elif records <= WITH_CARE_AT_ONCE:
        yield first, records, read_carefully(text, schema, layout), len(text)
    else:
        half = records // 2
        cut = int(record_ends(text, layout.delimiter)[half - 1])
        yield from decode_pieces(text[:cut], half, schema, layout, first)
        yield from decode_pieces(text[cut:], records - half, schema, layout, first + half)


def read_fast(text: bytes, schema: Schema, layout: CsvLayout) -> pa.RecordBatch | None:
    """Decode with Arrow's parser, or return None when the careful way might give something else.

    Arrow also ends records at a lone CR, closes quotes at the end of the text, and reads hexadecimal integers, NaN, Inf
    and decimals with too many digits.
    """
    if (
        not all(f.type.is_plain for f in schema.read)
        or text.count(b"\r") != text.count(b"\r\n")
        or not is_utf8(text)
        or not _has_regular_quotes(text, layout.delimiter)
        or (any(f.type.is_integer or is_epoch(f) for f in schema.read) and (b"0x" in text or b"0X" in text))
    ):
        return None
    tuples = _parsed(text, schema, layout, _parsed_type)
    if tuples is None and any(f.type.is_integer or is_epoch(f) for f in schema.read):
        tuples = _parsed(text, schema, layout, _parsed_type_of_doubles)
    return tuples


def _parsed(
    text: bytes, schema: Schema, layout: CsvLayout, type_of: Callable[[Field], pa.DataType]
) -> pa.RecordBatch | None:
    """Decode with Arrow's parser, columns read as ``type_of`` says; None when some value needs a closer look."""
    names = [f"f{number}" for number in range(layout.width)]
    types = {names[place]: type_of(f) for place, f in zip(layout.places, schema.read, strict=True) if place is not None}
    has_texts = any(f.type.kind == "VARCHAR" for f in schema.read)
    try:
        table = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=not has_texts,
                true_values=_TRUE,
                false_values=_FALSE,
            ),
        )
        arrays = [
            nulls(table.num_rows, f).values if place is None else _converted(one_array(table.column(names[place])), f)
            for place, f in zip(layout.places, schema.read, strict=True)
        ]
    except (pa.ArrowException, ValueError):
        return None
    if any(array is None for array in arrays):
        return None
    return whole_batch(schema, arrays)


def _converted(array: Any, field: Field) -> pa.Array | None:
    """Return a parsed column as the stream has it; None when some value needs a closer look."""
    if field.type.kind == "DOUBLE":
        return one_zero(array) if pc.all(pc.is_finite(array)).as_py() is not False else None
    if field.type.kind == "DECIMAL":
        array.validate(full=True)  # the parser does not count the digits before the point
        return array
    if field.type.is_integer and pa.types.is_floating(array.type):
        return whole_numbers(array, field.type)
    return convert_text(field, array) if field.type.kind in _READ_AS_TEXT else array


def _parsed_type(field: Field) -> pa.DataType:
    if is_epoch(field):
        return pa.int64()
    return pa.string() if field.type.kind in _READ_AS_TEXT else field.type.arrow


def _parsed_type_of_doubles(field: Field) -> pa.DataType:
    """Return what reads 517.0 as a number, too."""
    return pa.float64() if field.type.is_integer or has_fractions(field) else _parsed_type(field)


def _has_regular_quotes(text: bytes, delimiter: str) -> bool:
    if b'"' not in text:
        return True
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == QUOTE)
    return len(quotes) % 2 == 0 and _are_regular(text, quotes, delimiter)


def _are_regular(text: bytes, quotes: np.ndarray, delimiter: str) -> bool:
    """Whether quotes open only where a field begins, and close only where it ends, so that every second one closes."""
    characters = np.frombuffer(text, np.uint8)
    opening, closing = quotes[::2], quotes[1::2]
    before = characters[opening[opening > 0] - 1]
    after = characters[closing[closing < len(text) - 1] + 1]
    begins = (before == ord(delimiter)) | (before == NEWLINE) | (before == QUOTE)
    ends = (after == ord(delimiter)) | (after == NEWLINE) | (after == RETURN) | (after == QUOTE)
    return bool(begins.all() and ends.all())


@dataclass(frozen=True)
class _Patterns:
    record: re.Pattern[bytes]
    field: re.Pattern[bytes]


@lru_cache(16)
def _patterns(delimiter: str) -> _Patterns:
    """Return what a whole record and a field look like; each text matches in one way, so that nothing is tried twice.

    Python before 3.11.5 matches possessive groups with alternatives wrongly: only single characters are possessive.
    """
    plain = rb"[^%b\n]*+" % re.escape(delimiter.encode())
    quoted = rb'"([^"]*+(?:""[^"]*+)*)"(?!")(' + plain + rb")"
    field = quoted + rb'|((?!")' + plain + rb")"
    return _Patterns(
        re.compile(rb"(?:%b)(?:%b(?:%b))*\n" % (field, re.escape(delimiter.encode()), field)), re.compile(field)
    )


def without_end(record: bytes) -> bytes:
    """Return a record without the end of its line."""
    return record.removesuffix(b"\n").removesuffix(b"\r")
