"""Codes for the values of attributes, the same for equal values in all tables of a join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.relations import Rows


class AttributeCodes:
    """Numbers the values of each attribute as they come; -1 is NULL."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Rows] = {}
        self._tables: list[pa.Table] = []  # so that their ids stay theirs
        self._values: dict[int, dict[Any, int]] = {}

    def of(self, keys: pa.Table, attributes: Sequence[int]) -> dict[int, Rows]:
        """Return the codes of each attribute, shape (rows of keys,); they are the first columns of ``keys``."""
        found = {}
        for column, attribute in enumerate(attributes):
            known = self._known.get((id(keys), attribute))
            if known is None:
                known = self._known[id(keys), attribute] = self._code(keys.column(column), attribute)
                self._tables.append(keys)
            found[attribute] = known
        return found

    def _code(self, column: pa.ChunkedArray, attribute: int) -> Rows:
        values = self._values.setdefault(attribute, {})
        encoded = column.combine_chunks().dictionary_encode()
        codes = [values.setdefault(value, len(values)) for value in encoded.dictionary.to_pylist()]
        indices = np.asarray(pc.fill_null(encoded.indices, len(codes)))
        return np.array([*codes, -1], dtype=np.int64)[indices]
