"""CREATE STREAM and CREATE TABLE: columns with types, LATENESS of streams, and the options of the connector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from braid.router.sinks.connectors import read_sink
from braid.session.sql.parsing.columns import LATENESS_HINT, parse_columns, parse_name
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.select_parser import BraidParser
from braid.session.sql.statements import CreateStream, CreateTable
from braid.sources.connectors.registry import CONNECTORS, validate_definition
from braid.sources.connectors.static_table import format_of, validate_table
from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import did_you_mean
from braid.sources.core.schema import Schema, StreamSchema
from braid.sources.core.watermark_options import TIMESTAMP_FORMAT as TIME_FORMAT
from braid.sources.core.watermark_options import WatermarkOptions, split_options
from braid.sources.formats.columns import check_paths
from braid.sources.formats.time_formats import check_time_format


def parse_create_stream(cursor: BraidParser) -> CreateStream:
    """Read what follows ``CREATE STREAM``."""
    if_not_exists = cursor.accept_all("IF", "NOT", "EXISTS")
    at = cursor.start
    name = parse_name(cursor, "the stream")
    schema = _stream_schema(cursor, at)
    with_at = cursor.start
    options = _parse_options(cursor, "push")
    time_format = options.pop(TIME_FORMAT, None) if _reads_input(options) else None
    schema = _with_time_format(cursor, schema, time_format)
    connector, format_, connector_options, watermark = _check_options(cursor, name, schema, with_at, options)
    return CreateStream(name, schema, connector, format_, connector_options, if_not_exists, watermark)


def parse_create_table(cursor: BraidParser) -> CreateTable:
    """Read what follows ``CREATE TABLE``."""
    if_not_exists = cursor.accept_all("IF", "NOT", "EXISTS")
    at = cursor.start
    name = parse_name(cursor, "the table")
    columns = parse_columns(cursor, at, "a table")
    for column in columns.declarations:
        if column.lateness is not None:
            raise cursor.not_allowed(
                "Columns of a static table have no LATENESS and no WATERMARK; remove it, or write CREATE STREAM for"
                " rows that come.",
                column.lateness_at,
            )
        if column.origin not in ("", "FROM"):
            noun = "expression" if column.expression is not None else column.origin
            raise cursor.not_allowed(f"Columns of a static table have no {noun}; remove it.", column.origin_at)
    with_at = cursor.start
    options = _parse_options(cursor, "file")
    schema = _with_time_format(cursor, Schema(columns.fields), options.pop(TIME_FORMAT, None))
    values = {key: value for key, (value, _) in options.items()}
    connector = values.pop("connector", "").lower()
    format_ = values.pop("format", "").lower() or format_of(values.get("path", ""))
    try:
        validate_table(connector, format_, values)
        check_paths(schema, format_)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, _offset_to_blame(error, options, with_at)) from None
    return CreateTable(name, schema, format_, values, if_not_exists)


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
    if not values:
        raise cursor.not_allowed(
            "WITH of a query must have an option, such as start = 'earliest'; else leave it out.", at
        )
    if "connector" not in values:
        option = next(iter(values))
        meant = did_you_mean(option, ("start", "connector"))
        raise cursor.not_allowed(
            f"A query has no option {option!r}. It has 'start', and with 'connector' those of the sink that its rows go"
            f" to; how long it lives is said where it is sent: ttl_seconds of POST /queries, braid query --ttl.{meant}",
            options[option][1],
        )
    try:
        read_sink(values)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, _offset_to_blame(error, options, at)) from None
    return values, start


def _stream_schema(cursor: BraidParser, stream_at: int) -> StreamSchema:
    columns = parse_columns(cursor, stream_at, "a stream")
    time_columns = [column for column in columns.declarations if column.lateness is not None]
    if not time_columns:
        raise cursor.not_allowed(f"Exactly one column must have LATENESS, the event time. {LATENESS_HINT}", stream_at)
    if len(time_columns) > 1:
        raise cursor.not_allowed(
            f"Exactly one column must have LATENESS; {time_columns[0].name!r} has it already.",
            time_columns[1].lateness_at,
        )
    try:
        metadata = tuple((c.name, c.metadata) for c in columns.declarations if c.metadata is not None)
        return StreamSchema(columns.fields, time_columns[0].name, time_columns[0].lateness or 0, metadata)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, stream_at) from None


def _reads_input(options: Mapping[str, tuple[str, int]]) -> bool:
    kind = CONNECTORS.get(options.get("connector", ("", 0))[0].lower())
    return kind is None or kind.reads_input


_AnySchema = TypeVar("_AnySchema", bound=Schema)


def _with_time_format(cursor: Cursor, schema: _AnySchema, option: tuple[str, int] | None) -> _AnySchema:
    """Return columns whose times are written as the option says."""
    if option is None:
        return schema
    text, at = option
    try:
        return schema.with_time_format(check_time_format(text))
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, at) from None


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
        misspelt = next((name for name in options if did_you_mean(name, ("connector",))), None)
        hint = "" if misspelt is None else f" Is {misspelt!r} to be 'connector'?"
        raise cursor.not_allowed(f"WITH must name a connector: {', '.join(map(repr, CONNECTORS))}.{hint}", at)
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
    unknown = re.search(r"no option '([^']+)'", error.detail)
    if unknown is not None and unknown[1] in options:
        return options[unknown[1]][1]
    offsets = (at for key, (_, at) in options.items() if re.search(rf"\b{re.escape(key)}\b", error.detail))
    return next(offsets, default)
