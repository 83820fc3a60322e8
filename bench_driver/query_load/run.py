"""The query load's process: `python -m braid.bench_driver.query_load.run`.

Reads a :class:`LoadPlan` from standard input, one line of JSON. Writes two lines: `{"started_at": seconds}` once its
users are there, and a :class:`LoadResult` when it ends. A ramp ends by itself; a churn when there is another line of
input. Once the input is at its end the driver is gone, and it ends without waiting for answers. Exit status 2: the
input is no plan.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time

from braid.bench_driver.query_load.users import UserLoad, LoadEnvironment  # isort: skip  # patches for gevent before others use it

import gevent
import gevent.socket
from gevent.event import Event

from braid.bench_driver.query_load.plan import LoadPlan
from braid.bench_driver.query_load.results import CREATE, DELETE, LoadRequest, LoadResult

STDIN = 0
CHUNK_BYTES = 1 << 16


def read_plan() -> tuple[bytes, bytes]:
    """Return the first line of the input, and what came after it in the same breath."""
    text = b""
    while b"\n" not in text and (chunk := os.read(STDIN, CHUNK_BYTES)):
        text += chunk
    line, _, surplus = text.partition(b"\n")
    return line, surplus


class Driver:
    """What the driver says after the plan: `stop` is set by a line or the end of the input, `gone` by its end."""

    def __init__(self, pending_input: bytes) -> None:
        self.stop, self.gone = Event(), Event()
        self._pending_input = pending_input

    def listen(self) -> None:
        """Follow the input to its end."""
        while True:
            if b"\n" in self._pending_input:
                self.stop.set()
            gevent.socket.wait_read(STDIN)
            self._pending_input = os.read(STDIN, CHUNK_BYTES)
            if not self._pending_input:
                self.stop.set()
                self.gone.set()
                return


def run_load(plan: LoadPlan, driver: Driver) -> LoadResult:
    """Run the load to its end."""
    load = UserLoad(plan)
    environment = LoadEnvironment(load)
    runner = environment.create_local_runner()
    users = sum(user_class.fixed_count for user_class in environment.user_classes)
    runner.start(users, spawn_rate=users)
    assert runner.spawning_greenlet is not None
    runner.spawning_greenlet.join()
    started_at = time.time()
    print(json.dumps({"started_at": started_at}), flush=True)
    feed(load, started_at, driver.stop)
    gevent.wait([load.all_over, driver.gone], timeout=plan.finish_seconds, count=1)
    ended_at = time.time()
    runner.quit()
    return LoadResult(
        started_at,
        ended_at,
        tuple(load.requests),
        tuple(load.live),
    )


def feed(load: UserLoad, started_at: float, stop: Event) -> None:
    """Queue every request when it is due, until the schedule ends or someone says so.

    A churn retires as many as it makes; where fewer are live it makes up for it at the next tick.
    """
    numbers = itertools.cycle(range(len(load.plan.bodies)))
    owed = 0
    for offset, creations in load.plan.ticks():
        due = started_at + offset
        if stop.wait(max(0.0, due - time.time())):
            return
        for _ in range(creations):
            load.schedule(LoadRequest(CREATE, due, number=next(numbers)))
        if load.plan.churn_seconds is not None:
            owed += creations
            for _ in range(min(owed, len(load.live))):
                load.schedule(LoadRequest(DELETE, due, query_id=load.live.popleft()))
                owed -= 1


def main() -> int:
    """Read the plan, run it, write the result."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    line, surplus = read_plan()
    try:
        plan = LoadPlan.from_json(json.loads(line))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    driver = Driver(surplus)
    listener = gevent.spawn(driver.listen)
    print(json.dumps(run_load(plan, driver).to_json()), flush=True)
    listener.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
