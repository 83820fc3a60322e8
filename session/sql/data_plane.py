"""What the front end plans and the data plane does not run yet: the one place that says so.

Once ``operators/`` runs a feature, its entry of :data:`NOT_RUN_YET` goes, and queries with it are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from operators.queries import Aggregation, Join, Query, SessionWindow
from session.sql.function_names import shown_aggregate
from session.sql.statements import Select
from session.sql.syntax import walk

# a feature as SQL writes it, and what to do instead
NOT_RUN_YET: dict[str, str] = {}


def check_runs(select: Select, query: Query, not_run_yet: Mapping[str, str]) -> None:
    """Raise SqlNotAllowed at the first feature of a planned SELECT that is in ``not_run_yet``."""
    for feature, at in features(select, query):
        if feature in not_run_yet:
            raise select.sql.not_allowed(f"{feature} is not supported yet. {not_run_yet[feature]}", at)


def features(select: Select, query: Query) -> Iterator[tuple[str, int]]:
    """Yield what a query asks of the data plane and where it stands: aggregates, kinds of windows, forms of EMIT."""
    if isinstance(query, Join):
        yield "JOIN", select.joins[0].source.at
    if not isinstance(query, Aggregation):
        return
    having = () if select.having is None else (select.having,)
    for root in (*(item.node for item in select.items), *having):
        yield from ((shown_aggregate(node.value), node.at) for node in walk(root) if node.kind == "aggregate")
    if isinstance(query.window, SessionWindow):
        yield "SESSION", select.source.window_at
        if any(measure.function == "count_distinct" for measure in query.measures):
            yield "COUNT(DISTINCT …) over sessions", select.source.window_at
    if select.emit is not None:
        yield query.emit.form, select.emit.at
