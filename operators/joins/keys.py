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

from operators.joins.relations import Rows
from operators.keys import Codes, encode_column, unite_keys
from operators.predicates.query_set import Bools
from sources.columns import one_array


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
    if attributes[0] and all(each == attributes[0] for each in attributes):
        return _together(len(attributes[0]), attributes[0][0], is_outer, tables)
    apart = [_united(mine) for mine in tables]
    codes = _attribute_codes([(keys, mine) for (keys, _), mine in zip(apart, attributes, strict=True)])
    return [InputKeys(keys, found, places) for (keys, places), found in zip(apart, codes, strict=True)]


def _together(
    columns: int, attribute: int, is_outer: Sequence[bool] | None, tables: Sequence[Sequence[pa.Table]]
) -> list[InputKeys]:
    """Number keys whose first columns are all attributes; their combination is the code of one of them."""
    heads = {id(table): table.select(range(columns)) for mine in tables for table in mine}
    # of what has more columns, several rows may begin alike
    united, numbers = _united(heads.values(), all(table.num_columns == columns for mine in tables for table in mine))
    number_of = {table: numbers[id(head)] for table, head in heads.items()}
    is_null = _has_null(united)
    inner = [] if is_outer is None else [mine for mine, outer in zip(tables, is_outer, strict=True) if not outer]
    # where there is one, what has NULL is in rows without a partner
    wanted = ~is_null if len(inner) > 1 else np.ones(united.num_rows, dtype=np.bool_)
    for mine in inner:
        there = np.zeros(united.num_rows, dtype=np.bool_)
        for table in mine:
            there[number_of[id(table)]] = True
        wanted &= there
    place = np.where(wanted, np.cumsum(wanted, dtype=np.int32) - np.int32(1), np.int32(-1))
    code = np.where(is_null[wanted], -1, np.arange(int(wanted.sum())))
    common = united.filter(pa.array(wanted)).combine_chunks()
    found = []
    for mine in tables:
        places = {id(table): place[number_of[id(table)]] for table in mine}
        if all(table.num_columns == columns for table in mine):
            found.append(InputKeys(common, {attribute: code}, places))
        else:
            found.append(_with_extras(mine, places, attribute, code))
    return found


def _with_extras(tables: Sequence[pa.Table], places: Mapping[int, Codes], attribute: int, code: Rows) -> InputKeys:
    """Number keys that have more columns; ``places`` are those of their attributes, of which ``code`` has the code."""
    kept = {id(table): places[id(table)] >= 0 for table in tables}
    parts = [table.filter(pa.array(kept[id(table)])) for table in tables]
    keys, numbers = unite_keys(parts)
    codes = np.empty(keys.num_rows, dtype=np.int64)
    wide = {}
    for table, number in zip(tables, numbers, strict=True):
        mask = kept[id(table)]
        codes[number] = code[places[id(table)][mask]]
        wide[id(table)] = np.full(table.num_rows, -1, dtype=np.int32)
        wide[id(table)][mask] = number
    return InputKeys(keys, {attribute: codes}, wide)


def _united(tables: Iterable[pa.Table], are_distinct: bool = True) -> tuple[pa.Table, dict[int, Codes]]:
    """Return the distinct keys of tables, and by each table's id which of them it has.

    ``are_distinct`` says that no table has a key twice.

    The buckets that one task makes of the same tuples have the same keys: these count once.
    """
    by_looks: dict[tuple[Any, ...], list[list[pa.Table]]] = {}
    for table in tables:
        ends = [column[at].as_py() for column in table.columns for at in ((0, -1) if table.num_rows else ())]
        known = by_looks.setdefault((table.num_rows, *ends), [])
        same = next((each for each in known if table.equals(each[0])), None)
        if same is None:
            known.append([table])
        else:
            same.append(table)
    alike = [same for known in by_looks.values() for same in known]
    if not alike:
        return pa.table({}), {}
    keys, codes = unite_keys([same[0] for same in alike], are_distinct=are_distinct)
    return keys, {id(table): code for same, code in zip(alike, codes, strict=True) for table in same}


def _has_null(keys: pa.Table) -> Bools:
    found = np.zeros(keys.num_rows, dtype=np.bool_)
    for column in keys.columns:
        if column.null_count:
            found |= np.asarray(pc.is_null(column))
    return found


def _attribute_codes(tables: Sequence[tuple[pa.Table, Sequence[int]]]) -> list[dict[int, Rows]]:
    """Return for each table the code of each of its attributes, its first columns, in each row."""
    found = [{attribute: np.empty(0, dtype=np.int64) for attribute in attributes} for _, attributes in tables]
    for attribute in sorted({a for _, attributes in tables for a in attributes}):
        having = [
            (number, one_array(table.column(list(attributes).index(attribute))))
            for number, (table, attributes) in enumerate(tables)
            if attribute in attributes and table.num_columns
        ]
        if not having:
            continue
        together = pa.concat_arrays([column for _, column in having])
        codes = encode_column(together)[0].astype(np.int64)
        if together.null_count:
            codes[np.asarray(together.is_null())] = -1
        bounds = np.cumsum([0, *(len(column) for _, column in having)]).tolist()
        for place, (number, _) in enumerate(having):
            found[number][attribute] = codes[bounds[place] : bounds[place + 1]]
    return found
