"""What queries cost the control side: created and retired in numbers, looked at while 10 000 run.

`python -m braid.bench_driver.programs.control_plane [--queries 10000] [--per-second 1000] [--seconds 25] [--output
FILE.json]` starts a service of its own, drives it through REST for about two minutes, and prints a table. Requests come
from two other processes, one that changes queries and one that reads, so that neither waits for the other's
interpreter. The driver, the service and Spark share the machine's cores; the processor time of the service's own
process says what is its share.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import psutil

from braid.bench_driver.measure import statistics
from braid.bench_driver.programs.standalone import BatchDurations, command, report_on, say, wait_running
from braid.bench_driver.report.text import count, table
from braid.bench_driver.service_process import ServiceProcess
from braid.client import Client, Refused

ARRAY = 100
SINGLES_AT_ONCE = 16
READ_PAUSE_SECONDS = 0.02
RUNNING_SECONDS = 120.0
STREAM = (
    "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH ({})"
)
GENERATED = "connector = 'generator', dataset = 'purchases', rate = '{}'"
EMPTY = "connector = 'push', format = 'json'"
QUERY = "SELECT gem_pack, SUM(price) AS revenue FROM purchases [RANGE {} SECONDS] WHERE {} {} {} GROUP BY gem_pack"


@dataclass
class AnswerTimes:
    """The answers to one kind of request: seconds each, for how many queries in how many seconds, and refusals."""

    seconds: list[float] = field(default_factory=list)
    queries: int = 0
    elapsed: float = 0.0
    refused: int = 0

    @contextlib.contextmanager
    def timed(self, queries: int = 0) -> Iterator[None]:
        """Time one request about so many queries."""
        began = time.perf_counter()
        try:
            yield
        except Refused:
            self.refused += 1
            return
        self.seconds.append(time.perf_counter() - began)
        self.queries += queries


Report = dict[str, AnswerTimes]


class Changes:
    """Creates and retires queries of a service; runs in a process of its own."""

    def __init__(self, url: str, seed: int) -> None:
        self._clients = threading.local()
        self._url = url
        self._random = random.Random(seed)
        self.answers: Report = defaultdict(AnswerTimes)

    @property
    def client(self) -> Client:
        """The client of the thread that asks."""
        if not hasattr(self._clients, "client"):
            self._clients.client = Client(self._url, timeout=60)
        client: Client = self._clients.client
        return client

    def body(self) -> dict[str, Any]:
        """Return a query with random window and predicate."""
        column, most = self._random.choice((("price", 100.0), ("user_id", 1000.0)))
        constant = round(self._random.random() * most, 2 if column == "price" else None)
        window = self._random.randint(1, 10)
        return {"sql": QUERY.format(window, column, self._random.choice("<>"), constant)}

    def create_array(self) -> list[str]:
        """Create ARRAY queries with one request."""
        bodies = [self.body() for _ in range(ARRAY)]
        queries: list[dict[str, Any]] = []
        with self.answers[f"POST, arrays of {ARRAY}"].timed(ARRAY):
            queries = self.client.create_queries(bodies)
        return [query["id"] for query in queries]

    def create_one(self) -> list[str]:
        """Create a query."""
        query: dict[str, Any] = {}
        with self.answers[f"POST, singles, {SINGLES_AT_ONCE} at once"].timed(1):
            query = self.client.create_query(self.body()["sql"])
        return [query["id"]] if query else []

    def retire_array(self, ids: list[str]) -> None:
        """Retire queries with one request."""
        with self.answers[f"POST /queries/retire, {ARRAY} ids"].timed(len(ids)):
            self.client.retire_queries(ids)

    def delete(self, query_id: str) -> None:
        """Retire a query."""
        with self.answers[f"DELETE, singles, {SINGLES_AT_ONCE} at once"].timed(1):
            self.client.delete_query(query_id)


def fill(url: str, queries: int) -> tuple[list[str], Report]:
    """Create so many queries as fast as arrays go; return their ids."""
    changes = Changes(url, seed=1)
    ids: list[str] = []
    began = time.perf_counter()
    while len(ids) < queries:
        ids += changes.create_array()
    _set_elapsed(changes.answers, time.perf_counter() - began)
    return ids, dict(changes.answers)


def churn(url: str, ids: list[str], per_second: int, seconds: float) -> tuple[list[str], Report]:
    """Create so many queries a second and retire as many, the oldest first; return those that are left."""
    changes, alive = Changes(url, seed=2), deque(ids)
    began = time.perf_counter()

    def paced(act: Callable[[], object]) -> None:
        due = began
        while due < began + seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            if time.perf_counter() > began + seconds:
                return
            act()
            due += ARRAY / per_second

    def retire() -> None:
        changes.retire_array([alive.popleft() for _ in range(min(ARRAY, len(alive)))])

    with ThreadPoolExecutor(2) as pool:
        creations = pool.submit(paced, lambda: alive.extend(changes.create_array()))
        retirements = pool.submit(paced, retire)
        creations.result()
        retirements.result()
    _set_elapsed(changes.answers, time.perf_counter() - began)
    return list(alive), dict(changes.answers)


def singles(url: str, ids: list[str], seconds: float) -> tuple[list[str], Report]:
    """Create queries one by one as fast as it goes, then retire as many; return those that are left."""
    changes, alive = Changes(url, seed=3), deque(ids)

    def work(act: Callable[[], object], deadline: float) -> None:
        with contextlib.suppress(IndexError):  # none is left to retire
            while time.perf_counter() < deadline:
                act()

    with ThreadPoolExecutor(SINGLES_AT_ONCE) as pool:
        for act in (lambda: alive.extend(changes.create_one()), lambda: changes.delete(alive.popleft())):
            deadline = time.perf_counter() + seconds
            for future in [pool.submit(work, act, deadline) for _ in range(SINGLES_AT_ONCE)]:
                future.result()
    _set_elapsed(changes.answers, seconds)
    return list(alive), dict(changes.answers)


def read(url: str, seconds: float) -> tuple[None, Report]:
    """Read as clients and Prometheus do, one request after the other."""
    answers: Report = defaultdict(AnswerTimes)
    began = time.perf_counter()
    with Client(url, timeout=60) as client, httpx.Client(timeout=60, trust_env=False) as http:
        newest = 0
        while time.perf_counter() < began + seconds:
            with answers["GET /queries"].timed():
                page = http.get(f"{url}/queries").raise_for_status().json()
            with answers["GET /queries?state=PENDING"].timed():
                http.get(f"{url}/queries", params={"state": "PENDING"}).raise_for_status()
            if page["queries"]:
                with answers["GET /queries/{id}"].timed():
                    client.get_query(page["queries"][-1]["id"])
            with answers["GET /changelogs?after=newest"].timed():
                changelogs = http.get(f"{url}/changelogs", params={"after": newest}).raise_for_status().json()
            newest = max([newest, *(changelog["epoch"] for changelog in changelogs["changelogs"])])
            with answers["GET /changelogs"].timed():
                http.get(f"{url}/changelogs").raise_for_status()
            with answers["GET /metrics"].timed():
                http.get(f"{url}/metrics").raise_for_status()
            time.sleep(READ_PAUSE_SECONDS)
    _set_elapsed(answers, time.perf_counter() - began)
    return None, dict(answers)


def _set_elapsed(answers: Report, seconds: float) -> None:
    for answer in answers.values():
        answer.elapsed = seconds


Phase = dict[str, Any]
"""One part of the measurement; `busy` is the processor time of the service's own process, in cores."""


class Observer:
    """Watches the service's own process and its batches while something runs."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._process = psutil.Process(service.pid)

    def rss(self) -> int:
        """Return the resident memory of the service's own process."""
        return int(self._process.memory_info().rss)

    @contextlib.contextmanager
    def phase(self, name: str, phases: list[Phase]) -> Iterator[Report]:
        """Add what has happened in the context to `phases`; the context fills the answers."""
        say(f"{name} …")
        answers: Report = {}
        batches = BatchDurations(self._service.url)
        busy_before, began = self._busy(), time.perf_counter()
        yield answers
        seconds = time.perf_counter() - began
        durations = batches.take()
        phases.append(
            {
                "name": name,
                "answers": {kind: asdict(answer) for kind, answer in answers.items()},
                "seconds": seconds,
                "busy": (self._busy() - busy_before) / seconds,
                "rss_mib": self.rss() / 2**20,
                "batches": round(durations.count),
                "batch_p50": durations.quantile(0.5),
                "batch_mean": durations.mean,
                "batch_p95": durations.quantile(0.95),
            }
        )

    def _busy(self) -> float:
        cpu_times = self._process.cpu_times()
        return float(cpu_times.user + cpu_times.system)


def measure(queries: int, per_second: int, seconds: float, tuples: int) -> dict[str, Any]:
    """Run all phases on a service of their own and return the figures."""
    phases: list[Phase] = []
    environment = {"BRAID_MAX_QUERIES": str(4 * queries)}
    context = multiprocessing.get_context("spawn")
    with (
        ServiceProcess("control-plane", environment) as service,
        Client(service.url, timeout=60) as client,
        ProcessPoolExecutor(2, mp_context=context) as pool,
    ):
        service.wait_ready()
        client.create_stream(STREAM.format(GENERATED.format(tuples) if tuples else EMPTY))
        observer = Observer(service)
        rss_before = observer.rss()

        def run(name: str, work: Callable[..., Any], *arguments: Any, readers: float = 0.0) -> Any:
            with observer.phase(name, phases) as answers:
                futures: list[Future[Any]] = [pool.submit(work, service.url, *arguments)]
                if readers:
                    futures.append(pool.submit(read, service.url, readers))
                results = [future.result() for future in futures]
                for _, more_answers in results:
                    answers.update(more_answers)
            return results[0][0]

        ids = run(f"create {queries}", fill, queries)
        wait_running(client, RUNNING_SECONDS)
        per_query = (observer.rss() - rss_before) / queries
        run(f"{queries} run", read, seconds / 3)
        phase_name = f"{queries} run, {per_second} created and {per_second} retired a second"
        ids = run(phase_name, churn, ids, per_second, seconds, readers=seconds)
        ids = run("one by one", singles, ids, seconds / 4)
    return {"bytes_per_query": per_query, "left": len(ids), "phases": phases}


def render(report: dict[str, Any]) -> str:
    """Return the figures of `main` as text."""
    rows = [["", "requests", "queries/s", "p50", "p95", "max", "refused"]]
    for phase in report["phases"]:
        rows.append([f"{phase['name']}:", *[""] * 6])
        for kind, answer in phase["answers"].items():
            seconds = answer["seconds"]
            rate = answer["queries"] / answer["elapsed"] if answer["queries"] else None
            times = (
                statistics.percentile(seconds, 0.5),
                statistics.percentile(seconds, 0.95),
                max(seconds, default=None),
            )
            rows.append([f"  {kind}", count(len(seconds)), count(rate), *map(_ms, times), count(answer["refused"])])
    lines = [table(rows)]
    rows = [["", "service's process", "its memory", "batches", "p50", "mean", "p95"]]
    for phase in report["phases"]:
        batches = (phase["batch_p50"], phase["batch_mean"], phase["batch_p95"])
        process = (f"{phase['busy']:.2f} cores", f"{phase['rss_mib']:.0f} MiB", count(phase["batches"]))
        rows.append([phase["name"], *process, *map(_ms, batches)])
    lines.append(table(rows))
    lines.append(f"Memory of the service's process per running query: {report['bytes_per_query']:.0f} bytes")
    return "\n\n".join(lines)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f} ms"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the figures, write the JSON; 1 when the service failed."""
    parser = command("braid.bench_driver.programs.control_plane", __doc__)
    parser.add_argument("--queries", type=int, default=10_000, help="how many run (10000)")
    parser.add_argument("--per-second", type=int, default=1000, help="how many come and go a second (1000)")
    parser.add_argument("--seconds", type=float, default=24.0, help="how long they come and go (24)")
    parser.add_argument("--tuples", type=int, default=1000, help="tuples a second (1000); 0 for none")
    options = parser.parse_args(arguments)
    return report_on(
        lambda: measure(options.queries, options.per_second, options.seconds, options.tuples), options.output, render
    )


if __name__ == "__main__":
    sys.exit(main())
