"""``application/x-ndjson``: one JSON object a line; empty lines are skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyarrow.json import ParseOptions, ReadOptions

from braid.sources.core.columns import one_array
from braid.sources.core.json_paths import Path
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.columns import convert_text, one_zero, whole_numbers
from braid.sources.formats.decoded import Decoded, Gathered, row_bytes, whole_batch
from braid.sources.formats.json_rows import Unparsable, decode_rows, needs_exact_numbers, parse_json
from braid.sources.formats.limits import BODY, DecodingLimits
from braid.sources.formats.nested import max_text_bytes
from braid.sources.formats.time_formats import has_fractions, is_epoch

BLOCK_BYTES = 1 << 20
WORTH_BYTES = 32 << 10  # starting Arrow's parser takes as long as reading this much carefully
MAX_BRACKETS = 500  # fewer cannot nest deeper than the careful parser goes
LINES_AT_ONCE = 4096
CACHED_BYTES = 1 << 18  # what is gone through at a time, so that it stays in the processor's cache
BLANKS = b" \t\r"


def decode_ndjson(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode lines of JSON in UTF-8; TooLarge or MalformedRequest when there is more than the limits allow."""
    limits.check_rows(body.count(b"\n"))
    tuples = read_fast(body, schema, limits) if len(body) >= WORTH_BYTES else None
    if tuples is None:
        return read_carefully(body, schema, limits)
    gathered = Gathered(schema, limits)
    gathered.add(Decoded(tuples, ()))
    return gathered.decoded()


def read_carefully(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode line by line, by the rules of :mod:`braid.sources.formats.coercion`, some at a time."""
    exact, max_bytes = needs_exact_numbers(schema), max_text_bytes(schema)
    gathered = Gathered(schema, limits)
    bytes_of_lines = 0
    lines: list[tuple[int, bytes]] = []
    rows: list[Any] = []

    def decode_some() -> None:
        gathered.add(decode_rows(schema, rows, "line", lambda i: lines[i][0], lambda i: _text(lines[i][1])))
        lines.clear()
        rows.clear()

    for number, text in enumerate(body.split(b"\n"), start=1):
        if not text.strip(BLANKS):
            continue
        bytes_of_lines += len(text)
        if lines and bytes_of_lines > max_bytes:
            decode_some()
            bytes_of_lines = len(text)
        lines.append((number, text))
        try:
            rows.append(parse_json(text, exact))
        except ValueError as problem:
            rows.append(Unparsable(str(problem)))
        if len(rows) == LINES_AT_ONCE:
            decode_some()
            bytes_of_lines = 0
    decode_some()
    return gathered.decoded()


def _text(line: bytes) -> str:
    return line.strip(BLANKS).decode(errors="replace")


def read_fast(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> pa.RecordBatch | None:
    """Decode with Arrow's parser, or return None when the careful way might give something else.

    Arrow also reads several objects on a line, one object over several lines, NaN and Inf, and objects nested without
    bound; it knows no DECIMAL as a number and no names that differ in case. TooLarge when the tuples would be.
    """
    if needs_exact_numbers(schema) or not all(f.type.is_plain for f in schema.read):
        return None
    is_flat = all(len(f.path) == 1 for f in schema.read)
    objects = _flat_objects(body) if is_flat else _nested_objects(body)
    if objects is None:
        return None
    limits.check_rows(objects)
    limits.check_bytes(objects * row_bytes(schema), "the columns of the stream")
    tuples = _parsed(body, schema, objects, _parsed_type)
    if tuples is None and any(f.type.is_integer or has_fractions(f) for f in schema.read):
        tuples = _parsed(body, schema, objects, _parsed_type_of_doubles)
    return tuples


def _parsed(
    body: bytes, schema: Schema, objects: int, type_of: Callable[[Field], pa.DataType]
) -> pa.RecordBatch | None:
    """Decode so many objects, columns read as ``type_of`` says; None when some value needs a closer look."""
    explicit = _parsed_schema(schema, type_of)
    if explicit is None:
        return None
    try:
        table = pyarrow.json.read_json(
            cast(Any, pa.BufferReader(body)),
            read_options=ReadOptions(block_size=BLOCK_BYTES),
            parse_options=ParseOptions(explicit_schema=explicit, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, ValueError):
        return None
    if table.num_rows != objects:
        return None
    arrays: list[pa.Array] = []
    for f in schema.read:
        column: Any = _column_at(table, f.path)
        if column.null_count and _may_hide(body, f.input_name, f.name in schema.required):
            return None
        if f.type.kind == "DOUBLE":
            column = one_zero(column)
        elif f.type.is_integer and pa.types.is_floating(column.type):
            column = whole_numbers(column, f.type)
        elif f.type.kind in ("DATE", "TIMESTAMP"):
            column = convert_text(f, column)
        if column is None:
            return None
        arrays.append(column)
    return whole_batch(schema, arrays)


def _parsed_schema(schema: Schema, type_of: Callable[[Field], pa.DataType]) -> pa.Schema | None:
    """Return the columns that Arrow is to parse, objects as structs; None for places in arrays, and for conflicts."""
    members: dict[str, Any] = {}
    for f in schema.read:
        *enclosing, last = f.path
        inner: Any = members
        for step in enclosing:
            inner = inner.setdefault(step, {}) if isinstance(step, str) else None
            if not isinstance(inner, dict):
                return None
        if not isinstance(last, str) or inner.setdefault(last, type_of(f)) != type_of(f):
            return None
    return pa.schema(_arrow_fields(members))


def _arrow_fields(members: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_arrow_fields(inner)) if isinstance(inner, dict) else inner)
        for name, inner in members.items()
    ]


def _column_at(table: pa.Table, path: Path) -> pa.Array:
    name, *steps = path
    column: Any = one_array(table.column(str(name)))
    for step in steps:
        column = pc.struct_field(column, column.type.get_field_index(step))
    return column


def _nested_objects(body: bytes) -> int | None:
    """Return how many lines there are if each begins and ends as an object does, and None for what Arrow misreads.

    No object can go on in a next line that begins so: after a closing bracket comes a comma, or the object's end.
    """
    if not body:
        return None
    text = np.frombuffer(body, dtype=np.uint8)
    is_line_end = text == ord("\n")
    ends = np.flatnonzero(is_line_end)
    if not len(ends) or ends[-1] != len(text) - 1:
        ends = np.append(ends, len(text))
    begins = np.concatenate([[0], ends[:-1] + 1])
    lasts = ends - 1
    lasts = lasts - (text[np.maximum(lasts, 0)] == ord("\r"))
    if (lasts < begins).any() or (text[begins] != ord("{")).any() or (text[lasts] != ord("}")).any():
        return None
    openings = np.flatnonzero((text == ord("{")) | (text == ord("[")))
    per_line = np.diff(np.append(np.searchsorted(openings, begins), len(openings)))
    is_odd = per_line.max() > MAX_BRACKETS or _has(text, b"NaN") or _has(text, b"Inf")
    return None if is_odd else len(begins)


def _flat_objects(body: bytes) -> int | None:
    """Return how many lines there are if brackets make each one flat object, and None for what Arrow misreads.

    numpy lets other threads go on, which searching in bytes does not.
    """
    text = np.frombuffer(body, dtype=np.uint8)
    objects = breaks = brackets = 0
    begun_lines = int(body.startswith(b"{"))
    for start in range(0, len(text), CACHED_BYTES):
        block = text[start : start + CACHED_BYTES + 2]  # with what a word may need of the next one
        is_open, is_break = block == ord("{"), block == ord("\n")
        objects += int(np.count_nonzero(is_open[:CACHED_BYTES]))
        breaks += int(np.count_nonzero(is_break[:CACHED_BYTES]))
        begun_lines += int(np.count_nonzero((is_break[:-1] & is_open[1:])[:CACHED_BYTES]))
        brackets += int(np.count_nonzero(block[:CACHED_BYTES] == ord("[")))
        if brackets > MAX_BRACKETS or _has(block, b"NaN") or _has(block, b"Inf"):
            return None
    lines = breaks + (not body.endswith(b"\n"))
    return objects if objects == begun_lines == lines else None


def _has(text: npt.NDArray[np.uint8], word: bytes) -> bool:
    places = max(len(text) - len(word) + 1, 0)
    matches = text[:places] == word[0]
    for offset, letter in enumerate(word[1:], start=1):
        matches &= text[offset : offset + places] == letter
    return bool(matches.any())


def _parsed_type(field: Field) -> pa.DataType:
    if is_epoch(field):
        return pa.int64()
    return pa.string() if field.type.kind in ("DATE", "TIMESTAMP") else field.type.arrow


def _parsed_type_of_doubles(field: Field) -> pa.DataType:
    """Return what reads 517.0 as a number, too."""
    return pa.float64() if field.type.is_integer or has_fractions(field) else _parsed_type(field)


def _may_hide(body: bytes, name: str, is_required: bool) -> bool:
    """Whether a NULL read for column ``name`` may be malformed, or a value under a name that differs in case."""
    if is_required or b"\\" in body:
        return True
    text = body.decode()
    return text.count(f'"{name}"') != text.lower().count(f'"{name.lower()}"')
