"""Time what `/metrics` costs while 10 000 queries run: a scrape, and a batch in which all of them have rows.

`python -m pytest tests/api/bench_metrics.py --benchmark-columns=median,max,rounds`; no Spark runs, batches are written
by hand. 1000 of the queries have series of their own, as the setting `metrics_labelled_queries` has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from braid.operators.kinds import operator_of
from braid.operators.queries import Query
from tests.api.rest import Rest, open_rest
from tests.router.batches import SECOND

QUERIES = 10_000
ARRAY = 1000
SQL = "SELECT pack, SUM(user_id) AS total FROM purchases [RANGE {} SECONDS] WHERE price > {} GROUP BY pack"


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """A service whose 10 000 queries have all had rows in some batches."""
    with open_rest(tmp_path_factory.mktemp("metrics")) as running:
        running.stream()
        for first in range(0, QUERIES, ARRAY):
            bodies = [
                {"sql": SQL.format(n % 10 + 1, n / 100), "name": f"query-{n}", "labels": {"team": f"t{n % 7}"}}
                for n in range(first, first + ARRAY)
            ]
            running.post("/queries", bodies)
        session = running.service.session
        while session.lookup.count_by_state()["PENDING"]:
            running.commit()
        for _ in range(20):
            running.commit(**batch(), report=report(session.lookup.deployed("q-1").query))
        yield running


def batch() -> dict[str, object]:
    """Return what the record of a batch says in which each query has rows."""
    now_us = time.time_ns() // 1000
    block = {
        "path": "results/none.arrow",
        "kind": "aggregation",
        "slots": list(range(QUERIES)),
        "counts": [3] * QUERIES,
        "latest_event_us": [now_us - slot * SECOND // 1000 for slot in range(QUERIES)],
    }
    stream = {"tuples": 1000, "late": 0, "malformed": 0, "bytes": 9000, "offsets": {"0": 0}}
    return {"results": [block], "streams": {"s-1": stream}, "started_us": now_us - SECOND, "committed_us": now_us}


def report(query: Query) -> dict[str, object]:
    """Return what processes tell of the work on the operator that all queries share."""
    work = {"busy_us": {operator_of(query): 1000}, "keys": {}}
    return {"sources": work, "partitions": work, "samples": {}}


def test_scrape(rest: Rest, benchmark: BenchmarkFixture) -> None:
    text = benchmark(rest.service.metrics.text)
    print(f"\n{len(text)} bytes, {text.count(b'{')} samples with labels")


def test_batch(rest: Rest, benchmark: BenchmarkFixture) -> None:
    record = {"duration_us": SECOND, **batch()}
    benchmark(lambda: rest.service.metrics.absorb(record))
