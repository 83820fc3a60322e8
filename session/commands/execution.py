"""Carry out any one statement: what POST /sql does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from braid.session.access.principal import ADMIN, READ, WRITE
from braid.session.access.tenant_session import TenantSession
from braid.session.commands.query_lookup import LONGEST_SHOWN
from braid.session.commands.query_requests import QueryRequest
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import (
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    RefreshTable,
    Select,
    ShowQueries,
    ShowStreams,
    ShowTables,
    Statement,
)
from braid.sources.core.errors import UnknownObject


def execute_statement(caller: TenantSession, sql: str) -> dict[str, Any]:
    """Carry out ``sql`` and return what the REST call of the same purpose answers; Forbidden without its right.

    CREATE STREAM, CREATE TABLE and REFRESH TABLE give the stream and the table; CREATE QUERY, SELECT and DROP QUERY
    give the query, and DESCRIBE what has the name; SHOW gives ``{"streams" | "tables" | "queries": […]}``; EXPLAIN
    gives how the query would run, with ``nodes`` and ``edges``; DROP STREAM and DROP TABLE give ``{"dropped": name}``,
    whose name is null when IF EXISTS found nothing.
    """
    session = caller.session
    statement = parse_statement(sql, session.settings.statement_limits)
    caller.principal.need(right_of(statement))
    match statement:
        case CreateStream():
            return session.streams.create(sql)
        case CreateTable():
            return session.tables.create(sql)
        case CreateQuery(name, or_replace=True):
            return caller.create_or_replace(name, sql)
        case CreateQuery() | Select():
            return caller.create_queries([QueryRequest(sql)])[0]
        case DropStream(name, if_exists, cascade):
            with suppress(*_missing(if_exists)):
                session.streams.drop(name, cascade)
                return {"dropped": name}
            return {"dropped": None}
        case DropQuery(name, if_exists, cascade):
            with suppress(*_missing(if_exists)):
                return caller.delete_query(name, cascade=cascade)
            return {"dropped": None}
        case DropTable(name, if_exists):
            with suppress(*_missing(if_exists)):
                session.tables.drop(name)
                return {"dropped": name}
            return {"dropped": None}
        case RefreshTable(name):
            return session.tables.refresh(name)
        case ShowStreams():
            return {"streams": session.streams.describe_all()}
        case ShowTables():
            return {"tables": session.tables.describe_all()}
        case ShowQueries():
            return caller.list_queries(limit=1000)
        case Describe(name):
            return _described(caller, name)
        case Explain(select):
            explained = caller.explain(select)
            return {**explained, **explained.pop("plan")}


def _described(caller: TenantSession, name: str) -> dict[str, Any]:
    for describe in (caller.session.streams.describe, caller.session.tables.describe, caller.query):
        with suppress(UnknownObject):
            return describe(name)
    raise UnknownObject(f"There is no stream, table or query {name[:LONGEST_SHOWN]!r}. SHOW STREAMS lists the streams.")


def right_of(statement: Statement) -> str:
    """Return the right that a statement needs."""
    match statement:
        case CreateStream() | DropStream() | CreateTable() | DropTable() | RefreshTable():
            return ADMIN
        case CreateQuery() | Select() | DropQuery():
            return WRITE
    return READ


def _missing(if_exists: bool) -> tuple[type[UnknownObject], ...]:
    return (UnknownObject,) if if_exists else ()
