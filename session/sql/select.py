"""Plan a SELECT: a selection of tuples, or an aggregation of windows."""

from __future__ import annotations

from collections.abc import Mapping

from operators.expressions import Column, Expression, Literal
from operators.queries import (
    EMIT_AFTER_WATERMARK,
    WINDOW_END,
    WINDOW_START,
    Aggregation,
    Measure,
    Output,
    Query,
    Selection,
    SessionWindow,
    Window,
)
from session.sql.aggregates import AggregateBinder, has_aggregate
from session.sql.data_plane import NOT_RUN_YET, check_runs
from session.sql.expressions import Binder
from session.sql.parser import parse_statement
from session.sql.scope import WINDOW_COLUMNS, Scope, find_stream
from session.sql.statements import CreateQuery, Explain, Select, SelectItem, Statement
from session.sql.syntax import Node
from sources.errors import SqlNotAllowed
from sources.schema import TIMESTAMP, StreamDefinition

MAX_OUTPUTS = 1000
_SAME_GROUPS = "Each GROUP BY key has sessions of its own, so PARTITION BY must name what GROUP BY does"


def plan_select(
    statement: str | Statement,
    catalog: Mapping[str, StreamDefinition],
    not_run_yet: Mapping[str, str] = NOT_RUN_YET,
) -> Query:
    """Return the query that a SELECT (also inside CREATE QUERY or EXPLAIN) asks for.

    ``catalog`` has the streams by lower-case name; what is in ``not_run_yet`` is refused. Raises SqlSyntaxError (400)
    or SqlNotAllowed (422) with a position.
    """
    if isinstance(statement, str):
        statement = parse_statement(statement)
    if isinstance(statement, (CreateQuery, Explain)):
        statement = statement.select
    if not isinstance(statement, Select):
        raise SqlNotAllowed("A query must be a SELECT; send other statements to POST /sql.")
    try:
        query = _plan(statement, catalog)
        check_runs(statement, query, not_run_yet)
        return query
    except RecursionError:
        position = statement.sql.position(statement.start)
        raise SqlNotAllowed("The statement is nested too deeply; split it.", position=position) from None


def _plan(select: Select, catalog: Mapping[str, StreamDefinition]) -> Query:
    definition = find_stream(select.sql, select.source, catalog)
    scope = Scope(select.sql, select.source, definition)
    _check_descriptor(select, definition)
    having = () if select.having is None else (select.having,)
    aggregate = has_aggregate((*(item.node for item in select.items), *having))
    window = select.source.window
    if window is None:
        return _plan_selection(select, scope, aggregate)
    if aggregate is None and not select.group_by and select.having is None:
        raise select.sql.not_allowed(
            "A window needs an aggregate or GROUP BY, such as SELECT COUNT(*) …; remove the window to get the tuples.",
            select.source.window_at,
        )
    return _plan_aggregation(select, scope, window)


def _check_descriptor(select: Select, definition: StreamDefinition) -> None:
    named = select.source.descriptor
    event_time = definition.schema.event_time
    if named is not None and named.lower() != event_time.lower():
        raise select.sql.not_allowed(
            f"DESCRIPTOR must name the event time column of {definition.name}, {event_time!r}; got {named!r}.",
            select.source.descriptor_at,
        )


def _plan_selection(select: Select, scope: Scope, aggregate: Node | None) -> Selection:
    stream = scope.definition.name
    if aggregate is not None:
        raise select.sql.not_allowed(
            f"An aggregate needs a window; write FROM {stream} [RANGE 8 SECONDS] for one result every 8 seconds.",
            aggregate.at,
        )
    grouped = select.group_by or (() if select.having is None else (select.having,))
    if grouped:
        raise select.sql.not_allowed(
            f"GROUP BY and HAVING need a window; write FROM {stream} [RANGE 8 SECONDS].", grouped[0].at
        )
    # EMIT STREAM and AFTER WATERMARK are what a selection does anyway
    if select.emit is not None and select.emit.emit.delay_us is not None:
        raise select.sql.not_allowed(
            "AFTER DELAY needs a window; a selection's rows come at once and never change. Leave it out.",
            select.emit.delay_at,
        )
    where = Binder(scope, "WHERE").condition(select.where)
    binder = Binder(scope, "SELECT")
    outputs = _Outputs(select)
    for item in select.items:
        if item.node.kind == "star":
            if item.node.value is not None:
                scope.check_qualifier(item.node.value, item.node.at)
            for column in scope.stream_columns:
                outputs.add(column.name, column, item.node.at)
        else:
            outputs.add(_name(item, scope), binder.value(item.node), item.node.at)
    return Selection(scope.definition.id, where, outputs.all())


def _plan_aggregation(select: Select, scope: Scope, window: Window | SessionWindow) -> Aggregation:
    where = Binder(scope, "WHERE").condition(select.where)
    keys = _keys(select, scope)
    _check_partitioning(select, scope, keys)
    measures: dict[Measure, None] = {}
    outputs = _Outputs(select)
    binder = AggregateBinder(scope, "SELECT", keys, measures)
    planned = []
    for item in select.items:
        if item.node.kind == "star":
            raise select.sql.not_allowed(
                "A windowed SELECT cannot have *; name columns of GROUP BY and aggregates.", item.node.at
            )
        planned.append((_name(item, scope), binder.group_value(item.node), item.node.at))
    for bound in WINDOW_COLUMNS:
        if not any(name == bound and _is_bound(expression, bound) for name, expression, _ in planned):
            outputs.add(bound, Column(bound, TIMESTAMP), select.start)
    for name, expression, at in planned:
        outputs.add(name, expression, at)
    having = AggregateBinder(scope, "HAVING", keys, measures).group_condition(select.having)
    emit = EMIT_AFTER_WATERMARK if select.emit is None else select.emit.emit
    return Aggregation(scope.definition.id, window, where, keys, tuple(measures), outputs.all(), having, emit)


def _is_bound(expression: Expression, bound: str) -> bool:
    return isinstance(expression, Column) and expression.name == bound


def _keys(select: Select, scope: Scope) -> tuple[Expression, ...]:
    """Return the GROUP BY expressions besides the window's bounds, each once."""
    binder = Binder(scope, "GROUP BY")
    keys: dict[Expression, None] = {}
    for entry in select.group_by:
        node = _grouped_node(select, scope, entry)
        if node.kind == "name":
            column = scope.resolve(node.value, entry.at)
            if column.name in WINDOW_COLUMNS:
                continue
        keys.setdefault(binder.value(node))
    return tuple(keys)


def _check_partitioning(select: Select, scope: Scope, keys: tuple[Expression, ...]) -> None:
    """Raise SqlNotAllowed where sessions would be of other groups than those of GROUP BY."""
    if not select.source.partition_by:
        return
    binder = Binder(scope, "PARTITION BY")
    columns = {binder.value(node): node for node in select.source.partition_by}
    for column, node in columns.items():
        if column not in keys:
            raise select.sql.not_allowed(f"{_SAME_GROUPS}; got {column}. Add it to GROUP BY.", node.at)
    for key in keys:
        if key not in columns:
            raise select.sql.not_allowed(
                f"{_SAME_GROUPS}; {key} is missing. Add it, or leave PARTITION BY out.",
                select.source.partition_by[0].at,
            )


def _grouped_node(select: Select, scope: Scope, node: Node) -> Node:
    """Return what an entry of GROUP BY stands for: an ordinal or an alias means an entry of the select list."""
    if node.kind == "literal" and isinstance(node.value, Literal) and node.value.type.is_integer:
        ordinal = node.value.value
        if not isinstance(ordinal, int) or not 1 <= ordinal <= len(select.items):
            raise select.sql.not_allowed(
                f"GROUP BY {ordinal} must count an entry of the select list, 1 to {len(select.items)}.",
                node.at,
            )
        return select.items[ordinal - 1].node
    if node.kind == "name" and scope.find(node.value) is None and len(node.value) == 1:
        wanted = node.value[0].lower()
        for item in select.items:
            if item.alias is not None and item.alias.lower() == wanted:
                return item.node
    return node


def _name(item: SelectItem, scope: Scope) -> str:
    """Return the alias, the column's name as declared, or the text with its function in lower case."""
    if item.alias is not None:
        return item.alias
    node = item.node
    if node.kind == "name":
        return scope.resolve(node.value, node.at).name
    function, parenthesis, rest = item.text.partition("(")
    return function.lower() + parenthesis + rest if parenthesis and function.isidentifier() else item.text


class _Outputs:
    """The columns of a result; their names differ and are not reserved."""

    def __init__(self, select: Select) -> None:
        self._sql = select.sql
        self._outputs: list[Output] = []
        self._names: set[str] = set()

    def add(self, name: str, expression: Expression, at: int) -> None:
        """Append a column; SqlNotAllowed when its name is taken or reserved."""
        if name.startswith("_"):
            raise self._sql.not_allowed(f"Names starting with '_' are reserved; give {name!r} another alias.", at)
        if name.lower() in self._names:
            own = name.lower() in (WINDOW_START, WINDOW_END)
            why = "every result of a window has it" if own else "two columns have it"
            raise self._sql.not_allowed(f"The output name {name!r} is taken: {why}; write AS and another alias.", at)
        if len(self._outputs) >= MAX_OUTPUTS:
            raise self._sql.not_allowed(f"A query must have at most {MAX_OUTPUTS} output columns.", at)
        self._names.add(name.lower())
        self._outputs.append(Output(name, expression))

    def all(self) -> tuple[Output, ...]:
        """Return the columns in order."""
        return tuple(self._outputs)
