"""Carry out any one statement: what POST /sql does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from session.access.tenant_session import TenantSession
from session.commands.query_requests import QueryRequest
from session.sql.parser import parse_statement
from session.sql.statements import (
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    RefreshTable,
    Select,
    ShowQueries,
    ShowStreams,
    ShowTables,
)
from sources.core.errors import UnknownObject


def execute_statement(session: TenantSession, sql: str) -> dict[str, Any]:
    """Carry out ``sql`` and return what the REST call of the same purpose answers.

    CREATE STREAM, CREATE TABLE and REFRESH TABLE give the stream and the table; CREATE QUERY, SELECT and DROP QUERY
    give the query; SHOW gives ``{"streams" | "tables" | "queries": […]}``; EXPLAIN gives how the query would run, with
    ``nodes`` and ``edges``; DROP STREAM and DROP TABLE give ``{"dropped": name}``, whose name is null when IF EXISTS
    found nothing.
    """
    statement = parse_statement(sql, session.statement_limits)
    match statement:
        case CreateStream():
            return session.create_stream(sql)
        case CreateTable():
            return session.create_table(sql)
        case CreateQuery(name, or_replace=True):
            return session.create_or_replace(name, sql)
        case CreateQuery() | Select():
            return session.create_queries([QueryRequest(sql)])[0]
        case DropStream(name, if_exists):
            with suppress(*_missing(if_exists)):
                session.drop_stream(name)
                return {"dropped": name}
            return {"dropped": None}
        case DropQuery(name, if_exists):
            with suppress(*_missing(if_exists)):
                return session.delete_query(name)
            return {"dropped": None}
        case DropTable(name, if_exists):
            with suppress(*_missing(if_exists)):
                session.drop_table(name)
                return {"dropped": name}
            return {"dropped": None}
        case RefreshTable(name):
            return session.refresh_table(name)
        case ShowStreams():
            return {"streams": session.streams()}
        case ShowTables():
            return {"tables": session.tables()}
        case ShowQueries():
            return session.list_queries(limit=1000)
        case Explain(select):
            explained = session.explain(select)
            return {**explained, **explained.pop("plan")}


def _missing(if_exists: bool) -> tuple[type[UnknownObject], ...]:
    return (UnknownObject,) if if_exists else ()
