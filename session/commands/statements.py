"""From SQL text to what the session does: read each kind of statement, or refuse it."""

from __future__ import annotations

from collections.abc import Mapping

from braid.session.sql.inputs import NO_TABLES, KnownTables
from braid.session.sql.parser import parse_statement
from braid.session.sql.shapes import ReadQuery, Shapes
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.session.sql.statements import CreateStream, CreateTable
from braid.sources.connectors.registry import validate_definition
from braid.sources.connectors.static_table import TableDefinition
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage

_shapes = Shapes()


def read_query(
    sql: str,
    catalog: Mapping[str, StreamDefinition],
    tables: KnownTables = NO_TABLES,
    limits: StatementLimits = DEFAULT_LIMITS,
) -> ReadQuery:
    """Return the query of a SQL text, with the name and the sink of CREATE QUERY; NotAllowed for other statements."""
    return _shapes.read(sql, catalog, tables, limits)


def read_create_stream(
    sql: str,
    confinement: Confinement = OPEN,
    storage: Storage | None = None,
    limits: StatementLimits = DEFAULT_LIMITS,
) -> CreateStream:
    """Return the CREATE STREAM statement of a SQL text; NotAllowed for other ones, and what the storage is not for."""
    statement = parse_statement(sql, limits)
    if isinstance(statement, CreateStream):
        validate_definition(
            statement.name,
            statement.schema,
            statement.connector,
            statement.format,
            statement.options,
            confinement,
            storage,
        )
        return statement
    raise NotAllowed(
        f"A stream must be declared with CREATE STREAM …; got {sql.strip()[:80]!r}. POST /sql (braid sql) takes every"
        " statement."
    )


def read_create_table(sql: str, limits: StatementLimits = DEFAULT_LIMITS) -> CreateTable:
    """Return the CREATE TABLE statement of a SQL text; NotAllowed for other ones."""
    statement = parse_statement(sql, limits)
    if isinstance(statement, CreateTable):
        return statement
    raise NotAllowed(
        f"A table must be declared with CREATE TABLE …; got {sql.strip()[:80]!r}. POST /sql (braid sql) takes every"
        " statement."
    )


def to_table_definition(statement: CreateTable, table_id: str, sql: str, created_us: int) -> TableDefinition:
    """Return the definition of the table that a statement declares."""
    return TableDefinition(
        table_id, statement.name, statement.schema, statement.format, dict(statement.options), sql, created_us
    )


def to_definition(statement: CreateStream, stream_id: str, sql: str, created_us: int) -> StreamDefinition:
    """Return the definition of the stream that a statement declares."""
    return StreamDefinition(
        id=stream_id,
        name=statement.name,
        schema=statement.schema,
        connector=statement.connector,
        format=statement.format,
        options=dict(statement.options),
        sql=sql,
        created_us=created_us,
        watermark=statement.watermark,
    )
