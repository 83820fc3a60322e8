"""A lane: one key group of every aggregation operator, with its buckets, across batches.

Invariants:

- The state holds an *entry* per batch that brought buckets (the rows as they came, small payloads
  inline, large ones as paths), and a *head*: which entries are alive, and files to delete. Nothing else is durable.
- The lane in memory is a cache of that. It is brought up to the head before each batch, and the head has the digests of
  entries. So it does not matter which worker ran the batch before, nor what is left here of an attempt at a batch that
  was made again elsewhere.
- An entry lives until no window can need any of its slices. When many entries are alive they are merged into one.
- Beside them are entries of the rows that were told early (:mod:`operators.windowing.told_log`); the head names those,
  too.
- Files dropped in batch n are deleted in batch n + 2, when batch n cannot be replayed any more.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.aggregation.firing import fire
from operators.aggregation.operator_queries import OperatorQueries
from operators.aggregation.shared_aggregation import changelog_times, distinct_operator
from operators.containment import contained
from operators.event_times import EARLIEST
from operators.joins.fire import fire_joins
from operators.joins.late_rows import JoinedRows
from operators.joins.session_joins import open_tuples
from operators.lane_operators import LaneOperators
from operators.live_queries import LiveQueries, LiveQuery
from operators.predicates.cells import LineCells
from operators.predicates.space_key import SpaceKey
from operators.report import Work
from operators.sessions.sessions import alive_fragments, fire_sessions, merge_fragments
from operators.state.bucket import Bucket
from operators.state.bucket_store import batch_of, get_payload, is_path_of_tuples, put_payload, read_state
from operators.state.lane_state import Head, LaneState, Payload, digest_of, pack, unpack
from operators.state.merging import merge_buckets
from operators.state.tuple_bucket import TupleBucket, is_tuple_bucket
from operators.state.tuple_files import TupleFiles
from operators.windowing.early_rows import Current, combine_fired, with_changelog_columns
from operators.windowing.fired_rows import Fired
from operators.windowing.firing_limit import FiringLimit
from operators.windowing.slicing import NeededEdges, is_needed
from operators.windowing.told_log import ToldLog, reach_of
from sources.core.storage import Storage

MOST_ENTRIES = 64

_Alive = dict[int, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class _Entry:
    """What a batch brought: buckets, and tuples of inputs of joins, each with the payload that it was read from.

    ``files`` hold these tuples. ``digest`` tells it from what other attempts at the batch brought.
    """

    digest: int
    buckets: tuple[tuple[Payload, Bucket], ...]
    tuples: tuple[tuple[Payload, TupleBucket], ...]
    files: tuple[Payload, ...]

    @property
    def payloads(self) -> list[Payload]:
        return [*self.files, *(payload for payload, _ in (*self.buckets, *self.tuples))]


class Lane:
    """Takes in the buckets of each batch and fires the windows that are due.

    Of a window of a join it keeps ``join_row_limit`` rows.
    """

    def __init__(self, storage: Storage, join_row_limit: int = 1_000_000) -> None:
        self._storage = storage
        self._files = TupleFiles(partial(read_state, storage))
        self._join_row_limit = join_row_limit
        self._entries: dict[int, _Entry] = {}
        self._told = ToldLog(storage)
        self._operators = LaneOperators()
        self.work = Work()
        """What it did since this was last told."""
        self.failures: dict[str, str] = {}
        """Queries whose evaluation raised in the last batch, with the message."""
        self.joined: dict[str, JoinedRows] = {}
        """The rows of the last batch that joins have, by operator, not formed yet."""
        self.oldest: int | None = None
        """The number of the batch that made the oldest file which the state of the last batch names, None for none."""
        self.due_us: int | None = None
        """When a delay of EMIT runs out (processing time), for which the lane needs a batch even if no tuples come."""

    def follow(self, live: LiveQueries) -> FiringLimit:
        """Take note of the queries of an epoch; return what knows how far their windows fire in a batch."""
        self._operators.follow(live)
        return self._operators.limit

    def affordable(
        self, fired: Mapping[str, int | None], waterlines: Mapping[str, int | None], budget_us: float
    ) -> dict[str, int]:
        """Return up to where windows can fire in the next batch, of each stream that has more to fire."""
        return self._operators.limit.affordable(self._by_operator, fired, waterlines, budget_us)

    def advance(
        self,
        seq: int,
        payloads: Sequence[Payload],
        live: LiveQueries,
        before: dict[str, int | None],
        after: dict[str, int | None],
        state: LaneState,
        now_us: int = 0,
    ) -> dict[str, tuple[Sequence[LiveQuery], Fired]]:
        """Run batch ``seq``: keep its buckets, fire, forget what is no longer needed.

        ``before`` and ``after`` are up to where the windows of each stream have fired around the batch: its waterlines,
        unless there is more to fire than fits a batch. ``now_us`` is the processing time of the batch.
        Returns, for each operator with rows to tell, its queries and their rows
        (:func:`operators.aggregation.firing.fire`).
        """
        stored_head = state.head()
        head = Head.from_bytes(stored_head)
        self._catch_up(head, state)
        if payloads:
            head.entries[seq] = _put(seq, payloads, state)
            self._entries[seq] = self._read(payloads, head.entries[seq])
        self._operators.follow(live)
        self.failures = {}
        new_buckets = [bucket for _, bucket in self._entries[seq].buckets] if payloads else []
        fired = self._fire(before, after, new_buckets, now_us)
        fired |= self._fire_joins(before, after)
        self.oldest = self._oldest()
        self._settle(seq, head, state)
        alive = self._alive(after)
        for expired in self._expired(alive):
            self._drop(expired, seq, head, state)
        if len(head.entries) > MOST_ENTRIES:
            self._merge(seq, alive, after, head, state)
        self._sweep(seq, head)
        new_head = head.to_bytes()
        if new_head != stored_head and (stored_head is not None or head.entries or head.garbage or head.told):
            state.set_head(new_head)
        return fired

    def _oldest(self) -> int | None:
        paths = (payload.path for entry in self._entries.values() for payload in entry.payloads)
        return min((batch_of(path) for path in (*paths, *self._told.paths) if path), default=None)

    @property
    def bytes(self) -> int:
        """The size of the buckets in memory, and of what was told early."""
        entries = self._entries.values()
        buckets = sum(bucket.nbytes for entry in entries for _, bucket in entry.buckets)
        return self._told.bytes + buckets + sum(tuples.nbytes for entry in entries for _, tuples in entry.tuples)

    def _catch_up(self, head: Head, state: LaneState) -> None:
        self._entries = {s: entry for s, entry in self._entries.items() if head.entries.get(s) == entry.digest}
        for seq, digest in head.entries.items():
            if seq not in self._entries:
                self._entries[seq] = self._read(unpack(state.entry(seq)), digest)
        for name, number in self._told.missing(head.told).items():
            (payload,) = unpack(state.entry(number))
            self._told.load(name, number, payload.path, payload.data)

    def _read(self, payloads: Iterable[Payload], digest: int) -> _Entry:
        buckets: list[tuple[Payload, Bucket]] = []
        tuples: list[tuple[Payload, TupleBucket]] = []
        files = []
        for payload in payloads:
            if is_path_of_tuples(payload.path):
                files.append(payload)
                continue
            data = get_payload(self._storage, payload.path, payload.data)
            if is_tuple_bucket(data):
                tuples.append((payload, TupleBucket.deserialize(data, self._files)))
            else:
                buckets.append((payload, Bucket.deserialize(data)))
        return _Entry(digest, tuple(buckets), tuple(tuples), tuple(files))

    def _fire(
        self,
        before: dict[str, int | None],
        after: dict[str, int | None],
        new_buckets: Sequence[Bucket],
        now_us: int,
    ) -> dict[str, tuple[Sequence[LiveQuery], Fired]]:
        """Return the rows to tell: those of windows that are final now, and early ones."""
        fired: dict[str, tuple[Sequence[LiveQuery], Fired]] = {}
        buckets = self._by_operator()
        for name, operator in self._operators.aggregations.items():
            passed, reached = before.get(operator.stream), after.get(operator.stream)
            with self.work.timed(name), contained((query.id for query in operator.queries), self.failures):
                parts = self._fire_one(name, operator, buckets, passed, reached, new_buckets, now_us)
                if parts:
                    fired[name] = (operator.queries, combine_fired(parts))
        for name in self._told.operators:
            if name not in self._operators.aggregations:
                self._told.revise(name, None, (), None, None, now_us)
        return fired

    def _fire_one(
        self,
        name: str,
        operator: OperatorQueries,
        buckets: dict[str, list[Bucket]],
        passed: int | None,
        reached: int | None,
        new_buckets: Sequence[Bucket],
        now_us: int,
    ) -> list[Fired]:
        """Return the final rows of one operator, and the early ones; ``passed`` and ``reached`` are waterlines."""
        rows = None
        if operator.final.queries and name in buckets and reached is not None and reached != passed:
            rows = self._rows(name, buckets, operator.final, EARLIEST if passed is None else passed, reached)
            if rows is not None and operator.final.has_changelogs:
                rows = with_changelog_columns(rows, now_us)
        early = None
        if operator.early:
            queries = self._told.counted(operator.early)
            of_operator = [bucket for bucket in new_buckets if bucket.operator == name]
            current = self._current(name, buckets, queries, of_operator, passed) if of_operator else None
            early = self._told.revise(name, current, queries, passed, reached, now_us)
        elif name in self._told.operators:
            self._told.revise(name, None, (), passed, reached, now_us)
        return [part for part in (rows, early) if part is not None]

    def _fire_joins(
        self, before: dict[str, int | None], after: dict[str, int | None]
    ) -> dict[str, tuple[Sequence[LiveQuery], Fired]]:
        """Return the rows of joins that are final now; ``joined`` gets those that readers form."""
        self.joined = {}
        fired: dict[str, tuple[Sequence[LiveQuery], Fired]] = {}
        buckets = self._by_operator() if self._operators.joins else {}
        predicate_of = self._operators.predicate_of
        for name, operator in self._operators.joins.items():
            passed, reached = operator.reached(before), operator.reached(after)
            if reached is None or reached == passed:
                continue
            tuples = self._tuples_of({part.operator for part in operator.joins[0]})
            start = EARLIEST if passed is None else passed
            formed, late = None, None
            queries = [parts[0].live for parts in operator.joins]
            with self.work.timed(operator.operator), contained((query.id for query in queries), self.failures):
                formed, late = fire_joins(
                    operator,
                    buckets,
                    tuples,
                    predicate_of,
                    start,
                    reached,
                    self._join_row_limit,
                    self.failures,
                )
            if formed is not None:
                fired[name] = queries, formed
            if late is not None:
                self.joined[name] = late
                self.failures |= late.beyond
        return fired

    def _tuples_of(self, operators: set[str]) -> dict[str, list[TupleBucket]]:
        by_operator: dict[str, list[TupleBucket]] = {}
        for seq in sorted(self._entries):
            for _, tuples in self._entries[seq].tuples:
                if tuples.operator in operators:
                    by_operator.setdefault(tuples.operator, []).append(tuples)
        return by_operator

    def _rows(
        self, name: str, buckets: dict[str, list[Bucket]], operator: OperatorQueries, start: int, reached: int
    ) -> Fired | None:
        """Return the rows of queries of one operator for the windows that end in ``(start, reached]``."""
        distinct = {argument: buckets.get(distinct_operator(name, argument), []) for argument in operator.distinct}
        members = buckets[name]
        if operator.is_sessions:
            return fire_sessions(
                members, operator.queries, operator.predicates, start, reached, self.failures, distinct
            )
        return fire(members, operator.windowed, start, reached, self.failures, distinct)

    def _current(
        self,
        name: str,
        buckets: dict[str, list[Bucket]],
        queries: Sequence[LiveQuery],
        new_buckets: Sequence[Bucket],
        passed: int | None,
    ) -> Current:
        """Return the rows, as of now, of the windows that new buckets may have changed."""
        after, upto = reach_of(new_buckets, queries, passed)
        rows = self._rows(name, buckets, OperatorQueries(queries, self._operators.predicate_of), after, upto)
        return Current(rows, after, upto, frozenset(query.slot for query in queries if query.id in self.failures))

    def _settle(self, seq: int, head: Head, state: LaneState) -> None:
        """Make durable what was told early."""
        change = self._told.settle(seq)
        self.due_us = self._told.due_us
        for number in change.dropped:
            state.drop_entry(number)
        for number, (path, data) in change.stored.items():
            state.put_entry(number, pack([Payload(path, data)]))
        head.garbage += [(seq, path) for path in change.files]
        head.told = dict(change.names)

    def _by_operator(self) -> dict[str, list[Bucket]]:
        buckets: dict[str, list[Bucket]] = {}
        for seq in sorted(self._entries):
            for _, bucket in self._entries[seq].buckets:
                buckets.setdefault(bucket.operator, []).append(bucket)
        return buckets

    def _alive(self, waterlines: dict[str, int | None]) -> _Alive:
        """Return, by the id of each bucket, which of its slices (for sessions: fragments) a window can still need."""
        alive: _Alive = {}
        for name, buckets in self._by_operator().items():
            operator = self._operators.with_buckets.get(name)
            if operator is None:
                masks = [np.zeros(len(bucket.slices), dtype=np.bool_) for bucket in buckets]
            elif operator.is_sessions:
                masks = alive_fragments(buckets, operator.queries, waterlines.get(operator.stream))
            else:
                masks = _alive_slices(buckets, operator, self._operators.reached(name, waterlines))
            alive.update(zip(map(id, buckets), masks, strict=True))
        is_open = self._open_tuples(waterlines)
        for entry in self._entries.values():
            for _, tuples in entry.tuples:
                needed = is_open[id(tuples)] if id(tuples) in is_open else self._operators.is_needed(tuples, waterlines)
                alive[id(tuples)] = np.array([needed])
        return alive

    def _open_tuples(self, waterlines: dict[str, int | None]) -> dict[int, bool]:
        """Return whether tuples of joins over sessions are still needed, by the id of their bucket."""
        is_open: dict[int, bool] = {}
        for operator in self._operators.joins.values():
            if operator.is_sessions:
                tuples = self._tuples_of({part.operator for part in operator.joins[0]})
                for bucket, needed in open_tuples(operator, tuples, operator.reached(waterlines)).items():
                    is_open[bucket] = needed or is_open.get(bucket, False)
        return is_open

    def _expired(self, alive: _Alive) -> list[int]:
        """Return the entries of which no query needs anything again."""
        return [
            seq
            for seq, entry in self._entries.items()
            if not any(alive[id(bucket)].any() for _, bucket in (*entry.buckets, *entry.tuples))
        ]

    def _drop(self, entry: int, seq: int, head: Head, state: LaneState, kept_paths: Container[str] = ()) -> None:
        """Forget an entry, by its number, in batch ``seq``; its files become garbage but for those that are kept."""
        for payload in self._entries.pop(entry).payloads:
            if payload.path and payload.path not in kept_paths:
                head.garbage.append((seq, payload.path))
        del head.entries[entry]
        state.drop_entry(entry)

    def _merge(
        self,
        seq: int,
        alive: _Alive,
        waterlines: dict[str, int | None],
        head: Head,
        state: LaneState,
    ) -> None:
        """Replace all entries by one: slices that are no longer needed go, equal groups are added up.

        A bucket of tuples stays as it is as long as some of them are needed.
        """
        merged = [
            (Payload(*put_payload(self._storage, seq, bucket.serialize())), bucket)
            for bucket in self._merged(alive, waterlines)
        ]
        tuples = [
            (payload, bucket)
            for number in sorted(self._entries)
            for payload, bucket in self._entries[number].tuples
            if alive[id(bucket)].any()
        ]
        kept_paths = {payload.path for payload, _ in tuples} | {bucket.file.path for _, bucket in tuples}
        files = [file for entry in self._entries.values() for file in entry.files if file.path in kept_paths]
        for number in list(self._entries):
            self._drop(number, seq, head, state, kept_paths)
        entry = _Entry(0, tuple(merged), tuple(tuples), tuple(files))
        head.entries[seq] = _put(seq, entry.payloads, state)
        self._entries[seq] = replace(entry, digest=head.entries[seq])

    def _merged(self, alive: _Alive, waterlines: dict[str, int | None]) -> Iterator[Bucket]:
        """Yield one bucket for all that share operator and space, cut at the boundaries of the queries that run."""
        by_space: dict[tuple[str, SpaceKey], list[Bucket]] = {}
        for seq in sorted(self._entries):
            for _, bucket in self._entries[seq].buckets:
                by_space.setdefault((bucket.operator, bucket.space), []).append(bucket)
        for (name, space), members in by_space.items():
            masks = [alive[id(bucket)] for bucket in members]
            if not any(mask.any() for mask in masks):
                continue
            operator = self._operators.with_buckets[name]
            cells = self._line_cells(operator, space)
            with self.work.timed(name):
                if operator.is_sessions:
                    bucket = merge_fragments(members, masks, cells, operator.queries, changelog_times(operator.queries))
                else:
                    reached = self._operators.reached(name, waterlines)
                    needed = (
                        None if reached is None else NeededEdges(list(operator.by_window), operator.begins, reached)
                    )
                    bucket = merge_buckets(members, masks, cells, needed)
            yield bucket

    def _line_cells(self, operator: OperatorQueries, space: SpaceKey) -> LineCells | None:
        """Return the cells that an operator's queries of a space need; None where its cells are query-sets."""
        if space.has_sets:
            return None
        boundaries: set[Any] = set()
        for live in operator.queries:
            predicate = self._operators.predicate_of(live)
            if SpaceKey.of(live.query, predicate) == space:
                boundaries.update(boundary for truth in predicate.truths.values() for boundary in truth.boundaries)
        return LineCells(tuple(sorted(boundaries)))

    def _sweep(self, seq: int, head: Head) -> None:
        """Delete files that even a replay of the batch before cannot need."""
        for dropped_in, path in head.garbage:
            if dropped_in <= seq - 2:
                self._storage.delete(path)
        head.garbage = [(dropped_in, path) for dropped_in, path in head.garbage if dropped_in > seq - 2]


def _put(seq: int, payloads: Sequence[Payload], state: LaneState) -> int:
    """Store an entry and return its digest."""
    packed = pack(payloads)
    state.put_entry(seq, packed)
    return digest_of(packed)


def _alive_slices(
    buckets: Sequence[Bucket], operator: OperatorQueries, reached: int | None
) -> list[npt.NDArray[np.bool_]]:
    """Return which slices of each bucket some window can still need, shape (slices,) each."""
    if reached is None:
        return [np.ones(len(bucket.slices), dtype=np.bool_) for bucket in buckets]
    masks: dict[int, npt.NDArray[np.bool_]] = {}
    by_epoch: dict[int, list[Bucket]] = {}
    for bucket in buckets:
        by_epoch.setdefault(bucket.epoch, []).append(bucket)
    for epoch, members in by_epoch.items():
        # a query reads no bucket of an epoch before its own
        windows = [window for window, since in operator.windows if since <= epoch]
        needed = is_needed(np.concatenate([bucket.slices for bucket in members]), windows, reached)
        ends = np.cumsum([len(bucket.slices) for bucket in members])
        masks.update(zip(map(id, members), np.split(needed, ends[:-1]), strict=True))
    return [masks[id(bucket)] for bucket in buckets]
