"""The life of a query: what its deletion, pause, resumption, failure and the end of a deployment bring with them.

A record of a query says which state it is in (:mod:`braid.session.state.query_record`). What else depends on that
follows here: how many queries are in each state, who uses a stream, what waits for the next changelog, and who drains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braid.session.state.catalog import Catalog
from braid.session.state.drain import Draining
from braid.session.state.pending_changes import PendingChanges
from braid.session.state.query_record import CATCHING_UP, DRAINING, PAUSED, PENDING, RUNNING, QueryRecord, Times
from braid.session.state.query_table import QueryTable


class QueryLifecycle:
    """Moves the queries of one session from state to state."""

    def __init__(self, catalog: Catalog, queries: QueryTable, pending: PendingChanges, draining: Draining) -> None:
        self._catalog = catalog
        self._queries = queries
        self._pending = pending
        self._draining = draining

    def delete(self, query_id: str, drain: bool, at_us: int) -> bool:
        """Delete a query, and return whether that is what ends it; ``drain=False`` ends that of one which drains."""
        record = self._queries.find(query_id)
        if record is None or record.has_ended:
            return False
        if record.state == DRAINING:
            if not drain and record.drain:
                record.drain = False
                self._stop_draining(record, at_us)
                self._retire_undrained(record, at_us)
            return False
        was_ending = record.is_ending
        self._move(record, record.delete, drain, at_us)
        if record.epoch is None:  # it waits for its creation, or was paused before it had any
            self._pending.cancelled(query_id)
            self._retire(record, at_us)
            return True
        if not was_ending:
            self._pending.deleted(query_id, at_us)
        elif not drain and not self.has_drained(record):
            self._stop_draining(record, at_us)
        # one that is replaced goes on until a batch has its successor, if it has not drained
        is_over_at_once = not drain and record.replaced_by is None
        # without drain a slot that is still held ends it, also where it has drained: a restart may learn of that later
        if was_ending and self.has_drained(record) and (not is_over_at_once or record.freed_epoch is not None):
            self._retire(record, at_us)
        elif is_over_at_once:
            self._retire_undrained(record, at_us)
        return True

    def replace(self, query_id: str, successor: str, drain: bool, at_us: int) -> bool:
        """Delete a query whose successor waits for the same changelog, as :meth:`delete` does."""
        record = self._queries.find(query_id)
        if record is None or record.has_ended:  # it failed meanwhile
            return False
        record.replaced_by = successor
        return self.delete(query_id, drain, at_us)

    def _stop_draining(self, record: QueryRecord, at_us: int) -> None:
        if record.deleted_epoch is not None and record.freed_epoch is None:
            self._pending.freed(record.id, at_us)

    def pause(self, query_id: str, at_us: int) -> None:
        """End a query's deployment for now."""
        record = self._queries.find(query_id)
        if record is None or record.state not in (PENDING, CATCHING_UP, RUNNING):
            return
        was_ending = record.is_ending
        self._move(record, record.pause)
        if record.epoch is None:
            self._pending.cancelled(query_id)
        elif not was_ending:  # else it was resumed, and the pause before goes on
            self._pending.deleted(query_id, at_us)

    def resume(self, query_id: str, at_us: int, active_epoch: int) -> None:
        """Let a paused query run again: it waits for another deployment as soon as batches have freed its slot."""
        record = self._queries.find(query_id)
        if record is None or record.state != PAUSED:
            return
        self._move(record, record.resume, at_us)
        if record.epoch is None or record.is_freed(active_epoch):
            self.renew(record, at_us)

    def renew(self, record: QueryRecord, at_us: int) -> None:
        """Let a query that has no slot any more wait for its next creation."""
        record.renew(at_us)
        self._pending.created(record.id, record.requested_us or at_us)

    def has_drained(self, record: QueryRecord) -> bool:
        """Whether no further row of a query's deployment will come."""
        return record.active_to is not None and record.id not in self._draining

    def deploy(self, record: QueryRecord, clocks: Times, planned_us: int, seq: int) -> None:
        """Note the first batch that has a query's epoch; ``clocks`` are those of its streams at the batch's start."""
        self._move(record, record.deploy, clocks, planned_us, seq, self._is_catching_up(record))
        if record.state != CATCHING_UP:  # its replays may have joined in its first batch
            record.joined = record.joined or self._catalog.joins_of(record.replays)

    def _is_catching_up(self, record: QueryRecord) -> bool:
        """Whether a query reads the past, by replays of its own or through a query that does."""
        read = (each for stream in record.query.streams for each in self._queries.queries_behind(stream))
        return not all(map(self._catalog.has_joined, record.replays)) or any(
            each is not None and each.state == CATCHING_UP for each in read
        )

    def mark_caught_up(self, record: QueryRecord) -> None:
        """Let a query run that has caught up, and those that read it."""
        if record.state == CATCHING_UP and not self._is_catching_up(record):
            record.joined = self._catalog.joins_of(record.replays)
            self._move(record, record.mark_caught_up)
            for reader in self.readers_of(record):
                self.mark_caught_up(reader)

    def finish(self, record: QueryRecord, at_us: int, seq: int) -> None:
        """Finish a query whose streams have all ended, and whose windows have all fired; its slot waits to be freed."""
        if record.state not in (CATCHING_UP, RUNNING) or not all(map(self._catalog.has_ended, record.query.streams)):
            return
        record.drained(seq)
        self._release(record, at_us)
        self._move(record, record.finish, at_us)
        self._pending.freed(record.id, at_us)

    def end_deployment(self, record: QueryRecord, at_us: int, seq: int) -> None:
        """Note that no further row of a query's deployment will come."""
        if record.has_ended:
            if record.last_seq is None:  # it was retired without draining
                record.drained(seq)
            return
        self._draining.remove(record)
        record.drained(seq)
        if record.freed_epoch is None:
            self._pending.freed(record.id, at_us)
        if record.state == DRAINING:
            self._retire(record, at_us)

    def _retire(self, record: QueryRecord, at_us: int) -> None:
        self._release(record, at_us)
        self._move(record, record.retire, at_us)

    def _retire_undrained(self, record: QueryRecord, at_us: int) -> None:
        """Retire a query whose slot no batch has freed yet; the one that does will have its last rows."""
        record.last_seq = None
        self._retire(record, at_us)

    def fail(self, query_id: str, error: str, at_us: int, seq: int) -> None:
        """Finish a query whose evaluation failed in batch ``seq``; its slot waits to be freed."""
        record = self._queries.find(query_id)
        if record is None or record.has_ended or record.slot is None:
            return
        self._release(record, at_us)
        self._move(record, record.fail, error, at_us, seq)
        self._pending.failed(query_id)
        if record.freed_epoch is None:
            self._pending.freed(query_id, at_us)
        for reader in self._readers_of_rows(record):
            self._fail_reader(reader, f"{record.called}, which it reads, failed: {error}", at_us, seq)

    def _fail_reader(self, record: QueryRecord, error: str, at_us: int, seq: int) -> None:
        """Finish a query that reads one that failed; it may have no slot yet."""
        if record.slot is not None and record.epoch is not None:
            self.fail(record.id, error, at_us, seq)
            return
        self._pending.cancelled(record.id)
        self._release(record, at_us)
        self._move(record, record.fail, error, at_us, seq)
        for reader in self._readers_of_rows(record):
            self._fail_reader(reader, error, at_us, seq)

    def readers_of(self, record: QueryRecord) -> list[QueryRecord]:
        """Return the queries that read the rows of a query, and are not finished; those of its successor, if any, do
        not count.
        """
        return [] if record.replaced_by is not None else self._readers_of_rows(record)

    def _readers_of_rows(self, record: QueryRecord) -> list[QueryRecord]:
        streams = self._catalog.derived_from(record.lineage)
        if not streams:
            return []
        return [q for q in self._queries.values() if not q.has_ended and not streams.isdisjoint(q.query.streams)]

    def _release(self, record: QueryRecord, at_us: int) -> None:
        self._draining.remove(record)
        record.joined = record.joined or self._catalog.joins_of(record.replays)
        self._catalog.count_users(record.query, -1)
        unread = self._catalog.unused(record.hidden_streams)
        for stream in unread:
            if not self._pending.stream_dropped(stream, at_us):
                self._catalog.remove(stream)
        self._queries.finish(record)
        for subquery in (each for stream in unread for each in self._queries.queries_behind(stream)):
            if subquery is not None and subquery.is_subquery and not self._catalog.is_read(subquery.lineage):
                self.delete(subquery.id, False, at_us)

    def _move(self, record: QueryRecord, change: Callable[..., None], *arguments: Any) -> None:
        """Call a method of a record that changes its state, and count it under the new one."""
        former_state = record.state
        change(*arguments)
        self._queries.moved(former_state, record)
