"""Many queries for a long time: does the service keep up, and does its memory stay where it is?

`python -m braid.bench_driver.programs.soak [--queries 10000] [--rate 200000] [--minutes 20] [--output FILE.json]`
starts a service of its own, gives it the queries of a workload at a constant rate of tuples, and prints a line a
minute: memory of all its processes, tuples that wait, batches. The first quarter of the time is warm-up; what memory
does after it, of all processes and of each kind, is the result.

With `--churn 20` as many queries a second are created, one by one, and the oldest deleted. `--retention 120` has the
service forget results and finished queries after so many seconds: a shorter soak then shows what a longer one would.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from braid.bench_driver.dialects.braid import query_sql, stream_sql
from braid.bench_driver.programs.standalone import BatchDurations, command, report_on, say, wait_running
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.process import QueueProcess
from braid.bench_driver.report.text import table, two_decimals
from braid.bench_driver.service_process import ServiceProcess
from braid.bench_driver.workload import load_workload
from braid.client import Client

ARRAY = 100
READY_SECONDS = 240.0
RUNNING_SECONDS = 300.0
WARM_UP_SHARE = 0.25
LINE_SECONDS = 60.0
DRAINING_SECONDS = 120.0
"""For so long after its deletion a query may drain where the machine is busy."""
SEED = 1


@dataclass(frozen=True)
class Minute:
    """What was seen at the end of a minute: bytes of memory and files, tuples that wait, batches since and how long.

    Memory is that of each kind of process.
    """

    at_seconds: float
    memory: Mapping[str, int]
    data_bytes: int
    waiting: int
    batches: int
    batch_p50: float | None
    batch_p95: float | None
    replaced: int = 0
    """How many queries were created and deleted since the beginning."""

    @property
    def memory_bytes(self) -> int:
        """Memory of all processes."""
        return sum(self.memory.values())


def trend(minutes: Sequence[Minute], kind: str | None = None) -> float:
    """Return by how many bytes a minute memory grew after the warm-up, by the line through it.

    It is the memory of all processes or of those of one kind.
    """
    last = minutes[-1].at_seconds
    after_warm_up = [minute for minute in minutes if minute.at_seconds >= WARM_UP_SHARE * last]
    if len(after_warm_up) < 2:
        return 0.0
    memory = [minute.memory_bytes if kind is None else minute.memory.get(kind, 0) for minute in after_warm_up]
    slope, _ = np.polyfit([minute.at_seconds / 60 for minute in after_warm_up], memory, 1)
    return float(slope)


class SoakChurn:
    """Creates queries one by one, `rate` a second, and deletes as many, the oldest first."""

    def __init__(self, client: Client, texts: Sequence[str], ids: Sequence[str], rate: float) -> None:
        self._client = client
        self._texts = texts
        self._ids = deque(ids)
        self._rate = rate
        self._began = time.monotonic()
        self.replaced = 0

    def until(self, deadline: float) -> None:
        """Go on until a time of :func:`time.monotonic`; what the service takes too long for is not made up for."""
        while (due := max(self._began + self.replaced / self._rate, time.monotonic())) < deadline:
            time.sleep(max(0.0, due - time.monotonic()))
            created = self._client.create_query(self._texts[self.replaced % len(self._texts)])
            self._ids.append(created["id"])
            self._client.delete_query(self._ids.popleft())
            self.replaced += 1
        time.sleep(max(0.0, deadline - time.monotonic()))


def soak(
    workload_name: str, queries: int, rate: int, minutes: float, churn_rate: float = 0.0, retention: float = 0.0
) -> list[Minute]:
    """Run the queries of a workload with one stream for so long.

    With a `churn_rate` so many of them are replaced a second. A `retention` above 0 is how many seconds results and
    finished queries are kept.

    Raises:
        ServiceFailedError, QueueFailedError, ServiceError, TimeoutError: it could not go on.
    """
    workload = load_workload(workload_name)
    (stream,) = workload.streams
    query_specs = generate_queries(workload, queries, SEED)
    seen: list[Minute] = []
    # queries that were deleted count until they have drained
    environment = {"BRAID_MAX_QUERIES": str(2 * queries + round(DRAINING_SECONDS * churn_rate))}
    if retention:
        environment |= {f"BRAID_{name}RETENTION_SECONDS": str(retention) for name in ("", "RESULT_")}
    with (
        QueueProcess(stream.name, stream.dataset, stream.options, SEED) as queue,
        ServiceProcess("soak", environment) as service,
        Client(service.url, timeout=60) as client,
    ):
        service.wait_ready(READY_SECONDS)
        columns = find_dataset(stream.dataset).columns
        client.create_stream(stream_sql(stream.name, columns, queue.location, stream.name))
        queue.run(time.time_ns() // 1000, [(None, rate)])
        texts = [query_sql(query, probe=False) for query in query_specs]
        ids: list[str] = []
        for first in range(0, queries, ARRAY):
            created = client.create_queries([{"sql": text} for text in texts[first : first + ARRAY]])
            ids += [query["id"] for query in created]
        wait_running(client, RUNNING_SECONDS)
        began = time.monotonic()
        churn = SoakChurn(client, texts, ids, churn_rate) if churn_rate else None
        batches = BatchDurations(service.url)
        while time.monotonic() < began + 60 * minutes:
            minute_ends = min(began + LINE_SECONDS * (len(seen) + 1), began + 60 * minutes)
            if churn is None:
                time.sleep(max(0.0, minute_ends - time.monotonic()))
            else:
                churn.until(minute_ends)
            service.check_alive()
            queue.check_alive()
            durations, waiting = batches.take(), queue.samples()[-1].length()
            seen.append(
                Minute(
                    time.monotonic() - began,
                    service.memory_by_kind(),
                    service.data_bytes(),
                    waiting,
                    round(durations.count),
                    durations.quantile(0.5),
                    durations.quantile(0.95),
                    0 if churn is None else churn.replaced,
                )
            )
            say(line(seen[-1]))
    return seen


def line(minute: Minute) -> str:
    """Return a minute in words."""
    p50, p95 = (two_decimals(value) for value in (minute.batch_p50, minute.batch_p95))
    return (
        f"{minute.at_seconds / 60:5.1f} min  {minute.memory_bytes / 2**30:5.2f} GiB  "
        f"{minute.data_bytes / 2**30:5.1f} GiB on disk  "
        f"{minute.waiting:>9,} tuples wait  {minute.batches:>4} batches, p50 {p50}, p95 {p95}  "
        f"{minute.replaced:,} replaced; " + ", ".join(f"{kind} {size >> 20}" for kind, size in minute.memory.items())
    )


def render(minutes: Sequence[Minute]) -> str:
    """Return the result as text."""
    rows = [["minute", "memory", "on disk", "tuples that wait", "batches", "p50", "p95"]]
    rows += [
        [
            f"{m.at_seconds / 60:.1f}",
            f"{m.memory_bytes / 2**30:.2f} GiB",
            f"{m.data_bytes / 2**30:.1f} GiB",
            f"{m.waiting:,}",
            str(m.batches),
            two_decimals(m.batch_p50),
            two_decimals(m.batch_p95),
        ]
        for m in minutes
    ]
    max_gib = max(m.memory_bytes for m in minutes) / 2**30
    growth = trend(minutes) / 2**20
    processes = [["process", "at first", "at last", "MiB a minute after the warm-up"]]
    first, last = minutes[0].memory, minutes[-1].memory
    for kind in sorted(last, key=last.__getitem__, reverse=True):
        sizes = [f"{memory.get(kind, 0) / 2**20:,.0f} MiB" for memory in (first, last)]
        processes.append([kind, *sizes, f"{trend(minutes, kind) / 2**20:+.1f}"])
    return (
        f"{table(rows)}\n\n{table(processes)}\n\n"
        f"At most {max_gib:.2f} GiB; after the warm-up it grew by {growth:+.1f} MiB a minute."
    )


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, soak, print the result, write the JSON; 1 when it could not go on."""
    parser = command("braid.bench_driver.programs.soak", __doc__)
    parser.add_argument("--workload", default="astream-sc1", help="a workload with one stream (astream-sc1)")
    parser.add_argument("--queries", type=int, default=10_000, help="how many run (10000)")
    parser.add_argument("--rate", type=int, default=200_000, help="tuples a second (200000)")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (20)")
    parser.add_argument("--churn", type=float, default=0.0, help="queries created and deleted a second (0)")
    parser.add_argument("--retention", type=float, default=0.0, help="seconds that the service keeps things (a day)")
    options = parser.parse_args(arguments)

    def measure() -> dict[str, Any]:
        minutes = soak(
            options.workload, options.queries, options.rate, options.minutes, options.churn, options.retention
        )
        return {
            "workload": options.workload,
            "queries": options.queries,
            "tuples_per_second": options.rate,
            "seed": SEED,
            "replaced_per_second": options.churn,
            "retention_seconds": options.retention or None,
            "growth_bytes_per_minute": trend(minutes),
            "minutes": [asdict(minute) for minute in minutes],
        }

    return report_on(measure, options.output, lambda report: render([Minute(**minute) for minute in report["minutes"]]))


if __name__ == "__main__":
    sys.exit(main())
