"""Codes for the values of attributes, the same for equal values in all tables of a join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators.keys import encode_column
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
        together = pa.concat_arrays(columns)
        codes = encode_column(together)[0].astype(np.int64)
        if together.null_count:
            codes[np.asarray(together.is_null())] = -1
        bounds = np.cumsum([0, *(len(column) for column in columns)]).tolist()
        for number, (table, _) in enumerate(having):
            found[id(table)][attribute] = codes[bounds[number] : bounds[number + 1]]
    return found
