"""Windowed aggregations in partitions: slices kept as long as a window needs them, added up when it ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from braid.operators.aggregation import alone_windows
from braid.operators.aggregation.firing import fire
from braid.operators.aggregation.operator_queries import OperatorQueries, line_cells, operators_of, with_distinct
from braid.operators.aggregation.shared_aggregation import distinct_operator
from braid.operators.live_queries import LiveQueries
from braid.operators.operator import FiringBatch, Held, Mask, Predicates, Reached
from braid.operators.predicates.space_key import ALONE
from braid.operators.query_parts import AGGREGATION
from braid.operators.state.bucket import Bucket
from braid.operators.state.merging import merge_buckets
from braid.operators.state.query_runs import Partials, QueryRuns
from braid.operators.windowing.emission import emit
from braid.operators.windowing.fired_block import FiredBlock
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.firing_limit import Ends, WindowEnds
from braid.operators.windowing.slicing import NeededEdges, is_needed

# what it costs that windows of an operator end together, a query's window, one that counts distinct values
# (µs, rough: the planner learns by how much they are wrong)
_END_US, _WINDOW_US, _DISTINCT_US = 8.0, 1.0, 100.0


class AggregationPartition:
    """The operators of all aggregations over windows that are not sessions."""

    def __init__(self, live: LiveQueries, predicates: Predicates) -> None:
        self._operators = operators_of(live, AGGREGATION, predicates)
        self._with_buckets = with_distinct(self._operators)

    @property
    def names(self) -> Collection[str]:
        """The names of the operators, with those that count distinct values."""
        return self._with_buckets.keys()

    def ends(self) -> Iterator[tuple[str, Ends]]:
        """Yield the ends of windows: those that fall together cost little more than one."""
        for name, operator in self._operators.items():
            counted_apart = 1 + len(operator.distinct)
            counting = {query.id for _, counting in operator.distinct.values() for query in counting}
            together: set[tuple[int, int]] = set()
            for window, members in operator.by_window.items():
                comb = window.slide_us, (window.offset_us + window.size_us) % window.slide_us
                end_us = 0.0 if comb in together else _END_US * counted_apart
                together.add(comb)
                distinct = sum(query.id in counting for query in members) if counting else 0
                cost_us = end_us + _WINDOW_US * len(members) + _DISTINCT_US * distinct
                yield operator.stream, WindowEnds(name, window, cost_us)

    def fire(self, batch: FiringBatch) -> Iterator[FiredBlock]:
        """Yield the rows that are due."""
        return emit(self._operators, batch, _fire)

    def needed(self, held: Held, reached: Reached) -> dict[int, Mask]:
        """Return which slices of each bucket some window can still need."""
        needed: dict[int, Mask] = {}
        for name, operator in self._with_buckets.items():
            buckets = held.buckets.get(name, ())
            masks = needed_slices(buckets, operator, reached.get(operator.stream))
            needed.update(zip(map(id, buckets), masks, strict=True))
        return needed

    def merged(self, members: Sequence[Partials], masks: Sequence[Mask], reached: Reached) -> Partials:
        """Return one bucket for several, cut where the queries that run cut."""
        operator = self._with_buckets[members[0].operator]
        at = reached.get(operator.stream)
        if members[0].space != ALONE:
            return merge_slices([m for m in members if isinstance(m, Bucket)], masks, operator, at)
        slots = sorted(query.slot for query in operator.queries if query.is_alone)
        runs = [member for member in members if isinstance(member, QueryRuns)]
        return alone_windows.merged(runs, masks, slots, _needed_edges(operator, at))


def _fire(name: str, operator: OperatorQueries, after: int, upto: int, batch: FiringBatch) -> Fired | None:
    buckets = batch.held.buckets
    distinct = {argument: buckets.get(distinct_operator(name, argument), []) for argument in operator.distinct}
    # changes have columns of their own, and early rows are compared
    may_form_later = not operator.emits_changes and not operator.early
    return fire(buckets[name], operator.windowed, after, upto, batch.failures, distinct, may_form_later)


def needed_slices(buckets: Sequence[Partials], operator: OperatorQueries, reached: int | None) -> list[Mask]:
    """Return which slices of each bucket some window can still need, shape (slices,) each."""
    if reached is None:
        return [np.ones(len(bucket.slices), dtype=np.bool_) for bucket in buckets]
    masks: dict[int, Mask] = {}
    by_epoch: dict[int, list[Partials]] = {}
    for bucket in buckets:
        by_epoch.setdefault(bucket.epoch, []).append(bucket)
    for epoch, members in by_epoch.items():
        # a query reads no bucket of an epoch before its own
        windows = [window for window, since in operator.windows if since <= epoch]
        needed = is_needed(np.concatenate([bucket.slices for bucket in members]), windows, reached)
        ends = np.cumsum([len(bucket.slices) for bucket in members])
        masks.update(zip(map(id, members), np.split(needed, ends[:-1]), strict=True))
    return [masks[id(bucket)] for bucket in buckets]


def merge_slices(
    members: Sequence[Bucket], masks: Sequence[Mask], operator: OperatorQueries, reached: int | None
) -> Bucket:
    """Return one bucket for several of an operator and space; slices that no window needs apart become one."""
    return merge_buckets(members, masks, line_cells(operator, members[0].space), _needed_edges(operator, reached))


def _needed_edges(operator: OperatorQueries, reached: int | None) -> NeededEdges | None:
    return None if reached is None else NeededEdges(list(operator.by_window), operator.begins, reached)
