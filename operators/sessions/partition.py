"""Session windows in partitions: fragments kept as long as a session may grow, chained when it ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from braid.operators.aggregation.operator_queries import OperatorQueries, line_cells, operators_of, with_distinct
from braid.operators.aggregation.shared_aggregation import changelog_times, distinct_operator
from braid.operators.live_queries import LiveQueries
from braid.operators.operator import FiringBatch, Held, Mask, Predicates, Reached
from braid.operators.query_parts import SESSIONS
from braid.operators.sessions.sessions import LAST, alive_fragments, fire_sessions, gap_of, merge_fragments
from braid.operators.state.bucket import Bucket
from braid.operators.windowing.emission import emit
from braid.operators.windowing.fired_block import FiredBlock
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.firing_limit import Buckets, Costs, Ends
from braid.operators.windowing.slicing import Times

# what the end of a session costs (µs, rough: the planner learns by how much it is wrong)
_SESSION_US = 2.0


@dataclass(frozen=True)
class SessionEnds:
    """The sessions of an operator, which end ``gap_us`` after their last tuple."""

    operator: str
    gap_us: int

    def dense_us(self, span_us: int) -> float:
        """Return what a span costs at most."""
        return _SESSION_US * span_us / self.gap_us

    def cost(self, buckets: Buckets, after: int, upto: int) -> _SingleEnds | None:
        """Return what the sessions cost that fragments would be, were each alone."""
        own = buckets.get(self.operator, ())
        ends = np.concatenate(
            [
                np.empty(0, np.int64),
                *(bucket.component(LAST) + self.gap_us for bucket in own if isinstance(bucket, Bucket)),
            ]
        )
        ends = np.sort(ends[(ends > after) & (ends <= upto)])
        return _SingleEnds(ends) if len(ends) else None


@dataclass(frozen=True)
class _SingleEnds:
    """Ends of sessions, ascending (µs)."""

    ends: Times

    @property
    def times(self) -> Times:
        """The first of them."""
        return self.ends[:1]

    def upto(self, points: Times) -> Costs:
        """Return what it costs to fire those up to each of some times."""
        return _SESSION_US * np.searchsorted(self.ends, points, side="right").astype(np.float64)


class SessionPartition:
    """The operators of all aggregations over sessions."""

    def __init__(self, live: LiveQueries, predicates: Predicates) -> None:
        self._operators = operators_of(live, SESSIONS, predicates)
        self._with_buckets = with_distinct(self._operators)

    @property
    def names(self) -> Collection[str]:
        """The names of the operators, with those that count distinct values."""
        return self._with_buckets.keys()

    def ends(self) -> Iterator[tuple[str, Ends]]:
        """Yield the ends of sessions by the shortest gap."""
        for name, operator in self._operators.items():
            yield operator.stream, SessionEnds(name, min(gap_of(query) for query in operator.queries))

    def fire(self, batch: FiringBatch) -> Iterator[FiredBlock]:
        """Yield the rows that are due."""
        return emit(self._operators, batch, _fire)

    def needed(self, held: Held, reached: Reached) -> dict[int, Mask]:
        """Return which fragments of each bucket may still be part of a session."""
        needed: dict[int, Mask] = {}
        for name, operator in self._with_buckets.items():
            buckets = held.buckets.get(name, ())
            masks = alive_fragments(buckets, operator.queries, reached.get(operator.stream))
            needed.update(zip(map(id, buckets), masks, strict=True))
        return needed

    def merged(self, members: Sequence[Bucket], masks: Sequence[Mask], reached: Reached) -> Bucket:  # noqa: ARG002
        """Return one bucket for several; fragments that no gap parts become one."""
        operator = self._with_buckets[members[0].operator]
        cells = line_cells(operator, members[0].space)
        return merge_fragments(members, masks, cells, operator.queries, changelog_times(operator.queries))


def _fire(name: str, operator: OperatorQueries, after: int, upto: int, batch: FiringBatch) -> Fired | None:
    buckets = batch.held.buckets
    distinct = {argument: buckets.get(distinct_operator(name, argument), []) for argument in operator.distinct}
    return fire_sessions(buckets[name], operator.queries, operator.predicates, after, upto, batch.failures, distinct)
