"""The types of columns and casts, by Braid's names and by those of Flink, PostgreSQL, DuckDB and MySQL.

A size that Braid does not have is the next larger one: SMALLINT is INT, REAL is DOUBLE. Lengths of texts and digits of
seconds are read, and not enforced. Bytes are texts, in base 64. ``STRUCT<a INT>``, ``STRUCT(a INT)`` and ``ROW(a INT)``
are one type, ``ARRAY<INT>`` and ``INT[]`` another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from braid.session.sql.parsing.cursor import Cursor, did_you_mean_keyword
from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import composed
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    JSON,
    MAX_NESTING,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    array_of,
    map_of,
)

_NAMES: dict[ColumnType, tuple[str, ...]] = {
    BOOLEAN: ("BOOLEAN", "BOOL"),
    INT: ("INT", "INTEGER", "INT4", "INT32", "SMALLINT", "INT2", "INT16", "TINYINT"),
    BIGINT: ("BIGINT", "INT8", "INT64"),
    DOUBLE: ("DOUBLE", "FLOAT", "FLOAT8", "FLOAT64", "REAL", "FLOAT4", "FLOAT32"),
    VARCHAR: ("VARCHAR", "TEXT", "STRING", "CHAR", "CHARACTER", "BYTES", "BYTEA", "VARBINARY", "BINARY", "BLOB"),
    DATE: ("DATE",),
    TIMESTAMP: ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_LTZ", "DATETIME"),
    JSON: ("JSON", "JSONB"),
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in names}
_DECIMALS = ("DECIMAL", "NUMERIC")
_WITH_LENGTH = {
    **dict.fromkeys(("VARCHAR", "CHAR", "CHARACTER", "VARBINARY", "BINARY"), "the length"),
    **dict.fromkeys(("FLOAT", *_NAMES[TIMESTAMP]), "the precision"),
}
_NESTED = ("STRUCT", "ROW", "ARRAY", "MAP")
_KNOWN_TYPES = (
    "BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), VARCHAR, DATE, TIMESTAMP, STRUCT<name type, …>, ARRAY<type>,"
    " MAP<VARCHAR, type>, JSON"
)
_SECOND_DIGITS = 9
MAX_MEMBERS = 1000


def parse_type(cursor: Cursor, enclosing: int = 0) -> ColumnType:
    """Read a type, in so many others; SqlNotAllowed lists those that exist."""
    at = cursor.start
    kind = _parse_nested(cursor, enclosing) if cursor.at(*_NESTED) else _parse_plain(cursor)
    while cursor.at("["):
        cursor.advance()
        cursor.expect("]")
        kind = _allowed(cursor, at, partial(array_of, kind))
    return kind


def _parse_nested(cursor: Cursor, enclosing: int) -> ColumnType:
    """Read ``STRUCT<name type, …>``, ``ARRAY<type>`` or ``MAP<VARCHAR, type>``."""
    token = cursor.advance()
    name = token.text.upper()
    if enclosing > MAX_NESTING:
        raise cursor.not_allowed(
            f"Types must not be nested more than {MAX_NESTING} deep. Declare the column as JSON.", token.start
        )
    closing = ">" if cursor.at("<") else ")"
    if not cursor.accept("("):
        cursor.expect("<", f"and what is in {name}")
    if name == "ARRAY":
        element = parse_type(cursor, enclosing + 1)
        cursor.expect(closing)
        return _allowed(cursor, token.start, lambda: array_of(element))
    if name == "MAP":
        key = parse_type(cursor, enclosing + 1)
        cursor.expect(",")
        value = parse_type(cursor, enclosing + 1)
        cursor.expect(closing)
        return _allowed(cursor, token.start, lambda: map_of(key, value))
    members: list[tuple[str, ColumnType]] = []
    while True:
        if cursor.kind not in ("word", "quoted"):
            raise cursor.unexpected("the name of a member")
        member = composed(cursor.advance().text)
        members.append((member, parse_type(cursor, enclosing + 1)))
        if not cursor.accept(","):
            break
    cursor.expect(closing)
    if len(members) > MAX_MEMBERS:
        raise cursor.not_allowed(f"A STRUCT must have at most {MAX_MEMBERS} members.", token.start)
    return _allowed(cursor, token.start, lambda: ColumnType("STRUCT", members=tuple(members)))


def _allowed(cursor: Cursor, at: int, build: Callable[[], ColumnType]) -> ColumnType:
    try:
        return build()
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, at) from None


def _parse_plain(cursor: Cursor) -> ColumnType:
    if cursor.kind != "word":
        raise cursor.unexpected(f"a type ({_KNOWN_TYPES})")
    token = cursor.advance()
    name = token.text.upper()
    if name in _DECIMALS:
        return _parse_decimal(cursor, token.start)
    if name not in _TYPES:
        is_name = cursor.word in _TYPES
        meant = did_you_mean_keyword(name, (*_TYPES, *_DECIMALS))
        hint = " Put a name with a blank in double quotes." if is_name else meant
        raise cursor.not_allowed(f"The type {token.text} does not exist; use one of {_KNOWN_TYPES}.{hint}", token.start)
    if name == "DOUBLE":
        cursor.accept("PRECISION")
    if name == "CHARACTER":
        cursor.accept("VARYING")
    if cursor.at("("):
        _parse_length(cursor, name)
    if name == "TIMESTAMP" and cursor.at("WITH", "WITHOUT") and cursor.ahead() in ("TIME", "LOCAL"):
        cursor.advance()
        cursor.accept("LOCAL")
        cursor.expect("TIME")
        cursor.expect("ZONE")
    return _TYPES[name]


def _parse_length(cursor: Cursor, name: str) -> None:
    """Read ``(n)``, which is not enforced."""
    if name not in _WITH_LENGTH:
        raise cursor.not_allowed(f"{name} takes no length or precision; write {name} alone.")
    cursor.expect("(")
    at = cursor.start
    number = _parse_number(cursor, _WITH_LENGTH[name])
    cursor.expect(")")
    if _TYPES[name] == TIMESTAMP and number > _SECOND_DIGITS:
        raise cursor.not_allowed(f"{name} takes 0 to {_SECOND_DIGITS} digits after the seconds; it keeps 6.", at)
    if _TYPES[name] == VARCHAR and not number:
        raise cursor.not_allowed(f"The length of {name} must be at least 1; without a length any text fits.", at)


def _parse_decimal(cursor: Cursor, at: int) -> ColumnType:
    precision, scale = 10, 0
    if cursor.accept("("):
        precision = _parse_number(cursor, "a number of digits")
        if cursor.accept(","):
            scale = _parse_number(cursor, "a number of digits")
        cursor.expect(")")
    return _allowed(cursor, at, lambda: ColumnType("DECIMAL", precision, scale))


def _parse_number(cursor: Cursor, noun: str) -> int:
    if cursor.kind != "number" or not cursor.text.isdecimal() or len(cursor.text) > 10:
        raise cursor.unexpected(noun)
    return int(cursor.advance().text)
