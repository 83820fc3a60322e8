"""CREATE STREAM and CREATE TABLE: columns with types, LATENESS of streams, and the options of the connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from braid.router.sinks.connectors import read_sink
from braid.session.sql.parsing.column_types import parse_type
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_duration
from braid.session.sql.statements import CreateStream, CreateTable
from braid.sources.connectors.registry import CONNECTORS, validate_definition
from braid.sources.connectors.static_table import format_of, validate_table
from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import composed
from braid.sources.core.schema import Field, Schema, StreamSchema
from braid.sources.core.watermark_options import WatermarkOptions, split_options

MAX_COLUMNS = 1000
_NAME = re.compile(r"[^\W\d]\w{0,99}")
_WINDOW_BOUNDS = ("window_start", "window_end")
_LATENESS = "Write LATENESS INTERVAL '2' SECOND after the event time column."


def check_name(cursor: Cursor, name: str, noun: str, at: int) -> str:
    """Return a name for something that is created; SqlNotAllowed when it is reserved or not a plain name."""
    name = composed(name)
    if name.startswith("_"):
        raise cursor.not_allowed(f"Names starting with '_' are reserved; rename {noun} {name!r}.", at)
    if not _NAME.fullmatch(name):
        raise cursor.not_allowed(
            f"The name of {noun} must begin with a letter, have letters, digits and '_' only,"
            f" and at most 100 of them; got {name!r}.",
            at,
        )
    return name


def parse_create_stream(cursor: Cursor) -> CreateStream:
    """Read what follows ``CREATE STREAM``."""
    if_not_exists = cursor.accept_all("IF", "NOT", "EXISTS")
    at = cursor.start
    name = check_name(cursor, cursor.name("the name of the stream"), "the stream", at)
    schema = _stream_schema(cursor, at)
    with_at = cursor.start
    options = _parse_options(cursor, "push")
    connector, format_, connector_options, watermark = _check_options(cursor, name, schema, with_at, options)
    return CreateStream(name, schema, connector, format_, connector_options, if_not_exists, watermark)


def parse_create_table(cursor: Cursor) -> CreateTable:
    """Read what follows ``CREATE TABLE``."""
    if_not_exists = cursor.accept_all("IF", "NOT", "EXISTS")
    at = cursor.start
    name = check_name(cursor, cursor.name("the name of the table"), "the table", at)
    columns = _parse_columns(cursor, at, "a table")
    for column in columns:
        if column.lateness is not None:
            raise cursor.not_allowed("Columns of a static table have no LATENESS; remove it.", column.at)
        if column.metadata is not None:
            raise cursor.not_allowed("Columns of a static table have no METADATA; remove it.", column.at)
    with_at = cursor.start
    options = _parse_options(cursor, "file")
    values = {key: value for key, (value, _) in options.items()}
    connector = values.pop("connector", "").lower()
    format_ = values.pop("format", "").lower() or format_of(values.get("path", ""))
    try:
        validate_table(connector, format_, values)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, _offset_to_blame(error, options, with_at)) from None
    return CreateTable(name, Schema(tuple(column.field for column in columns)), format_, values, if_not_exists)


def parse_query_options(cursor: Cursor) -> tuple[dict[str, str] | None, str | None]:
    """Read ``WITH (start = 'earliest', connector = 'file', …)`` of a query.

    Return where its rows go besides the result log, None for nowhere, and where it starts, None where it is not said.
    """
    at = cursor.start
    options = _parse_options(cursor, "file")
    values = {key: value for key, (value, _) in options.items()}
    start = values.pop("start", None)
    if start is not None and not values:
        return None, start
    try:
        read_sink(values)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, _offset_to_blame(error, options, at)) from None
    return values, start


@dataclass(frozen=True)
class _Column:
    """A declared column with its LATENESS (µs) or METADATA, if it has one, and the offset after its type."""

    field: Field
    lateness: int | None
    at: int
    metadata: str | None


def _stream_schema(cursor: Cursor, stream_at: int) -> StreamSchema:
    columns = _parse_columns(cursor, stream_at, "a stream")
    time_columns = [column for column in columns if column.lateness is not None]
    if not time_columns:
        raise cursor.not_allowed(f"Exactly one column must have LATENESS, the event time. {_LATENESS}", stream_at)
    if len(time_columns) > 1:
        raise cursor.not_allowed(
            f"Exactly one column must have LATENESS; {time_columns[0].field.name!r} has it already.", time_columns[1].at
        )
    try:
        metadata = tuple((c.field.name, c.metadata) for c in columns if c.metadata is not None)
        return StreamSchema(
            tuple(c.field for c in columns), time_columns[0].field.name, time_columns[0].lateness or 0, metadata
        )
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, stream_at) from None


def _parse_columns(cursor: Cursor, object_at: int, noun: str) -> list[_Column]:
    cursor.expect("(", "and the columns")
    columns: list[_Column] = []
    while True:
        at = cursor.start
        field = _parse_column(cursor, noun)
        if any(c.field.name.lower() == field.name.lower() for c in columns):
            raise cursor.not_allowed(f"The column {field.name!r} is declared twice (case does not count).", at)
        special_at = cursor.start
        metadata = _parse_metadata(cursor, field) if cursor.accept("METADATA") else None
        lateness = _parse_lateness(cursor, field) if cursor.at("LATENESS") else None
        columns.append(_Column(field, lateness, special_at, metadata))
        if cursor.at("NOT", "NULL", "PRIMARY", "UNIQUE", "DEFAULT", "REFERENCES", "CHECK", "COMMENT"):
            raise cursor.not_allowed(f"Columns of {noun} take no constraints; every column may be NULL.")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if len(columns) > MAX_COLUMNS:
        raise cursor.not_allowed(f"{noun.capitalize()} must have at most {MAX_COLUMNS} columns.", object_at)
    return columns


def _parse_column(cursor: Cursor, noun: str) -> Field:
    at = cursor.start
    if cursor.at("WATERMARK") and cursor.ahead() == "FOR":
        raise cursor.not_allowed(f"WATERMARK FOR is not supported. {_LATENESS}")
    if cursor.at("PRIMARY", "CONSTRAINT", "UNIQUE") and cursor.ahead() != "(":
        raise cursor.not_allowed(f"{noun.split()[1].capitalize()}s have no constraints; remove it.")
    name = check_name(cursor, cursor.name("a column"), "column", at)
    if name.lower() in _WINDOW_BOUNDS:
        raise cursor.not_allowed(f"The results of windows have a column {name.lower()}; rename yours.", at)
    return Field(name, parse_type(cursor))


def _parse_metadata(cursor: Cursor, field: Field) -> str:
    """Read what follows ``METADATA`` and return its key: without FROM, the name of the column."""
    key = field.name.lower()
    if cursor.accept("FROM"):
        if cursor.kind != "string":
            raise cursor.unexpected("what the column holds, such as 'key'")
        key = cursor.advance().text
    cursor.accept("VIRTUAL")
    return key


def _parse_lateness(cursor: Cursor, field: Field) -> int:
    at = cursor.expect("LATENESS").start
    if field.type.kind != "TIMESTAMP":
        raise cursor.not_allowed(f"The column with LATENESS must be a TIMESTAMP; {field.name} is {field.type}.", at)
    lateness_at = cursor.start
    lateness = parse_duration(cursor, "the lateness")
    if lateness < 0:
        raise cursor.not_allowed("LATENESS must not be negative.", lateness_at)
    return lateness


def _parse_options(cursor: Cursor, connector: str) -> dict[str, tuple[str, int]]:
    """Read ``WITH (key = value, …)`` and return each value with the offset of its key."""
    if not cursor.at("WITH"):
        raise cursor.unexpected(f"WITH (connector = {connector!r})")
    cursor.advance()
    cursor.expect("(")
    options: dict[str, tuple[str, int]] = {}
    while not cursor.at(")"):
        key_at = cursor.start
        key = _parse_key(cursor)
        if key in options:
            raise cursor.not_allowed(f"The option {key!r} is given twice.", key_at)
        cursor.expect("=")
        options[key] = (_parse_value(cursor), key_at)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return options


def _parse_key(cursor: Cursor) -> str:
    if cursor.kind == "string":
        return cursor.advance().text.lower()
    parts = [cursor.name("the name of an option")]
    while cursor.accept("."):
        parts.append(cursor.name("the name of an option"))
    return ".".join(parts).lower()


def _parse_value(cursor: Cursor) -> str:
    sign = "-" if cursor.accept("-") else ""
    if cursor.kind == "number" or (not sign and (cursor.kind == "string" or cursor.at("TRUE", "FALSE"))):
        return sign + cursor.advance().text
    raise cursor.unexpected("the value of the option, such as 'push'")


def _check_options(
    cursor: Cursor, name: str, schema: StreamSchema, at: int, options: dict[str, tuple[str, int]]
) -> tuple[str, str, dict[str, str], WatermarkOptions]:
    """Return connector, format, the connector's options, which it checks, and the options that every stream has."""
    if "connector" not in options:
        raise cursor.not_allowed(f"WITH must name a connector: {', '.join(map(repr, CONNECTORS))}.", at)
    values = {key: value for key, (value, _) in options.items()}
    connector = values.pop("connector").lower()
    formats = CONNECTORS[connector].formats if connector in CONNECTORS else ()
    format_ = values.pop("format", formats[0] if formats else "").lower()
    try:
        watermark, connector_options = split_options(values)
        validate_definition(name, schema, connector, format_, connector_options)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, _offset_to_blame(error, options, at)) from None
    return connector, format_, connector_options, watermark


def _offset_to_blame(error: NotAllowed, options: Mapping[str, tuple[str, int]], default: int) -> int:
    """Return the offset of the option that an error names, ``default`` when it names none."""
    offsets = (at for key, (_, at) in options.items() if re.search(rf"\b{re.escape(key)}\b", error.detail))
    return next(offsets, default)
