"""The query load's process: `python -m bench_driver.query_load.run`.

Reads a :class:`LoadPlan` from standard input, one line of JSON. Writes two lines: `{"started_at": seconds}` when its
schedule begins, and a :class:`LoadResult` when it ends. A ramp ends by itself; a churn when there is another line of
input. Once the input is at its end the driver is gone, and it ends without waiting for answers. Exit status 2: the
input is no plan.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time

from bench_driver.query_load.plan import LoadPlan
from bench_driver.query_load.results import CREATE, DELETE, LoadRequest, LoadResult
from bench_driver.query_load.users import Load, start_users


class Driver:
    """What the driver says after the plan: `stop` is set by a line or the end of the input, `gone` by its end."""

    def __init__(self, load: Load) -> None:
        self.stop = threading.Event()
        self.gone = False
        self._load = load

    def listen(self) -> None:
        """Follow the input to its end."""
        sys.stdin.readline()
        self.stop.set()
        sys.stdin.read()
        with self._load.changed:
            self.gone = True
            self._load.changed.notify_all()


def run_load(plan: LoadPlan) -> LoadResult:
    """Run the load to its end."""
    load = Load(plan)
    driver = Driver(load)
    threading.Thread(target=driver.listen, name="driver", daemon=True).start()
    start_users(load)
    started_at = time.time()
    print(json.dumps({"started_at": started_at}), flush=True)
    feed(load, started_at, driver.stop)
    with load.changed:
        load.changed.wait_for(lambda: not load.open or driver.gone, plan.finish_seconds)
        return LoadResult(started_at, time.time(), tuple(load.requests), tuple(load.live))


def feed(load: Load, started_at: float, stop: threading.Event) -> None:
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
            for query_id in load.take_oldest(owed):
                load.schedule(LoadRequest(DELETE, due, query_id=query_id))
                owed -= 1


def main() -> int:
    """Read the plan, run it, write the result."""
    try:
        plan = LoadPlan.from_json(json.loads(sys.stdin.readline()))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(run_load(plan).to_json()), flush=True)
    os._exit(0)  # users still wait for answers


if __name__ == "__main__":
    sys.exit(main())
