"""The query of a SELECT, planned as the session plans it."""

from __future__ import annotations

from collections.abc import Mapping

from braid.operators.queries import Query
from braid.session.sql.inputs import NO_TABLES, KnownTables
from braid.session.sql.select import plan_statement
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.session.sql.statements import Statement
from braid.sources.core.schema import StreamDefinition


def plan_select(
    statement: str | Statement,
    catalog: Mapping[str, StreamDefinition],
    tables: KnownTables = NO_TABLES,
    limits: StatementLimits = DEFAULT_LIMITS,
) -> Query:
    """Return the query that a SELECT asks for, as :func:`plan_statement` does, without its subqueries."""
    return plan_statement(statement, catalog, tables, limits).query
