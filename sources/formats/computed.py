"""Columns that are computed from those of an input, once for all tuples that are decoded together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.errors import TooLarge
from braid.sources.core.schema import Field

PIECES_BYTES = 256 << 20


def compute(field: Field, columns: Mapping[str, pa.Array], rows: int) -> tuple[pa.Array, dict[int, str]]:
    """Return a computed column, and for the rows of which it cannot be computed (NULL there) why not.

    ``columns`` are those before it, of ``rows`` values each.
    """
    values, errors = _Evaluation(field, columns).of(0, rows)
    if field.type.kind != "DOUBLE":
        return values, errors
    values = pc.add(values, 0.0)  # there is one zero
    is_finite = pc.is_finite(values)
    for i in np.flatnonzero(np.asarray(pc.invert(is_finite).fill_null(False))).tolist():
        errors[i] = f"{_named(field)} must be finite, got {values[i].as_py()}"
    return pc.if_else(is_finite, values, None) if errors else values, errors


class _Evaluation:
    """Evaluates a column; where that fails half of the rows at a time, so that one harms no other.

    All together may fail as their texts take too much: then rows are refused once what was computed takes PIECES_BYTES.
    """

    def __init__(self, field: Field, columns: Mapping[str, pa.Array]) -> None:
        self._field = field
        self._columns = columns
        self._bytes = 0

    def of(self, first: int, rows: int) -> tuple[pa.Array, dict[int, str]]:
        """Return the values of rows from ``first`` on, and for those that fail why."""
        assert self._field.computed is not None
        try:
            if self._bytes > PIECES_BYTES:
                raise TooLarge(f"columns that are read together must take at most {PIECES_BYTES} bytes")
            some = {name: column.slice(first, rows) for name, column in self._columns.items()}
            values = self._field.computed.evaluate(some, rows)
        except Exception as problem:
            if rows <= 1 or self._bytes > PIECES_BYTES:
                why = f"{_named(self._field)} cannot be computed: {str(problem) or type(problem).__name__}"
                return pa.nulls(rows, self._field.type.arrow), dict.fromkeys(range(first, first + rows), why)
        else:
            self._bytes += values.nbytes
            return values, {}
        half = rows // 2
        low, errors = self.of(first, half)
        high, more_errors = self.of(first + half, rows - half)
        return pa.concat_arrays([low, high]), {**errors, **more_errors}


def _named(field: Field) -> str:
    return f"column {field.name!r}, computed as {'' if field.computed is None else field.computed.text},"
