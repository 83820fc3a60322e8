"""Generated mixed queries over a few thousand tuples: Braid's kernels and DuckDB in batches give what DuckDB gives."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from braid.bench_driver.mixed_query import Aggregate, MixedQuery
from braid.bench_driver.peers.duckdb_batches import DuckdbBatches
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_spec import WindowSpec
from braid.bench_driver.queues.mixed_datasets import static_table
from braid.bench_driver.workload import Workload, load_workload
from tests.kit.mixed_rows import Row, differences, rows_of_duckdb
from tests.operators.mixed_job import MixedJob, seconds_of, tuples_of

OPTIONS = ":selections=0.15:sessions=0.2:table_joins=0.2:distinct=0.3:having=0.3"
NAMES = ("mixed-bids", "mixed-bids" + OPTIONS, "mixed-trips", "mixed-trips" + OPTIONS)
TUPLES, SECONDS = 6000, 13.0
BOOKKEEPING = ("_partial",)


@pytest.fixture(params=NAMES)
def workload(request: pytest.FixtureRequest) -> Workload:
    return load_workload(request.param)


@pytest.fixture
def queries(workload: Workload) -> list[MixedQuery]:
    generated = [query for query in generate_queries(workload, 40, seed=5) if isinstance(query, MixedQuery)]
    assert len(generated) == 40
    return generated


@pytest.fixture
def tuples(workload: Workload) -> pa.Table:
    return tuples_of(workload, TUPLES, SECONDS, seed=5)


@pytest.fixture
def expected(workload: Workload, queries: list[MixedQuery], tuples: pa.Table) -> list[list[Row]]:
    tables = {name: static_table(name) for name in workload.tables}
    return [rows_of_duckdb(query, tuples, tables) for query in queries]


def rows_of(table: pa.Table, query: MixedQuery) -> list[Row]:
    """Return rows in the order of columns that `rows_of_duckdb` has them in."""
    names = ["window_start", "window_end"] if query.window else []
    names += [f"k{place}" for place in range(len(query.keys))]
    names += [f"m{place}" for place in range(len(query.aggregates))]
    names += [f"c{place}" for place in range(len(query.columns))]
    assert set(table.column_names) - set(BOOKKEEPING) == set(names)
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def assert_equal(queries: list[MixedQuery], got: dict[int, list[Row]], expected: list[list[Row]]) -> None:
    assert sum(map(bool, expected)) > len(queries) / 2, "most queries give rows"
    for number, query in enumerate(queries):
        assert not differences(got[number], expected[number]), query


def test_braids_kernels_give_the_rows_of_duckdb(
    workload: Workload, queries: list[MixedQuery], tuples: pa.Table, expected: list[list[Row]], tmp_path: Path
) -> None:
    job = MixedJob(tmp_path, workload, queries)
    got: dict[int, list[Row]] = defaultdict(list)
    for second, part in enumerate(seconds_of(tuples), start=1):
        job.push_table(part)
        while (end := job.due(second)) is not None:
            job.batch(end)
        for name, table in job.new_rows().items():
            number = int(name.removeprefix("q"))
            got[number] += rows_of(table, queries[number])
    job.close()
    assert_equal(queries, got, expected)


@pytest.mark.long
def test_duckdb_in_batches_gives_the_rows_of_duckdb(
    workload: Workload, queries: list[MixedQuery], tuples: pa.Table, expected: list[list[Row]]
) -> None:
    """Every other query is a probe, whose rows have the event time of their newest tuple, too."""
    tables = [(name, static_table(name)) for name in workload.tables]
    duckdb = DuckdbBatches(tuples.schema, tables, threads=2)
    for number, query in enumerate(queries):
        duckdb.add(number, query, number % 2 == 1)
    got: dict[int, list[Row]] = defaultdict(list)
    for part in seconds_of(tuples):
        duckdb.take(part)
        for number, table in duckdb.fire():
            times: dict[str, Any] = {name: table[name] for name in ("latest", "time_0") if name in table.column_names}
            assert len(times) == number % 2
            assert not any(column.null_count for column in times.values())
            got[number] += rows_of(table.drop_columns(list(times)), queries[number])
    duckdb.close()
    assert_equal(queries, got, expected)


def test_a_silence_costs_duckdb_no_statement(workload: Workload, tuples: pa.Table) -> None:
    """Four days without tuples have 315 360 windows of a second; what came before and after it gives its rows."""
    query = MixedQuery(workload.streams[0].name, None, (), (Aggregate("count", "*"),), WindowSpec(1000, 1000))
    first, *_, last = seconds_of(tuples)
    silence = pa.scalar(315_360_000_000, pa.duration("us"))
    later = last.set_column(last.schema.get_field_index("time"), "time", pc.add(last["time"], silence))
    end = later.slice(later.num_rows - 1).set_column(
        later.schema.get_field_index("time"),
        "time",
        pc.add(later["time"][-1:], pa.scalar(1_000_000, pa.duration("us"))),
    )
    duckdb = DuckdbBatches(tuples.schema, [], threads=1)
    duckdb.add(0, query)
    rows = []
    for batch in (first, later, end):
        duckdb.take(batch)
        rows += [table["m0"].to_pylist() for _, table in duckdb.fire()]
    duckdb.close()
    assert rows == [[first.num_rows], [last.num_rows]]
