"""Users of a service, a thread each: they create and delete queries in the order of the queue, and read results."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import deque
from queue import SimpleQueue
from typing import Any

from bench_driver.query_load.calls import BUSY, WAIT_SECONDS, Answer, Calls
from bench_driver.query_load.plan import LoadPlan
from bench_driver.query_load.results import CREATE, LoadRequest

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
LOOK_SECONDS = 0.1
READERS = 2
LOOKS_AMONG_READS = 0.25


class Load:
    """What the users share: the queue of requests (thesis 4.4.1), the live queries, and who waits for a query's stop.

    `changed` is the lock of all of it, and tells when a request is over.
    """

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.changed = threading.Condition()
        self.requests: list[LoadRequest] = []
        self.queue: SimpleQueue[LoadRequest] = SimpleQueue()
        self.live: deque[str] = deque(plan.live)
        self.open = 0
        """How many requests have neither taken effect nor been refused."""
        self._stopping: dict[str, threading.Event] = {}
        self._random = random.Random(plan.seed)
        self._calls = Calls(plan.url)

    def schedule(self, request: LoadRequest) -> None:
        """Queue a request that is due."""
        with self.changed:
            self.requests.append(request)
            self.open += 1
        self.queue.put(request)

    def take_oldest(self, most: int) -> list[str]:
        """Return up to so many of the oldest live queries, which are no longer live."""
        with self.changed:
            return [self.live.popleft() for _ in range(min(most, len(self.live)))]

    def any_live(self) -> str | None:
        """Return a random live query, None when there is none."""
        with self.changed:
            return self._random.choice(self.live) if self.live else None

    def persist(self, request: LoadRequest, method: str, path: str, *rest: Any) -> Answer:
        """Send a request again and again, later each time, until the service is not busy; return its answer."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            answer = self._calls.ask(method, path, *rest)
            request.status = answer.status
            if answer.status not in BUSY:
                return answer
            time.sleep(answer.retry_after or pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def take_requests(self) -> None:
        """Take the oldest request from the queue, send it, and wait until it has taken effect before the next."""
        while True:
            request = self.queue.get()
            request.sent = time.time()
            error = self._create(request) if request.kind == CREATE else self._delete(request)
            over_at = time.time()
            with self.changed:
                self.open -= 1
                request.error = error
                if error is None:
                    request.acknowledged = over_at
                    if request.kind == CREATE:
                        assert request.query_id is not None
                        self.live.append(request.query_id)
                self.changed.notify_all()

    def _create(self, request: LoadRequest) -> str | None:
        """Register a query and return None once it is RUNNING, or why it is not."""
        assert request.number is not None
        body = json.dumps(self.plan.bodies[request.number])
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        while True:  # the same key asks about the same query again
            answer = self.persist(request, "POST", f"/queries?wait={WAIT_SECONDS}", body, headers)
            if answer.status != 201:
                return answer.reason
            query = json.loads(answer.body)
            request.query_id = query["id"]
            if query["state"] == "FAILED":
                return f"query {query['id']} is FAILED: {query['error']}"
            if query["state"] != "PENDING":
                return None

    def _delete(self, request: LoadRequest) -> str | None:
        """Retire a query and return None once it sees no more tuples, or why it could not be."""
        assert request.query_id is not None
        answer = self.persist(request, "DELETE", f"/queries/{request.query_id}")
        if answer.status != 202:
            return answer.reason
        stopped = threading.Event()
        with self.changed:
            self._stopping[request.query_id] = stopped
        stopped.wait()
        return None

    def watch_stops(self) -> None:
        """See for all that deleted a query when it sees no more tuples: one look at the DRAINING ones for all."""
        while True:
            time.sleep(LOOK_SECONDS)
            with self.changed:
                waiting = set(self._stopping)
            draining = self._calls.queries("DRAINING") if waiting else None
            if draining is not None:
                for query_id in waiting - {query["id"] for query in draining if None in query["active_to"].values()}:
                    with self.changed:
                        stopped = self._stopping.pop(query_id)
                    stopped.set()

    def read_results(self) -> None:
        """Read on in any of the live queries, or look at it, now and then, as the users of a service do."""
        rng, cursors = random.Random(), dict[str, str]()
        while True:
            due = time.monotonic() + READERS / self.plan.reads_per_second
            query_id = self.any_live()
            if query_id is not None and rng.random() < LOOKS_AMONG_READS:
                self._calls.ask("GET", f"/queries/{query_id}")
            elif query_id is not None:
                after = f"&after={cursors[query_id]}" if query_id in cursors else ""
                answer = self._calls.ask("GET", f"/queries/{query_id}/results?limit=100{after}")
                if answer.status == 200:
                    cursors[query_id] = answer.headers["Braid-Cursor"]
            time.sleep(max(0.0, due - time.monotonic()))


def start_users(load: Load) -> None:
    """Start those that request, as many as the plan says, the one that watches, and those that read."""
    readers = READERS if load.plan.reads_per_second else 0
    for work in [load.take_requests] * load.plan.users + [load.watch_stops] + [load.read_results] * readers:
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
