"""Tuples of one stream in columns, with every expression over them evaluated at most once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.arrays import Places
from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression, text_of
from braid.operators.failure_isolation import describe
from braid.operators.state.keys import KeyColumn
from braid.sources.core.columns import one_array

# chunks are joined where they are shorter than this on average: a kernel is called once for each
_MIN_CHUNK = 8192
_WHOLE = ("INT", "BIGINT", "DATE", "TIMESTAMP")


class _Columns(Mapping[str, pa.Array]):
    """The columns of a table as arrays, each joined when it is first asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._joined: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._joined:
            self._joined[name] = one_array(self._table.column(name))
        return self._joined[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table.column_names  # what Mapping inherits would join the column to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __len__(self) -> int:
        return self._table.num_columns

    def chunks(self, name: str) -> list[pa.Array]:
        """Return a column as it came, unless it was joined."""
        if name not in self._joined and self._table.num_rows >= _MIN_CHUNK * self._table.column(name).num_chunks:
            return [chunk for chunk in self._table.column(name).chunks if len(chunk)]
        return [self[name]]


class Tuples:
    """Columns of equal length.

    ``failures`` maps the text of an expression whose evaluation raised to the message. Evaluation is not meant to
    raise; if it does, the value is NULL, and whoever asked for it is told, so that no query harms another.
    """

    def __init__(self, columns: Mapping[str, pa.Array], length: int) -> None:
        self.columns = columns
        self.length = length
        self.failures: dict[str, str] = {}
        self._values: dict[str, pa.Array] = {}
        self._keys: dict[str, KeyColumn] = {}

    @classmethod
    def of(cls, batch: pa.RecordBatch | pa.Table) -> Tuples:
        """Wrap a record batch, or a table; chunks of its columns are joined where one array is asked for."""
        if isinstance(batch, pa.Table):
            return cls(_Columns(batch), batch.num_rows)
        return cls(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)

    def chunks(self, name: str) -> list[pa.Array]:
        """Return a column in one or more arrays, after each other."""
        return self.columns.chunks(name) if isinstance(self.columns, _Columns) else [self.columns[name]]

    def key(self, expression: Expression) -> KeyColumn:
        """Return the expression as a column of keys."""
        text = text_of(expression)
        if text not in self._keys:
            self._keys[text] = KeyColumn(self.pieces(expression))
        return self._keys[text]

    def pieces(self, expression: Expression) -> pa.Array | pa.ChunkedArray:
        """Return the expression's value for each tuple; a column of whole numbers in the chunks in which it came."""
        if isinstance(expression, Column) and expression.type.kind in _WHOLE and expression.name in self.columns:
            column = pa.chunked_array(self.chunks(expression.name))
            if column.type == expression.type.arrow:
                return column
        return self.value(expression)

    def value(self, expression: Expression) -> pa.Array:
        """Return the expression's value for each tuple."""
        text = text_of(expression)
        values = self._values.get(text)
        if values is None:
            try:
                values = evaluate(expression, self.columns, self.length)
            except Exception as error:
                self.failures[str(expression)] = describe(error)
                values = pa.nulls(self.length, expression.type.arrow)
            self._values[text] = values
        return values

    def take(self, rows: Places, names: Iterable[str]) -> Tuples:
        """Return some of the tuples, with the columns ``names``; both note failures in the same place."""
        places = pa.array(rows)
        tuples = Tuples({name: self.columns[name].take(places) for name in names}, len(rows))
        tuples.failures = self.failures
        return tuples

    def where(self, mask: npt.NDArray[np.bool_]) -> Tuples:
        """Return the tuples at which ``mask`` is true; values already computed are kept."""
        arrow_mask = pa.array(mask)
        tuples = Tuples({name: array.filter(arrow_mask) for name, array in self.columns.items()}, int(mask.sum()))
        tuples.failures = self.failures
        tuples._values = {text: array.filter(arrow_mask) for text, array in self._values.items()}
        return tuples
