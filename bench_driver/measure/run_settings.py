"""How long and how exactly a system is measured: how long steps are, and what may be concluded from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from braid.bench_driver.measure.search import SearchPlan, StepResult

QUICK_SECONDS = 6.0
QUICK_STEPS = 2
# a figure is taken only from a step that holds so many of the system's batches after its warm-up
MIN_BATCHES = 10
# windows that end during the latency step, but no more than so many times the usual seconds for them
WINDOWS_IN_STEP = 2.5
MAX_LONGER = 2.0
# a step in which so much of what was offered was taken may just have been too short: it goes on, and is judged again
NEARLY_ALL = 0.95


@dataclass(frozen=True)
class RunSettings:
    """How long and how exactly to measure: `seconds` a step, the first `warm_up_share` of which does not count.

    A search begins no step after `search_seconds`: a system whose steps had to be made longer would take for ever.

    Warming up goes on until the system takes no more than in the step before, as compilers do their work by and by.
    With `adapts`, it goes on until the system has adapted to the rate, for `runner.ADAPTING_SECONDS` at most; where
    queries come and go all the time it never has.

    Quick means steps of `QUICK_SECONDS`, however few batches they hold, and a search of `QUICK_STEPS`, the second of
    which goes down further: enough to see that it runs, not to compare.
    """

    seconds: float = 30.0
    warm_up_share: float = 0.25
    max_steps: int = 9
    refinements: int = 2
    latency_load: float = 0.9
    ready_seconds: float = 60.0
    search_seconds: float = 480.0
    seed: int = 1
    quick: bool = False
    adapts: bool = False

    def __post_init__(self) -> None:
        if not self.seconds > 0 or not self.ready_seconds > 0:
            raise ValueError(f"a step must last some seconds, got {self.seconds!r} and {self.ready_seconds!r}")
        if not 0 <= self.warm_up_share < 1 or not 0 < self.latency_load <= 1:
            raise ValueError(
                "warm_up_share must be from 0 to less than 1 and latency_load more than 0 up to 1,"
                f" got {self.warm_up_share!r} and {self.latency_load!r}"
            )
        if self.max_steps < 1 or self.refinements < 0:
            raise ValueError(f"a search needs max_steps >= 1 and refinements >= 0, got {self!r}")

    @property
    def step_seconds(self) -> float:
        """How long a step lasts."""
        return min(self.seconds, QUICK_SECONDS) if self.quick else self.seconds

    @property
    def plan(self) -> SearchPlan:
        """How the sustainable throughput is searched."""
        if self.quick:
            return SearchPlan(min(self.max_steps, QUICK_STEPS), refinements=0, below_taken=0.9)
        return SearchPlan(self.max_steps, self.refinements)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as the report has them."""
        return {
            "seconds": self.step_seconds,
            "warm_up_share": self.warm_up_share,
            "max_steps": self.plan.max_steps,
            "latency_load": self.latency_load,
            "quick": self.quick,
        }

    def latency_seconds(self, longest_slide: float) -> float:
        """Return how long a step is in which some windows end, as far as that is in proportion.

        ``longest_slide`` is how many seconds lie between two windows of a query at most.
        """
        needed_seconds = WINDOWS_IN_STEP * longest_slide / (1 - self.warm_up_share)
        return min(max(self.step_seconds, needed_seconds), MAX_LONGER * self.step_seconds)

    def why_not_measured(self, result: StepResult) -> str | None:
        """Return why no figure may be taken from a step, None when figures may."""
        if self.quick or result.batches >= MIN_BATCHES:
            return None
        return (
            f"not measured: a step of {result.seconds:.0f} s held {result.batches} batches after its warm-up,"
            f" and a figure takes {MIN_BATCHES}"
        )

    def may_settle(self, result: StepResult) -> bool:
        """Return whether a queue that grew in a step may do so no more in the next.

        A batch reads what came during the one before it. Just below what a system can take, batches get longer for many
        batches until they are as long as it takes to read what comes meanwhile, and so does the queue: transient
        backpressure (definition 5).
        """
        return took_nearly_all(result) and not result.sustained and not self.quick


def took_nearly_all(result: StepResult) -> bool:
    """Return whether a system took nearly all that it was offered in a step."""
    return result.pulled_per_second >= NEARLY_ALL * result.rate
