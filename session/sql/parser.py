"""Parse one statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot.errors import SqlglotError

from braid.session.sql.parsing.columns import parse_name
from braid.session.sql.parsing.cursor import did_you_mean_keyword
from braid.session.sql.parsing.ddl import parse_create_stream, parse_create_table, parse_query_options
from braid.session.sql.parsing.select_parser import BraidParser, open_parser
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.session.sql.statements import (
    CreateQuery,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    RefreshTable,
    ShowQueries,
    ShowStreams,
    ShowTables,
    Statement,
)
from braid.sources.core.errors import ServiceError, SqlNotAllowed

_STATEMENTS = (
    "CREATE STREAM | TABLE | QUERY, DROP STREAM | TABLE | QUERY, REFRESH TABLE, SHOW STREAMS | TABLES | QUERIES,"
    " DESCRIBE, EXPLAIN, SELECT"
)
_FIRST_WORDS = ("CREATE", "DROP", "REFRESH", "SHOW", "DESCRIBE", "EXPLAIN", "SELECT", "WITH")
_REFUSED = {
    "INSERT": "INSERT is not supported. Push rows of a stream with POST /streams/{name}/events or braid push; rows of a"
    " static table stand in its file: change that, and write REFRESH TABLE name. What a query gives goes to a sink:"
    " CREATE QUERY name WITH (connector = …) AS SELECT ….",
    "UPDATE": "UPDATE is not supported: streams are only appended to. Change the file of a static table, and write"
    " REFRESH TABLE name.",
    "DELETE": "DELETE is not supported: streams are only appended to. Change the file of a static table, and write"
    " REFRESH TABLE name; write DROP QUERY name to retire a query.",
    "ALTER": "ALTER is not supported; drop the object and create it again.",
    "VALUES": "VALUES alone is no query. Write SELECT * FROM (VALUES (1), (2)) AS v (id), or join a stream with them.",
}
_VIEW = "write CREATE QUERY name AS SELECT …, which other queries read by its name"
_NOT_CREATED = {
    "SOURCE": "write CREATE STREAM name (column type, …) WITH (connector = …)",
    "VIEW": _VIEW,
    "MATERIALIZED": _VIEW,
    "TEMPORARY": _VIEW,
    "INDEX": "leave it out: queries over a stream share what they look for",
    "FUNCTION": "write the expression out; docs/sql-reference.md lists the functions that there are",
    "SINK": "write CREATE QUERY name WITH (connector = …) AS SELECT …",
    "ALERT": "write the condition in HAVING, and have a sink call you: CREATE QUERY name WITH (connector = 'webhook',"
    " url = …) AS SELECT …",
}
_DROPS: dict[str, Callable[[str, bool], DropStream | DropTable | DropQuery]] = {
    "STREAM": DropStream,
    "TABLE": DropTable,
    "QUERY": DropQuery,
}
_SHOWS: dict[str, Callable[[], Statement]] = {
    "STREAMS": ShowStreams,
    "TABLES": ShowTables,
    "QUERIES": ShowQueries,
}


def parse_statement(text: str, limits: StatementLimits = DEFAULT_LIMITS) -> Statement:
    """Return the one statement in the text, which may end with ``;``.

    Raises SqlSyntaxError (400) or SqlNotAllowed (422), both with the position of the offending token.
    """
    cursor = open_parser(text, limits.max_statement_tokens)
    try:
        statement = _parse(cursor)
    except SqlglotError as error:
        raise cursor.syntax_error(f"The statement does not parse: {error}") from None
    except RecursionError:
        raise SqlNotAllowed(
            "The statement is nested too deeply; split it.", position=cursor.sql_text.position(0)
        ) from None
    if cursor.accept(";"):
        while cursor.accept(";"):
            pass
        if cursor.kind != "end":
            raise cursor.syntax_error("Send one statement at a time; this is a second one.")
    if cursor.kind != "end":
        raise cursor.unexpected("the end of the statement")
    return statement


def _parse(cursor: BraidParser) -> Statement:
    if cursor.at("("):
        return cursor.query()
    match cursor.word:
        case "SELECT" | "WITH":
            return cursor.query()
        case "EXPLAIN":
            cursor.advance()
            if cursor.at("FORMAT", "ANALYZE", "VERBOSE", "EXTENDED", "PLAN"):
                raise cursor.not_allowed(
                    "EXPLAIN is followed by a SELECT alone; GET /queries/{id}/plan (braid explain ID) says more of one"
                    " that runs."
                )
            return Explain(cursor.query())
        case "CREATE":
            cursor.advance()
            return _parse_create(cursor)
        case "DROP":
            cursor.advance()
            return _parse_drop(cursor)
        case "REFRESH":
            cursor.advance()
            cursor.expect("TABLE", "and the name of a static table")
            return RefreshTable(cursor.name("the name of the table to refresh"))
        case "SHOW":
            cursor.advance()
            if cursor.word not in _SHOWS:
                raise cursor.unexpected("STREAMS, TABLES or QUERIES")
            return _SHOWS[cursor.advance().text.upper()]()
        case "DESCRIBE" | "DESC":
            cursor.advance()
            return Describe(_name_or_id(cursor, "the name of what to describe"))
    raise _refusal(cursor)


def _refusal(cursor: BraidParser) -> ServiceError:
    if cursor.kind == "end":
        return cursor.syntax_error(f"The statement is empty. There are {_STATEMENTS}.")
    if cursor.kind == "word" and cursor.word in _REFUSED:
        return cursor.not_allowed(_REFUSED[cursor.word])
    meant = did_you_mean_keyword(cursor.word, _FIRST_WORDS)
    return cursor.syntax_error(f"A statement cannot begin with {cursor.shown()}. There are {_STATEMENTS}.{meant}")


def _parse_create(cursor: BraidParser) -> Statement:
    or_at = cursor.start
    or_replace = cursor.accept_all("OR", "REPLACE")
    if or_replace and not cursor.at("QUERY"):
        raise cursor.not_allowed("CREATE OR REPLACE is for queries; drop a stream or table first.", or_at)
    if cursor.accept("STREAM"):
        return parse_create_stream(cursor)
    if cursor.accept("QUERY"):
        name = parse_name(cursor, "the query")
        sink, start = parse_query_options(cursor) if cursor.at("WITH") else (None, None)
        cursor.expect("AS", "and a SELECT")
        return CreateQuery(name, cursor.query(), sink, or_replace, start)
    if cursor.accept("TABLE"):
        return parse_create_table(cursor)
    if cursor.word in _NOT_CREATED:
        raise cursor.not_allowed(f"CREATE {cursor.word} is not supported; {_NOT_CREATED[cursor.word]}.")
    raise cursor.unexpected("STREAM, TABLE or QUERY")


def _name_or_id(cursor: BraidParser, expected: str) -> str:
    return cursor.advance().text if cursor.kind == "string" else cursor.name(expected)


def _parse_drop(cursor: BraidParser) -> Statement:
    if cursor.word not in _DROPS:
        raise cursor.unexpected("STREAM, TABLE or QUERY")
    make = _DROPS[cursor.advance().text.upper()]
    if_exists = cursor.accept_all("IF", "EXISTS")
    dropped = make(_name_or_id(cursor, "the name of what to drop"), if_exists)
    if cursor.at("CASCADE") and not isinstance(dropped, DropTable):
        cursor.advance()
        return replace(dropped, cascade=True)
    cursor.accept("RESTRICT")
    return dropped
