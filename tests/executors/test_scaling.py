"""Executors come when tuples take long and go when they do not, and no row is lost, doubled or changed by that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.executors.test_executors import MASTER, RECOVERY_SECONDS, TUPLES, is_executor, workers_of
from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.oracle.driver import Driver
from tests.oracle.model import SECOND, Aggregation, Push
from tests.oracle.test_oracle import ALL, BY_GEM_PACK, COUNT, SCHEMA, TUMBLE, others
from tests.oracle.verify import verify

pytestmark = [pytest.mark.service, pytest.mark.long]

# together more than one core takes in
STREAMS = tuple(f"flood_{number}" for number in range(6))
FLOOD = """CREATE STREAM {} (user_id BIGINT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)
    WITH (connector = 'generator', dataset = 'purchases', rate = '10000000')"""
SUMS = "SELECT user_id, SUM(price) AS revenue FROM {} [RANGE 2 SECONDS] WHERE price > {} GROUP BY user_id"
QUERIES = 20
TRICKLE = 50
# one goes once rows come quickly, which they do not while other programs have the machine
SCALE_SECONDS = 900.0


def test_an_executor_comes_under_load_and_goes_without_and_results_stay_right(fresh_service: FreshService) -> None:
    service = fresh_service(
        BRAID_MASTER=MASTER,
        BRAID_PARTITIONS="2",
        BRAID_EXECUTORS_MAX="2",
        BRAID_SCALE_PERIOD_SECONDS="1",
        BRAID_DRAIN_TIMEOUT="600",
    )
    with Api(service.url) as api:
        wait_for(api, service, 1)
        (first,) = service.descendants(is_executor)
        driver = Driver(api, SCHEMA)
        driver.create([BY_GEM_PACK, *others()[::4]])
        driver.push(Push(TUPLES, seed=41, span=10 * SECOND, format="arrow"))
        with flooded(api):
            driver.push(Push(TUPLES, seed=42, span=10 * SECOND, format="arrow"))
            wait_for(api, service, 2)
            driver.create([Aggregation((COUNT,), TUMBLE), ALL], wait=60)
            wait_until(partial(are_all_at_work, service), RECOVERY_SECONDS, "both executors have Python processes")
        driver.push(Push(TUPLES, seed=43, span=10 * SECOND, format="arrow"))
        # batches go on while the second one leaves, but not so many that they keep the core busy that is left
        seeds = count(44)
        trickle = at_most_every(0.5, lambda: driver.push(Push(TRICKLE, seed=next(seeds), span=SECOND)))
        wait_for(api, service, 1, trickle)
        driver.push(Push(TUPLES, seed=43, span=10 * SECOND, format="arrow"))
        driver.settle(RECOVERY_SECONDS)
        driver.finish()
        assert service.descendants(is_executor) == [first], "the newest one goes"
        decisions = api.get("/plan")["executors"]["decisions"]
        assert [each["wanted"] for each in decisions] == [1, 2, 1]
        assert "rows took longer than 5 s" in decisions[1]["why"]
        assert service.starts == 1
        verify(driver)
    service.stop()
    assert service.left_over() == []


@contextmanager
def flooded(api: Api) -> Iterator[None]:
    """Have more tuples come than one executor takes in."""
    for stream in STREAMS:
        api.create_stream(FLOOD.format(stream))
    bodies = [{"sql": SUMS.format(stream, price)} for stream in STREAMS for price in range(QUERIES)]
    queries = api.create_queries(bodies, wait=60)
    yield
    for query in queries:
        api.delete_query(query["id"], drain=False)
    for query in queries:
        api.wait_deleted(query["id"])
    for stream in STREAMS:
        api.change("DELETE", f"/streams/{stream}", 204)


def wait_for(api: Api, service: RunningService, executors: int, meanwhile: Callable[[], object] = bool) -> None:
    """Wait until so many executors are wanted, registered and run, and do something ``meanwhile``."""
    shown: dict[str, Any] = {}

    def are_there() -> bool:
        meanwhile()
        shown.update(api.get("/plan")["executors"])
        is_told = shown["now"] == shown["wanted"] == executors
        return is_told and len(service.descendants(is_executor)) == executors

    wait_until(are_there, SCALE_SECONDS, lambda: f"{executors} executors are wanted and there, it shows {shown!r}")


def at_most_every(seconds: float, act: Callable[[], object]) -> Callable[[], None]:
    """Return what does something when it is called, unless it was done less than so many seconds ago."""
    due = time.monotonic()

    def act_when_due() -> None:
        nonlocal due
        if time.monotonic() >= due:
            act()
            due = time.monotonic() + seconds

    return act_when_due


def are_all_at_work(service: RunningService) -> bool:
    """Whether two executors have started Python processes for tasks."""
    executors = service.descendants(is_executor)
    return len(executors) == 2 and all(workers_of(each) for each in executors)
