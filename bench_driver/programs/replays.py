"""What queries that start in the past cost: their throughput beside the first reading, and the latency of live queries.

`python -m braid.bench_driver.programs.replays [--rows N] [--keys N] [--queries N] [--output FILE.json]` writes a folder
of Parquet files, has the first query read it, and later ones replay it: one, then many look-alikes together. DuckDB
answers the same query over the same files. Then live queries run over generated rows, without replays and beside one
after the other; their latency is from the end of a window to the row that a reader has.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braid.bench_driver.programs.standalone import command, report_on, say, wait_until
from braid.bench_driver.service_process import ServiceProcess
from braid.client import Client

FILES = 12
SECONDS = 3600  # of event time
MAX_SECONDS = 600.0
LIVE_RATE, LIVE_QUERIES, LIVE_SECONDS = 50_000, 20, 40.0
STREAM = "CREATE STREAM {} (k INT, v INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH ({})"
ASKED = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM recorded [RANGE 1 MINUTE] WHERE v >= {} GROUP BY k"


def write_files(folder: Path, rows: int, keys: int) -> None:
    """Write rows of so many keys in order of their event times, the same number to each file."""
    rng = np.random.default_rng(1)
    times = np.datetime64("2026-01-01", "us") + np.arange(rows) * (SECONDS * 1_000_000 // rows)
    for number, part in enumerate(np.array_split(np.arange(rows), FILES)):
        columns = {
            "k": pa.array(rng.integers(0, keys, len(part)), pa.int32()),
            "v": pa.array(rng.integers(0, 1000, len(part)), pa.int32()),
            "t": pa.array(times[part]),
        }
        pq.write_table(pa.table(columns), folder / f"{number:02d}.parquet")


def seconds_of(client: Client, bodies: list[dict[str, Any]]) -> float:
    """Return how long queries take from their registration until all of them are FINISHED."""
    began = time.monotonic()
    last = client.create_queries(bodies)[-1]["id"]
    finished = f"queries must be FINISHED within {MAX_SECONDS:g} s"
    wait_until(lambda: bool(client.get_query(last)["state"] == "FINISHED"), MAX_SECONDS, lambda: finished)
    return time.monotonic() - began


def live_latencies(client: Client, query: str, seconds: float) -> list[float]:
    """Return how long after the end of its window each new row of a query was with a reader."""
    latencies: list[float] = []
    page = client.results(query, limit=10_000)
    while page.rows:
        page = client.results(query, page.cursor, 10_000)
    cursor, until = page.cursor, time.monotonic() + seconds
    while time.monotonic() < until:
        page = client.results(query, cursor, 1000, wait=1)
        now = datetime.now(UTC)
        latencies += [(now - datetime.fromisoformat(row["window_end"])).total_seconds() for row in page.rows]
        cursor = page.cursor
    return latencies


def measure(rows: int, keys: int, queries: int) -> dict[str, Any]:
    """Return the seconds of all readings, and the latencies of live queries."""
    with tempfile.TemporaryDirectory(prefix="braid-replays-") as folder:
        write_files(Path(folder), rows, keys)
        say(f"{rows} rows are in {FILES} files")
        with ServiceProcess("replays") as service, Client(service.url, timeout=120) as client:
            service.wait_ready()
            options = f"connector = 'file', format = 'parquet', path = '{folder}', bounded = 'true'"
            client.create_stream(STREAM.format("recorded", options))
            first = seconds_of(client, [{"sql": ASKED.format(0)}])
            ones = [seconds_of(client, [{"sql": ASKED.format(1)}]) for _ in range(3)]
            many = seconds_of(client, [{"sql": ASKED.format(v % 1000)} for v in range(queries)])
            say(f"first {first:.1f} s, replays {median(ones):.1f} s, {queries} together {many:.1f} s")
            duck = _seconds_of_duckdb(folder)
            live = _live(client)
    return {
        "rows": rows,
        "keys": keys,
        "first_seconds": first,
        "replay_seconds": median(ones),
        "replay_to_first_throughput": first / median(ones),
        "queries_together": queries,
        "together_seconds": many,
        "together_to_one": many / median(ones),
        "duckdb_seconds": duck,
        **live,
    }


def _seconds_of_duckdb(folder: str) -> float:
    began = time.monotonic()
    duckdb.connect().execute(
        "SELECT time_bucket(INTERVAL 1 MINUTE, t), k, COUNT(*), SUM(v) FROM"
        f" read_parquet('{folder}/*.parquet') WHERE v >= 1 GROUP BY ALL"
    ).fetchall()
    return time.monotonic() - began


def _live(client: Client) -> dict[str, Any]:
    """Return the latencies of a live query without replays and beside them, in alternation."""
    client.create_stream(
        "CREATE STREAM live (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
        f" WITH (connector = 'generator', dataset = 'purchases', rate = '{LIVE_RATE}')"
    )
    text = (
        "SELECT gem_pack, COUNT(*) AS n FROM live [RANGE 2 SECONDS SLIDE 1 SECOND] WHERE price > {} GROUP BY gem_pack"
    )
    probe = client.create_queries([{"sql": text.format(n)} for n in range(LIVE_QUERIES)], wait=60)[0]["id"]
    live_latencies(client, probe, LIVE_SECONDS / 4)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(2):
        alone += live_latencies(client, probe, LIVE_SECONDS / 2)
        stop = threading.Event()
        replaying = threading.Thread(target=_replay_until, args=(client.url, stop))
        replaying.start()
        beside += live_latencies(client, probe, LIVE_SECONDS / 2)
        stop.set()
        replaying.join()
    percentiles = {"p50": 50, "p95": 95}
    return {
        f"live_{name}_{percentile}_seconds": float(np.percentile(values, at))
        for name, values in (("alone", alone), ("beside", beside))
        for percentile, at in percentiles.items()
    } | {"live_p95_beside_to_alone": float(np.percentile(beside, 95) / np.percentile(alone, 95))}


def _replay_until(url: str, stop: threading.Event) -> None:
    """Have one query after the other replay the folder."""
    with Client(url, timeout=120) as client:
        while not stop.is_set():
            query = client.create_query(ASKED.format(2), wait=10)["id"]
            while client.get_query(query)["state"] != "FINISHED" and not stop.wait(0.2):
                pass
            client.delete_query(query, drain=False)


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the figures, write the JSON; 1 when something failed."""
    parser = command("braid.bench_driver.programs.replays", __doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="how many rows are recorded (20 000 000)")
    parser.add_argument("--keys", type=int, default=1000, help="how many keys they have (1000)")
    parser.add_argument("--queries", type=int, default=1000, help="how many look-alikes start together (1000)")
    options = parser.parse_args(arguments)
    return report_on(lambda: measure(options.rows, options.keys, options.queries), options.output)


if __name__ == "__main__":
    sys.exit(main())
