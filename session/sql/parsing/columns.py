"""The columns of CREATE STREAM and CREATE TABLE: name, type, and what else a declaration says of each.

``name type [NOT NULL] [METADATA [FROM 'key'] | FROM 'path' | ARRIVAL | AS (expression)] [LATENESS interval]``, or
``name AS expression``. What follows the type may stand in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from braid.session.sql.computed_columns import bind_computed
from braid.session.sql.parsing.column_types import parse_type
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_duration
from braid.session.sql.parsing.select_parser import BraidParser
from braid.session.sql.scope import did_you_mean
from braid.session.sql.syntax import Node
from braid.sources.core.errors import NotAllowed
from braid.sources.core.json_paths import read_path
from braid.sources.core.names import composed
from braid.sources.core.schema import BIGINT, DATE, DOUBLE, INT, TIMESTAMP, ColumnType, Field

MAX_COLUMNS = 1000
LATENESS_HINT = (
    "Write LATENESS INTERVAL '2' SECOND after the event time column: how long after later rows a row may come (`braid"
    " infer` finds that out for a file, folder or topic)."
)
EPOCH_HINT = (
    " For numbers such as milliseconds since 1970, write TIMESTAMP, and 'timestamp.format' = 'epoch-millis' in WITH."
)
MAX_NAME = 100
_PLAIN = re.compile(r"[^\W\d]\w*")
_IN_PATHS = frozenset("/#@?")
_WINDOW_BOUNDS = ("window_start", "window_end")
_ORIGINS = ("METADATA", "FROM", "ARRIVAL", "AS", "GENERATED")
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
    """What a column is declared to be; ``type`` is None where its expression says it, ``lateness`` is in microseconds.

    ``origin`` says which word tells where its values come from, and ``origin_at`` is the offset of it.
    """

    name: str
    type: ColumnType | None
    not_null: bool = False
    lateness: int | None = None
    lateness_at: int = 0
    origin: str = ""
    origin_at: int = 0
    metadata: str | None = None
    source: str = ""
    expression: tuple[Node, str] | None = None


@dataclass(frozen=True)
class DeclaredColumns:
    """The declarations in order, and the fields that they declare, expressions bound."""

    declarations: tuple[ColumnDeclaration, ...]
    fields: tuple[Field, ...]


def parse_columns(cursor: BraidParser, object_at: int, noun: str) -> DeclaredColumns:
    """Read the columns of ``noun``, such as "a stream", in brackets; ``object_at`` is the offset of its name."""
    cursor.expect("(", "and the columns")
    columns: dict[str, ColumnDeclaration] = {}
    watermarks: list[_Watermark] = []
    while True:
        at = cursor.start
        if cursor.at("WATERMARK") and cursor.ahead() == "FOR":
            watermarks.append(_parse_watermark(cursor))
        else:
            column = _parse_column(cursor, noun)
            if column.name.lower() in columns:
                raise cursor.not_allowed(f"The column {column.name!r} is declared twice (case does not count).", at)
            columns[column.name.lower()] = column
        if not cursor.accept(","):
            break
    cursor.expect(")")
    for watermark in watermarks:
        _apply(cursor, watermark, columns)
    if len(columns) > MAX_COLUMNS:
        raise cursor.not_allowed(f"{noun.capitalize()} must have at most {MAX_COLUMNS} columns.", object_at)
    return _bound(cursor, tuple(columns.values()), object_at, noun)


@dataclass(frozen=True)
class _Watermark:
    """``WATERMARK FOR column AS column - lateness``, where it and the name of the column stand; in microseconds."""

    at: int
    name: str
    name_at: int
    lateness: int


def _parse_watermark(cursor: BraidParser) -> _Watermark:
    """Read ``WATERMARK FOR ts AS ts - INTERVAL '5' SECOND``, Flink's way to write LATENESS."""
    at = cursor.expect("WATERMARK").start
    cursor.expect("FOR")
    name_at, name = cursor.start, cursor.name("the event time column")
    cursor.expect("AS", f"and {name} - INTERVAL '5' SECOND")
    node, _ = cursor.scalar()
    months, lateness = 0, 0
    column = node
    if node.kind == "call" and node.value == "-" and node.children[1].kind == "interval":
        column, (months, lateness) = node.children[0], node.children[1].value
    is_column = column.kind == "name" and [part.lower() for part in column.value] == [name.lower()]
    if not is_column or months or lateness < 0:
        raise cursor.not_allowed(
            f"A watermark must be the event time less an interval of fixed length: {name} - INTERVAL '5' SECOND.",
            node.at,
        )
    return _Watermark(at, name, name_at, lateness)


def _apply(cursor: BraidParser, watermark: _Watermark, columns: dict[str, ColumnDeclaration]) -> None:
    """Give the column of a watermark its lateness."""
    column = columns.get(watermark.name.lower())
    if column is None:
        hint = did_you_mean(watermark.name, [c.name for c in columns.values()])
        raise cursor.not_allowed(f"Column {watermark.name!r} does not exist.{hint}", watermark.name_at)
    if column.lateness is not None:
        raise cursor.not_allowed(f"Column {column.name!r} has a watermark already; remove this one.", watermark.at)
    columns[column.name.lower()] = replace(column, lateness=watermark.lateness, lateness_at=watermark.at)


def _bound(
    cursor: BraidParser, declarations: tuple[ColumnDeclaration, ...], object_at: int, noun: str
) -> DeclaredColumns:
    """Bind the expressions of computed columns to the other ones, and to those before."""
    fields = {c.name: _field_read(c) for c in declarations if c.expression is None}
    if all(field.arrival for field in fields.values()):
        raise cursor.not_allowed(f"{noun.capitalize()} must have a column that is read from its rows.", object_at)
    for column in declarations:
        if column.expression is not None:
            node, text = column.expression
            kind, computed = bind_computed(cursor.sql_text, node, text, tuple(fields.values()), column.type)
            fields[column.name] = Field(column.name, kind, column.not_null, computed=computed)
        field = fields[column.name]
        if column.lateness is not None and field.type != TIMESTAMP:
            is_read_number = column.expression is None and field.type in (INT, BIGINT, DOUBLE)
            hint = EPOCH_HINT if is_read_number else ""
            if column.expression is None and field.type == DATE:
                hint = " Declare it as TIMESTAMP, and in WITH 'timestamp.format' = 'yyyy-MM-dd'."
            raise cursor.not_allowed(
                f"The column with LATENESS must be a TIMESTAMP; {column.name} is {field.type}.{hint}",
                column.lateness_at,
            )
    return DeclaredColumns(declarations, tuple(fields[column.name] for column in declarations))


def _field_read(column: ColumnDeclaration) -> Field:
    assert column.type is not None
    return Field(column.name, column.type, column.not_null, source=column.source, arrival=column.origin == "ARRIVAL")


def _parse_column(cursor: BraidParser, noun: str) -> ColumnDeclaration:
    if cursor.at("PRIMARY", "CONSTRAINT", "UNIQUE") and cursor.ahead() != "(":
        raise cursor.not_allowed(f"{noun.split()[1].capitalize()}s have no constraints; remove it.")
    at = cursor.start
    name = parse_name(cursor, "a column")
    if name.lower() in _WINDOW_BOUNDS:
        raise cursor.not_allowed(f"The results of windows have a column {name.lower()}; rename yours.", at)
    column = ColumnDeclaration(name, None if cursor.at("AS") else parse_type(cursor))
    while True:
        at = cursor.start
        if cursor.accept_all("NOT", "NULL"):
            column = replace(column, not_null=True)
        elif cursor.at("NULL") and not column.not_null:
            cursor.advance()
        elif cursor.at("LATENESS") and column.lateness is None:
            column = replace(column, lateness=_parse_lateness(cursor), lateness_at=at)
        elif cursor.at(*_ORIGINS) and not column.origin:
            column = _with_origin(cursor, replace(column, origin=cursor.word, origin_at=at))
        elif cursor.at(*_CONSTRAINTS):
            raise cursor.not_allowed(f"Columns of {noun} take no constraint but NOT NULL; remove it.")
        else:
            return column


def _with_origin(cursor: BraidParser, column: ColumnDeclaration) -> ColumnDeclaration:
    """Read where the values of a column come from."""
    if column.origin == "METADATA":
        return replace(column, metadata=_parse_metadata(cursor, column.name))
    at = cursor.advance().start
    if column.origin == "ARRIVAL":
        if column.type != TIMESTAMP:
            raise cursor.not_allowed(f"The time of ARRIVAL is a TIMESTAMP; {column.name} is {column.type}.", at)
        return column
    if column.origin == "FROM":
        path_at = cursor.start
        if cursor.kind != "string":
            raise cursor.unexpected("where the value is, such as '$.user.id'")
        source = cursor.advance().text
        try:
            read_path(source)
        except NotAllowed as error:
            raise cursor.not_allowed(error.detail, path_at) from None
        return replace(column, source=source)
    if column.origin == "GENERATED":
        cursor.accept("ALWAYS")
        cursor.expect("AS", "and an expression in brackets")
    if cursor.at("PROCTIME", "ARRIVAL_TIME") and cursor.ahead() == "(":
        raise cursor.not_allowed(f"Write {column.name} TIMESTAMP ARRIVAL for the time at which a row arrives.")
    column = replace(column, expression=cursor.scalar())
    if cursor.at("STORED", "VIRTUAL", "PERSISTED"):
        cursor.advance()
    return column


def _parse_metadata(cursor: Cursor, name: str) -> str:
    """Read ``METADATA …`` and return its key: without FROM, the name of the column."""
    cursor.expect("METADATA")
    key = name.lower()
    if cursor.accept("FROM"):
        if cursor.kind != "string":
            raise cursor.unexpected("what the column holds, such as 'key'")
        key = cursor.advance().text
    cursor.accept("VIRTUAL")
    return key


def _parse_lateness(cursor: Cursor) -> int:
    cursor.expect("LATENESS")
    lateness_at = cursor.start
    lateness = parse_duration(cursor, "the lateness")
    if lateness < 0:
        raise cursor.not_allowed("LATENESS must not be negative.", lateness_at)
    return lateness
