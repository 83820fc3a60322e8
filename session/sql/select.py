"""Plan a SELECT: a selection of tuples, an aggregation of windows, or a join; rows of windows are those of a join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from braid.operators.derived import window_behind
from braid.operators.expressions import Expression, all_of, conjuncts_of
from braid.operators.functions.sql_text import sql_text
from braid.operators.queries import Aggregation, Query, Selection
from braid.operators.query_parts import Measure
from braid.operators.windows import EMIT_AFTER_WATERMARK, SessionWindow, Window
from braid.session.sql.aggregates import AggregateBinder, first_aggregate
from braid.session.sql.changes import HAS_ROWS, ROWS, change_outputs, takes_changes
from braid.session.sql.create_stream_text import quoted_text
from braid.session.sql.expressions import Binder
from braid.session.sql.inputs import NO_TABLES, KnownTables, find_input, is_table
from braid.session.sql.join import plan_join
from braid.session.sql.lookups import with_lookups
from braid.session.sql.parser import parse_statement
from braid.session.sql.relations import Relations, Subquery, all_of_stream
from braid.session.sql.scope import Scope, did_you_mean
from braid.session.sql.select_list import Outputs, aliases, group_keys, output_name, windowed_outputs
from braid.session.sql.semi_joins import has_subqueries, with_semi_joins
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.session.sql.statements import CreateQuery, Explain, Select, Statement
from braid.session.sql.syntax import Node
from braid.session.sql.table_subqueries import with_table_subqueries
from braid.sources.core.errors import SqlNotAllowed, UnknownColumn
from braid.sources.core.schema import StreamDefinition

_SAME_GROUPS = "Each GROUP BY key has sessions of its own, so PARTITION BY must name what GROUP BY does"


class PlannedSelect(NamedTuple):
    """A query and the subqueries that it reads, by their provisional ids, inner ones first."""

    query: Query
    subqueries: tuple[Subquery, ...]


def plan_statement(
    statement: str | Statement,
    catalog: Mapping[str, StreamDefinition],
    tables: KnownTables = NO_TABLES,
    limits: StatementLimits = DEFAULT_LIMITS,
) -> PlannedSelect:
    """Return the query that a SELECT (also inside CREATE QUERY or EXPLAIN) asks for.

    ``catalog`` has streams, and queries as derived streams, by lower-case name, ``tables`` the static tables. Raises
    SqlSyntaxError (400) or SqlNotAllowed (422) with a position.
    """
    if isinstance(statement, str):
        statement = parse_statement(statement, limits)
    if isinstance(statement, (CreateQuery, Explain)):
        statement = statement.select
    if not isinstance(statement, Select):
        raise SqlNotAllowed("A query must be a SELECT; send other statements to POST /sql (braid sql).")
    relations = Relations(catalog, lambda select, within: _plan(select, within, tables, limits))
    try:
        query = _plan(statement, relations, tables, limits)
    except RecursionError:
        position = statement.sql.position(statement.start)
        raise SqlNotAllowed("The statement is nested too deeply; split it.", position=position) from None
    return PlannedSelect(query, relations.needed_by(query))


def _plan(select: Select, relations: Relations, tables: KnownTables, limits: StatementLimits) -> Query:
    limits.check_select(select)
    relations = relations.within(select)
    if select.union:
        query: Query = all_of_stream(relations.union(select))
    else:
        try:
            query = relations.merged(_plan_alone(select, relations, tables, limits))
        except UnknownColumn as error:
            raise _hinted(error, select) from None
    limits.check_query(select, query)
    return query


def _hinted(error: UnknownColumn, select: Select) -> UnknownColumn:
    """Return the error with a hint at the select list, where a name is one of there, or close to one."""
    named = aliases(select)
    if error.hint:
        return error
    if error.name.lower() in named:
        hint = " It is a name of the select list, which only GROUP BY and HAVING know: write what it stands for."
    else:
        hint = did_you_mean(error.name, (item.alias for item in select.items if item.alias is not None))
    hint = hint or f" A text stands in single quotes: {quoted_text(error.name)}."
    return UnknownColumn.of(error.name, error.inputs, hint, error.position)


def _plan_alone(select: Select, relations: Relations, tables: KnownTables, limits: StatementLimits) -> Query:
    if has_subqueries(select.where):
        first = find_input(select, select.source, relations, tables)
        event_time = first.schema.event_time if isinstance(first, StreamDefinition) else ""
        select = with_table_subqueries(select, relations, tables, event_time)
        select = with_semi_joins(select, event_time, lambda source: is_table(source, relations, tables))
    select, scopes = with_lookups(select, relations, tables)
    limits.check_inputs(select)
    if select.joins:
        return plan_join(select, scopes)
    (scope,) = scopes
    having = () if select.having is None else (select.having,)
    aggregate = first_aggregate((*(item.node for item in select.items), *having))
    window = select.source.window
    if window is None:
        return _plan_selection(select, scope, aggregate)
    if aggregate is None and not select.group_by and select.having is None:
        return plan_join(select, scopes)  # of one input
    return _plan_aggregation(select, scope, window)


def _plan_selection(select: Select, scope: Scope, aggregate: Node | None) -> Selection:
    stream = scope.definition.name
    if aggregate is not None:
        raise select.sql.not_allowed(
            f"An aggregate needs a window; write FROM {stream} [RANGE 8 SECONDS] for one result every 8 seconds,"
            " or [RANGE 36500 DAYS] for one over all of a stream that ends"
            " (files with bounded = 'true', `braid push --end`; start the query at 'earliest' where it has ended).",
            aggregate.at,
        )
    grouping_nodes = select.group_by or (() if select.having is None else (select.having,))
    if grouping_nodes:
        raise select.sql.not_allowed(
            f"GROUP BY and HAVING need a window; write FROM {stream} [RANGE 8 SECONDS].", grouping_nodes[0].at
        )
    _check_emit(select, stream)
    where = Binder(scope, "WHERE").condition(select.where)
    binder = Binder(scope, "SELECT")
    outputs = Outputs(select)
    for item in select.items:
        if item.node.kind == "star":
            for name, column in scope.columns_of(item.node.value, item.node.at):
                outputs.add(name, column, item.node.at)
        else:
            outputs.add(output_name(item, scope), binder.value(item.node), item.node.at)
    event_time = scope.stream.schema.event_time
    changes = change_outputs() if takes_changes(select, scope) else ()
    return Selection(
        scope.stream.id,
        where,
        (*outputs.all(), *changes),
        scope.lookups,
        event_time=event_time,
        row_window=window_behind(scope.stream),
    )


def _check_emit(select: Select, stream: str) -> None:
    """Raise SqlNotAllowed for an EMIT other than what a selection does anyway."""
    if select.emit is None or select.emit.emit == EMIT_AFTER_WATERMARK:
        return
    emit = select.emit.emit
    raise select.sql.not_allowed(
        f"{'EMIT STREAM' if emit.stream else 'AFTER DELAY'} needs a window and an aggregate or GROUP BY; a selection's"
        f" rows come at once and never change. Leave it out, or write SELECT COUNT(*) FROM {stream} [RANGE 8 SECONDS].",
        select.emit.at if emit.stream else select.emit.delay_at,
    )


def _plan_aggregation(select: Select, scope: Scope, window: Window | SessionWindow) -> Aggregation:
    where = Binder(scope, "WHERE").condition(select.where)
    keys = group_keys(select, scope)
    _check_partitioning(select, scope, keys)
    measures: dict[Measure, None] = {}
    are_weighted = takes_changes(select, scope)
    if are_weighted and window.is_session:
        raise select.sql.not_allowed(
            f"Sessions are of rows that are final, and those of {scope.name!r} change (EMIT STREAM). Leave EMIT out of"
            " the query that is read, or write another window.",
            select.source.window_at,
        )
    binder = AggregateBinder(scope, "SELECT", keys, measures, are_weighted=are_weighted)
    outputs = windowed_outputs(select, scope, binder.group_value)
    binder = AggregateBinder(scope, "HAVING", keys, measures, aliases(select), are_weighted)
    having = binder.group_condition(select.having)
    if are_weighted:
        measures.setdefault(ROWS)
        having = all_of((HAS_ROWS, *conjuncts_of(having)))
    emit = EMIT_AFTER_WATERMARK if select.emit is None else select.emit.emit
    return Aggregation(scope.stream.id, window, where, keys, tuple(measures), outputs, having, emit, scope.lookups)


def _check_partitioning(select: Select, scope: Scope, keys: tuple[Expression, ...]) -> None:
    """Raise SqlNotAllowed unless PARTITION BY names the same keys as GROUP BY."""
    if not select.source.partition_by:
        return
    binder = Binder(scope, "PARTITION BY")
    columns = {binder.value(node): node for node in select.source.partition_by}
    for column, node in columns.items():
        if column not in keys:
            raise select.sql.not_allowed(f"{_SAME_GROUPS}; got {sql_text(column)}. Add it to GROUP BY.", node.at)
    for key in keys:
        if key not in columns:
            raise select.sql.not_allowed(
                f"{_SAME_GROUPS}; {sql_text(key)} is missing. Add it, or leave PARTITION BY out.",
                select.source.partition_by[0].at,
            )
