"""What no workload shows: how long a start takes, an empty batch, and one query posted at a time.

`python -m braid.bench_driver.programs.first_mark [--quick] [--output FILE.json]` prints the figures and writes all of
them as JSON. It takes about three minutes, `--quick` one. Each part has a service process of its own and is measured
through REST; the driver and the service share the machine's cores. Throughput and latency under load are what `braid
bench` is for.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from braid.bench_driver.measure import statistics
from braid.bench_driver.programs.standalone import BatchDurations, command, report_on, say
from braid.bench_driver.service_process import ServiceProcess
from braid.client import Client

Figures = dict[str, Any]

DEPLOY_SECONDS = 60.0
QUIET_STREAM = (
    "CREATE STREAM quiet (user_id BIGINT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH (connector = 'push', format = 'json')"
)


def measure_starts(count: int) -> Figures:
    """Start and stop a service `count` times; return the seconds from each start of the process to `/readyz` 200."""
    seconds = []
    for i in range(count):
        with ServiceProcess("starts") as service:
            seconds.append(service.wait_ready())
        say(f"start {i + 1} of {count}: ready after {seconds[-1]:.1f} s")
    return {"seconds": seconds, "median_seconds": statistics.median(seconds)}


def measure_deployments(posts: int) -> Figures:
    """Post `posts` queries, each after the one before is RUNNING, while no stream has tuples; all is in seconds.

    `batch_*` are of the batches in that time: the median is interpolated in Prometheus' buckets, the mean exact.
    `posted_*` is what the poster waits for, `reported_*` what the service says of the same queries.
    """
    posted, reported = [], []
    with ServiceProcess("deployments") as service, Client(service.url, timeout=30) as client:
        service.wait_ready()
        client.create_stream(QUIET_STREAM)
        batches = BatchDurations(service.url)
        for i in range(posts):
            began = time.monotonic()
            sql = f"SELECT user_id, SUM(price) AS total FROM quiet [RANGE 1 SECONDS] WHERE price > {i} GROUP BY user_id"
            query = client.create_query(sql, wait=DEPLOY_SECONDS)
            if query["state"] == "RUNNING":
                posted.append(time.monotonic() - began)
                reported.append(query["deployment_latency_seconds"])
        durations = batches.take()
    say(f"{len(posted)} of {posts} queries deployed one by one")
    return {
        "posts": len(posted),
        "batches": round(durations.count),
        "batch_median": durations.quantile(0.5),
        "batch_mean": durations.mean,
        "posted_p50": statistics.percentile(posted, 0.5),
        "posted_p95": statistics.percentile(posted, 0.95),
        "reported_p50": statistics.percentile(reported, 0.5),
        "reported_p95": statistics.percentile(reported, 0.95),
    }


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the figures, write the JSON; 1 when the service failed."""
    parser = command("braid.bench_driver.programs.first_mark", __doc__)
    parser.add_argument("--quick", action="store_true", help="fewer starts and posts, for a first impression")
    options = parser.parse_args(arguments)

    def measure() -> dict[str, Any]:
        return {
            "start": measure_starts(1 if options.quick else 3),
            "deployment": measure_deployments(10 if options.quick else 50),
        }

    return report_on(measure, options.output)


if __name__ == "__main__":
    sys.exit(main())
