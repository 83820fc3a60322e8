"""Columns of Arrow tables as arrays."""

from __future__ import annotations

import pyarrow as pa


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; it is copied only if it has several chunks (``combine_chunks`` always does)."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def arrays_of(table: pa.Table) -> dict[str, pa.Array]:
    """Return the columns of a table by name."""
    return {name: one_array(table.column(name)) for name in table.column_names}
