"""The shared session (thesis 4.3.1.1): takes requests, batches them into changelogs, and follows their progress.

What is durable lies in three logs: requests and changelogs, both written here, and batches, written by the router.
:class:`~braid.session.state.session_state.SessionState` is a fold over them. Invariants:

- A request is answered once it is on disk and applied. One that fails before that changes nothing.
- One thread, the writer's (:mod:`braid.session.commands.writer`), changes the state, and looks at it without a lock.
Others
  look at it under the lock, which the writer holds only while it changes the state: no file is written under it.
- Snapshots are taken by the writer, and written by the maintenance thread while the writer goes on.

Lifecycle: ``start`` → … → ``close``. ``start`` recovers and follows batches and deadlines; a test that steps by hand
calls ``recover`` instead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from braid.engine.data_layout import BATCHES, PlannedBatch, read_planned, read_unavailable
from braid.operators.joins.key_splits import KeySplit
from braid.operators.lookup.lookup_join import read_rows
from braid.operators.lookup.lookups import rows_at_first
from braid.optimizer.statistics import Statistics
from braid.router.result_reader import ResultReader
from braid.session.commands.past_rows import PastRows
from braid.session.commands.plans import Plans
from braid.session.commands.queries import Queries, deletion
from braid.session.commands.query_lookup import QueryLookup
from braid.session.commands.streams import Streams
from braid.session.commands.table_rows import TableRows, files_needed
from braid.session.commands.tables import Tables
from braid.session.commands.writer import Command, Writer
from braid.session.log import plan_snapshot
from braid.session.log.archive import Archive
from braid.session.log.changelog_writer import ChangelogWriter
from braid.session.log.idempotency import Idempotency
from braid.session.log.journal import open_journal
from braid.session.log.recovery import replay_logs
from braid.session.log.snapshot import PendingSnapshot, Snapshots
from braid.session.settings import Settings
from braid.session.state.applied_epoch import SlotChange
from braid.session.state.changelog import Changelog
from braid.session.state.query_record import QueryRecord
from braid.session.state.requests import FOLDER, Key, Outcome, OutcomeRecorded, Refusal, Request, new_queries
from braid.session.state.session_state import SessionState
from braid.session.upkeep.deadlines import Deadlines
from braid.session.upkeep.deliveries import SinkDeliveries
from braid.session.upkeep.maintenance import Maintenance
from braid.session.upkeep.reoptimization import Reoptimization, RunningPlan
from braid.session.upkeep.scaling import Scaling
from braid.sources.core.errors import MalformedRequest
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

STEP_SECONDS = 0.02
RETRY_SECONDS = 1.0
BATCHES_A_STEP = 50

log = logging.getLogger("braid.session")
BatchListener = Callable[[dict[str, Any]], None]
SlotListener = Callable[[list[SlotChange]], None]


class SharedSession:
    """All streams, tables and queries of one data directory, and what brings them forward."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._monotonic = monotonic
        self._state = state = SessionState()
        self._lock = lock = threading.RLock()
        self._writer = writer = Writer(state, self._now_us)
        self._archive = Archive(storage)
        self._idempotency = Idempotency(storage)
        self._rows = TableRows(storage, settings.confinement.table_folder)
        self._statistics = Statistics()
        self._reoptimization = Reoptimization(storage, settings, self._statistics)
        self._changelogs = ChangelogWriter(storage, state, lock)
        self._batches = RecordLog(storage, BATCHES)
        self._snapshots = Snapshots(storage, self._archive)
        self._snapshot_lock = threading.Lock()
        self._maintenance = Maintenance()
        self._readers: list[BatchListener] = []
        self._listeners: list[BatchListener] = []
        self._slot_listeners: list[SlotListener] = []
        self._deployment_listeners: list[Callable[[], None]] = []
        self._planned: PlannedBatch | None = None
        self._is_recovered = False
        self._problem: str | None = None
        self.deliveries = SinkDeliveries(storage, self._archive)
        self.scaling = Scaling(storage, settings)
        self.lookup = QueryLookup(state, lock, self._archive, self.deliveries, settings.max_page_bytes)
        self.plans = Plans(state, lock, self.lookup, self._statistics, self._reoptimization, self.scaling)
        self.streams = Streams(state, lock, writer, storage, settings)
        self.tables = Tables(state, lock, writer, self._rows, settings)
        self.queries = Queries(state, lock, writer, self._rows, self.lookup, self.plans, settings)
        self.snapshot_seq = 0
        """Batch records up to this one are not needed by a restart any more."""
        self.snapshot_epoch = 0
        """The same for changelogs."""

    # what is there

    @property
    def settings(self) -> Settings:
        """The settings that it runs with."""
        return self._settings

    @property
    def problem(self) -> str | None:
        """Why the session does not progress, None while it does."""
        return self._problem or self._maintenance.problem

    @property
    def applied_seq(self) -> int:
        """The number of the last batch record applied."""
        return self._state.applied_seq

    @property
    def epoch(self) -> int:
        """The epoch of the last changelog."""
        return self._state.epoch

    @property
    def active_epoch(self) -> int:
        """The epoch of the last batch applied."""
        return self._state.active_epoch

    def changelogs_json(self, after: int = 0) -> list[bytes]:
        """Return the changelogs after an epoch as JSON, as many as fit a page: at least one, if there is one."""
        if after < 0:
            raise MalformedRequest(f"after must be an epoch, 0 or more; got {after!r}.")
        return self._changelogs.history.after(after)

    def idempotent(self, key: str, fingerprint: str, action: Callable[[], Outcome]) -> Outcome:
        """Return the first outcome of ``key``, running ``action`` at most once to its end; see :class:`Idempotency`."""
        bound_key = Key(key, fingerprint)

        def record(outcome: Outcome | Refusal) -> None:
            self._writer.submit(Command(lambda group: OutcomeRecorded(bound_key, group.at_us, outcome))).wait()

        return self._idempotency.run(bound_key, action, record)

    def while_applied(self, callback: BatchListener) -> None:
        """Call ``callback`` with each batch record while it is applied: who sees what it changed finds that done."""
        self._readers.append(callback)

    def on_batch(self, callback: BatchListener) -> None:
        """Call ``callback`` with each batch record, after it was applied, in order."""
        self._listeners.append(callback)

    def on_slots(self, callback: SlotListener) -> None:
        """Call ``callback`` with the slots that changed hands with a batch, before those of :meth:`on_batch`."""
        self._slot_listeners.append(callback)

    def on_deployment(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when queries are deployed by a batch that is not committed yet."""
        self._deployment_listeners.append(callback)

    # lifecycle

    def recover(self) -> None:
        """Bring the state back from the data directory and take commands; CorruptData for a file it must have."""
        state = self._state
        self._snapshots.load(state)
        self.snapshot_seq, self.snapshot_epoch = state.applied_seq, state.epoch
        self._deadlines = Deadlines(self._settings, state, self._now_us(), self._monotonic)
        replay_logs(self._storage, state, self._idempotency)
        for version in sorted(files_needed(state)):
            read_rows(self._storage, version)
        self._deadlines.watch(state.queries.values())
        self.deliveries.bring_up(state)
        self._plan_pace = plan_snapshot.Pace(self._storage, state)
        self.scaling.start(self._now_us())
        journal = open_journal(self._storage, FOLDER, state.requests)
        self._writer.start(journal, state.requests, self._apply_requests, self._write_changelog)
        self._is_recovered = True
        self._writer.call(self._deploy_planned)  # queries that were RUNNING before a restart still are

    def start(self) -> None:
        """Recover, then follow batches and deadlines."""
        self.recover()
        self._maintenance.start()
        self._writer.follow(self._try_step)

    def close(self) -> None:
        """Stop the threads and leave a snapshot, so that the next start is quick."""
        self._maintenance.close()
        self._writer.close()
        if self._is_recovered:
            self.write_snapshot()

    def step(self) -> None:
        """Apply new batch records, then do what is due."""
        self._writer.call(self._step)

    def _now_us(self) -> int:
        return int(self._clock() * 1_000_000)

    # what the writer does

    def _try_step(self) -> float:
        """Step, and return in how many seconds again."""
        try:
            self._step()
            if self._problem is not None:
                log.info("batches and requests are applied again")
            self._problem = None
        except Exception as error:  # the service must stay up to say what is wrong
            if self._problem is None:
                fields = {"retry_seconds": RETRY_SECONDS}
                log.exception(
                    "batches or requests could not be applied; they are tried again", extra={"fields": fields}
                )
            self._problem = str(error) or type(error).__name__
        return STEP_SECONDS if self._problem is None else RETRY_SECONDS

    def _step(self) -> None:
        for _ in range(BATCHES_A_STEP):
            if not self._batches.has(self._state.applied_seq + 1):
                break
            self.apply_batch(self._batches.read(self._state.applied_seq + 1))
        if self._state.inactive:
            self._deploy_planned()
        self._do_what_is_due()

    def _apply_requests(self, number: int, at_us: int, requests: Sequence[Request]) -> None:
        with self._lock:
            self._state.apply_requests(number, at_us, requests)
        self._idempotency.apply(at_us, requests)
        for request in requests:
            self._deadlines.watch(new_queries(request))

    def apply_batch(self, record: dict[str, Any]) -> None:
        """Apply the next batch record, then call the listeners; one that is applied already changes nothing."""
        if record["seq"] <= self._state.applied_seq:
            return
        with self._lock:
            changes = self._state.apply_batch(record)
            for callback in self._readers:
                callback(record)
        self.deliveries.follow(changes, self._state)
        self._statistics.observe(record)
        self.scaling.observe(record)
        if self._plan_pace.due(self._state):
            snapshot = plan_snapshot.take(self._state)
            self._plan_pace.restart(self._state)
            self._maintenance.run("plan snapshot", lambda: plan_snapshot.write(self._storage, snapshot))
        for listener in self._slot_listeners:
            listener(changes)
        for callback in self._listeners:
            callback(record)

    def _deploy_planned(self) -> None:
        """Note the queries that a batch which has begun deploys: nothing can change that any more."""
        planned = read_planned(self._storage)
        if planned is None or planned == self._planned:
            return
        self._planned = planned
        with self._lock:
            any_deployed = self._state.deploy_planned(planned)
        if any_deployed:
            for callback in self._deployment_listeners:
                callback()

    def _do_what_is_due(self) -> None:
        """Do what is due now: deletions by TTL, a changelog, removal of expired queries, a snapshot."""
        now_us, state = self._now_us(), self._state
        if self._deadlines.changelog_due(state, now_us) or self._changelogs.is_behind:
            self._write_changelog()
        if not self._deadlines.look_around(now_us):
            return
        retained_since_us = now_us - round(self._settings.retention_seconds * 1e6)
        self.scaling.look(now_us)
        problems = read_unavailable(self._storage)
        forgotten = state.queries.settled(state.active_epoch, retained_since_us)
        expired = self._deadlines.expired_ttls(state, now_us)
        overdue = self._deadlines.timed_out_drains(state, now_us)
        with self._lock:
            state.catalog.note_unavailable(problems)
            state.remove(forgotten)
        self._archive.expire(retained_since_us)
        self.deliveries.follow((), state)
        if expired:
            self._delete_expired([state.queries[query_id] for query_id in expired])
        if overdue or self._deadlines.compaction_due(state, now_us):
            self._write_changelog()
        self._idempotency.expire(now_us - round(self._settings.idempotency_seconds * 1e6))
        if self._deadlines.snapshot_due(state):
            self._maintenance.run("snapshot", self.write_snapshot)
        if self._reoptimization.is_due(now_us):
            self._maintenance.run("reoptimize", self.reoptimize)

    def _delete_expired(self, records: list[QueryRecord]) -> None:
        try:
            read = {record.id for record in records if self._state.readers_of(record)}
            self._deadlines.watch(record for record in records if record.id in read)  # until nobody reads them
            unread = [record for record in records if record.id not in read]
            if unread:
                self._writer.perform(deletion(unread, drain=True, why="ttl"))
        except Exception:
            self._deadlines.watch(records)
            raise

    def _write_changelog(
        self, groups: Mapping[str, int] | None = None, splits: Mapping[str, KeySplit] | None = None
    ) -> Changelog | None:
        now_us = self._now_us()
        overdue, free_since_us = (
            self._deadlines.timed_out_drains(self._state, now_us),
            self._deadlines.free_since_us(now_us),
        )
        return self._changelogs.cut(now_us, overdue, free_since_us, groups, splits)

    # what the maintenance thread does

    def reoptimize(self) -> None:
        """Ask the optimizer for changes of the plan, and make them with a changelog."""
        with self._lock:
            running = RunningPlan.of(self._state)
        groups: dict[str, int] = {}
        splits = {name: running.splits[name] for name in running.unsettled}
        changes = self._reoptimization.propose(self._now_us(), running)
        for change in changes:
            groups.update(change.groups)
            if change.split is not None:
                splits[change.operator] = change.split
        changelog = None
        if groups or splits:
            changelog = self._writer.call(lambda: self._write_changelog(groups, splits))
        split_operators = set() if changelog is None else {split.operator for split in changelog.split}
        for change in changes:
            if change.split is not None and change.operator not in split_operators:  # its windows did not allow it
                continue
            if change.split is not None:
                self._reoptimization.note(change)
            fields = change.to_json()
            del fields["measured_us_per_tuple"]["after"]  # nothing has run by the new plan yet
            log.info("the plan of an operator changed", extra={"fields": {"epoch": self.epoch, **fields}})

    def past_rows(self, results: ResultReader) -> PastRows:
        """Return what finds the rows that queries gave before others read them; ``results`` reads them."""
        return PastRows(self._storage, self._state, self.lookup, results, self._maintenance.run)

    @property
    def needed_seq(self) -> int:
        """The oldest batch that must be kept: a restart goes on from it, or queries have not read all rows of it."""
        return min(self.snapshot_seq, self._state.rows_needed_from)

    def write_snapshot(self) -> None:
        """Write the state, then drop the requests and files that nobody needs any more."""
        with self._snapshot_lock:
            pending, mark = self._writer.call(self._take_snapshot)
            self._idempotency.save()
            self._snapshots.write(pending)
            self._writer.call(lambda: self._finish_snapshot(pending, mark))
            self._snapshots.sweep(pending)
            self._rows.sweep(self._files_needed)
            self._writer.trim(pending.requests)

    def _take_snapshot(self) -> tuple[PendingSnapshot, tuple[int, int, int]]:
        self._changelogs.catch_up()
        return self._snapshots.take(self._state), self._deadlines.mark(self._state)

    def _finish_snapshot(self, pending: PendingSnapshot, mark: tuple[int, int, int]) -> None:
        with self._lock:
            self._snapshots.finish(self._state, pending)
        self._deadlines.snapshot_taken(mark)
        self.snapshot_seq, self.snapshot_epoch = pending.applied_seq, pending.epoch

    def _files_needed(self) -> set[str]:
        with self._lock:
            pending = (table for table in self._state.catalog.tables() if table.refreshed < table.refreshes)
            newest = {rows_at_first(table.newest) for table in pending if table.newest is not None}
            return files_needed(self._state) | newest  # the next query may get that version
