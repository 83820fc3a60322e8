"""Codes for the values of attributes, the same for equal values in all tables of a join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.relations import Rows


def attribute_codes(tables: Sequence[tuple[pa.Table, Sequence[int]]]) -> Mapping[int, Mapping[int, Rows]]:
    """Return for each table, by its id, the code of each attribute in each row; -1 is NULL.

    The attributes of a table are its first columns, in the order that is given with it.
    """
    found: dict[int, dict[int, Rows]] = {id(table): {} for table, _ in tables}
    distinct = {id(table): (table, attributes) for table, attributes in tables}.values()
    for attribute in sorted({a for _, attributes in distinct for a in attributes}):
        having = [
            (table, list(attributes).index(attribute)) for table, attributes in distinct if attribute in attributes
        ]
        columns = [table.column(at).combine_chunks() for table, at in having]
        encoded = pa.concat_arrays(columns).dictionary_encode().indices
        codes = np.asarray(pc.fill_null(encoded, -1)).astype(np.int64)
        bounds = np.cumsum([0, *(len(column) for column in columns)]).tolist()
        for number, (table, _) in enumerate(having):
            found[id(table)][attribute] = codes[bounds[number] : bounds[number + 1]]
    return found
