"""The driver's side of the query load: start its process, and take its results."""

from __future__ import annotations

from typing import Self

from braid.bench_driver.child import ChildProcess, module_command
from braid.bench_driver.query_load.plan import LoadPlan
from braid.bench_driver.query_load.results import LoadResult

MODULE = "braid.bench_driver.query_load.run"
START_SECONDS = 60.0
MARGIN_SECONDS = 30.0


class QueryLoad:
    """A query load that runs from construction on; every method raises ChildFailedError when it does not."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self._child = ChildProcess("query-load", module_command(MODULE)).start()
        self._child.send(plan.to_json())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait_started(self) -> Self:
        """Return once its users are there and the schedule begins."""
        self._child.wait_for(lambda value: "started_at" in value, START_SECONDS, "word that its users are there")
        return self

    def result(self) -> LoadResult:
        """Wait for a ramp's end, or end a churn, and return what came of it."""
        seconds = self.plan.finish_seconds + MARGIN_SECONDS
        if self.plan.per_second is None:
            self._child.send({"do": "stop"})
        else:
            seconds += len(self.plan.bodies) / self.plan.per_second
        return LoadResult.from_json(
            self._child.wait_for(lambda value: "requests" in value, seconds, "the result").value
        )

    def stop(self) -> None:
        """End its process; harmless to repeat."""
        self._child.stop()


def run_load(plan: LoadPlan) -> LoadResult:
    """Run a ramp to its end."""
    with QueryLoad(plan) as load:
        return load.wait_started().result()
