"""Two executors, JVMs apart from the driver's, on one machine: they share the work, and one may die at any moment."""

from __future__ import annotations

import os
import random
import threading
from functools import partial

import psutil
import pytest

from braid.sources.core.storage import Storage
from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.oracle.driver import Driver
from tests.oracle.model import SECOND, Aggregation, Push
from tests.oracle.test_oracle import ALL, BY_GEM_PACK, COUNT, SCHEMA, TUMBLE, others
from tests.oracle.verify import verify

pytestmark = [pytest.mark.service, pytest.mark.long]

MASTER = "local-cluster[2,1,1024]"
KILLS = int(os.environ.get("BRAID_EXECUTOR_KILLS", "1"))
RECOVERY_SECONDS = 300.0
# enough for a source task in each executor
TUPLES = 45_000


def is_executor(process: psutil.Process) -> bool:
    """Tell the JVM of an executor; the driver's has another main class."""
    return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline()


def test_two_executors_share_the_work_and_one_may_be_killed(fresh_service: FreshService) -> None:
    # a drain that is given up while Spark recovers is not what is tested
    service = fresh_service(BRAID_MASTER=MASTER, BRAID_PARTITIONS="3", BRAID_DRAIN_TIMEOUT="600")
    assert Storage(str(service.data_dir)).get_json("partitions.json") == {"partitions": 3}
    assert len(service.descendants(is_executor)) == 2
    moments = random.Random(7)
    with Api(service.url) as api:
        driver = Driver(api, SCHEMA)
        driver.create([BY_GEM_PACK, *others()[::4]])
        driver.push(Push(TUPLES, seed=31, span=10 * SECOND, format="arrow"))
        driver.settle()
        assert all(workers_of(executor) for executor in service.descendants(is_executor))
        for kill in range(KILLS):
            before = service.descendants(is_executor)
            driver.push(Push(TUPLES, seed=32 + kill, span=10 * SECOND, format="arrow"))
            victim = threading.Timer(moments.uniform(0, 0.5), moments.choice(before).kill)
            victim.start()  # while the batch runs that takes the push in
            victim.join()
            driver.settle(RECOVERY_SECONDS)
            wait_until(partial(is_another_there, service, before), RECOVERY_SECONDS, "Spark has brought a new executor")
            driver.create([Aggregation((COUNT,), TUMBLE), ALL])
            driver.poll()
        driver.push(Push(200, seed=30, span=10 * SECOND))
        driver.finish()
        assert service.starts == 1
        verify(driver)
    service.stop()
    assert service.left_over() == []


def workers_of(executor: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes that an executor has started."""
    return [each for each in executor.children(recursive=True) if "pyspark.worker" in each.cmdline()]


def is_another_there(service: RunningService, before: list[psutil.Process]) -> bool:
    """Whether two executors run, one of which did not ``before``."""
    now = service.descendants(is_executor)
    return len(now) == 2 and set(now) != set(before)
