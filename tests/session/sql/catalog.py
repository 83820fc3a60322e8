"""A stream with a column of every type, and helpers to plan over it."""

from __future__ import annotations

from braid.operators.queries import Aggregation, Query, Selection
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.core.schema import StreamDefinition
from tests.kit.plans import plan_select

PURCHASES = """
CREATE STREAM purchases (
  user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '2' SECOND,
  name VARCHAR, day DATE, amount DECIMAL(10, 2), ok BOOLEAN
) WITH (connector = 'push', format = 'json')
"""


def define(sql: str, stream_id: str) -> StreamDefinition:
    """Return the definition of a stream as the session makes it."""
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return StreamDefinition(
        stream_id, statement.name, statement.schema, statement.connector, statement.format, statement.options
    )


CATALOG = {"purchases": define(PURCHASES, "s-1")}


def plan(sql: str) -> Query:
    """Plan a SELECT over the catalog, whatever the data plane runs."""
    return plan_select(sql, CATALOG)


def selection(sql: str) -> Selection:
    """Plan a SELECT that is a selection."""
    query = plan(sql)
    assert isinstance(query, Selection)
    return query


def aggregation(sql: str) -> Aggregation:
    """Plan a SELECT that is an aggregation."""
    query = plan(sql)
    assert isinstance(query, Aggregation)
    return query
