"""Joins against DuckDB: random queries over random tuples, through the kernels and the reader."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators import partition
from braid.operators.joins import reading
from braid.operators.joins.matches import all_pairs, formed_rows, late_rows, relations
from braid.operators.joins.matches import conditions as join_conditions
from braid.operators.joins.matches import counts as join_counts
from braid.operators.joins.matches import rows as join_rows
from braid.operators.joins.matches.block import JoinBlock
from braid.operators.joins.matches.groups import distinct_counts
from braid.operators.joins.matches.rows import JoinIndex
from braid.operators.joins.query import Join
from braid.operators.lookup import lookup_join
from braid.operators.lookup.lookup_join import version_path
from braid.operators.queries import Query
from braid.operators.state import bucket_store, tuple_bucket
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.kit.plans import plan_select
from tests.kit.random_joins import (
    CATALOG,
    SECOND,
    STREAMS,
    TABLES,
    RandomJoin,
    comparable,
    expected,
    plan,
    random_join,
    random_values,
)
from tests.operators.join_pipeline import JoinPipeline, changelog
from tests.operators.random_join_run import run_random_joins


@settings(max_examples=examples(5), deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32))
def test_joins_give_the_rows_that_duckdb_gives(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    storage = Storage(str(tmp_path_factory.mktemp("data")))
    for version in TABLES.versions.values():
        storage.put(version_path(version.id), version.data)
    pipeline = JoinPipeline(storage, STREAMS, rng)
    queries: dict[str, RandomJoin] = {}
    with_ons = rng.random() < 0.3
    while len(queries) < 4:
        query = random_join(rng)
        planned = plan(query)
        if planned is not None and (not with_ons or (isinstance(planned, Join) and planned.ons)):
            queries[f"q{len(queries)}"] = query
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(partition, "MAX_ENTRIES", rng.choice([0, 2, 64]))
        monkeypatch.setattr(tuple_bucket, "WORTH_TAKING", rng.choice([0, 0.8, 2]))
        monkeypatch.setattr(late_rows, "WORTH_REFERRING", rng.choice([0, 1 / 8, 1000]))
        monkeypatch.setattr(late_rows, "MIN_REFERRED", rng.choice([0, 3, 2000]))
        monkeypatch.setattr(bucket_store, "INLINE_BYTES", rng.choice([0, 300, 1 << 16]))
        monkeypatch.setattr(all_pairs, "MAX_PAIRS", rng.choice([-1, 5, 1000]))
        monkeypatch.setattr(join_rows, "MIN_QUERIES", rng.choice([1, 2]))
        monkeypatch.setattr(all_pairs, "WORTH_PICKING", rng.choice([2, 1000]))
        monkeypatch.setattr(join_counts, "STEPS_PER_KEY", rng.choice([0, 4, 1000]))
        monkeypatch.setattr(lookup_join, "MAX_AT_ONCE", rng.choice([1, 3, 1000]))
        monkeypatch.setattr(formed_rows, "FORMED_AT_ONCE", rng.choice([1, 3, 1000]))
        run_random_joins(pipeline, rng, queries)


@pytest.mark.parametrize(
    "text",
    [
        # all key tables are alike, and several of their rows begin alike
        "SELECT COUNT(*) AS n, COUNT(DISTINCT x.v) AS p, COUNT(DISTINCT y.v) AS q FROM a~ x JOIN a~ y ON x.k = y.k"
        " HAVING COUNT(*) > 0",
        "SELECT x.v AS p, y.v AS q, COUNT(*) AS n FROM a~ x JOIN a~ y ON x.k = y.k GROUP BY x.v, y.v",
        "SELECT y.v AS q, COUNT(DISTINCT x.v) AS n FROM a~ x LEFT JOIN b~ y ON x.k = y.k GROUP BY y.v",
        # equal to what is not NULL without a partner
        "SELECT x.v, y.v AS w FROM a~ x LEFT JOIN a~ y ON x.k = y.m WHERE x.v = COALESCE(y.v, 20)",
        "SELECT x.v FROM a~ x LEFT JOIN a~ y ON x.k = y.m WHERE x.k = CASE WHEN y.v IS NULL THEN 5 ELSE 1 END",
        "SELECT x.v, z.v AS w FROM a~ x LEFT JOIN a~ y ON x.k = y.m JOIN a~ z ON z.k = x.k AND z.k = COALESCE(y.m, 5)",
        "SELECT x.v, z.v AS w FROM a~ x LEFT JOIN a~ y ON x.k = y.m"
        " LEFT JOIN a~ z ON z.k = x.k AND z.k = COALESCE(y.m, 5)",
        "SELECT x.v, z.v AS w FROM a~ x LEFT JOIN a~ y ON x.k = y.m"
        " LEFT JOIN a~ z ON z.k = x.k AND z.k = COALESCE(y.m, 5) WHERE z.v > 0",
        "SELECT x.v, u.v AS w FROM a~ x LEFT JOIN a~ y ON x.k = y.m JOIN u@ u ON u.k = x.k AND u.k = COALESCE(y.k, 3)",
    ],
)
def test_one_batch_of_alike_inputs(tmp_path: Any, text: str) -> None:
    storage = Storage(str(tmp_path))
    for version in TABLES.versions.values():
        storage.put(version_path(version.id), version.data)
    pipeline, query = JoinPipeline(storage, STREAMS, random.Random(1)), RandomJoin(text, 4, 4)
    planned = plan(query)
    assert planned is not None
    filler = {"x": 0.0, "s": "", "d": None}
    drawn = [(1, 1, 10), (2, None, 20), (1, 1, 30), (5, 2, 20), (3, None, 2)]
    rows = [filler | {"k": k, "m": m, "v": v, "t": 5 * SECOND + v} for k, m, v in drawn * 2]  # both tasks have the same
    accepted = pipeline.run({"s-a": rows, "s-b": rows}, [changelog(1, [("q", 0, planned)])])
    end = [filler | {"k": 9, "m": 9, "v": 0, "t": 50 * SECOND}]
    pipeline.run({stream.id: end for stream in STREAMS})
    by_stream = {stream.id: accepted.get(stream.id, []) for stream in STREAMS}
    expected_rows = expected(query, by_stream, {}, None, 40 * SECOND)
    got = [tuple(value for name, value in row.items() if name != "_partial") for row in pipeline.rows.get("q", [])]
    assert expected_rows
    assert sorted(map(comparable, got)) == sorted(map(comparable, expected_rows))


def test_a_window_has_no_more_rows_than_the_limit(tmp_path: Any) -> None:
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1), join_row_limit=100)
    window = "[RANGE 4 SECONDS]"
    many = plan_select(f"SELECT x.v FROM a {window} AS x JOIN b {window} AS y ON x.k = y.k", CATALOG)
    few = plan_select(f"SELECT x.v FROM a {window} AS x JOIN b {window} AS y ON x.k = y.k WHERE y.v = 3", CATALOG)
    nothing = {"m": 0, "x": 0.0, "s": "", "d": None}
    rows = [nothing | {"k": 1, "v": i, "t": 5 * SECOND + i} for i in range(30)]
    pipeline.run({"s-a": rows, "s-b": rows}, [changelog(1, [("many", 0, many), ("few", 1, few)])])
    end = [nothing | {"k": 2, "v": 0, "t": 50 * SECOND}]
    pipeline.run({"s-a": end, "s-b": end})
    assert len(pipeline.rows["many"]) == 100
    assert len(pipeline.rows["few"]) == 30
    assert "900 rows" in pipeline.failures["many"]
    assert "few" not in pipeline.failures


def test_rows_that_are_tested_have_limits_of_their_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_conditions, "MAX_FORMED", 1000)
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1), join_row_limit=100)
    window = "[RANGE 4 SECONDS]"
    source = f"FROM a {window} AS x JOIN b {window} AS y ON x.k = y.k"
    kept = plan_select(f"SELECT x.v {source} WHERE x.v + y.v < 10", CATALOG)
    cut = plan_select(f"SELECT x.v {source} WHERE x.v <= y.v", CATALOG)
    added = plan_select(f"SELECT SUM(x.v * y.v) AS n {source}", CATALOG)
    left_out = plan_select(f"SELECT x.v {source.replace('JOIN', 'LEFT JOIN')} JOIN b {window} AS z ON z.k = x.k"
                           " WHERE x.v < z.v", CATALOG)  # fmt: skip
    names = {"kept": kept, "cut": cut, "added": added, "left out": left_out}
    nothing = {"m": 0, "x": 0.0, "s": "", "d": None}
    rows = [nothing | {"k": 1, "v": i, "t": 5 * SECOND + i} for i in range(30)]
    created = [(name, slot, query) for slot, (name, query) in enumerate(names.items())]
    pipeline.run({"s-a": rows, "s-b": rows}, [changelog(1, created)])
    end = [nothing | {"k": 2, "v": 0, "t": 50 * SECOND}]
    pipeline.run({"s-a": end, "s-b": end})
    assert len(pipeline.rows["kept"]) == 55
    assert len(pipeline.rows["cut"]) == 100
    assert [row["n"] for row in pipeline.rows["added"]] == [sum(range(30)) ** 2]
    assert "left out" not in pipeline.rows
    assert set(pipeline.failures) == {"cut", "left out"}
    assert "the first 100, which are kept" in pipeline.failures["cut"]
    assert "more than 1000 of its rows" in pipeline.failures["left out"]


@pytest.mark.parametrize(
    "exploding",
    [
        "SELECT x.m, z.s, COUNT(*) AS n FROM a {w} x, b {w} y, c {w} z WHERE x.k = y.k AND y.v = z.v GROUP BY x.m, z.s",
        "SELECT x.m FROM a {w} x, b {w} y, c {w} z WHERE x.k = y.k AND y.v = z.v AND x.m = z.m",
    ],
)
def test_a_join_with_too_many_combinations_harms_nobody_else(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, exploding: str
) -> None:
    monkeypatch.setattr(relations, "MAX_COMBINATIONS", 20)
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1))
    window = "[RANGE 4 SECONDS]"
    many = plan_select(exploding.format(w=window), CATALOG)
    few = plan_select(f"SELECT x.v FROM a {window} AS x JOIN b {window} AS y ON x.m = y.m", CATALOG)
    rows = [{"k": 1, "m": i, "v": i % 3, "x": 0.0, "s": str(i), "d": None, "t": 5 * SECOND + i} for i in range(30)]
    pipeline.run({stream.id: rows for stream in STREAMS}, [changelog(1, [("many", 0, many), ("few", 1, few)])])
    pipeline.run({stream.id: [rows[0] | {"t": 50 * SECOND}] for stream in STREAMS})
    assert "many" not in pipeline.rows
    assert len(pipeline.rows["few"]) == 30
    assert "A window is left out" in pipeline.failures["many"]
    assert "few" not in pipeline.failures


def test_streams_may_be_named_in_any_order(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two have nothing in common; forming their combinations would be refused."""
    monkeypatch.setattr(relations, "MAX_COMBINATIONS", 50)
    w = "[RANGE 4 SECONDS]"
    ends_first = plan_select(f"SELECT x.v FROM a {w} x, c {w} z, b {w} y WHERE x.k = y.k AND y.m = z.m", CATALOG)
    rows = [{"k": i, "m": i, "v": i, "x": 0.0, "s": "", "d": None, "t": 5 * SECOND + i} for i in range(30)]
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1))
    pipeline.run({stream.id: rows for stream in STREAMS}, [changelog(1, [("q", 0, ends_first)])])
    pipeline.run({stream.id: [rows[0] | {"t": 50 * SECOND}] for stream in STREAMS})
    assert sorted(row["v"] for row in pipeline.rows["q"]) == list(range(30))
    assert not pipeline.failures


def test_a_partner_that_keeps_a_row_away_is_in_the_block(tmp_path: Any) -> None:
    """The tuple of b that matches in the first window has a partner itself: neither it nor that of a has a row."""
    w = "[RANGE 4 SECONDS]"
    anti = plan_select(
        f"SELECT x.v, y.v AS yv FROM a {w} x LEFT JOIN b {w} y ON x.k = y.k LEFT JOIN c {w} z ON y.m = z.m"
        " WHERE z.m IS NULL",
        CATALOG,
    )
    nothing = {"k": 1, "m": 1, "v": 1, "x": 0.0, "s": "", "d": None, "t": 5 * SECOND}
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1))
    of_a = [nothing, nothing | {"k": 2, "v": 2}, nothing | {"v": 11, "t": 9 * SECOND}]
    pipeline.run({"s-a": of_a, "s-b": [nothing], "s-c": [nothing]}, [changelog(1, [("anti", 0, anti)])])
    pipeline.run({stream.id: [nothing | {"k": 9, "t": 50 * SECOND}] for stream in STREAMS})
    assert [(row["v"], row["yv"]) for row in pipeline.rows["anti"]] == [(2, None), (11, None)]


def test_what_is_a_join_key_for_one_query_may_be_grouped_by_in_another(tmp_path: Any) -> None:
    """All inputs have the same keys in both queries, but they are not compared by the same."""
    w = "[RANGE 4 SECONDS]"
    rows = plan_select(f"SELECT x.v FROM a {w} x, b {w} y, c {w} z WHERE x.k = y.k AND y.v = z.v", CATALOG)
    groups = plan_select(
        f"SELECT y.v, COUNT(*) AS n FROM a {w} x, b {w} y, c {w} z WHERE x.k = y.k AND y.k = z.v GROUP BY y.v", CATALOG
    )
    nothing = {"m": 0, "x": 0.0, "s": "", "d": None}
    tuples = [nothing | {"k": k, "v": v, "t": 5 * SECOND} for k in range(3) for v in range(4)]
    end = [nothing | {"k": 9, "v": 9, "t": 50 * SECOND}]
    for number, order in enumerate(([rows, groups], [groups, rows])):
        pipeline = JoinPipeline(Storage(str(tmp_path / str(number))), STREAMS, random.Random(1))
        created = [(f"q{slot}", slot, query) for slot, query in enumerate(order)]
        pipeline.run({stream.id: tuples for stream in STREAMS}, [changelog(1, created)])
        pipeline.run({stream.id: end for stream in STREAMS})
        assert len(pipeline.rows[f"q{number}"]) == 3 * 4 * 4 * 3  # a and b by k: 3 · 4 · 4, each with 3 of c
        grouped = {row["v"]: row["n"] for row in pipeline.rows[f"q{1 - number}"]}
        assert grouped == dict.fromkeys(range(4), 3 * 4 * 3)  # for each k: 4 of a, one of b, 3 of c


@pytest.mark.parametrize("first", ["JOIN", "LEFT JOIN"])
def test_an_inner_and_an_outer_join_share_an_operator(first: str, tmp_path: Path) -> None:
    text = "SELECT x.v, y.v AS w FROM a [RANGE 5 SECONDS] AS x {} b [RANGE 5 SECONDS] AS y ON x.k = y.k"
    kinds = [first, *{"JOIN", "LEFT JOIN"} - {first}]
    plans = [plan_select(text.format(kind), CATALOG) for kind in kinds]
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1))
    changes = [changelog(1, [(kind, slot, query) for slot, (kind, query) in enumerate(zip(kinds, plans, strict=True))])]
    row = {"m": None, "x": None, "s": None, "d": None}
    left = [row | {"k": key, "v": number, "t": number} for number, key in enumerate((1, 2, None))]
    end = [row | {"k": 9, "v": 9, "t": 100 * SECOND}]
    pipeline.run({"s-a": left, "s-b": [left[0] | {"v": 7}]}, changes)
    pipeline.run({"s-a": end, "s-b": end})
    assert {kind: sorted((joined["v"], joined["w"]) for joined in rows) for kind, rows in pipeline.rows.items()} == {
        "JOIN": [(0, 7)],
        "LEFT JOIN": [(0, 7), (1, None), (2, None)],
    }


@pytest.mark.long
def test_state_is_bounded_while_joins_come_and_go(tmp_path: Path) -> None:
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(6))
    drawn = (random_join(random.Random(number)) for number in itertools.count(2000))
    plans = (planned for query in drawn if (planned := plan(query)) is not None)
    for version in TABLES.versions.values():
        pipeline.storage.put(version_path(version.id), version.data)
    state_bytes, files, slots = [], [], {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(bucket_store, "INLINE_BYTES", 0)
        for number in range(examples(100)):  # each slot is taken four times at least
            changes = []
            if number % 3 == 0:
                slot = number // 3 % 8
                created = [(f"q{number}", slot, next(plans))]
                changes.append(
                    changelog(number // 3 + 1, created, freed=[(slots[slot], slot)] if slot in slots else [])
                )
                slots[slot] = f"q{number}"
            rows = [random_values(pipeline.rng) | {"t": number * SECOND + at} for at in range(0, SECOND, SECOND // 8)]
            pipeline.run({stream.id: rows for stream in STREAMS}, changes)
            state_bytes.append(sum(len(value) for state in pipeline.states for value in state.data.values()))
            files.append(len(pipeline.storage.names("buckets")) + len(pipeline.storage.names("tuples")))
    assert sum(map(len, pipeline.rows.values())) > 3_000
    assert max(state_bytes[60:]) <= 1.5 * max(state_bytes[25:60]), "as much as the windows of the joins that run need"
    assert max(files[60:]) <= 1.5 * max(files[25:60])


def test_tuples_are_written_once_for_all_operators_and_partitions(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_store, "INLINE_BYTES", 0)
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(5))
    w = "[RANGE 4 SECONDS]"
    keys = ["x.k = y.k", "x.v = y.v", "x.m = y.m", "x.k = y.v", "x.k = y.k AND x.v = y.v"]
    queries = [plan_select(f"SELECT x.x, y.s FROM a {w} x, b {w} y WHERE {key}", CATALOG) for key in keys]
    created = [(f"q{slot}", slot, query) for slot, query in enumerate(queries)]
    rows = [{"k": i % 9, "v": i % 7, "m": i % 8, "x": 0.5, "s": "one text", "d": None, "t": i} for i in range(4000)]
    pipeline.run({"s-a": rows, "s-b": []}, [changelog(1, created)])
    files = pipeline.storage.names("tuples")
    assert len(files) == 2 * len(pipeline.partitions), "two chunks, a link to each for every partition"
    assert len({(tmp_path / "tuples" / name).stat().st_ino for name in files}) == 2
    needed = 8 + 8  # a tuple's time, and the one column that is asked for: keys are in the indexes
    assert pipeline.storage.size("tuples") < 4000 * needed + 2 * 2000
    for second in range(50, 54):  # files go two batches after they were dropped
        late = [rows[0] | {"t": second * SECOND}]
        pipeline.run({"s-a": late, "s-b": late})
    assert not set(files) & set(pipeline.storage.names("tuples"))


def test_alike_queries_share_the_index_of_a_window(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one was made in the middle of the first window, of which it sees less."""
    indexed: list[int] = []

    def index_window(query: Join, block: JoinBlock, start: int, end: int, active_from: Any) -> JoinIndex:
        indexed.append(start)
        return join_rows.index_window(query, block, start, end, active_from)

    monkeypatch.setattr(reading, "index_window", index_window)
    monkeypatch.setattr(all_pairs, "MAX_PAIRS", -1)
    w = "[RANGE 4 SECONDS]"
    one = plan_select(f"SELECT x.v FROM a {w} x, b {w} y WHERE x.k = y.k AND y.v < 5", CATALOG)
    same = plan_select(f"SELECT p.k, q.v AS w FROM a {w} p, b {w} q WHERE p.k = q.k AND q.v < 5", CATALOG)
    other = plan_select(f"SELECT x.v FROM a {w} x, b {w} y WHERE x.k = y.k AND y.v < 4", CATALOG)
    row = {"k": 1, "m": 1, "x": 0.0, "s": "", "d": None}
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(2))

    def run(*times: float, created: Sequence[tuple[str, int, Query]] = ()) -> None:
        rows = [row | {"v": v, "t": int(time * SECOND)} for time in times for v in range(6)]
        pipeline.run({"s-a": rows, "s-b": rows}, [changelog(pipeline.seq + 1, created)])

    run(5, created=[("one", 0, one), ("same", 1, same), ("other", 2, other)])
    run(6, 9, created=[("late", 3, one)])
    run(50)
    assert {name: len(rows) for name, rows in pipeline.rows.items()} == {
        "one": 12 * 10 + 6 * 5,
        "same": 12 * 10 + 6 * 5,
        "other": 12 * 8 + 6 * 4,
        "late": 6 * 5 + 6 * 5,
    }
    assert sorted(indexed) == [4 * SECOND] * 3 + [8 * SECOND] * 2


def test_zero_is_one_distinct_value_whatever_its_sign() -> None:
    values = pa.array([0.0, -0.0, None, -0.0, 1.0])
    assert distinct_counts(values, np.array([0, 0, 0, 1, 1]), 2).tolist() == [1, 2]
