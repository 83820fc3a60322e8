"""The types of columns and casts, by Braid's names and by those of Flink, PostgreSQL, DuckDB and MySQL.

A size that Braid does not have is the next larger one: SMALLINT is INT, REAL is DOUBLE. Lengths of texts and digits of
seconds are read, and not enforced.
"""

from __future__ import annotations

from braid.session.sql.parsing.cursor import Cursor
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType

_NAMES: dict[ColumnType, tuple[str, ...]] = {
    BOOLEAN: ("BOOLEAN", "BOOL"),
    INT: ("INT", "INTEGER", "INT4", "INT32", "SMALLINT", "INT2", "INT16", "TINYINT"),
    BIGINT: ("BIGINT", "INT8", "INT64"),
    DOUBLE: ("DOUBLE", "FLOAT", "FLOAT8", "FLOAT64", "REAL", "FLOAT4", "FLOAT32"),
    VARCHAR: ("VARCHAR", "TEXT", "STRING", "CHAR", "CHARACTER"),
    DATE: ("DATE",),
    TIMESTAMP: ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_LTZ", "DATETIME"),
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in names}
_DECIMALS = ("DECIMAL", "NUMERIC")
_WITH_LENGTH = {
    **dict.fromkeys(("VARCHAR", "CHAR", "CHARACTER"), "the length"),
    **dict.fromkeys(("FLOAT", *_NAMES[TIMESTAMP]), "the precision"),
}
_BYTES = ("BYTES", "BYTEA", "VARBINARY", "BINARY", "BLOB")
_KNOWN_TYPES = "BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), VARCHAR, DATE, TIMESTAMP"
_SECOND_DIGITS = 9


def parse_type(cursor: Cursor) -> ColumnType:
    """Read a type; SqlNotAllowed lists those that exist."""
    if cursor.kind != "word":
        raise cursor.unexpected(f"a type ({_KNOWN_TYPES})")
    token = cursor.advance()
    name = token.text.upper()
    if name in _DECIMALS:
        return _parse_decimal(cursor, token.start)
    if name in _BYTES:
        raise cursor.not_allowed(
            f"The type {token.text} does not exist: a column cannot hold bytes. Write VARCHAR, and send bytes as text,"
            " in base 64 or hexadecimal digits.",
            token.start,
        )
    if name not in _TYPES:
        raise cursor.not_allowed(f"The type {token.text} does not exist; use one of {_KNOWN_TYPES}.", token.start)
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
    try:
        return ColumnType("DECIMAL", precision, scale)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, at) from None


def _parse_number(cursor: Cursor, noun: str) -> int:
    if cursor.kind != "number" or not cursor.text.isdecimal() or len(cursor.text) > 10:
        raise cursor.unexpected(noun)
    return int(cursor.advance().text)
