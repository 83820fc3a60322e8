"""Rows of one query, from the columns that blocks have: outputs evaluated, and the columns that Braid adds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.evaluation import evaluate
from braid.operators.expressions import columns_of
from braid.operators.queries import Query
from braid.operators.query_parts import CHANGES, PARTIAL, WINDOW_START
from braid.sources.core.errors import TooLarge
from braid.sources.core.schema import JSON, ColumnType

CHANGE_FIELDS = tuple(pa.field(name, kind.arrow) for name, kind in CHANGES.items())


def compute_outputs(
    query: Query, rows: pa.Table, length: int, active_from: int | None = None, max_bytes: int | None = None
) -> pa.Table:
    """Evaluate the outputs of ``query`` over rows of a block.

    Then come ``_partial`` for a windowed query, and the columns of a change for one with EMIT STREAM.
    ``length`` is the number of rows (a query of constants needs no column, and a table of no columns forgets it);
    ``active_from`` (microseconds) is the greatest of the query's streams: a window that began at or before it is
    partial. Raises TooLarge as soon as the outputs take more than ``max_bytes``.
    """
    columns = {name: _flat(rows.column(name)) for name in needed_columns(query, rows)}
    arrays, size = [], 0
    for output in query.outputs:
        arrays.append(_as_result(evaluate(output.expression, columns, length), output.expression.type))
        size += arrays[-1].nbytes
        if max_bytes is not None and size > max_bytes:
            raise TooLarge(f"{length} rows must take at most {max_bytes} bytes; got more. Read fewer at once.")
    if query.window is not None:
        if active_from is None:
            arrays.append(pa.array(np.zeros(length, bool)))
        else:
            window_starts = columns[WINDOW_START].cast(pa.int64())
            arrays.append(pc.less_equal(window_starts, pa.scalar(active_from, pa.int64())))
        if query.emit.stream:
            arrays += [columns[change.name] for change in CHANGE_FIELDS]
    return pa.Table.from_arrays(arrays, schema=schema_of(query))


def schema_of(query: Query) -> pa.Schema:
    """Return the Arrow schema of the rows of ``query``."""
    fields = [pa.field(output.name, _result_type(output.expression.type)) for output in query.outputs]
    if query.window is not None:
        fields.append(pa.field(PARTIAL, pa.bool_()))
        fields += CHANGE_FIELDS if query.emit.stream else ()
    return pa.schema(fields)


def _result_type(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type of results, in which JSON is no plain text."""
    return pa.json_() if kind == JSON else kind.arrow


def _as_result(values: pa.Array, kind: ColumnType) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.json_(), values) if kind == JSON else values


def empty_rows(query: Query) -> pa.Table:
    """Return no rows of ``query``."""
    return schema_of(query).empty_table()


def needed_columns(query: Query, rows: pa.Table) -> list[str]:
    """Return the columns of a block that rows of ``query`` are made of, few beside those of thousands of queries."""
    names = {name for output in query.outputs for name in columns_of(output.expression)}
    if query.window is not None:
        names.add(WINDOW_START)
        names |= {change.name for change in CHANGE_FIELDS} if query.emit.stream else set()
    return [name for name in rows.column_names if name in names]


def _flat(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    chunks: list[pa.Array] = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)
