"""Locust's users: they create and delete queries in the order of the queue, and read results meanwhile.

Importing locust patches the standard library for gevent, so only the load's own process imports this module.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import deque
from typing import Any

import gevent
from gevent.event import Event
from gevent.queue import Queue
from geventhttpclient.client import HTTPClientPool
from locust import FastHttpUser, constant, constant_throughput, task
from locust.env import Environment

from braid.bench_driver.query_load.plan import LoadPlan
from braid.bench_driver.query_load.results import CREATE, LoadRequest

WAIT_SECONDS = 30
NETWORK_TIMEOUT_SECONDS = WAIT_SECONDS + 30.0
BUSY = (0, 429, 503)  # nobody answers, or the service asks to come again
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0
LOOK_SECONDS = 0.1
PAGE = 1000
READERS = 2


class UserLoad:
    """What the users share: the queue of requests (thesis 4.4.1), the live queries, and who waits for a query's stop.

    Greenlets switch only where they wait, so nothing here needs a lock.
    """

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.requests: list[LoadRequest] = []
        self.queue: Queue[LoadRequest] = Queue()
        self.live: deque[str] = deque(plan.live)
        self.stopping: dict[str, Event] = {}
        self.deletion_asked = Event()
        self.random = random.Random(plan.seed)
        self._open = 0
        self.all_over = Event()
        self.all_over.set()

    def schedule(self, request: LoadRequest) -> None:
        """Queue a request that is due."""
        self.requests.append(request)
        self._open += 1
        self.all_over.clear()
        self.queue.put(request)

    def close(self) -> None:
        """Note that one of the requests took effect or was refused."""
        self._open -= 1
        if not self._open:
            self.all_over.set()


class LoadEnvironment(Environment):
    """Locust's environment, with what our users share."""

    def __init__(self, load: UserLoad) -> None:
        classes: list[type[LoadUser]] = [RequestingUser, StopWatcher]
        super().__init__(user_classes=[*classes, ReaderUser], host=load.plan.url)
        self.load = load
        # one pool for all: the connection used last is taken first, so few grow cold and none is closed under a request
        self.connections = HTTPClientPool(
            concurrency=load.plan.users + READERS + 1,
            network_timeout=NETWORK_TIMEOUT_SECONDS,
            connection_timeout=NETWORK_TIMEOUT_SECONDS,
        )
        RequestingUser.fixed_count = load.plan.users
        StopWatcher.fixed_count = 1
        ReaderUser.fixed_count = READERS
        ReaderUser.wait_time = constant_throughput(max(load.plan.reads_per_second / READERS, 1e-3))


class LoadUser(FastHttpUser):
    """A user that knows the load, and comes again when the service is busy."""

    abstract = True
    wait_time = constant(0)

    def __init__(self, environment: LoadEnvironment) -> None:
        self.client_pool = environment.connections
        super().__init__(environment)
        self.load = environment.load

    def persist(self, request: LoadRequest, method: str, path: str, name: str, **options: Any) -> Any:
        """Send a request again and again, later each time, until the service is not busy; return its answer."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            request.attempts += 1
            answer = self.client.request(method, path, name=name, **options)
            request.status = answer.status_code
            if request.status not in BUSY:
                return answer
            gevent.sleep(retry_after(answer) or pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


class RequestingUser(LoadUser):
    """Takes the oldest request from the queue, sends it, and waits until it has taken effect before the next."""

    @task
    def take_request(self) -> None:
        """Do one request."""
        request = self.load.queue.get()
        request.sent = time.time()
        error = self.create(request) if request.kind == CREATE else self.delete(request)
        if error is None:
            request.acknowledged = time.time()
        request.error = error
        self.environment.events.request.fire(
            request_type="QUEUE",
            name=f"{request.kind} from schedule to effect",
            response_time=1000 * (time.time() - request.scheduled),
            response_length=0,
            exception=None if error is None else RuntimeError(error),
        )
        self.load.close()

    def create(self, request: LoadRequest) -> str | None:
        """Register a query and return None once it is RUNNING, or why it is not."""
        assert request.number is not None
        body = json.dumps(self.load.plan.bodies[request.number])
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        while True:  # the same key asks about the same query again
            answer = self.persist(
                request, "POST", f"/queries?wait={WAIT_SECONDS}", "/queries", data=body, headers=headers
            )
            if answer.status_code != 201:
                return reason_of(answer)
            query = answer.json()
            request.query_id = query["id"]
            if query["state"] == "FAILED":
                return f"query {query['id']} is FAILED: {query['error']}"
            if query["state"] != "PENDING":
                self.load.live.append(query["id"])
                return None

    def delete(self, request: LoadRequest) -> str | None:
        """Retire a query and return None once it sees no more tuples, or why it could not be."""
        assert request.query_id is not None
        answer = self.persist(request, "DELETE", f"/queries/{request.query_id}", "/queries/{id}")
        if answer.status_code != 202:
            return reason_of(answer)
        stopped = self.load.stopping[request.query_id] = Event()
        self.load.deletion_asked.set()
        stopped.wait()
        return None


class StopWatcher(LoadUser):
    """Sees for all that deleted a query when it has stopped: one look at the DRAINING ones instead of one for each."""

    wait_time = constant(LOOK_SECONDS)

    @task
    def look(self) -> None:
        """Release those whose query has its `active_to`, or is not DRAINING any more."""
        self.load.deletion_asked.wait()
        waiting = set(self.load.stopping)
        draining = self.draining()
        if draining is None:
            return
        for query_id in waiting - draining:
            self.load.stopping.pop(query_id).set()
        if not self.load.stopping:
            self.load.deletion_asked.clear()

    def draining(self) -> set[str] | None:
        """Return the ids of DRAINING queries that may still see tuples; None when the service is busy."""
        query_ids: set[str] = set()
        cursor = ""
        while True:
            answer = self.client.get(f"/queries?state=DRAINING&limit={PAGE}{cursor}", name="/queries?state=DRAINING")
            if answer.status_code != 200:
                return None
            page = answer.json()
            query_ids |= {query["id"] for query in page["queries"] if None in query["active_to"].values()}
            if page["cursor"] is None:
                return query_ids
            cursor = f"&cursor={page['cursor']}"


class ReaderUser(LoadUser):
    """Reads on where it was in any of the live queries, now and then, as the users of a service do."""

    def __init__(self, environment: LoadEnvironment) -> None:
        super().__init__(environment)
        self.cursors: dict[str, str] = {}

    @task(3)
    def read(self) -> None:
        """Read the next rows of a query."""
        if not self.load.live or not self.load.plan.reads_per_second:
            return
        query_id = self.load.random.choice(self.load.live)
        after = f"&after={self.cursors[query_id]}" if query_id in self.cursors else ""
        answer = self.client.get(f"/queries/{query_id}/results?limit=100{after}", name="/queries/{id}/results")
        if answer.status_code == 200 and answer.headers is not None:
            self.cursors[query_id] = str(answer.headers["Braid-Cursor"])

    @task(1)
    def look(self) -> None:
        """Look at a query."""
        if self.load.live and self.load.plan.reads_per_second:
            self.client.get(f"/queries/{self.load.random.choice(self.load.live)}", name="/queries/{id}")


def retry_after(answer: Any) -> float | None:
    """Return the seconds that the service asks to wait; None when it does not say."""
    text = (answer.headers or {}).get("Retry-After", "")
    return float(text) if text.isdecimal() else None


def reason_of(answer: Any) -> str:
    """Return the service's own words of a refusal."""
    try:
        problem = json.loads(answer.text or "")
        return f"{answer.status_code} {problem['title']}: {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {(answer.text or '')[:200]}"
