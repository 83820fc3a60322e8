"""What the optimizer changes in a running plan, what it decides about, and who decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from operators.queries import Query
from optimizer.statistics import Spent, Statistics

CHANGES_KEPT = 100


@dataclass(frozen=True)
class Member:
    """A query of an operator, with its group."""

    id: str
    query: Query
    group: int


@dataclass
class PlanChange:
    """New groups of queries of an operator, by their ids, and why; ``estimated`` are cores before and after.

    ``before`` and ``after`` are what the operator took for tuples before, and after it was in effect.
    """

    at_us: int
    operator: str
    kind: str
    why: str
    groups: Mapping[str, int]
    estimated: tuple[float, float] | None = None
    before: Spent | None = None
    after: Spent | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what people see of it."""
        estimated = (None, None) if self.estimated is None else tuple(float(f"{cores:.3g}") for cores in self.estimated)
        return {
            "operator": self.operator,
            "kind": self.kind,
            "why": self.why,
            "queries": len(self.groups),
            "estimated_cores": dict(zip(("before", "after"), estimated, strict=True)),
            "measured_us_per_tuple": {"before": us_a_tuple(self.before), "after": us_a_tuple(self.after)},
        }


class Policy(Protocol):
    """What decides about groups: :mod:`optimizer.regrouping`, or :mod:`optimizer.arbitrary_groups` in tests."""

    log: deque[PlanChange]

    def propose(
        self, now_us: int, operators: Mapping[str, Sequence[Member]], statistics: Statistics, /
    ) -> list[PlanChange]: ...


def us_a_tuple(spent: Spent | None) -> float | None:
    """Return microseconds a tuple in three digits, None where they are not known."""
    return None if spent is None else float(f"{spent.per_tuple * 1e6:.3g}")
