"""What the session asks of executors: told in a file, shown by the plan, and kept over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from braid.engine.data_layout import PARTITIONS
from braid.engine.spark.executors import WANTED, Registered, read_max, read_wanted, write_registered
from braid.session.settings import Settings
from braid.session.upkeep.scaling import KEPT, NOT_DECIDED, Scaling
from braid.sources.core.storage import Storage
from tests.session.driver import Driver

SECOND = 1_000_000
CLUSTER = "local-cluster[3,2,1024]"


class Cluster:
    """A data folder with four partitions, its executors, and batches by the clock."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.storage = Storage(str(folder))
        self.storage.put(PARTITIONS, orjson.dumps({"partitions": 4}))
        self._settings = {"master": CLUSTER, "executors_max": 3, **settings}
        self.now_us = 100 * SECOND
        self.restart()

    def restart(self, **settings: Any) -> None:
        """Begin a session on the folder."""
        self._settings |= settings
        self.scaling = Scaling(self.storage, Settings(**self._settings))
        self.scaling.start(self.now_us)

    def register(self, executors: int, idle: bool = False) -> None:
        """Have the driver tell of executors of two cores."""
        write_registered(self.storage, Registered(executors, 2 * executors, idle))

    def batches(self, seconds: int, latency: int, cores: float) -> None:
        """Commit a batch each second."""
        for _ in range(seconds):
            self.batch(1.0, latency, cores)

    def batch(self, after_seconds: float, latency: float, cores: float) -> None:
        """Commit a batch so long after the one before, in which so many cores worked."""
        after_us = int(after_seconds * SECOND)
        self.now_us += after_us
        record = {
            "planned_us": self.now_us - int(latency * SECOND),
            "committed_us": self.now_us,
            "streams": {"s-1": {"tuples": 10}},
            "waiting": 0,
            "source_busy_us": [int(cores * after_us)],
            "operator_busy_us": [0],
        }
        self.scaling.observe(record)

    def wait(self, seconds: int) -> None:
        """Let time pass without batches."""
        for _ in range(seconds):
            self.now_us += SECOND
            self.scaling.look(self.now_us)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_executors_are_asked_for_while_tuples_take_long_and_given_back_when_none_come(cluster: Cluster) -> None:
    cluster.register(1)
    assert read_wanted(cluster.storage) == cluster.scaling.wanted == 1
    assert read_max(cluster.storage) == 3
    cluster.batches(7, latency=9, cores=2.0)
    assert read_wanted(cluster.storage) == 2
    cluster.register(2)
    cluster.batches(100, latency=9, cores=4.0)
    assert read_wanted(cluster.storage) == 2, "two executors have the cores of four partitions"
    cluster.wait(100)
    assert read_wanted(cluster.storage) == 2, "a batch may be running"
    cluster.register(2, idle=True)
    cluster.wait(60)
    assert read_wanted(cluster.storage) == 2
    cluster.wait(2)
    assert read_wanted(cluster.storage) == 1
    body = cluster.scaling.describe()
    assert [decision["wanted"] for decision in body["decisions"]] == [1, 2, 1]
    assert body["why"] == body["decisions"][-1]["why"]
    assert body["since"] == body["decisions"][-1]["at"]
    assert (body["now"], body["wanted"], body["bounds"]) == (2, 1, [1, 3])


@pytest.mark.parametrize(("cores_of_some", "executors_left"), [(1.6, 2), (3.0, 3)])
def test_small_batches_count_by_what_they_do_together(
    cluster: Cluster, cores_of_some: float, executors_left: int
) -> None:
    """One of four is that in which windows end, and keeps more cores busy than one executor fewer may have busy."""
    cluster.restart(executors_min=3)
    cluster.restart(executors_min=2)
    cluster.register(3)
    for _ in range(70 * 3):
        cluster.batch(0.25, latency=0.2, cores=cores_of_some)
        for _ in range(3):
            cluster.batch(0.1, latency=0.1, cores=0.3)
    assert cluster.scaling.wanted == executors_left


def test_a_clock_that_is_set_back_does_not_put_off_decisions(cluster: Cluster) -> None:
    cluster.register(1)
    cluster.batches(3, latency=9, cores=2.0)
    cluster.now_us -= 90 * SECOND
    cluster.batches(7, latency=9, cores=2.0)
    assert cluster.scaling.wanted == 2


def test_nothing_is_decided_before_the_driver_has_told_of_executors(cluster: Cluster) -> None:
    cluster.batches(100, latency=9, cores=2.0)
    assert cluster.scaling.describe()["now"] is None
    cluster.register(0)
    cluster.batches(100, latency=9, cores=2.0)
    assert cluster.scaling.wanted == 1


def test_a_restart_goes_on_with_what_was_wanted(cluster: Cluster) -> None:
    cluster.register(1)
    cluster.batches(7, latency=9, cores=2.0)
    before = cluster.scaling.describe()
    cluster.restart()
    assert cluster.scaling.describe() == before
    cluster.restart(executors_min=3)
    assert cluster.scaling.wanted == read_wanted(cluster.storage) == 3
    assert cluster.scaling.describe()["why"] == "There must be from 3 to 3 executors."


def test_only_the_newest_decisions_are_kept(cluster: Cluster) -> None:
    for executors in [1, 2] * KEPT:
        cluster.restart(executors_min=executors, executors_max=executors)
    decisions = cluster.scaling.describe()["decisions"]
    assert [decision["wanted"] for decision in decisions] == [1, 2] * (KEPT // 2)


def test_on_a_local_master_it_is_decided_and_said_that_nothing_comes_of_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, master="local[2]")
    cluster.register(1)
    cluster.batches(7, latency=9, cores=2.0)
    body = cluster.scaling.describe()
    assert (body["now"], body["wanted"]) == (1, 2)
    assert "rows took longer than 5 s" in body["why"]
    assert body["why"].endswith("the master local[2] has no executors but the driver's process.")


def test_without_the_setting_nothing_is_asked_for(cluster: Cluster) -> None:
    cluster.restart(executors_max=0)
    assert not cluster.storage.exists(WANTED)
    cluster.register(1, idle=True)
    cluster.batches(100, latency=9, cores=2.0)
    cluster.wait(100)
    assert not cluster.storage.exists(WANTED)
    assert cluster.scaling.describe() == {
        "now": 1,
        "wanted": None,
        "bounds": None,
        "why": NOT_DECIDED,
        "since": None,
        "decisions": [],
    }


def test_the_session_shows_it_with_the_plan(tmp_path: Path) -> None:
    driver = Driver(tmp_path, master=CLUSTER, executors_min=2, executors_max=3)
    try:
        assert driver.session.plans.graph()["executors"]["wanted"] == 2
    finally:
        driver.end()
