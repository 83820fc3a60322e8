"""Joins in partitions: what inputs hold by key, slice by slice, and the tuples that rows are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braid.operators.aggregation.operator_queries import OperatorQueries
from braid.operators.aggregation.partition import merge_slices, needed_slices
from braid.operators.event_times import EARLIEST
from braid.operators.failure_isolation import isolate_failures
from braid.operators.joins.matches.fire import fire_joins
from braid.operators.joins.matches.firing import JoinOperator, join_operators
from braid.operators.joins.matches.late_rows import JoinedRows
from braid.operators.joins.session_joins import open_tuples
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.operator import FiringBatch, Held, Mask, Predicates, Reached, ResultBlock
from braid.operators.query_parts import JOIN
from braid.operators.state.bucket import Bucket
from braid.operators.state.bucket_store import RESULTS, put_join_block
from braid.operators.state.tuple_bucket import TupleBucket
from braid.operators.windowing.fired_block import FiredBlock, block_entry
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.firing_limit import Ends, WindowEnds
from braid.operators.windowing.slicing import is_needed
from braid.sources.core.storage import Storage

# what a query's window costs when it ends (µs, rough: the planner learns by how much it is wrong)
_JOINED_US = 1000.0


@dataclass(frozen=True)
class JoinedBlock:
    """Rows of joins that readers form."""

    operator: str
    stream: str
    joined: JoinedRows

    def write(self, storage: Storage, seq: int, links: dict[str, str]) -> dict[str, Any]:
        """Write the block; return its entry of the batch record, with the files of tuples that it is first to name."""
        path, tuple_paths = put_join_block(storage, RESULTS, seq, self.joined.block, links)
        return block_entry(JOIN, self.operator, self.stream, self.joined, path) | {"tuples": tuple_paths}


class JoinPartition:
    """The operators of all joins, and those of their inputs, which joins share."""

    def __init__(self, live: LiveQueries, predicates: Predicates) -> None:
        self._predicates = predicates
        self._operators = join_operators(live)
        self._joins_of: dict[str, list[JoinOperator]] = {}
        queries: dict[str, list[LiveQuery]] = {}
        for joins in self._operators.values():
            for number, live_input in enumerate(joins.joins[0]):
                self._joins_of.setdefault(live_input.operator, []).append(joins)
                queries.setdefault(live_input.operator, []).extend(
                    live_inputs[number].query for live_inputs in joins.joins
                )
        self._inputs = {name: OperatorQueries(members, predicates) for name, members in queries.items()}

    @property
    def names(self) -> Collection[str]:
        """The names of the operators of inputs."""
        return self._inputs.keys()

    def ends(self) -> Iterator[tuple[str, Ends]]:
        """Yield the ends of windows, for each stream that may bring them."""
        for operator in self._operators.values():
            if not operator.is_sessions:
                for window, members in operator.by_window.items():
                    ends = WindowEnds(operator.joins[0][0].operator, window, _JOINED_US * len(members))
                    for stream in operator.streams:
                        yield stream, ends

    def fire(self, batch: FiringBatch) -> Iterator[ResultBlock]:
        """Yield the rows that are final now: those that are formed, and those that readers form."""
        for name, operator in self._operators.items():
            passed, reached = operator.reached(batch.before), operator.reached(batch.after)
            if reached is None or reached == passed:
                continue
            queries = [live_inputs[0].live for live_inputs in operator.joins]
            formed: Fired | None = None
            joined: JoinedRows | None = None
            with (
                batch.work.timed(operator.operator),
                isolate_failures((query.id for query in queries), batch.failures),
            ):
                formed, joined = fire_joins(
                    operator,
                    batch.held.buckets,
                    batch.held.tuples,
                    self._predicates,
                    EARLIEST if passed is None else passed,
                    reached,
                    batch.join_row_limit,
                    batch.failures,
                )
            if formed is not None:
                yield FiredBlock(name, queries, formed)
            if joined is not None:
                yield JoinedBlock(name, operator.streams[0], joined)
                batch.failures.update(joined.beyond)

    def needed(self, held: Held, reached: Reached) -> dict[int, Mask]:
        """Return which slices and tuples some window can still need."""
        needed: dict[int, Mask] = {}
        for name, operator in self._inputs.items():
            buckets = held.buckets.get(name, ())
            masks = needed_slices(buckets, operator, self._reached(name, reached))
            needed.update(zip(map(id, buckets), masks, strict=True))
        is_open = self._open_tuples(held, reached)
        for name, buckets_of_tuples in held.tuples.items():
            if name in self._inputs:
                for tuples in buckets_of_tuples:
                    is_kept = is_open[id(tuples)] if id(tuples) in is_open else self._is_needed(tuples, reached)
                    needed[id(tuples)] = np.array([is_kept])
        return needed

    def merged(self, members: Sequence[Bucket], masks: Sequence[Mask], reached: Reached) -> Bucket:
        """Return one bucket for several, cut where the joins that run cut."""
        name = members[0].operator
        return merge_slices(members, masks, self._inputs[name], self._reached(name, reached))

    def _reached(self, name: str, reached: Reached) -> int | None:
        """Return up to where all windows have been fired that read an input: the least of its joins."""
        of_joins = [joins.reached(reached) for joins in self._joins_of[name]]
        return None if None in of_joins else min(time for time in of_joins if time is not None)

    def _is_needed(self, tuples: TupleBucket, reached: Reached) -> bool:
        """Return whether some join over windows can still make rows of tuples."""
        upto = self._reached(tuples.operator, reached)
        windows = [window for window, _ in self._inputs[tuples.operator].windows]
        last = tuples.span[1]
        return upto is None or bool(is_needed(np.array([[last - 1, last]]), windows, upto).any())

    def _open_tuples(self, held: Held, reached: Reached) -> dict[int, bool]:
        """Return whether tuples of joins over sessions are still needed, by the id of their bucket."""
        is_open: dict[int, bool] = {}
        for operator in self._operators.values():
            if operator.is_sessions:
                for bucket, needed in open_tuples(operator, held.tuples, operator.reached(reached)).items():
                    is_open[bucket] = needed or is_open.get(bucket, False)
        return is_open
