"""CREATE STREAM: columns with types and LATENESS, and the options of the connector."""

from __future__ import annotations

import re

from session.sql.column_types import parse_type
from session.sql.cursor import Cursor
from session.sql.durations import parse_duration
from session.sql.statements import CreateStream
from sources.connectors import CONNECTORS, validate_definition
from sources.errors import NotAllowed
from sources.schema import Field, StreamSchema

MAX_COLUMNS = 1000
_NAME = re.compile(r"[^\W\d]\w{0,99}")
_OF_WINDOWS = ("window_start", "window_end")
_LATENESS = "Write LATENESS INTERVAL '2' SECOND after the event time column."


def check_name(cursor: Cursor, name: str, what: str, at: int) -> str:
    """Return a name for something that is created; SqlNotAllowed when it is reserved or unusual."""
    if name.startswith("_"):
        raise cursor.not_allowed(f"Names starting with '_' are reserved; rename {what} {name!r}.", at)
    if not _NAME.fullmatch(name):
        raise cursor.not_allowed(
            f"The name of {what} must begin with a letter, have letters, digits and '_' only,"
            f" and at most 100 of them; got {name!r}.",
            at,
        )
    return name


def parse_create_stream(cursor: Cursor) -> CreateStream:
    """Read what follows ``CREATE STREAM``."""
    if_not_exists = cursor.accept_all("IF", "NOT", "EXISTS")
    at = cursor.start
    name = check_name(cursor, cursor.name("the name of the stream"), "the stream", at)
    schema = _parse_columns(cursor, at)
    with_at = cursor.start
    options = _parse_options(cursor)
    connector, format_, others = _check_options(cursor, name, schema, with_at, options)
    return CreateStream(name, schema, connector, format_, others, if_not_exists)


def _parse_columns(cursor: Cursor, stream_at: int) -> StreamSchema:
    cursor.expect("(", "and the columns")
    fields: list[Field] = []
    event_time: str | None = None
    lateness = 0
    while True:
        at = cursor.start
        field = _parse_column(cursor)
        if any(f.name.lower() == field.name.lower() for f in fields):
            raise cursor.not_allowed(f"The column {field.name!r} is declared twice (case does not count).", at)
        fields.append(field)
        if cursor.at("LATENESS"):
            if event_time is not None:
                raise cursor.not_allowed(f"Exactly one column must have LATENESS; {event_time!r} has it already.")
            event_time, lateness = field.name, _parse_lateness(cursor, field)
        if cursor.at("NOT", "NULL", "PRIMARY", "UNIQUE", "DEFAULT", "REFERENCES", "CHECK", "COMMENT"):
            raise cursor.not_allowed("Columns of a stream take no constraints; every column may be NULL.")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if len(fields) > MAX_COLUMNS:
        raise cursor.not_allowed(f"A stream must have at most {MAX_COLUMNS} columns.", stream_at)
    if event_time is None:
        raise cursor.not_allowed(f"Exactly one column must have LATENESS, the event time. {_LATENESS}", stream_at)
    try:
        return StreamSchema(tuple(fields), event_time, lateness)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, stream_at) from None


def _parse_column(cursor: Cursor) -> Field:
    at = cursor.start
    if cursor.at("WATERMARK") and cursor.ahead() == "FOR":
        raise cursor.not_allowed(f"WATERMARK FOR is not supported. {_LATENESS}")
    if cursor.at("PRIMARY", "CONSTRAINT", "UNIQUE") and cursor.ahead() != "(":
        raise cursor.not_allowed("Streams have no constraints; remove it.")
    name = check_name(cursor, cursor.name("a column"), "column", at)
    if name.lower() in _OF_WINDOWS:
        raise cursor.not_allowed(f"The results of windows have a column {name.lower()}; rename yours.", at)
    return Field(name, parse_type(cursor))


def _parse_lateness(cursor: Cursor, field: Field) -> int:
    at = cursor.expect("LATENESS").start
    if field.type.kind != "TIMESTAMP":
        raise cursor.not_allowed(f"The column with LATENESS must be a TIMESTAMP; {field.name} is {field.type}.", at)
    lateness_at = cursor.start
    lateness = parse_duration(cursor, "the lateness")
    if lateness < 0:
        raise cursor.not_allowed("LATENESS must not be negative.", lateness_at)
    return lateness


def _parse_options(cursor: Cursor) -> dict[str, tuple[str, int]]:
    """Read ``WITH (key = value, …)`` and return each value with the offset of its key."""
    if not cursor.at("WITH"):
        raise cursor.unexpected("WITH (connector = 'push')")
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
) -> tuple[str, str, dict[str, str]]:
    """Return connector, format and the other options, checked by the connector that they name."""
    if "connector" not in options:
        raise cursor.not_allowed(f"WITH must name a connector: {', '.join(map(repr, CONNECTORS))}.", at)
    places = {key: place for key, (_, place) in options.items()}
    values = {key: value for key, (value, _) in options.items()}
    connector = values.pop("connector").lower()
    formats = CONNECTORS[connector].formats if connector in CONNECTORS else ()
    given = values.pop("format", formats[0] if formats else "").lower()
    try:
        validate_definition(name, schema, connector, given, values)
    except NotAllowed as error:
        blamed = [key for key in options if re.search(rf"\b{re.escape(key)}\b", error.detail)]
        raise cursor.not_allowed(error.detail, places[blamed[0]] if blamed else at) from None
    return connector, given, values
