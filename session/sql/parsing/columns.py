"""The columns of CREATE STREAM and CREATE TABLE: name, type, and what else a declaration says of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from braid.session.sql.parsing.column_types import parse_type
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_duration
from braid.sources.core.names import composed
from braid.sources.core.schema import Field

MAX_COLUMNS = 1000
LATENESS_HINT = "Write LATENESS INTERVAL '2' SECOND after the event time column."
MAX_NAME = 100
_PLAIN = re.compile(r"[^\W\d]\w*")
_IN_PATHS = frozenset("/#@?")
_WINDOW_BOUNDS = ("window_start", "window_end")
_CONSTRAINTS = ("NOT", "PRIMARY", "UNIQUE", "DEFAULT", "REFERENCES", "CHECK", "COMMENT", "COLLATE", "CONSTRAINT")


def parse_name(cursor: Cursor, noun: str) -> str:
    """Read the name of something that is created; SqlNotAllowed when it is reserved, or not plain and not quoted."""
    at, is_quoted = cursor.start, cursor.kind == "quoted"
    name = composed(cursor.name(noun if noun == "a column" else f"the name of {noun}"))
    shown = noun.removeprefix("a ")
    if name.startswith("_"):
        raise cursor.not_allowed(f"Names starting with '_' are reserved; rename {shown} {name!r}.", at)
    if len(name) > MAX_NAME or not (is_quoted or _PLAIN.fullmatch(name)):
        raise cursor.not_allowed(
            f"The name of {shown} must have at most {MAX_NAME} characters and, without quotes, letters, digits and '_'"
            f" only; got {name[: MAX_NAME + 1]!r}.",
            at,
        )
    if noun != "a column" and (not name.isprintable() or not _IN_PATHS.isdisjoint(name) or not name.strip(". ")):
        raise cursor.not_allowed(
            f"The name of {shown} is part of addresses: it must have printable characters other than"
            f" {' '.join(sorted(_IN_PATHS))}, not dots alone; got {name!r}.",
            at,
        )
    return name


@dataclass(frozen=True)
class ColumnDeclaration:
    """A declared column: its field, its LATENESS (µs) and its METADATA, if it has them, and the offsets of both."""

    field: Field
    lateness: int | None = None
    lateness_at: int = 0
    metadata: str | None = None
    metadata_at: int = 0


def parse_columns(cursor: Cursor, object_at: int, noun: str) -> list[ColumnDeclaration]:
    """Read the columns of ``noun``, such as "a stream", in brackets; ``object_at`` is the offset of its name."""
    cursor.expect("(", "and the columns")
    columns: list[ColumnDeclaration] = []
    while True:
        at = cursor.start
        column = _parse_column(cursor, noun)
        if any(c.field.name.lower() == column.field.name.lower() for c in columns):
            raise cursor.not_allowed(f"The column {column.field.name!r} is declared twice (case does not count).", at)
        columns.append(column)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if len(columns) > MAX_COLUMNS:
        raise cursor.not_allowed(f"{noun.capitalize()} must have at most {MAX_COLUMNS} columns.", object_at)
    return columns


def _parse_column(cursor: Cursor, noun: str) -> ColumnDeclaration:
    at = cursor.start
    if cursor.at("WATERMARK") and cursor.ahead() == "FOR":
        raise cursor.not_allowed(f"WATERMARK FOR is not supported. {LATENESS_HINT}")
    if cursor.at("PRIMARY", "CONSTRAINT", "UNIQUE") and cursor.ahead() != "(":
        raise cursor.not_allowed(f"{noun.split()[1].capitalize()}s have no constraints; remove it.")
    name = parse_name(cursor, "a column")
    if name.lower() in _WINDOW_BOUNDS:
        raise cursor.not_allowed(f"The results of windows have a column {name.lower()}; rename yours.", at)
    column = ColumnDeclaration(Field(name, parse_type(cursor)))
    while True:
        at = cursor.start
        if cursor.accept_all("NOT", "NULL"):
            column = replace(column, field=replace(column.field, not_null=True))
        elif cursor.at("NULL") and not column.field.not_null:
            cursor.advance()
        elif cursor.at("METADATA") and column.metadata is None:
            column = replace(column, metadata=_parse_metadata(cursor, column.field), metadata_at=at)
        elif cursor.at("LATENESS") and column.lateness is None:
            column = replace(column, lateness=_parse_lateness(cursor, column.field), lateness_at=at)
        elif cursor.at(*_CONSTRAINTS):
            raise cursor.not_allowed(f"Columns of {noun} take no constraint but NOT NULL; remove it.")
        else:
            return column


def _parse_metadata(cursor: Cursor, field: Field) -> str:
    """Read ``METADATA …`` and return its key: without FROM, the name of the column."""
    cursor.expect("METADATA")
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
