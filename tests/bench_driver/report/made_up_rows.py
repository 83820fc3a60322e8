"""Result rows as the runner gives them, made up: Braid keeps its rate with more queries, its peers do not."""

from __future__ import annotations

import math
import random
from typing import Any

# system: tuples a second with one query, power of the number of queries that it goes down with, seconds of latency
SYSTEMS = {
    "braid": (2.6e6, -0.08, 0.9),
    "spark-queries": (2.9e6, -1.1, 1.1),
    "spark-fused": (2.7e6, -0.35, 1.2),
    "spark-queries-own": (3.1e6, -1.0, 1.0),
    "spark-fused-own": (3.0e6, -0.3, 1.0),
    "flink-jobs": (2.2e6, -0.95, 0.3),
    "flink-statement-set": (2.2e6, -0.85, 0.4),
}
SEED = 4


def made_up_row(system: str, workload: str, queries: int, **changed: Any) -> dict[str, Any]:
    """Return a row; series have a point every tenth of a second, as the queues' samples do."""
    base, power, seconds = SYSTEMS[system]
    rng = random.Random(f"{SEED} {system} {workload} {queries}")
    rate = float(round(base * queries**power))
    latency = {"p50": seconds, "p95": 1.8 * seconds, "p99": 2.4 * seconds, "max": 3.1 * seconds}
    has_own_generator = system.endswith("-own") or system.startswith("flink")
    at_once = system in ("braid", "flink-jobs")
    return {
        "system": system,
        "workload": workload,
        "queries": queries,
        "sustainable_tuples_per_second": rate,
        "overall_tuples_per_second": rate * queries,
        "slowest_tuples_per_second": rate,
        "query_throughput_per_second": None,
        "event_time_latency_seconds": latency,
        "processing_time_latency_seconds": None
        if has_own_generator
        else {name: 0.7 * value for name, value in latency.items()},
        "deployment_latency_seconds": {"p50": 0.8, "p95": 1.3, "p99": 1.6, "max": 1.9} if at_once else None,
        "sustained": True,
        "seed": SEED,
        "settings": {"seconds": 30.0, "master": "local[2]", "version": "4.3.0"},
        "source": "own generator" if has_own_generator else "queue",
        "error": None,
        "series": {
            "queue_length": [[i / 10, rate * (0.5 + 0.4 * math.sin(i / 5))] for i in range(600)],
            "latency": [[i / 2, seconds * rng.uniform(0.7, 1.3), seconds * 2.5] for i in range(120)],
            "pull_interval": [[float(i), rng.uniform(0.4, 0.7)] for i in range(60)],
            "rate": [[0.0, 0.9 * rate], [60.0, 0.9 * rate]],
        },
        "steps": [
            {"rate": 1.3 * rate, "sustained": False, "growth": 0.2 * rate, "pulled_per_second": rate},
            {"rate": rate, "sustained": True, "growth": 0.0, "pulled_per_second": rate},
        ],
        **changed,
    }
