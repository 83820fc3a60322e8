"""SELECTs over static tables alone: their first table is joined with a stream of one row, so they end with that."""

from __future__ import annotations

from dataclasses import replace

from braid.operators.windows import Window
from braid.session.sql.aggregates import first_aggregate
from braid.session.sql.inputs import ONE_ROW, SelectInput
from braid.session.sql.parsing.durations import MICROSECONDS
from braid.session.sql.statements import JoinedSource, Select, WindowedSource
from braid.session.sql.syntax import Node, always_zero, call_node
from braid.sources.connectors.one_row import TIME

_ALL_ROWS = Window(MICROSECONDS["DAY"], MICROSECONDS["DAY"])
"""The row is at the beginning of a day, so that its window has all rows that there are."""


def over_one_row(select: Select, first: SelectInput) -> Select:
    """Return the same SELECT with a stream of one row, and a condition that joins it with all rows of a table.

    One that aggregates has a window of all rows.
    """
    at = select.source.at
    row = Node("name", at, (ONE_ROW, TIME))
    column = Node("name", at, (first.alias, first.version.definition.schema.names[0]))
    where = call_node("=", always_zero(row), always_zero(column))
    where = where if select.where is None else call_node("and", where, select.where)
    selected = tuple(item.node for item in select.items)
    is_aggregated = bool(select.group_by) or select.having is not None or first_aggregate(selected) is not None
    source = WindowedSource(ONE_ROW, at, window=_ALL_ROWS if is_aggregated else None, is_hidden=True)
    return replace(select, joins=(*select.joins, JoinedSource(source)), where=where)
