"""The oracle with crashes in between: kill -9 of the service, of a Python worker, and of the JVM."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.oracle.driver import Driver
from tests.oracle.join_run import JoinRun
from tests.oracle.model import SECOND, Aggregation, Create, Push, Run, Selection, Step
from tests.oracle.strategies import runs
from tests.oracle.test_oracle import ALL, BY_GEM_PACK, COUNT, SCHEMA, TUMBLE, others
from tests.oracle.tuples import closing_tuple
from tests.oracle.verify import verify
from tests.oracle.wire import CONTENT_TYPES, encode

pytestmark = pytest.mark.service

KILLS = int(os.environ.get("BRAID_CRASH_KILLS", "2"))
RECOVERY_SECONDS = 300.0
CHANGING_PLANS = {"program": "tests.optimizer.arbitrary_plans", "BRAID_REOPTIMIZE_SECONDS": "0.2"}
"""Another plan with every batch or so: which one must never matter."""
MODES = ("during a push", "during a creation", "after a push")


class Killer:
    """Kill the service at random moments of chosen steps and start it again.

    A request that the kill cuts off is repeated with its Idempotency-Key by the client, which revives the
    service first; a kill after a push hits the batch that takes the push in.
    """

    def __init__(self, service: RunningService, run: Run, rng: random.Random, kills: int) -> None:
        """Choose the steps, at least one of each kind while there are kills enough."""
        self._service = service
        self._rng = rng
        self._planned: dict[int, str] = {}
        self._step = -1
        for number in range(kills):
            mode = MODES[number % len(MODES)]
            step_kind = Create if mode == "during a creation" else Push
            steps = [i for i, step in enumerate(run.steps) if isinstance(step, step_kind) and i not in self._planned]
            if steps:
                self._planned[rng.choice(steps)] = mode

    @property
    def planned(self) -> dict[int, str]:
        """Return the kill of each step that has one."""
        return dict(self._planned)

    @contextmanager
    def disturb(self, step: Step) -> Iterator[None]:
        """Wrap one step of a run."""
        del step
        self._step += 1
        mode = self._planned.get(self._step)
        if mode is None:
            yield
            return
        if mode == "after a push":
            yield
            self._after(self._rng.uniform(0, 1.5)).join()
        else:
            timer = self._after(self._rng.uniform(0, 0.05 if mode == "during a push" else 0.8))
            yield
            timer.join()
        self._service.revive()

    def _after(self, seconds: float) -> threading.Timer:
        """Kill after some time, whatever then goes on."""
        timer = threading.Timer(seconds, self._service.kill)
        timer.start()
        return timer


@settings(
    max_examples=1,
    deadline=None,  # every restart takes as long as Spark does
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would crash the service all day
    # a run is big by intent; the service factory may serve several examples, each starts its own service
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(run=runs(tuples=150, created=(15, 25)), seed=st.integers(0, 2**31))
def test_kill_9_of_the_service_loses_doubles_and_changes_nothing(
    fresh_service: FreshService, run: Run, seed: int
) -> None:
    # restarts take so long that a query which drains meanwhile could be given up: that is not what is tested
    service = fresh_service(BRAID_DRAIN_TIMEOUT="600", **CHANGING_PLANS)
    # ended here, not by the guard: to confirm a failure Hypothesis starts another one at once
    with closing_down(service), Api(service.url, on_unreachable=service.revive) as api:
        killer = Killer(service, run, random.Random(seed), KILLS - 1)
        note(f"kills by step: {killer.planned}")
        driver = Driver(api, run.schema)
        driver.carry_out(run, killer.disturb)
        repeat_across_a_crash(driver, service)
        driver.finish()
        assert service.starts == 2 + len(killer.planned), "every planned kill must have hit"
        verify(driver)
        names = [query["name"] for query in api.queries() if query["name"].startswith(driver.stream)]
        assert sorted(names) == sorted(set(names)), "a creation that was repeated must register once"
        assert len(names) == len(driver.queries)
        service.stop()


@contextmanager
def closing_down(service: RunningService) -> Iterator[None]:
    """End a service and whatever it left behind."""
    try:
        yield
    finally:
        service.end_everything()


def repeat_across_a_crash(driver: Driver, service: RunningService) -> None:
    """Push and create, kill, and repeat both: the first answers must come again, and nothing twice."""
    api, key = driver.api, str(uuid.uuid4())
    assert driver.newest is not None
    rows = [closing_tuple(driver.schema, driver.newest + SECOND, len(driver.tuples))]
    push_answer = driver.send(rows, key=key)
    body = {"sql": Selection(()).sql(driver.stream, driver.schema), "name": f"{driver.stream}_repeated"}
    created = api.create_queries([body], wait=0, key=key + "-query")[0]
    service.kill()
    service.start()
    content_type = CONTENT_TYPES["ndjson"]
    assert api.push(driver.stream, content_type, encode(driver.schema, rows, "ndjson"), key) == push_answer
    assert api.create_queries([body], wait=0, key=key + "-query")[0]["id"] == created["id"]
    driver.adopt(Selection(()), created["id"])


def kill_one(service: RunningService, matches: Callable[[psutil.Process], bool]) -> None:
    """End one of the processes of a service without warning, as soon as there is one."""
    wait_until(partial(service.descendants, matches), RECOVERY_SECONDS, f"a process runs that {matches.__name__}")
    victim = service.descendants(matches)[-1]
    victim.kill()
    wait_until(partial(is_gone, victim), 10, f"process {victim.pid} is gone")


def is_python_worker(process: psutil.Process) -> bool:
    """Tell a Spark Python worker: forked by, or run like, PySpark's daemon."""
    command = " ".join(process.cmdline())
    return "pyspark" in command and ("daemon" in command or "worker" in command) and "java" not in process.name()


def is_jvm(process: psutil.Process) -> bool:
    """Tell the Java virtual machine that hosts Spark."""
    return process.name() == "java"


def is_gone(process: psutil.Process) -> bool:
    """Tell whether a process has ended, reaped by its parent or not."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.long
def test_the_service_recovers_by_itself_from_a_killed_worker_and_a_killed_jvm(
    fresh_service: FreshService,
    tmp_path: Path,
) -> None:
    # as above: a drain that is given up is not what is tested
    service = fresh_service(BRAID_DRAIN_TIMEOUT="600", **CHANGING_PLANS)
    with Api(service.url) as api:
        joins = JoinRun(api, seed=5, joins=9, rounds=4, folder=tmp_path)
        driver = Driver(api, SCHEMA)
        driver.create([ALL, BY_GEM_PACK, *others()[::3]])
        joins.next_round()
        driver.push(Push(200, seed=21, span=10 * SECOND))
        driver.settle()
        driver.poll()
        for number, matches in enumerate((is_python_worker, is_jvm)):
            joins.next_round(partial(kill_one, service, matches), RECOVERY_SECONDS)
            driver.push(Push(200, seed=22 + number, span=10 * SECOND))
            driver.poll()
            driver.settle(RECOVERY_SECONDS)
            service.wait_ready(RECOVERY_SECONDS)
            driver.create([Aggregation((COUNT,), TUMBLE), ALL])
            driver.poll()
        joins.next_round()
        joins.finish()
        driver.push(Push(200, seed=30, span=10 * SECOND))
        driver.finish()
        assert service.starts == 1
        assert service.alive()
        verify(driver)
        joins.verify()
    service.stop()
