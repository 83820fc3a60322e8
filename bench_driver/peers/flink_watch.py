"""Look at Flink's jobs by its REST interface: which run, which ended, and how much their sources took.

It runs within `flink_program.py`, in Flink's own environment, so it needs nothing but Python.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import re
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

HOST = "127.0.0.1"
REST_SECONDS = 60.0
LOOK_SECONDS = 0.05
TAKEN_SECONDS = 0.5
# asking for all counters takes cores from what is measured: it rests this many times as long as it took, within reason
TAKEN_RESTS = 4
MAX_REST_SECONDS = 10.0
SEGMENT_SECONDS = 5.0
ENDED = ("FINISHED", "CANCELED", "FAILED")

_SOURCE = re.compile(r"Source__(\w+?)(?:\[\d+\]|_\d+_)\.numRecordsOut")

Say = Callable[[Mapping[str, Any]], None]


class SlowestCount:
    """What the slowest job took in all, while jobs come and go.

    While the same jobs run it is what the slowest of them took; when jobs come or go it goes on from there, with those
    that run then. Counters arrive late and apart, so a change is followed after `SEGMENT_SECONDS` at the earliest.
    """

    def __init__(self) -> None:
        self._before = 0
        self._reached = 0
        self._base: dict[int, int] = {}
        self._began = 0.0

    def add(self, at: float, counts: Mapping[int, int]) -> int:
        """Take in how many tuples each job has taken since it began, and return the count, which never falls."""
        stayed = counts.keys() & self._base.keys()
        taken = min((counts[job] - self._base[job] for job in stayed), default=0)
        self._reached = max(self._reached, self._before + taken)
        changed = counts.keys() != self._base.keys()
        if changed and (not stayed or at - self._began >= SEGMENT_SECONDS):
            self._before, self._base, self._began = self._reached, dict(counts), at
        return self._reached


class Rest:
    """Flink's REST interface over one connection, for one thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection(HOST, port, timeout=REST_SECONDS)

    def ask(self, path: str, method: str = "GET") -> Any:
        """Return the answer, None when there is none; raises OSError or HTTPException."""
        try:
            self._connection.request(method, path)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        return json.loads(body) if answer.status < 400 and body else None

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


class FlinkWatch(threading.Thread):
    """Looks at the jobs: says when one runs, is stopped or failed, and how much their sources took."""

    def __init__(self, port: int, check: Callable[[], None], say: Say, of_workload: Mapping[str, float]) -> None:
        """`check` raises RuntimeError when the cluster has ended.

        `of_workload` are the tuples of the workload for each of a stream's, by its name.
        """
        super().__init__(name="watch", daemon=True)
        self._check = check
        self._rest = Rest(port)
        self._say = say
        self._requests: queue.SimpleQueue[tuple[str, int, str]] = queue.SimpleQueue()
        self._starting: dict[int, str] = {}
        self._stopping: dict[int, str] = {}
        self._running: dict[int, str] = {}
        self._of_workload = of_workload
        self._counters: dict[int, list[tuple[str, str]]] = {}  # of each source of a job, its stream and their path
        self._slowest = SlowestCount()

    def tell(self, kind: str, job: int, flink_id: str) -> None:
        """A job was submitted ("starting") or is to be cancelled ("stopping")."""
        self._requests.put((kind, job, flink_id))

    def run(self) -> None:
        """Look until the process ends, or until something failed, which it says."""
        with contextlib.closing(self._rest):
            self._look()

    def _look(self) -> None:
        look_at_counters = 0.0
        while True:
            try:
                self._check()
                self._take_in()
                self._look_at_states()
                if (began := time.monotonic()) >= look_at_counters:
                    self._count()
                    pause = min(MAX_REST_SECONDS, TAKEN_RESTS * (time.monotonic() - began))
                    look_at_counters = began + max(TAKEN_SECONDS, pause)
            except (OSError, http.client.HTTPException) as error:
                # Flink is busy: it is asked again
                print(f"watch: {error!r}", file=sys.stderr, flush=True)
            except Exception as error:
                self._say({"failed": None, "reason": str(error) if isinstance(error, RuntimeError) else repr(error)})
                return
            time.sleep(LOOK_SECONDS)

    def _take_in(self) -> None:
        while not self._requests.empty():
            request = kind, job, flink_id = self._requests.get()
            if kind == "starting":
                self._starting[job] = flink_id
                continue
            try:
                self._rest.ask(f"/jobs/{flink_id}?mode=cancel", "PATCH")
            except (OSError, http.client.HTTPException):
                self._requests.put(request)
                raise
            for jobs in (self._starting, self._running, self._counters):
                jobs.pop(job, None)
            self._stopping[job] = flink_id

    def _look_at_states(self) -> None:
        if not (self._starting or self._stopping or self._running):
            return
        overview = (self._rest.ask("/jobs/overview") or {}).get("jobs", ())
        states = {entry["jid"]: entry for entry in overview}
        for job, flink_id in [*self._starting.items(), *self._running.items()]:
            state = states.get(flink_id, {}).get("state")
            if state in ENDED:
                raise RuntimeError(f"job {job} must go on and is {state}: {self._root_cause(flink_id)}")
            if job in self._starting and state == "RUNNING" and _all_run(states[flink_id]["tasks"]):
                self._running[job] = self._starting.pop(job)
                self._say({"running": job})
        for job, flink_id in [*self._stopping.items()]:
            if states.get(flink_id, {}).get("state") in (None, *ENDED):
                del self._stopping[job]
                self._say({"stopped": job})

    def _root_cause(self, flink_id: str) -> str:
        exceptions = self._rest.ask(f"/jobs/{flink_id}/exceptions?maxExceptions=1") or {}
        entries = exceptions.get("exceptionHistory", {}).get("entries") or [{}]
        return reason_of(str(entries[0].get("stacktrace", "no reason given")))

    def _count(self) -> None:
        at = time.time()
        taken_by_job = {job: self._taken(job, flink_id) for job, flink_id in self._running.items()}
        counts = {job: count for job, count in taken_by_job.items() if count is not None}
        if counts:
            self._say({"taken": [at, self._slowest.add(at, counts)]})

    def _taken(self, job: int, flink_id: str) -> int | None:
        """Return the workload's tuples of the source that took least; None while its counters are not known."""
        if job not in self._counters:
            paths = self._find_counters(flink_id)
            if not paths:
                return None
            self._counters[job] = paths
        counts = []
        for stream, path in self._counters[job]:
            values = self._rest.ask(path) or ()
            if not values:
                return None
            taken = sum(int(float(counter["value"])) for counter in values)
            counts.append(int(taken * self._of_workload[stream]))
        return min(counts)

    def _find_counters(self, flink_id: str) -> list[tuple[str, str]]:
        paths = []
        for vertex in (self._rest.ask(f"/jobs/{flink_id}") or {}).get("vertices", ()):
            metrics = f"/jobs/{flink_id}/vertices/{vertex['id']}/metrics"
            metric_names = [metric["id"] for metric in self._rest.ask(metrics) or ()]
            by_source = counters_of_sources(metric_names)
            if "Source:" in vertex["name"] and not by_source:
                return []
            for source, names in by_source.items():
                if len(names) != vertex["parallelism"]:
                    return []
                paths.append((stream_of(source), f"{metrics}?get={urllib.parse.quote(','.join(names))}"))
        return paths


def counters_of_sources(metrics: Iterable[str]) -> dict[str, list[str]]:
    """Return the counters, one a subtask, of what each source gave to what follows it in its chain."""
    counters: dict[str, list[str]] = {}
    for name in metrics:
        subtask, _, source_counter = name.partition(".")
        if subtask.isdigit() and source_counter.startswith("Source__") and source_counter.endswith(".numRecordsOut"):
            counters.setdefault(source_counter, []).append(name)
    return counters


def stream_of(source_counter: str) -> str:
    """Return the table that a source reads, by the name of its counter: `Source__bid[1].numRecordsOut`."""
    match = _SOURCE.fullmatch(source_counter)
    if match is None:
        raise RuntimeError(f"the counter of a source must name the table that it reads, got {source_counter!r}")
    return match[1]


def _all_run(tasks: Mapping[str, int]) -> bool:
    return tasks["running"] == tasks["total"] > 0


def reason_of(text: str) -> str:
    """Return what an exception of Flink's says: its first line, and that of its last cause, without the stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    first = next((line for line in lines if not line.startswith(("at ", "An error occurred"))), "no reason given")
    return " ".join(dict.fromkeys([first, *causes[-1:]]))
