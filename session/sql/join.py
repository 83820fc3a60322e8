"""Plan a SELECT over several inputs: a windowed equi-join; over one, it gives the tuples of each window."""

from __future__ import annotations

from collections.abc import Sequence

from braid.operators.expressions import Expression
from braid.operators.joins.query import Grouping, Join, JoinInput
from braid.operators.query_parts import Measure, Output
from braid.operators.windows import EMIT_AFTER_WATERMARK, SessionWindow, Window
from braid.session.sql.aggregates import AggregateBinder, first_aggregate
from braid.session.sql.changes import check_final
from braid.session.sql.expressions import Binder
from braid.session.sql.join_conditions import JoinConditions, under_casts
from braid.session.sql.join_scope import JoinScope
from braid.session.sql.scope import Scope
from braid.session.sql.select_list import aliases, group_keys, output_name, windowed_outputs, with_bounds
from braid.session.sql.statements import Select, WindowedSource
from braid.session.sql.syntax import Node

_EARLY = " An aggregate or GROUP BY, such as SELECT COUNT(*) …, has early rows."


def plan_join(select: Select, scopes: Sequence[Scope]) -> Join:
    """Return the join that a SELECT asks for; SqlNotAllowed says what it may not do."""
    sources = (select.source, *(joined.source for joined in select.joins))
    scope = JoinScope(select.sql, scopes, [source.at for source in sources])
    window = _common_window(select, sources)
    check_final(select, scopes, [source.at for source in sources])
    if select.emit is not None and select.emit.emit != EMIT_AFTER_WATERMARK:
        subject, hint = ("The rows of a join", "") if select.joins else ("The rows of a window", _EARLY)
        raise select.sql.not_allowed(
            f"{subject} come once, when they are final; leave EMIT out or write EMIT AFTER WATERMARK.{hint}",
            select.emit.at,
        )
    conditions = JoinConditions(select, scope)
    inputs, where = conditions.inputs(), conditions.over_rows
    if window.is_session:
        _check_sessions(select, inputs, scopes)
    having = () if select.having is None else (select.having,)
    aggregate = first_aggregate((*(item.node for item in select.items), *having))
    if aggregate is None and not select.group_by and select.having is None:
        return Join(inputs, window, _row_outputs(select, scope), None, where)
    grouping, outputs = _grouping(select, scope)
    return Join(inputs, window, outputs, grouping, where)


def _common_window(select: Select, sources: tuple[WindowedSource, ...]) -> Window | SessionWindow:
    example = "such as [RANGE 8 SECONDS], after each stream"
    windows = [source.window for source in sources]
    for source, window in zip(sources, windows, strict=True):
        if window is None:
            raise select.sql.not_allowed(
                f"All inputs of a join need the same window; {source.stream} has none. Write one, {example}.", source.at
            )
        if window.is_session and len(sources) == 1:
            raise select.sql.not_allowed(
                "A session needs an aggregate or GROUP BY, such as SELECT COUNT(*) …; remove it to get the rows.",
                source.window_at,
            )
        if window != windows[0]:
            raise select.sql.not_allowed(
                "All inputs of a join must have the same window; this one differs from the first. Write that here.",
                source.window_at,
            )
    assert windows[0] is not None
    return windows[0]


def _check_sessions(select: Select, inputs: Sequence[JoinInput], scopes: Sequence[Scope]) -> None:
    """Check that all inputs have sessions of the same keys."""
    sources = (select.source, *(joined.source for joined in select.joins))
    for source, join_input, scope in zip(sources, inputs, scopes, strict=True):
        if None in join_input.keys:
            raise select.sql.not_allowed(
                "Sessions of a join are of rows that are equal in all that it compares, so each input must be"
                f" compared by all of it; {join_input.alias!r} is not.",
                source.window_at,
            )
        partition_keys = [Binder(scope, "PARTITION BY").value(node) for node in source.partition_by]
        # each key of the join in all forms that PARTITION BY may name it by
        join_keys = [list(under_casts(key)) for key in join_input.keys if key is not None]
        is_more = any(all(key not in forms for forms in join_keys) for key in partition_keys)
        is_less = any(all(key not in forms for key in partition_keys) for forms in join_keys)
        if partition_keys and (is_more or is_less):
            raise select.sql.not_allowed(
                "PARTITION BY of a join's sessions must have the columns that its input is joined by, or be left out.",
                source.partition_by[0].at,
            )


def _row_outputs(select: Select, scope: JoinScope) -> tuple[Output, ...]:
    binder = _RowBinder(scope, "SELECT")
    planned: list[tuple[str, Expression, int]] = []
    for item in select.items:
        if item.node.kind == "star":
            columns = scope.columns_of(item.node.value, item.node.at)
            planned += [(name, column, item.node.at) for name, column in columns]
        else:
            planned.append((output_name(item, scope), binder.value(item.node), item.node.at))
    return with_bounds(select, planned)


class _RowBinder(Binder):
    """Binds outputs over joined rows, which have the bounds of the window, too."""

    def column(self, node: Node) -> Expression:
        return self.scope.resolve(node.value, node.at)


def _grouping(select: Select, scope: JoinScope) -> tuple[Grouping, tuple[Output, ...]]:
    keys = group_keys(select, scope)
    measures: dict[Measure, None] = {}
    outputs = windowed_outputs(select, scope, AggregateBinder(scope, "SELECT", keys, measures).group_value)
    having = AggregateBinder(scope, "HAVING", keys, measures, aliases(select)).group_condition(select.having)
    return Grouping(keys, tuple(measures), having), outputs
