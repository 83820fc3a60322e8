"""Search the sustainable throughput (definition 5): offer too much, then step down until the queue stops growing.

"We execute each of the systems under test with a very high generation rate. Then, we decrease the data generation
speed until the system can sustain that data generation rate" (thesis 3.4.2.1). What a system took of too much says
where to go on; what it took while it was still cold says too little, so a rate that is sustained may be climbed from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """What came of offering `rate`; all in tuples a second and stream.

    `growth` is that of the fastest growing queue, `pulled_per_second` what the slowest consumer pulled, `consumers`
    what each consumer of the slowest stream pulled. `missing` are rows, in words, that did not reach their readers, or
    that were left out. `batches` are those that the slowest consumer did after the warm-up, in a step of so many
    `seconds`.
    """

    rate: float
    sustained: bool
    growth: float
    pulled_per_second: float
    consumers: tuple[float, ...] = ()
    missing: str | None = None
    batches: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.rate < 0 or self.pulled_per_second < 0:
            raise ValueError(f"rates must not be negative, got {self!r}")


@dataclass(frozen=True)
class Search:
    """The steps in order, and the best of them: the highest rate that was sustained."""

    steps: tuple[StepResult, ...]
    best: StepResult | None


Probe = Callable[[int], StepResult]


@dataclass(frozen=True)
class SearchPlan:
    """How far to step: down to `below_taken` of what was taken, then by `down` each; after success, up by `up`.

    At most `max_steps` steps in all. Between what is sustained and what is too much, `refinements` steps go by what
    was taken, where that lies between them; then each goes to the middle, until what is too much is no more than `far`
    times what is sustained. Without refinements it ends as soon as it knows a rate of either kind.
    """

    max_steps: int = 9
    refinements: int = 2
    below_taken: float = 0.97
    down: float = 0.93
    up: float = 1.1
    far: float = 1.1

    def __post_init__(self) -> None:
        if self.max_steps < 1 or self.refinements < 0:
            raise ValueError(f"a search needs at least one step and no negative refinements, got {self!r}")
        if not (0 < self.below_taken <= 1 and 0 < self.down < 1 < min(self.up, self.far)):
            raise ValueError(f"a search needs 0 < below_taken <= 1 and 0 < down < 1 < up and far, got {self!r}")


def search(start_rate: int, probe: Probe, plan: SearchPlan, is_late: Callable[[], bool] = lambda: False) -> Search:
    """Return the highest rate found that is sustained.

    A start rate that is sustained was not too high: it is doubled until it is. One that seemed too high to a system
    that was still cold is offered again before it counts as such. Once `is_late`, no step is added.
    """
    steps: list[StepResult] = []
    best: StepResult | None = None
    ceiling: int | None = None
    rate, refinements = start_rate, plan.refinements
    is_confirmed = False
    while rate >= 1 and len(steps) < plan.max_steps and not (steps and is_late()):
        step = probe(rate)
        steps.append(step)
        if step.sustained:
            best = step
        else:
            ceiling = rate
        if best is not None and ceiling is not None:
            guess = None
            if refinements > 0:
                # up from what holds, or down from what was too much to what it took of that
                guess = step.rate * plan.up if step.sustained else step.pulled_per_second * plan.below_taken
                refinements -= 1
            # nearer to what is known than the steps that found it, or beyond: nothing would be learnt
            if guess is None or not best.rate / plan.below_taken < guess < ceiling * plan.below_taken:
                if plan.refinements and ceiling > best.rate * plan.far:
                    guess = math.sqrt(best.rate * ceiling)
                elif plan.refinements and ceiling == start_rate and not is_confirmed:
                    guess, ceiling, is_confirmed = ceiling, None, True
                else:
                    break
            rate = int(guess)
        elif step.sustained:
            rate *= 2
        else:
            taken = step.pulled_per_second * plan.below_taken
            # what was taken of too much is known after one step; if that was too much as well, it misleads
            lower = rate * (plan.below_taken if len(steps) == 1 else plan.down)
            rate = int(min(taken, lower) if taken > 0 else lower / 2)
    return Search(tuple(steps), best)
