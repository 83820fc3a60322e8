"""What the optimizer changes in a running plan, what it decides about, and who decides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from braid.operators.joins.key_splits import KeySplit
from braid.operators.queries import Query
from braid.optimizer.statistics import Spent, Statistics

CHANGES_KEPT = 100


@dataclass(frozen=True)
class Member:
    """A query of an operator, with its group."""

    id: str
    query: Query
    group: int


@dataclass
class PlanChange:
    """New groups of queries of an operator, by their ids, or a new split of its keys, and why.

    ``estimated`` are the cores that it keeps busy before and after, for a split in the busiest partition. ``before``
    and ``after`` are what the operator took for tuples before, and after it was in effect; ``busiest_partition`` is the
    share of that partition in the time of all partitions, before and after.
    """

    at_us: int
    operator: str
    kind: str
    why: str
    groups: Mapping[str, int]
    estimated: tuple[float, float] | None = None
    before: Spent | None = None
    after: Spent | None = None
    split: KeySplit | None = None
    busiest_partition: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what people see of it."""
        document = {
            "operator": self.operator,
            "kind": self.kind,
            "why": self.why,
            "queries": len(self.groups),
            "estimated_cores": _before_and_after(self.estimated),
            "measured_us_per_tuple": {"before": us_a_tuple(self.before), "after": us_a_tuple(self.after)},
        }
        if self.split is None:
            return document
        return {
            **document,
            "keys": len(self.split.hashes),
            "measured_busiest_partition": _before_and_after(self.busiest_partition),
        }


class GroupPolicy(Protocol):
    """What decides about groups: :mod:`braid.optimizer.regrouping`."""

    log: deque[PlanChange]

    def propose(
        self, now_us: int, operators: Mapping[str, Sequence[Member]], statistics: Statistics, /
    ) -> list[PlanChange]: ...


@dataclass(frozen=True)
class Situation:
    """What split policies are shown: the queries of each operator, and the ``splits`` of those that may get another.

    A new split gets the next of ``numbers``. There are so many ``partitions``; it is ``now_us``, processing time.
    """

    now_us: int
    operators: Mapping[str, Sequence[Member]]
    splits: Mapping[str, KeySplit]
    numbers: Iterator[int]
    partitions: int
    statistics: Statistics


class SplitPolicy(ABC):
    """What decides about split keys: :mod:`braid.optimizer.key_splitting`."""

    def __init__(self) -> None:
        self.log: deque[PlanChange] = deque(maxlen=CHANGES_KEPT)
        """The newest changes."""

    @abstractmethod
    def propose(self, situation: Situation) -> list[PlanChange]:
        """Return what should change; asked again and again."""

    def note(self, change: PlanChange) -> None:
        """Take note that a change was made."""
        self.log.append(change)


def _before_and_after(numbers: tuple[float, float] | None) -> dict[str, float | None]:
    before, after = (None, None) if numbers is None else (float(f"{number:.3g}") for number in numbers)
    return {"before": before, "after": after}


def us_a_tuple(spent: Spent | None) -> float | None:
    """Return microseconds a tuple in three digits, None where they are not known."""
    return None if spent is None else float(f"{spent.per_tuple * 1e6:.3g}")
