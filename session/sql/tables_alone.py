"""SELECTs over static tables alone: their first table is joined with a stream of one row, so they end with that."""

from __future__ import annotations

from dataclasses import replace

from braid.session.sql.inputs import ONE_ROW, SelectInput
from braid.session.sql.statements import JoinedSource, Select, WindowedSource
from braid.session.sql.syntax import Node, always_zero, call_node
from braid.sources.connectors.one_row import TIME


def over_one_row(select: Select, first: SelectInput) -> Select:
    """Return the same SELECT with a stream of one row, and a condition that joins it with all rows of a table."""
    at = select.source.at
    row = Node("name", at, (ONE_ROW, TIME))
    column = Node("name", at, (first.alias, first.version.definition.schema.names[0]))
    where = call_node("=", always_zero(row), always_zero(column))
    where = where if select.where is None else call_node("and", where, select.where)
    source = WindowedSource(ONE_ROW, at, is_hidden=True)
    return replace(select, joins=(*select.joins, JoinedSource(source)), where=where)
