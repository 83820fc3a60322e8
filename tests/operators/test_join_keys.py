"""Keys of the inputs of a join: what is equal has one code, and what no row can have is left out."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.joins.keys import InputKeys, number_keys
from braid.operators.joins.matches.block import order_by_codes

TEXTS = ("a", "b", None)


def random_tables(rng: random.Random, columns: int, count: int) -> list[pa.Table]:
    """Return tables of distinct keys, some of them the same as others: few values, NULL among them."""
    tables = []
    for _ in range(count):
        keys = {
            (rng.choice([*range(4), None]), *(rng.choice(TEXTS) for _ in range(columns - 1)))
            for _ in range(rng.randint(0, 12))
        }
        drawn = [[key[i] for key in keys] for i in range(columns)]
        arrays = [pa.array(drawn[0], pa.int64()), *(pa.array(column, pa.string()) for column in drawn[1:])]
        tables.append(pa.table(arrays, names=[f"key{i}" for i in range(columns)]))
    return [*tables, *(pa.table(table.columns, names=table.column_names) for table in tables if rng.random() < 0.5)]


def rows_of(table: pa.Table, columns: int) -> list[tuple[object, ...]]:
    """Return the values of the first columns, row by row."""
    return list(zip(*(table.column(i).to_pylist() for i in range(columns)), strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_keys_that_all_inputs_compare_meet_in_one_code(seed: int) -> None:
    rng = random.Random(seed)
    attributes, inputs = rng.randint(1, 2), rng.randint(2, 3)
    extras = [rng.randint(0, 1) for _ in range(inputs)]
    tables = [random_tables(rng, attributes + extra, rng.randint(0, 3)) for extra in extras]
    is_outer = [number > 0 and rng.random() < 0.4 for number in range(inputs)]
    numbered = number_keys([tuple(range(attributes))] * inputs, is_outer, tables)
    keys_of_inputs = [{key for table in input_tables for key in rows_of(table, attributes)} for input_tables in tables]
    inner = [keys for keys, outer in zip(keys_of_inputs, is_outer, strict=True) if not outer]
    code_of: dict[tuple[object, ...], int] = {}
    for keys, input_tables in zip(numbered, tables, strict=True):
        for table in input_tables:
            for key, full_key, place in zip(
                rows_of(table, attributes), rows_of(table, table.num_columns), keys.places[id(table)], strict=True
            ):
                is_wanted = all(key in other_keys for other_keys in inner) and (len(inner) == 1 or None not in key)
                assert (place >= 0) == is_wanted
                if is_wanted:
                    assert rows_of(keys.distinct, table.num_columns)[place] == full_key
                    code = int(keys.codes[0][place])
                    assert (code == -1) == (None in key)
                    assert code == -1 or code_of.setdefault(key, code) == code
    assert len(set(code_of.values())) == len(code_of)


@pytest.mark.parametrize("seed", range(20))
def test_attributes_that_only_some_inputs_have_get_codes_of_their_own(seed: int) -> None:
    rng = random.Random(seed)
    attributes = [(0,), (0, 1), (1,)]
    tables = [[*random_tables(rng, len(input_attributes), 2)] for input_attributes in attributes]
    # the second attribute is a text where it comes second, so it has to be one where it comes first
    tables[2] = [pa.table([pa.array(rng.sample(TEXTS, 2))], names=["key0"])]
    numbered = number_keys(attributes, [False] * 3, tables)
    for attribute in (0, 1):
        code_of: dict[object, int] = {}
        for keys, input_tables, input_attributes in zip(numbered, tables, attributes, strict=True):
            if attribute not in input_attributes:
                assert attribute not in keys.codes
                continue
            for table in input_tables:
                values = table.column(input_attributes.index(attribute)).to_pylist()
                for value, place in zip(values, keys.places[id(table)].tolist(), strict=True):
                    code = int(keys.codes[attribute][place])
                    assert (code == -1) == (value is None)
                    assert value is None or code_of.setdefault(value, code) == code
        assert len(set(code_of.values())) == len(code_of)


def test_inputs_without_buckets_have_no_keys_but_their_codes() -> None:
    numbered: list[InputKeys] = number_keys([(0, 1), (1,)], [False, True], [[], []])
    assert [keys.distinct.num_rows for keys in numbered] == [0, 0]
    assert [{a: len(code) for a, code in keys.codes.items()} for keys in numbered] == [{0: 0, 1: 0}, {1: 0}]


@pytest.mark.parametrize("count", [1, 2])
def test_rows_are_ordered_by_code_and_stay_in_order_otherwise(count: int) -> None:
    rng = np.random.default_rng(count)
    codes = [rng.integers(-1, 5, 50).astype(np.int32) for _ in range(count)]
    order = order_by_codes(codes)
    assert order is not None
    assert order.tolist() == np.lexsort(codes).tolist()
    assert order_by_codes([code[order] for code in codes]) is None
    assert order_by_codes([]) is None
    assert order_by_codes([np.empty(0, dtype=np.int32)]) is None
