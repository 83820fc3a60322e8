"""The types of columns and casts: ``DECIMAL(10, 2)``."""

from __future__ import annotations

from braid.session.sql.parsing.cursor import Cursor
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType

_TYPES = {
    "BOOLEAN": BOOLEAN,
    "BOOL": BOOLEAN,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "VARCHAR": VARCHAR,
    "STRING": VARCHAR,
    "TEXT": VARCHAR,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
}
_KNOWN_TYPES = "BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), VARCHAR, DATE, TIMESTAMP"


def parse_type(cursor: Cursor) -> ColumnType:
    """Read a type; SqlNotAllowed lists those that exist."""
    if cursor.kind != "word":
        raise cursor.unexpected(f"a type ({_KNOWN_TYPES})")
    token = cursor.advance()
    name = token.text.upper()
    if name in ("DECIMAL", "NUMERIC"):
        return _parse_decimal(cursor, token.start)
    if name not in _TYPES:
        raise cursor.not_allowed(f"The type {token.text} does not exist; use one of {_KNOWN_TYPES}.", token.start)
    if name == "DOUBLE":
        cursor.accept("PRECISION")
    if cursor.at("("):
        raise cursor.not_allowed(f"{name} takes no length or precision; write {name} alone.")
    return _TYPES[name]


def _parse_decimal(cursor: Cursor, at: int) -> ColumnType:
    precision, scale = 10, 0
    if cursor.accept("("):
        precision = _parse_digits(cursor)
        if cursor.accept(","):
            scale = _parse_digits(cursor)
        cursor.expect(")")
    try:
        return ColumnType("DECIMAL", precision, scale)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, at) from None


def _parse_digits(cursor: Cursor) -> int:
    if cursor.kind != "number" or not cursor.text.isdecimal() or len(cursor.text) > 4:
        raise cursor.unexpected("a number of digits")
    return int(cursor.advance().text)
