"""What a source task takes for queries that have little in common, over a stream with columns of many types.

``make bench-kernels``
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.stream_operators import StreamOperators
from session.sql.select import plan_select
from tests.operators.pipeline import live_of
from tests.session.sql.catalog import define

TUPLES = 500_000
PAYMENTS = ["cash", "card", "app", "voucher", "dispute"]
CITIES = [f"City {number}" for number in range(60)]
TRIPS = define(
    """
    CREATE STREAM trips (
      vendor INT, pickup TIMESTAMP LATENESS INTERVAL '2' SECOND, passengers INT, distance DOUBLE, zone INT,
      payment VARCHAR, fare DOUBLE, tip DOUBLE, total DECIMAL(10, 2), flag BOOLEAN, driver BIGINT, city VARCHAR
    ) WITH (connector = 'push', format = 'json')
    """,
    "s-1",
)
KEYS = ["", "zone", "city", "vendor", "payment", "zone, payment", "vendor, passengers", "city, payment", "driver"]
WINDOWS = [
    "1 SECOND",
    "2 SECONDS SLIDE 1 SECOND",
    "5 SECONDS",
    "10 SECONDS SLIDE 2 SECONDS",
    "60 SECONDS SLIDE 10 SECONDS",
]
MEASURES = [
    *("COUNT(*)", "COUNT(tip)", "SUM(fare)", "SUM(total)", "SUM(passengers)", "SUM(fare + tip)", "AVG(tip)"),
    *("AVG(tip / fare)", "MIN(fare)", "MAX(distance)", "MAX(total)", "STDDEV_SAMP(fare)", "STDDEV_SAMP(distance)"),
    *("SUM(CASE WHEN payment = 'card' THEN fare ELSE 0 END)", "COUNT(DISTINCT city)", "COUNT(DISTINCT driver)"),
]


def condition(rng: random.Random) -> str:
    """Return a random condition on a trip."""
    low, zones = rng.randint(0, 40), rng.sample(range(1, 261), 5)
    return rng.choice(
        [
            *(
                f"fare > {low}",
                f"distance BETWEEN {low / 10} AND {low}",
                f"total >= {low}.50",
                f"vendor = {low % 3 + 1}",
            ),
            *(f"payment = '{rng.choice(PAYMENTS)}'", f"city = '{rng.choice(CITIES)}'", f"city LIKE 'City {low % 5}%'"),
            *(f"zone IN ({', '.join(map(str, zones))})", f"zone = {zones[0]}", "flag", "tip IS NOT NULL"),
            *(f"passengers >= {low % 5 + 1}", "tip > fare * 0.2", f"(payment = 'card' OR tip > {low % 9})"),
            f"EXTRACT(HOUR FROM pickup) BETWEEN {low % 11} AND {low % 11 + 9}",
        ]
    )


def query(rng: random.Random) -> str:
    """Return a random query: up to three measures, two keys, three conditions."""
    keys = rng.choice(KEYS)
    measures = [f"{each} AS m{i}" for i, each in enumerate(rng.sample(MEASURES, rng.choice([1, 1, 2, 3])))]
    conditions = [condition(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3]))]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join([keys, *measures] if keys else measures)
    text = f"SELECT {columns} FROM trips [RANGE {rng.choice(WINDOWS)}]{where}"
    return f"{text} GROUP BY {keys}" if keys else text


def trips() -> pa.Table:
    """Return the trips of one second."""
    rng = np.random.default_rng(7)
    cents = (rng.gamma(3, 6, TUPLES) * 100).astype(np.int64) + 250
    fare = cents / 100
    columns: dict[str, Any] = {
        "vendor": rng.integers(1, 4, TUPLES),
        "pickup": pa.array(1_772_300_000_000_000 + np.arange(TUPLES) * 1_000_000 // TUPLES, pa.timestamp("us")),
        "passengers": rng.integers(1, 7, TUPLES),
        "distance": np.round(rng.gamma(2, 2, TUPLES), 1),
        "zone": rng.zipf(1.3, TUPLES) % 260 + 1,
        "payment": np.array(PAYMENTS)[rng.choice(5, TUPLES, p=[0.3, 0.5, 0.15, 0.04, 0.01])],
        "fare": fare,
        "tip": pa.array(np.round(fare * rng.choice([0, 0.1, 0.2, 0.25], TUPLES), 2), mask=rng.random(TUPLES) < 0.1),
        "total": pa.Array.from_buffers(
            pa.decimal128(10, 2), TUPLES, [None, pa.py_buffer(np.stack([cents, np.zeros_like(cents)], axis=1))]
        ),
        "flag": rng.random(TUPLES) < 0.02,
        "driver": rng.integers(0, 20_000, TUPLES),
        "city": np.array(CITIES)[rng.integers(0, 60, TUPLES)],
    }
    return pa.table({f.name: pa.array(columns[f.name]).cast(f.type.arrow) for f in TRIPS.schema.fields})


@pytest.mark.parametrize("count", [1, 20, 100])
def test_source_task_of_mixed_queries(benchmark: Any, count: int) -> None:
    """Half a million trips become buckets, ready to travel."""
    rng = random.Random(7)
    live = live_of(*(plan_select(query(rng), {"trips": TRIPS}) for _ in range(count)), stream=TRIPS)
    operators, tuples = StreamOperators(live, TRIPS, 2), trips()

    def run() -> int:
        return sum(len(bucket.serialize()) for _, bucket in operators.process(tuples, None).buckets)

    assert benchmark(run) > 0
