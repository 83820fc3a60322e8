"""Hundreds of mixed queries at once, some of which come and go: each has the rows that DuckDB gives."""

from __future__ import annotations

import datetime as dt
import io
import random
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from braid.bench_driver.dialects.braid import query_sql, table_sql
from braid.bench_driver.mixed_query import MixedQuery
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.queues.datasets import TIME, find_dataset
from braid.bench_driver.queues.mixed_datasets import TABLE_COLUMNS, static_table
from braid.bench_driver.workload import Workload, load_workload
from braid.client import Client
from tests.kit.examples import IS_LONG
from tests.kit.mixed_rows import Row, differences, rows_of_duckdb
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.operators.mixed_job import seconds_of, tuples_of
from tests.operators.test_mixed_rows import OPTIONS, rows_of

pytestmark = [pytest.mark.service, pytest.mark.long]

QUERIES, TUPLES, SECONDS = (500, 60_000, 30.0) if IS_LONG else (100, 20_000, 30.0)
ENVIRONMENT = {"BRAID_CHANGELOG_TIMEOUT_SECONDS": "0.1", "BRAID_PARTITIONS": "3", "BRAID_MASTER": "local[2]"}
ARROW = "application/vnd.apache.arrow.stream"


@pytest.mark.parametrize("name", ["mixed-bids" + OPTIONS, "mixed-trips" + OPTIONS])
def test_mixed_queries_that_come_and_go_have_the_rows_of_duckdb(name: str, tmp_path: Path) -> None:
    workload, rng = load_workload(name), random.Random(3)
    queries = [query for query in generate_queries(workload, QUERIES, seed=3) if isinstance(query, MixedQuery)]
    tuples = tuples_of(workload, TUPLES, SECONDS, seed=3)
    (stream,) = workload.streams
    service = RunningService(tmp_path / "data", tmp_path / "service.log", ENVIRONMENT)
    try:
        service.start()
        with Client(service.url, timeout=120) as braid:
            _declare(braid, workload, tmp_path)
            waiting = list(enumerate(queries))
            number_of: dict[str, int] = {}
            pushed = 0
            for second, part in enumerate(seconds_of(tuples)):
                if second % 5 == 0 and waiting:
                    coming, waiting = waiting[: QUERIES // 5], waiting[QUERIES // 5 :]
                    bodies: list[Any] = [{"sql": query_sql(query, probe=False)} for _, query in coming]
                    created = braid.create_queries(bodies, wait=120)
                    number_of |= {answer["id"]: number for answer, (number, _) in zip(created, coming, strict=True)}
                if second % 7 == 6:
                    running = [query["id"] for query in braid.queries(state="RUNNING")]
                    braid.retire_queries(rng.sample(running, QUERIES // 25))
                braid.push(stream.name, _ipc(part), format="arrow")
                pushed += part.num_rows
                wait_until(lambda: braid.stream(stream.name)["tuples"] == pushed, 120, "all tuples are read")  # noqa: B023
            for query_id, number in number_of.items():
                described = braid.get_query(query_id)
                assert described["state"] in ("RUNNING", "DRAINING", "RETIRED"), described
                seen = _seen(tuples, described, stream.name)
                tables = {name: static_table(name) for name in workload.tables}
                expected = rows_of_duckdb(queries[number], seen, tables)
                got = _read(service.url, query_id, queries[number], len(expected))
                assert not differences(got, expected), (queries[number], described)
        service.stop()
    finally:
        service.end_everything()


def _declare(braid: Client, workload: Workload, folder: Path) -> None:
    (stream,) = workload.streams
    columns = ", ".join(
        f"{name} {kind}" + (" LATENESS INTERVAL '0' SECOND" if name == TIME else "")
        for name, kind in find_dataset(stream.dataset).columns
    )
    braid.create_stream(f"CREATE STREAM {stream.name} ({columns}) WITH (connector = 'push', format = 'json')")
    for name in workload.tables:
        path = folder / f"{name}.parquet"
        pa.parquet.write_table(static_table(name), path)
        braid.create_table(table_sql(name, TABLE_COLUMNS[name], str(path)))


def _ipc(tuples: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, tuples.schema) as writer:
        writer.write_table(tuples)
    return sink.getvalue()


def _seen(tuples: pa.Table, described: dict[str, Any], stream: str) -> pa.Table:
    """Return the tuples that a query sees."""
    for bound, compare in (("active_from", pc.greater), ("active_to", pc.less_equal)):
        text = (described[bound] or {}).get(stream)
        if text is not None:
            time = pa.scalar(dt.datetime.fromisoformat(text).replace(tzinfo=None), pa.timestamp("us"))
            tuples = tuples.filter(compare(tuples[TIME].cast(pa.timestamp("us")), time))
    return tuples


def _read(url: str, query_id: str, query: MixedQuery, rows: int) -> list[Row]:
    """Read so many rows of a query, or what there is after a while."""
    got: list[Row] = []
    cursor: str | None = None

    def has_all() -> bool:
        nonlocal cursor
        parameters: dict[str, str | int] = {"limit": 50_000, "wait": 5, **({"after": cursor} if cursor else {})}
        path = f"{url}/queries/{query_id}/results"
        answer = httpx.get(path, params=parameters, headers={"Accept": ARROW}, timeout=60)
        assert answer.status_code == 200, answer.text
        table = pa.ipc.open_stream(answer.content).read_all()
        cursor = answer.headers.get("Braid-Cursor", cursor)
        if table.num_rows:
            got.extend(rows_of(table, query))
        return len(got) >= rows

    wait_until(has_all, 60, lambda: f"{query_id} has {rows} rows, not {len(got)}")
    return got
