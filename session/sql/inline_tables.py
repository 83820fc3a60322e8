"""VALUES in FROM and IN: a static table whose rows stand in the statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Expression
from braid.operators.functions.coercion import common_type, in_one_type
from braid.session.sql.constants import constant
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.statements import InlineRows, WindowedSource
from braid.session.sql.syntax import Node
from braid.sources.connectors.static_table import INLINE, TableDefinition, TableVersion
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import NULL, Field, Schema


def inline_table(sql: SqlText, source: WindowedSource, rows: InlineRows) -> TableVersion:
    """Return the table of VALUES; equal rows in equal columns are one table, whoever writes them.

    SqlNotAllowed for what is no constant, and for values of a column that have no common type.
    """
    by_column = zip(*([constant(sql, value, "VALUES") for value in row] for row in rows.rows), strict=True)
    columns = [_column(sql, values, rows, at) for at, values in enumerate(by_column)]
    try:
        schema = Schema(tuple(Field(name, column[0].type) for name, column in zip(rows.names, columns, strict=True)))
    except NotAllowed as error:
        raise sql.not_allowed(error.detail, source.at) from None
    arrays = [pa.concat_arrays([evaluate(value, {}, 1) for value in column]) for column in columns]
    table = pa.Table.from_arrays(arrays, schema=schema.arrow)
    definition = TableDefinition("", INLINE, schema, INLINE)
    version = TableVersion(definition, table)
    return TableVersion(replace(definition, id=f"v-{version.id}"), table)


def _column(sql: SqlText, values: Sequence[Expression], rows: InlineRows, at: int) -> Sequence[Expression]:
    """Return the values of a column in one type."""
    nodes: list[Node] = [row[at] for row in rows.rows]
    if {value.type for value in values} == {NULL}:
        raise sql.not_allowed(
            f"All values of column {rows.names[at]!r} are NULL; write CAST(NULL AS VARCHAR), or another type.",
            nodes[0].at,
        )
    if common_type(values) is None:
        kinds = " and ".join(dict.fromkeys(str(value.type) for value in values))
        raise sql.not_allowed(
            f"Column {rows.names[at]!r} of VALUES needs one type; there are {kinds}. Write CAST(… AS …).", nodes[0].at
        )
    return in_one_type(values)
