"""The state of the session: a fold over three durable logs.

Requests say what was asked, changelogs what was decided, batch records what has happened. :meth:`apply_requests`,
:meth:`apply_changelog` and :meth:`apply_batch` are where the state changes, live and at a replay alike; none of them
looks at a clock, a disk or a thread. So a restart, which replays the logs from a snapshot, arrives at the same state.
Besides, :meth:`forget_finished` forgets by age, and ids are given ahead of the requests that use them.

Invariants:

- A query waits for a changelog at most once in each role (created, deleted, freed); a changelog empties all roles.
- Whoever has a slot was placed by the changelog ``epoch`` and not yet freed by a changelog ``freed_epoch``.
- ``active_epoch`` <= ``epoch``: the epoch of the last batch applied, and of the last changelog.
- Ids count up and are never given twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.plan import Plan
from session.catalog import Catalog, StreamState
from session.changelog import Changelog
from session.drain import Draining
from session.query_record import DRAINING, QueryRecord
from session.requests import (
    OutcomeRecorded,
    QueriesAccepted,
    QueriesDeleted,
    Request,
    StreamCreated,
    StreamDropped,
)
from session.slots import SlotTable
from session.waiting import Waiting
from sources.errors import CorruptData


class SessionState:
    """Streams, queries, slots and plan, and how far each log is applied."""

    def __init__(self) -> None:
        self.requests = 0
        self.epoch = 0
        self.active_epoch = 0
        self.applied_seq = 0
        self.next_query = 1
        self.next_stream = 1
        self.queries_created = 0
        self.queries_deleted = 0
        self.catalog = Catalog()
        self.queries: dict[str, QueryRecord] = {}
        self.slots = SlotTable()
        self.plan = Plan()
        self.waiting = Waiting()
        # derived: rebuilt from the above by `index`
        self.names: dict[str, str] = {}
        self.finished: dict[str, None] = {}
        self.draining = Draining()
        self._not_active: dict[int, set[str]] = {}
        self._holders: dict[int, list[str]] = {}

    @property
    def unfinished(self) -> int:
        """How many queries are neither RETIRED nor FAILED."""
        return len(self.queries) - len(self.finished)

    def new_query_ids(self, count: int) -> list[str]:
        """Return ids that no query ever had, for a request to come."""
        first = self.next_query
        self.next_query += count
        return [f"q-{number}" for number in range(first, self.next_query)]

    def new_stream_id(self) -> str:
        """Return an id that no stream ever had, for a request to come."""
        self.next_stream += 1
        return f"s-{self.next_stream - 1}"

    # requests

    def apply_requests(self, number: int, at_us: int, requests: Sequence[Request]) -> None:
        """Apply request record ``number``, written at ``at_us``."""
        for request in requests:
            match request:
                case QueriesAccepted():
                    for record in request.queries:
                        self._accept(record, at_us)
                case QueriesDeleted():
                    for query_id in request.ids:
                        self._delete(query_id, request.drain, at_us)
                case StreamCreated(definition):
                    self.catalog.add(StreamState(definition))
                    self.next_stream = max(self.next_stream, number_of(definition.id) + 1)
                    self.waiting.stream_created(definition, at_us)
                case StreamDropped(stream):
                    self.catalog.remove(stream)
                    self.waiting.stream_dropped(stream, at_us)
                case OutcomeRecorded():
                    pass  # kept by session.idempotency
        self.requests = number

    def _accept(self, record: QueryRecord, at_us: int) -> None:
        self.queries[record.id] = record
        self.next_query = max(self.next_query, number_of(record.id) + 1)
        self.queries_created += 1
        if record.name is not None:
            self.names[record.name] = record.id
        self._count_users(record, 1)
        self.waiting.created(record.id, at_us)

    def _delete(self, query_id: str, drain: bool, at_us: int) -> None:
        record = self.queries.get(query_id)
        if record is None or record.is_finished:
            return
        if record.state == DRAINING:
            if not drain and record.drain:
                record.drain = False
                if record.deleted_epoch is not None and record.freed_epoch is None:  # it stops draining
                    self.waiting.freed(query_id, at_us)
            return
        self.queries_deleted += 1
        record.delete(drain)
        if record.epoch is None:  # no changelog has it: it never runs
            self.waiting.cancelled(query_id)
            self._finish(record)
            record.retire(at_us, None)
        else:
            self.waiting.deleted(query_id, at_us)

    # changelogs

    def apply_changelog(self, changelog: Changelog) -> None:
        """Move to the changelog's epoch; CorruptData when it does not follow from the state."""
        epoch = changelog.epoch
        if epoch != self.epoch + 1:
            raise CorruptData(f"Changelogs apply in order: epoch {self.epoch + 1} must be next, got {epoch}.")
        touched = self._not_active.setdefault(epoch, set())
        for deleted in changelog.deleted:
            self._record(deleted.id).deleted_epoch = epoch
            touched.add(deleted.id)
        removed = []
        for freed in changelog.freed:
            record = self._record(freed.id)
            self.slots.free(freed.slot, freed.id, changelog.created_us)
            record.freed_epoch = epoch
            removed.append((record.id, record.query))
            touched.add(freed.id)
        for created in changelog.created:
            record = self._record(created.id)
            self.slots.take(created.slot, created.id)
            record.place(created.slot, epoch)
            self._holders.setdefault(created.slot, []).append(created.id)
            touched.add(created.id)
        self.slots.truncate(changelog.capacity)
        self.plan = self.plan.changed(
            [(c.id, c.query) for c in changelog.created],
            removed,
            {s.id: s.name for s in changelog.streams_created},
            changelog.streams_dropped,
        )
        if self.plan.version != changelog.plan_version:
            raise CorruptData(
                f"Epoch {epoch} must give plan version {changelog.plan_version}; got {self.plan.version}."
            )
        self.waiting = Waiting()
        self.epoch = epoch

    # batches

    def apply_batch(self, record: Mapping[str, Any]) -> None:
        """Apply the next batch record; costs what it changed. CorruptData when it is not the next one."""
        seq, epoch, committed_us = record["seq"], record["epoch"], record["committed_us"]
        if seq != self.applied_seq + 1 or not self.active_epoch <= epoch <= self.epoch:
            raise CorruptData(
                f"Batch {self.applied_seq + 1} with an epoch from {self.active_epoch} to {self.epoch} must be next;"
                f" got batch {seq} with epoch {epoch}."
            )
        for stream_id, counted in record["streams"].items():
            stream = self.catalog.by_id(stream_id)
            if stream is not None:
                stream.add(counted)
        risen = self._move_clocks(record, committed_us)
        self._activate(epoch, record["clocks_at_start"], committed_us, seq)
        for block in record["results"]:
            for slot, rows, latest in zip(block["slots"], block["counts"], block["latest_event_us"], strict=True):
                query = self._holder(slot, epoch)
                if query is not None and rows:
                    query.count(rows, latest, committed_us)
        for query_id, error in record.get("failures", {}).items():
            self._fail(query_id, error, committed_us, seq)
        for stream_id in risen:
            for query_id in self.draining.passed(stream_id, self._waterline(stream_id)):
                self._retire(self.queries[query_id], committed_us, seq)
        self.active_epoch, self.applied_seq = epoch, seq

    def _move_clocks(self, record: Mapping[str, Any], committed_us: int) -> list[str]:
        risen = []
        for stream_id, clock in record["clocks"].items():
            stream = self.catalog.by_id(stream_id)
            if stream is not None and stream.move(clock, record["waterlines"].get(stream_id), committed_us):
                risen.append(stream_id)
        return risen

    def _activate(self, epoch: int, clocks: Mapping[str, int | None], committed_us: int, seq: int) -> None:
        for changed in range(self.active_epoch + 1, epoch + 1):
            for query_id in sorted(self._not_active.pop(changed), key=number_of):
                record = self.queries[query_id]
                if record.epoch == changed:
                    record.deploy(clocks, committed_us, seq)
                if record.deleted_epoch == changed:
                    record.end(clocks, committed_us)
                if record.freed_epoch == changed:
                    assert record.slot is not None
                    self._holders[record.slot].remove(query_id)
                    self._retire(record, committed_us, seq)
                elif record.deleted_epoch == changed and self.draining.add(record, self._waterline):
                    self._retire(record, committed_us, seq)

    def _retire(self, record: QueryRecord, at_us: int, seq: int) -> None:
        if not record.is_finished:
            self._finish(record)
            record.retire(at_us, seq)
            if record.freed_epoch is None:
                self.waiting.freed(record.id, at_us)

    def _fail(self, query_id: str, error: str, at_us: int, seq: int) -> None:
        record = self.queries.get(query_id)
        if record is None or record.is_finished or record.slot is None:
            return
        self._finish(record)
        record.fail(error, at_us, seq)
        self.waiting.failed(query_id)
        if record.freed_epoch is None:
            self.waiting.freed(query_id, at_us)

    def _finish(self, record: QueryRecord) -> None:
        self.draining.remove(record.id)
        self._count_users(record, -1)
        self.finished[record.id] = None

    def _holder(self, slot: int, epoch: int) -> QueryRecord | None:
        """Return the query that held ``slot`` at ``epoch``, among those a batch may still be about."""
        for query_id in reversed(self._holders.get(slot, [])):
            record = self.queries[query_id]
            assert record.epoch is not None
            if record.epoch <= epoch and (record.freed_epoch is None or epoch < record.freed_epoch):
                return record
        return None

    def _waterline(self, stream_id: str) -> int | None:
        stream = self.catalog.by_id(stream_id)
        return None if stream is None else stream.waterline

    def _count_users(self, record: QueryRecord, change: int) -> None:
        for stream_id in record.query.streams:
            stream = self.catalog.by_id(stream_id)
            if stream is not None:
                stream.users += change

    def _record(self, query_id: str) -> QueryRecord:
        record = self.queries.get(query_id)
        if record is None:
            raise CorruptData(f"A changelog must name queries that were accepted; got {query_id!r}.")
        return record

    # time

    def forget_finished(self, before_us: int) -> None:
        """Forget the queries finished at or before ``before_us`` that no operator and no batch knows any more."""
        old = []
        for query_id in self.finished:
            record = self.queries[query_id]
            assert record.finished_us is not None
            if record.finished_us > before_us:
                break
            if record.slot is None or (record.freed_epoch is not None and record.freed_epoch <= self.active_epoch):
                old.append(record)
        for record in old:
            del self.queries[record.id], self.finished[record.id]
            if record.name is not None and self.names.get(record.name) == record.id:
                del self.names[record.name]

    # snapshots

    def index(self) -> None:
        """Rebuild what is derived from streams and queries."""
        for record in sorted(self.queries.values(), key=lambda q: (q.finished_us or 0, number_of(q.id))):
            if record.is_finished:
                self.finished[record.id] = None
        for record in self.queries.values():
            if record.name is not None:
                self.names[record.name] = record.id
            if not record.is_finished:
                self._count_users(record, 1)
            for epoch in (record.epoch, record.deleted_epoch, record.freed_epoch):
                if epoch is not None and epoch > self.active_epoch:
                    self._not_active.setdefault(epoch, set()).add(record.id)
            if record.state == DRAINING and record.active_to is not None:
                self.draining.add(record, self._waterline)
        for epoch in range(self.active_epoch + 1, self.epoch + 1):
            self._not_active.setdefault(epoch, set())
        placed = [q for q in self.queries.values() if q.slot is not None and q.epoch is not None]
        for record in sorted(placed, key=lambda q: q.epoch or 0):
            if record.freed_epoch is None or record.freed_epoch > self.active_epoch:
                assert record.slot is not None
                self._holders.setdefault(record.slot, []).append(record.id)
        running = sorted((q.epoch or 0, number_of(q.id)) for q in placed if q.freed_epoch is None)
        in_plan = [self.queries[f"q-{number}"] for _, number in running]
        operators = Plan().changed([(q.id, q.query) for q in in_plan]).operators
        self.plan = Plan(self.plan.version, operators, self.plan.streams)


def number_of(identifier: str) -> int:
    """Return the number in an id such as ``q-17``."""
    return int(identifier.rpartition("-")[2])
