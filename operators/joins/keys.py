"""Keys of the inputs of a join, numbered together, so that firing its windows compares numbers only.

Where all inputs are compared by all attributes, keys that some inner input lacks are in no row of any query: they are
left out before anything is counted: the set intersection of indexes of the thesis (5.3.2, 5.5.1.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.joins.matches.relations import Rows
from braid.operators.predicates.query_set import Bools
from braid.operators.state.keys import Codes, encode_column, unite_keys
from braid.sources.core.columns import one_array


@dataclass(frozen=True)
class InputKeys:
    """The distinct keys of one input, those in buckets of it among them.

    ``codes`` has for some attributes their code in each row of ``distinct``, the same for equal values of all inputs,
    -1 for NULL. What stands in a table of a bucket is row ``places[id(table)]`` of ``distinct``, -1 for left out.
    """

    distinct: pa.Table
    codes: Mapping[int, Rows]
    places: Mapping[int, Codes]


def number_keys(
    attributes: Sequence[Sequence[int]], is_outer: Sequence[bool] | None, tables: Sequence[Sequence[pa.Table]]
) -> list[InputKeys]:
    """Number the keys in the buckets of each input; where ``is_outer`` is None, all of them.

    The first columns of an input's ``tables`` are its ``attributes``. Tables must stay alive as long as what is
    returned: they are known by their ids.
    """
    if attributes[0] and all(input_attributes == attributes[0] for input_attributes in attributes):
        return _number_as_one(len(attributes[0]), attributes[0][0], is_outer, tables)
    united = [_united(input_tables) for input_tables in tables]
    codes = _attribute_codes([(keys, names) for (keys, _), names in zip(united, attributes, strict=True)])
    return [InputKeys(keys, input_codes, places) for (keys, places), input_codes in zip(united, codes, strict=True)]


def _number_as_one(
    columns: int, attribute: int, is_outer: Sequence[bool] | None, tables: Sequence[Sequence[pa.Table]]
) -> list[InputKeys]:
    """Number keys whose first columns are all attributes; their combination is the code of one of them."""
    heads = {id(table): table.select(range(columns)) for input_tables in tables for table in input_tables}
    # where tables have more columns, several of their rows may begin alike
    are_distinct = all(table.num_columns == columns for input_tables in tables for table in input_tables)
    united, numbers = _united(heads.values(), are_distinct)
    number_of = {table: numbers[id(head)] for table, head in heads.items()}
    is_null = _has_null(united)
    inner: list[Sequence[pa.Table]] = []
    if is_outer is not None:
        inner = [input_tables for input_tables, outer in zip(tables, is_outer, strict=True) if not outer]
    # with a single inner input keys with NULL stay: they are in rows without a partner
    is_kept = ~is_null if len(inner) > 1 else np.ones(united.num_rows, dtype=np.bool_)
    for input_tables in inner:
        is_present = np.zeros(united.num_rows, dtype=np.bool_)
        for table in input_tables:
            is_present[number_of[id(table)]] = True
        is_kept &= is_present
    place = np.where(is_kept, np.cumsum(is_kept, dtype=np.int32) - np.int32(1), np.int32(-1))
    code = np.where(is_null[is_kept], -1, np.arange(int(is_kept.sum())))
    common = united.filter(pa.array(is_kept)).combine_chunks()
    input_keys = []
    for input_tables in tables:
        places = {id(table): place[number_of[id(table)]] for table in input_tables}
        if all(table.num_columns == columns for table in input_tables):
            input_keys.append(InputKeys(common, {attribute: code}, places))
        else:
            input_keys.append(_with_extras(input_tables, places, attribute, code))
    return input_keys


def _with_extras(tables: Sequence[pa.Table], places: Mapping[int, Codes], attribute: int, code: Rows) -> InputKeys:
    """Number keys that have more columns than attributes, whose ``places`` and codes by place are given."""
    is_kept = {id(table): places[id(table)] >= 0 for table in tables}
    parts = [table.filter(pa.array(is_kept[id(table)])) for table in tables]
    keys, numbers = unite_keys(parts)
    codes = np.empty(keys.num_rows, dtype=np.int64)
    wide_places = {}
    for table, number in zip(tables, numbers, strict=True):
        mask = is_kept[id(table)]
        codes[number] = code[places[id(table)][mask]]
        wide_places[id(table)] = np.full(table.num_rows, -1, dtype=np.int32)
        wide_places[id(table)][mask] = number
    return InputKeys(keys, {attribute: codes}, wide_places)


def _united(tables: Iterable[pa.Table], are_distinct: bool = True) -> tuple[pa.Table, dict[int, Codes]]:
    """Return the distinct keys of tables, and by each table's id which of them it has.

    ``are_distinct`` says that no table has a key twice.

    The buckets that one task makes of the same tuples have the same keys: these count once.
    """
    by_ends: dict[tuple[Any, ...], list[list[pa.Table]]] = {}
    for table in tables:
        ends = [column[at].as_py() for column in table.columns for at in ((0, -1) if table.num_rows else ())]
        candidates = by_ends.setdefault((table.num_rows, *ends), [])
        equal_tables = next((equal for equal in candidates if table.equals(equal[0])), None)
        if equal_tables is None:
            candidates.append([table])
        else:
            equal_tables.append(table)
    distinct_tables = [equal_tables for candidates in by_ends.values() for equal_tables in candidates]
    if not distinct_tables:
        return pa.table({}), {}
    keys, codes = unite_keys([equal_tables[0] for equal_tables in distinct_tables], are_distinct=are_distinct)
    return keys, {
        id(table): code for equal_tables, code in zip(distinct_tables, codes, strict=True) for table in equal_tables
    }


def _has_null(keys: pa.Table) -> Bools:
    has_null = np.zeros(keys.num_rows, dtype=np.bool_)
    for column in keys.columns:
        if column.null_count:
            has_null |= np.asarray(pc.is_null(column))
    return has_null


def _attribute_codes(tables: Sequence[tuple[pa.Table, Sequence[int]]]) -> list[dict[int, Rows]]:
    """Return for each table the code of each of its attributes, its first columns, in each row."""
    codes_of = [{attribute: np.empty(0, dtype=np.int64) for attribute in attributes} for _, attributes in tables]
    for attribute in sorted({attribute for _, attributes in tables for attribute in attributes}):
        columns = [
            (number, one_array(table.column(list(attributes).index(attribute))))
            for number, (table, attributes) in enumerate(tables)
            if attribute in attributes and table.num_columns
        ]
        if not columns:
            continue
        values = pa.concat_arrays([column for _, column in columns])
        codes = encode_column(values)[0].astype(np.int64)
        if values.null_count:
            codes[np.asarray(values.is_null())] = -1
        bounds = np.cumsum([0, *(len(column) for _, column in columns)]).tolist()
        for place, (number, _) in enumerate(columns):
            codes_of[number][attribute] = codes[bounds[place] : bounds[place + 1]]
    return codes_of
