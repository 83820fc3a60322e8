"""The planner: decides what the next batch reads and which epoch it runs with.

It runs in a Python process of its own, and looks every few milliseconds. Epochs come from the changelog log,
clocks from the record of the batch before; both lie on disk. A batch is bounded by what it reads and by what windows it
fires, so that a backlog is worked off in batches of about the target duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from braid.engine.data_layout import (
    BATCHES,
    CHANGELOGS,
    PLANS,
    WARM_UP_BATCHES,
    PlannedBatch,
    write_heartbeat,
    write_planned,
)
from braid.engine.past_rows import past_of
from braid.engine.planning.batch_budget import BatchBudget, FiringBudget, TupleCosts
from braid.engine.planning.batch_pacing import BatchPacing
from braid.engine.planning.derived_rows import (
    emitted_before,
    extents_of,
    first_clocks,
    is_awaited,
    raised_by_rows,
    still_there,
)
from braid.engine.planning.fair_shares import fair_shares
from braid.engine.planning.idleness import Idleness
from braid.engine.planning.offsets import Offset, QueryProgress
from braid.engine.planning.positions import (
    Positions,
    advanced_by,
    begins_of,
    ends_of,
    no_further,
    skipped_of,
    tuples_between,
    tuples_of,
)
from braid.engine.planning.processing_clock import ProcessingClock
from braid.engine.planning.raised_watermarks import ADVANCE_US, RaisedWatermarks, advanced
from braid.engine.planning.replaying import (
    DEFAULT_SHARE,
    ReplayBudget,
    ReplayStarts,
    held_back,
    joined_replays,
    replayed_extents,
)
from braid.engine.planning.source_extents import SourceExtents
from braid.operators.epoch_state import EpochChange, EpochState
from braid.operators.queries import query_from_json
from braid.sources.connectors.connector import Extent
from braid.sources.connectors.registry import begins_at_the_earliest
from braid.sources.core.derived import is_derived
from braid.sources.core.record_log import RecordLog
from braid.sources.core.replays import is_replay, origin_of
from braid.sources.core.storage import Storage

# Spark ends Python processes that had nothing to do for a minute, and new ones take seconds to start
KEPT_BUSY_US = 45_000_000

HEARTBEAT_SECONDS = 1.0

# connectors of streams that are read before their first query
READ_AT_ONCE = ("push", "generator")

_BEFORE_ALL: Mapping[str, Any] = {"clocks": {}, "watermarks": {}, "fired": {}, "streams": {}, "partitions": {}}


class Planner:
    """Answers Spark's ``latestOffset``."""

    def __init__(
        self,
        storage: Storage,
        target_seconds: float,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        replay_share: float = DEFAULT_SHARE,
    ) -> None:
        self._storage = storage
        self._changelogs = RecordLog(storage, CHANGELOGS)
        self._batches = RecordLog(storage, BATCHES)
        self._newest: tuple[int, Mapping[str, Any]] = 0, _BEFORE_ALL
        self._epoch = 0
        self._state = EpochState()
        self._sources = SourceExtents(storage)
        self._budget = BatchBudget(target_seconds)
        self._costs = TupleCosts(target_seconds)
        self._firing = FiringBudget(target_seconds)
        self._replays = ReplayBudget(replay_share)
        self._replay_starts = ReplayStarts(self._batches)
        self._target_us = target_seconds * 1e6
        self._pacing = BatchPacing()
        self._warm_ups = WARM_UP_BATCHES
        self._planned: _Planned | None = None
        self._idleness = Idleness()
        self._clock = ProcessingClock(monotonic_ns)
        self._monotonic_ns = monotonic_ns
        self._heartbeat_due = 0.0
        self._raised = RaisedWatermarks()
        # the epochs of running queries, as far as this process has followed changelogs
        self._created: dict[str, int] = {}

    def latest(self, start: Offset, now_us: int) -> Offset:
        """Return the offset at which the next batch ends, or ``start`` when there is nothing to do yet."""
        self._show_life()
        record = self._record_of(start.seq)
        if record is None:
            return start
        self._learn(start.seq, record)
        self._follow_changelogs()
        read_offsets = still_there(
            {stream: counts["offsets"] for stream, counts in record["streams"].items()}, self._state.streams
        )
        emitted = emitted_before(self._state.streams, start.derived, record)
        begun = first_clocks(self._state.streams, record, lambda query: self._created.get(query, 0) > start.epoch)
        available = self._all_available(read_offsets, emitted, now_us)
        begins = begins_of(read_offsets, available)
        skipped = skipped_of(read_offsets, available)
        self._sources.find_cut_off(begins, available, self._state.streams)
        self._sources.publish_problems(self._state.streams)
        now_us = planned_us = self._clock.time_us(now_us, start.planned_us)
        idle = self._idle(begins, available)
        fire_to = {stream: us for stream, us in record.get("fire_to", {}).items() if stream in begins}
        joined = joined_replays(begins)
        bounds = self._sources.bounds(available)
        raised = self._raised.raised(
            self._state.raised, begins, ends_of(begins, available), bounds, record["watermarks"]
        )
        if now_us - start.planned_us >= ADVANCE_US:
            raised |= advanced(self._state.streams, start.idle, self._pacing.window_ends, record, now_us)
        end_offsets = self._bounded(begins, available, fire_to, joined, now_us)
        derived = raised_by_rows(
            self._state.streams, emitted, end_offsets, record, self._pacing.window_ends.__contains__
        )
        raised |= derived
        own = {stream: partitions for stream, partitions in end_offsets.items() if stream not in joined}
        tuples = tuples_between(begins, own)
        emit_due_us = record.get("emit_due_us")  # a delay of EMIT runs out, whether tuples come or not
        is_emit_due = emit_due_us is not None and emit_due_us <= now_us
        is_changed = self._epoch != start.epoch or idle != start.idle or joined != start.joined
        is_kept_busy = now_us - start.planned_us >= KEPT_BUSY_US
        is_risen = raised.keys() != derived.keys() or any(self._is_awaited(each, record, raised) for each in derived)
        is_needed = is_changed or is_risen or is_emit_due or is_kept_busy or bool(self._warm_ups or skipped or fire_to)
        if not tuples and not is_needed:
            return start
        available_ends = {
            stream: of_stream for stream, of_stream in ends_of(begins, available).items() if stream in own
        }
        waiting = tuples_between(begins, available_ends) - tuples
        if self._replays.is_live(self._monotonic_ns() // 1000):
            waiting = sum(
                tuples_of(end_offsets[s], of_stream) for s, of_stream in available_ends.items() if not is_replay(s)
            )
        is_urgent = is_needed or waiting > 0 or start.waiting > 0
        cost, all_cost = self._cost_between(begins, own), self._cost_between(begins, available_ends)
        read = [stream for stream in own if tuples_of(begins[stream], end_offsets[stream])]
        if not is_urgent and self._pacing.is_too_early(start.planned_us, now_us, cost, read):
            return start
        self._warm_ups = max(0, self._warm_ups - 1)
        are_replays_behind = any(
            is_replay(s) and s not in fire_to and begins[s] != of_stream for s, of_stream in available_ends.items()
        )
        self._replays.take_note(are_replays_behind, any(map(is_replay, read)), self._monotonic_ns() // 1000)
        self._planned = _Planned(start.seq + 1, cost, all_cost - cost, bool(fire_to), self._monotonic_ns())
        end = Offset(
            seq=start.seq + 1,
            epoch=self._epoch,
            streams=end_offsets,
            begins=begins,
            clocks={stream: begun.get(stream, record["clocks"].get(stream)) for stream in end_offsets},
            watermarks={stream: record["watermarks"].get(stream) for stream in end_offsets},
            planned_us=planned_us,
            idle=idle,
            recent={stream: sums for stream, sums in record.get("recent", {}).items() if stream in end_offsets},
            skipped=skipped,
            waiting=waiting,
            partitions=record["partitions"],
            fired={stream: record["fired"].get(stream) for stream in end_offsets},
            fire_to=fire_to,
            firing_budget_us=self._firing.us,
            failed={query: why for query, why in record.get("failed", {}).items() if query in self._pacing.window_ends},
            joined=joined,
            raised=raised,
            derived=emitted,
        )
        if end.epoch > start.epoch:
            write_planned(self._storage, PlannedBatch(end.seq, start.epoch, end.epoch, end.clocks, end.planned_us))
        return end

    def _is_awaited(self, stream: str, record: Mapping[str, Any], raised: Mapping[str, int]) -> bool:
        """Whether windows end as the watermark of a derived stream rises."""
        before = record["watermarks"].get(stream)
        return is_awaited(
            stream, self._state.streams, lambda each: self._pacing.window_ends.has_end(each, before, raised[stream])
        )

    def _show_life(self) -> None:
        now = time.monotonic()
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + HEARTBEAT_SECONDS
            write_heartbeat(self._storage, time.monotonic_ns())

    def _record_of(self, seq: int) -> Mapping[str, Any] | None:
        """Return the record of batch ``seq``, None while it is not written; kept, as reading one takes milliseconds."""
        if self._newest[0] != seq:
            if not self._batches.has(seq):
                return None
            self._newest = seq, self._batches.read(seq)
        return self._newest[1]

    def _learn(self, seq: int, record: Mapping[str, Any]) -> None:
        """Take note, once, of how batch ``seq`` went."""
        planned = self._planned
        if planned is None or planned.seq != seq:
            return
        self._planned = None
        unread = {stream for stream, counts in record["streams"].items() if counts["unread"] is not None}
        if not unread:  # else the batch took as long as a connector waits for its server
            seconds = (self._monotonic_ns() - planned.planned_ns) / 1e9
            self._budget.learn(planned.cost, seconds, planned.waiting)
            self._pacing.learn(record, planned.cost, round(seconds * 1e6))
        if planned.is_firing and record.get("fire_to"):
            self._firing.learn(max(record["operator_busy_us"], default=0))
        self._costs.learn(record)
        self._sources.learn(record["streams"])

    def _all_available(
        self, reached: Positions, emitted: Mapping[str, QueryProgress], now_us: int
    ) -> dict[str, Mapping[str, Extent]]:
        """Return the offsets that can be read, by stream and partition; none of streams that have to wait.

        A stream is read from its first query on, and by pushes and generators from its declaration on; its connector is
        asked before, as some begin where they are asked first. A replay without queries stays where it is.
        """
        streams, read = self._state.streams, self._pacing.window_ends.streams
        extents = {
            stream: extents_of(streams[stream], emitted, reached)
            if is_derived(stream)
            else self._sources.available(streams[stream], now_us)
            for stream in streams
            if not is_replay(stream)
        }
        replayed = {origin_of(stream) for stream in streams if is_replay(stream)}
        available: dict[str, Mapping[str, Extent]] = {
            stream: of_stream
            for stream, of_stream in extents.items()
            if reached.get(stream) or stream in read or stream in replayed or streams[stream].connector in READ_AT_ONCE
        }
        for stream in filter(is_replay, streams):
            origin = origin_of(stream)
            has_joined = bool(reached.get(stream)) and reached[stream] == reached.get(origin)
            if extents[origin] and (has_joined or (stream in read and not self._sources.rests(stream))):
                oldest = (
                    past_of(self._storage, stream, reached.get(origin, {}))
                    if is_derived(stream)
                    else self._oldest(stream, bool(reached.get(stream)))
                )
                available[stream] = {} if oldest is None else replayed_extents(extents[origin], oldest)
            else:
                available[stream] = {}
        return available

    def _oldest(self, replay: str, has_begun: bool) -> dict[str, int]:
        """Return where a replay begins to read each partition of a declared stream."""
        origin = origin_of(replay)
        definition, oldest = self._state.streams[origin], self._sources.oldest(origin)
        is_all_read = definition.connector in READ_AT_ONCE or begins_at_the_earliest(definition)
        if not is_all_read or has_begun:
            return oldest
        starts = self._replay_starts.of(replay)
        return {partition: max(offset, starts.get(partition, offset)) for partition, offset in oldest.items()}

    def _idle(self, begins: Positions, available: Mapping[str, Mapping[str, Extent]]) -> tuple[str, ...]:
        """Return the streams that have been silent for their ``idle_timeout``.

        A stream some partition of which does not answer is not idle: what that partition holds must not become late.
        """
        ends = ends_of(begins, available)
        silent = {
            stream
            for stream, extents in available.items()
            if extents and begins[stream] == ends[stream] and begins[stream].keys() <= extents.keys()
        }
        monotonic_us = self._monotonic_ns() // 1000  # a clock that is set forth is no silence
        return self._idleness.idle(self._state.streams, silent - self._sources.with_problems, monotonic_us)

    def _follow_changelogs(self) -> None:
        """Learn of new epochs, and of the streams and queries that come and go with them."""
        latest = self._changelogs.latest()
        if self._epoch == 0 and latest:
            self._start_from_snapshot()
        while self._epoch < latest:
            changelog = self._changelogs.needed(self._epoch + 1)
            change = EpochChange.of(changelog)
            self._state.apply_change(change, {})  # it asks for streams only: splits begin at no time that it knows
            for created in changelog["created"]:
                query = query_from_json(created["query"])
                self._pacing.window_ends.add(created["id"], query)
                self._replay_starts.add(query.streams, created.get("sees_after", {}))
                self._created[created["id"]] = self._epoch + 1
            for freed in changelog["freed"]:
                self._pacing.window_ends.remove(freed["id"])
                self._created.pop(freed["id"], None)
            for stream in change.streams_dropped:
                self._sources.forget(stream)
                self._replay_starts.remove(stream)
            self._epoch += 1

    def _start_from_snapshot(self) -> None:
        names = self._storage.names(PLANS)
        if names:
            plan = self._storage.get_json(f"{PLANS}/{names[-1]}")
            self._state = EpochState(plan)
            for query in plan["queries"]:
                self._pacing.window_ends.add(query["id"], query_from_json(query["query"]))
            self._epoch = plan["epoch"]

    def _bounded(
        self,
        begins: Positions,
        available: Mapping[str, Mapping[str, Extent]],
        firing: Collection[str],
        joined: Mapping[str, str],
        now_us: int,
    ) -> dict[str, dict[str, int]]:
        """Return the end offsets: everything available, or fair shares of the budget when that is too much.

        Nothing is read of the streams that are ``firing``: more windows of theirs would be due before these are done.
        Replays that have ``joined`` their origin end where it ends, and others no later: they are to meet it there.
        """
        held = {*firing, *(joined[stream] for stream in firing if stream in joined)}
        live = {stream: places for stream, places in begins.items() if not is_replay(stream)}
        ends = self._within_budget(live, ends_of(live, available), held, self._budget.tuples)
        replays = {stream: places for stream, places in begins.items() if is_replay(stream) and stream not in joined}
        if replays:
            held |= held_back(replays, self._pacing.window_ends.joins, self._newest[1]["watermarks"])
            live_cost, room = self._cost_between(live, ends), self._pacing.room(now_us)
            cost_per_us, monotonic_us = self._budget.tuples / self._target_us, self._monotonic_ns() // 1000
            budget = self._replays.most(
                live_cost, cost_per_us, self._pacing.duration_us, self._budget.tuples, monotonic_us, room
            )
            held |= replays.keys() if not budget else set()
            upto = {
                stream: no_further(replays[stream], of_stream, ends[origin_of(stream)])
                for stream, of_stream in ends_of(replays, available).items()
            }
            ends |= self._within_budget(replays, upto, held, budget)
        return {**ends, **{stream: ends[origin] for stream, origin in joined.items()}}

    def _within_budget(
        self, begins: Positions, ends: Positions, held: Collection[str], budget: float
    ) -> dict[str, dict[str, int]]:
        """Return up to where streams are read for a budget; those that are ``held`` stay where they are."""
        waiting = {
            stream: 0 if stream in held else self._costs.most(stream, tuples_of(partitions, ends[stream]))
            for stream, partitions in begins.items()
        }
        shares = fair_shares(waiting, {stream: self._costs.of(stream) for stream in waiting}, budget)
        return {stream: advanced_by(partitions, ends[stream], shares[stream]) for stream, partitions in begins.items()}

    def _cost_between(self, begins: Positions, ends: Positions) -> float:
        return sum(tuples_of(begins[stream], ends[stream]) * self._costs.of(stream) for stream in ends)


@dataclass(frozen=True)
class _Planned:
    """A batch that was planned: what its tuples cost, and those that wait for later ones, and when (monotonic clock).

    ``is_firing``: it goes on firing windows that were due before.
    """

    seq: int
    cost: float
    waiting: float
    is_firing: bool
    planned_ns: int
