"""Braid and stock Spark on the same queries, as fast as each can, in alternation on the same machine.

Both make up their tuples inside. Both are offered more than they can take: Braid's generator runs at
:data:`EVENT_RATE` tuples a second of event time, and Spark's source gives batches with as many tuples a second of event
time. What counts is how many tuples a second each works off: for Braid those of its one stream, for Spark those that
each of its streaming queries reads from a source of its own (the mean over the queries).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench_driver import statistics
from bench_driver.first_mark_workload import random_predicates
from bench_driver.scenarios import Say, measure_load
from bench_driver.service_process import PROJECT

EVENT_RATE = 8_000_000
# the larger a batch, the more stock Spark takes in a second; this is about a second's worth of its best
ROWS_PER_BATCH = 4_000_000
QUERIES = (1, 20)
PEER_DEADLINE_FACTOR = 6
PEER_DEADLINE_SECONDS = 120

SETTINGS = (
    f"Event time: {EVENT_RATE:,} tuples a second for both. Spark: rate-micro-batch source, rows per batch"
    f" {ROWS_PER_BATCH:,} / queries, local[cores], shuffle partitions = cores, RocksDB state, append mode, noop sink,"
    " one streaming query per query; first quarter discarded."
)

Run = Callable[[int], dict[str, Any]]


class PeerFailedError(Exception):
    """The peer did not finish."""


def measure_versus_spark(rounds: int, seconds: float, say: Say) -> dict[str, Any]:
    """Run every engine with every number of queries, one after the other, `rounds` times."""
    engines: dict[str, Run] = {
        "braid": lambda queries: _braid(queries, seconds, say),
        "spark": lambda queries: _spark(queries, seconds),
    }
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for number in range(rounds):
        for queries in QUERIES:
            for engine, run in engines.items():
                measured = run(queries)
                runs.setdefault((engine, queries), []).append(measured)
                speed = measured["tuples_per_second"] or 0.0
                say(f"round {number + 1}: {engine} with {queries} queries: {speed:,.0f} tuples/s")
    entries = [
        {
            "engine": engine,
            "queries": queries,
            "median": statistics.median([run["tuples_per_second"] or 0.0 for run in measured]),
            "runs": measured,
        }
        for (engine, queries), measured in runs.items()
    ]
    return {"settings": SETTINGS, "entries": entries}


def _predicates(queries: int) -> list[str | None]:
    return [None] if queries == 1 else [predicate.text for predicate in random_predicates(queries)]


def _braid(queries: int, seconds: float, say: Say) -> dict[str, Any]:
    return asdict(measure_load(queries, EVENT_RATE, seconds, say, filtered=queries > 1))


def _spark(queries: int, seconds: float) -> dict[str, Any]:
    task = {
        "predicates": _predicates(queries),
        "seconds": seconds,
        "rows_per_batch": ROWS_PER_BATCH // queries,
        "tuples_per_event_second": EVENT_RATE,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench_driver.peers.spark_peer"],
            cwd=PROJECT,
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=PEER_DEADLINE_SECONDS + PEER_DEADLINE_FACTOR * seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailedError(f"stock Spark with {queries} queries must end within {error.timeout:g} s") from None
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-15:])
        raise PeerFailedError(
            f"stock Spark with {queries} queries must end with status 0, got {done.returncode}:\n{last}"
        )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured
