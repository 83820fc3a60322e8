"""The executors of the running Spark application: how many there are, and bringing them to how many are wanted.

More are asked of the cluster by ``requestTotalExecutors``, which also keeps it from replacing those that leave. Who is
to leave is decommissioned: it gets no more tasks, ends those that it has, and goes. What it kept of the batch that runs
is made again by others; the state of partitions is in the checkpoint. A local master has no executors.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark import SparkContext

from braid.engine.spark.executors import Registered, read_wanted, write_registered
from braid.engine.spark.masters import has_executors
from braid.sources.core.storage import Storage

LOOK_SECONDS = 1.0
_DRIVER = "driver"


class ExecutorPool:
    """Follows what the service wants, and tells it what there is."""

    def __init__(self, context: SparkContext, master: str, storage: Storage) -> None:
        self._python = context
        self._jvm: Any = context._jvm
        self._spark = context._jsc.sc()
        self._has_executors = has_executors(master)
        self._storage = storage
        self._requested: int | None = None
        self._reported: Registered | None = None

    def follow(self, stopping: threading.Event) -> None:
        """Look again and again until ``stopping``."""
        problem = None
        while not stopping.wait(LOOK_SECONDS):
            try:
                self.look()
                problem = None
            except Exception as error:  # the job goes on with the executors that it has
                if problem != str(error):
                    problem = str(error)
                    print(f"The executors cannot be followed: {problem}", flush=True)

    def look(self) -> None:
        """Do what is wanted, and tell what there is if that has changed."""
        target = read_wanted(self._storage)
        if self._has_executors and target is not None:
            self._bring_to(target)
        registered = self._registered(target is not None)
        if registered != self._reported:
            write_registered(self._storage, registered)
            self._reported = registered

    def _registered(self, is_scaled: bool) -> Registered:
        active = set(self._active()) if self._has_executors else {_DRIVER}
        summaries = _listed(self._spark.statusStore().executorList(True))
        cores = sum(summary.totalCores() for summary in summaries if summary.id() in active)
        idle = is_scaled and not self._python.statusTracker().getActiveJobsIds()
        return Registered(len(active), cores, idle)

    def _bring_to(self, target: int) -> None:
        if self._requested != target:
            no_localities = self._jvm.scala.collection.immutable.HashMap()
            if self._spark.requestTotalExecutors(target, 0, no_localities):
                self._requested = target
        newest_first = sorted(self._active(), key=_age, reverse=True)
        for executor in newest_first[: max(0, len(newest_first) - target)]:
            self._decommission(executor)

    def _active(self) -> list[str]:
        """Return the ids of the executors that are there to stay."""
        backend = self._spark.schedulerBackend()
        return [executor for executor in _listed(backend.getExecutorIds()) if backend.isExecutorActive(executor)]

    def _decommission(self, executor: str) -> None:
        no_host = self._jvm.scala.Option.empty()
        reason = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("fewer executors are wanted", no_host)
        self._spark.schedulerBackend().decommissionExecutor(executor, reason, False, False)


def _listed(sequence: Any) -> list[Any]:
    """Return what a sequence of Scala holds."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _age(executor: str) -> tuple[int, str]:
    """Order the ids of executors by their age: Spark numbers them."""
    return int(executor) if executor.isdecimal() else 0, executor
