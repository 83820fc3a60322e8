"""Lookup joins against plain loops: keys of every type, several of them, NULL, more than one row a key, ON."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.expressions import Call, Column, Expression
from braid.operators.lookup import lookup_join, unnest
from braid.operators.lookup.lookup_join import (
    IndexedTables,
    LookupFailed,
    LookupJoin,
    TableIndex,
    read_rows,
    version_path,
)
from braid.operators.lookup.lookups import Lookup
from braid.operators.lookup.unnest import Unnest
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.errors import CorruptData
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType, array_of
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.kit.random_joins import TABLES

DECIMAL = ColumnType("DECIMAL", 10, 2)
VALUES: dict[ColumnType, list[Any]] = {
    BIGINT: [0, 1, -(2**63), 2**63 - 1, 2**53 + 1, None],
    INT: [0, 1, 2**31 - 1, None],
    DOUBLE: [0.0, -0.0, 2.5, 1e300, None],
    VARCHAR: ["", "a", "é", "b" * 40, None],
    BOOLEAN: [True, False, None],
    DATE: [date(1969, 1, 1), date(2026, 1, 1), None],
    TIMESTAMP: [datetime(1969, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1), None],
    DECIMAL: [Decimal("1.50"), Decimal("-0.01"), None],
}
Rows = list[dict[str, Any]]


def random_rows(rng: random.Random, columns: dict[str, ColumnType], count: int) -> Rows:
    return [{name: rng.choice(VALUES[kind]) for name, kind in columns.items()} for _ in range(count)]


def table_of(rows: Rows, columns: dict[str, ColumnType]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], kind.arrow) for name, kind in columns.items()})


def stored(storage: Storage, rows: pa.Table) -> str:
    version = TableVersion(TABLES.versions["u"].definition, rows)
    storage.put(version_path(version.id), version.data)
    return version.id


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_tuples_are_joined_as_loops_do(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    storage = Storage(str(tmp_path_factory.mktemp("data")))
    kinds = [rng.choice(list(VALUES)) for _ in range(rng.choice([1, 1, 2, 3]))]
    tuple_columns = {f"m{i}": kind for i, kind in enumerate(kinds)} | {"v": BIGINT}
    table_columns = {f"k{i}": kind for i, kind in enumerate(kinds)} | {"w": BIGINT}
    tuples = random_rows(rng, tuple_columns, rng.randint(0, 30))
    rows = random_rows(rng, table_columns, rng.randint(0, 12))
    left, on = rng.random() < 0.5, None
    if rng.random() < 0.5:
        on = Call("<", (Column("v", BIGINT), Column("t.w", BIGINT)), BOOLEAN)
    keys = tuple((Column(f"m{i}", kind), Column(f"k{i}", kind)) for i, kind in enumerate(kinds))
    lookup = Lookup("t-1", stored(storage, table_of(rows, table_columns)), "t", keys, on, left)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(lookup_join, "MAX_AT_ONCE", rng.choice([1, 5, 1000]))
    join = LookupJoin([lookup], frozenset({"v", "m0", "t.w"}))
    batch = table_of(tuples, tuple_columns).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], table_of([], tuple_columns).schema)
    ]
    joined_rows = [row for joined in join.batches(batch[0], IndexedTables(storage)) for row in joined.to_pylist()]
    monkeypatch.undo()

    def partners(row: dict[str, Any]) -> Rows:
        equal = [
            other
            for other in rows
            if all(row[f"m{i}"] is not None and row[f"m{i}"] == other[f"k{i}"] for i in range(len(kinds)))
        ]
        if on is None:
            return equal
        return [o for o in equal if row["v"] is not None and o["w"] is not None and row["v"] < o["w"]]

    expected = []
    for row in tuples:
        joined = [other["w"] for other in partners(row)]
        expected += [(row["v"], row["m0"], w) for w in joined or ([None] if left else [])]
    # in order of the tuples, then of the table's rows
    assert [(row["v"], row["m0"], row["t.w"]) for row in joined_rows] == expected


def test_lookups_follow_each_other(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    shops = stored(storage, pa.table({"shop": [1, 2], "city": ["a", None]}))
    cities = stored(storage, pa.table({"city": ["a", "b"], "people": [10, 20]}))
    first = Lookup("t-1", shops, "shops", ((Column("shop", BIGINT), Column("shop", BIGINT)),), None, True)
    second = Lookup("t-2", cities, "cities", ((Column("shops.city", VARCHAR), Column("city", VARCHAR)),), None, True)
    join = LookupJoin([first, second], frozenset({"shop", "cities.people"}))
    (joined,) = join.batches(
        pa.RecordBatch.from_pydict({"shop": [2, 1, 3], "unused": [0, 0, 0]}), IndexedTables(storage)
    )
    assert joined.to_pylist() == [
        {"shop": 2, "cities.people": None},
        {"shop": 1, "cities.people": 10},
        {"shop": 3, "cities.people": None},
    ]


@pytest.mark.parametrize("last", [3, 0])
def test_arrays_that_multiply_each_other_make_only_so_many_tuples(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_join, "MAX_PRODUCT", 30)
    monkeypatch.setattr(lookup_join, "MAX_MATCHES", 1)
    kind = array_of(BIGINT)
    joins = [Unnest(f"u{n}", Column(name, kind), ("element",)) for n, name in enumerate("aab")]
    join = LookupJoin(joins, frozenset({"u2.element"}))

    def count(length: int) -> int:
        arrays = {"a": [list(range(length))], "b": [list(range(last))]}
        batch = pa.table({name: pa.array(array, kind.arrow) for name, array in arrays.items()})
        return sum(piece.num_rows for piece in join.batches(batch, IndexedTables(Storage(str(tmp_path)))))

    assert count(3) == 9 * last
    with pytest.raises(LookupFailed, match="at most 30 rows of a batch, or 1 of each"):
        count(6)
    alone = LookupJoin(joins[:1], frozenset({"u0.element"}))
    (piece,) = alone.batches(pa.table({"a": pa.array([[1] * 40], kind.arrow)}), IndexedTables(Storage(str(tmp_path))))
    assert piece.num_rows == 40


def test_a_long_text_beside_many_elements_is_dropped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_join, "MAX_UNNESTED_BYTES", 100_000)
    monkeypatch.setattr(lookup_join, "MAX_MATCHES", 1)
    monkeypatch.setattr(unnest, "MAX_AT_ONCE", 10)
    kind = array_of(BIGINT)
    join = LookupJoin([Unnest("u", Column("a", kind), ("element",))], frozenset({"id", "text", "u.element"}))
    batch = pa.table({"id": [7], "a": pa.array([list(range(1000))], kind.arrow), "text": ["x" * 1000]})
    dropped: set[str] = set()
    rows = [
        row
        for piece in join.batches(batch, IndexedTables(Storage(str(tmp_path))), dropped)
        for row in piece.to_pylist()
    ]
    assert dropped == {"text"}
    assert [(row["id"], row["u.element"]) for row in rows] == [(7, n) for n in range(1000)]
    assert 50 < sum(row["text"] is not None for row in rows) < 150
    dropped.clear()
    short = join.batches(batch.set_column(2, "text", pa.array(["x"])), IndexedTables(Storage(str(tmp_path))), dropped)
    assert sum(piece.num_rows for piece in short) == 1000
    assert not dropped


def test_tables_that_nobody_reads_are_let_go(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    version = stored(storage, pa.table({"k": [1]}))
    lookup = Lookup("t-1", version, "t", ((Column("k", BIGINT), Column("k", BIGINT)),))
    tables = IndexedTables(storage)
    index = tables.index(lookup)
    storage.delete(version_path(version))
    tables.keep([lookup])
    assert tables.index(lookup) is index
    tables.keep([])
    with pytest.raises(CorruptData, match="it is missing"):
        tables.index(lookup)


def test_the_rows_of_a_table_must_be_those_that_its_name_says(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    version = stored(storage, pa.table({"k": [1]}))
    path = version_path(version)
    whole = storage.get(path)
    for at in range(0, len(whole), 7):
        storage.put(path, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptData, match=f"{path} must hold what was written"):
            read_rows(storage, version)
    storage.put(path, whole)
    assert bytes(read_rows(storage, version)) == whole


def test_the_most_frequent_key_is_known() -> None:
    keys = [Column("k", BIGINT)]
    assert TableIndex(pa.table({"k": pa.array([1, 2, 1, None, None, None, 1], pa.int64())}), keys).max_matches == 3
    assert TableIndex(pa.table({"k": pa.array([], pa.int64())}), keys).max_matches == 0


def test_texts_of_a_piece_fit_into_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_join, "MAX_BYTES", 100)
    storage = Storage(str(tmp_path))
    version = stored(storage, pa.table({"k": [1] * 5, "s": ["x" * 30] * 5}))
    lookup = Lookup("t-1", version, "t", ((Column("k", BIGINT), Column("k", BIGINT)),))
    join, tuples = LookupJoin([lookup], frozenset({"t.s"})), pa.RecordBatch.from_pydict({"k": [1] * 4})
    pieces = list(join.batches(tuples, IndexedTables(storage)))
    assert [piece.num_rows for piece in pieces] == [5] * 4  # a tuple stays whole


def test_a_key_that_cannot_be_evaluated_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(expression: Expression, columns: object, length: int) -> pa.Array:  # noqa: ARG001
        raise ValueError("no")

    storage = Storage(str(tmp_path))
    version = stored(storage, pa.table({"k": [1]}))
    lookup = Lookup("t-1", version, "t", ((Column("k", BIGINT), Column("k", BIGINT)),))
    tables = IndexedTables(storage)
    tables.index(lookup)
    monkeypatch.setattr("braid.operators.tuples.evaluate", fail)
    with pytest.raises(LookupFailed, match="k: ValueError: no"):
        list(LookupJoin([lookup], frozenset({"k"})).batches(pa.RecordBatch.from_pydict({"k": [1]}), tables))
