"""The shared session (thesis 4.3.1.1): takes requests, batches them into changelogs, and follows their progress.

What is durable lies in three logs: requests (written here, group commit), changelogs (written here), batches (written
by the router, read here). :class:`~session.session_state.SessionState` is a fold over them; this module owns the one
instance, its lock, and the threads that feed it. Invariants:

- A request is answered once it is on disk and applied. One that fails before that changes nothing.
- The state changes under the lock: by the request log's writer thread (requests), under the changelog lock
  (changelogs), and by whoever steps the session (batches). No file is written under the lock.
- A changelog is applied, then written; until it is written no other is cut and no snapshot is taken.
- Snapshots are written concurrently with all that, by one thread at a time.

Lifecycle: ``start`` → … → ``close``. ``start`` recovers and steps the session on a thread; a test that steps by hand
calls ``recover`` instead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.job_files import BATCHES, CHANGELOGS, PlannedBatch, read_planned, read_unavailable
from operators.joins.key_splits import KeySplit
from operators.lookup.lookup_join import read_rows
from session import plan_snapshot
from session.active import SlotChange
from session.archive import Archive
from session.changelog import Changelog
from session.changelog_cutter import cut_changelog
from session.changes import Changes
from session.deadlines import Deadlines
from session.deliveries import SinkDeliveries
from session.idempotency import Idempotency
from session.journal import open_journal
from session.maintenance import Maintenance
from session.recovery import replay_logs
from session.reoptimization import Reoptimization, RunningPlan
from session.request_log import FOLDER, RequestLog
from session.requests import QueriesDeleted, Request, new_queries
from session.scaling import Scaling
from session.settings import Settings
from session.snapshot import Snapshots
from session.tables import Tables, files_needed
from sources.core.record_log import RecordLog
from sources.core.storage import Storage

STEP_SECONDS = 0.02
RETRY_SECONDS = 1.0
BATCHES_A_STEP = 50

log = logging.getLogger("braid.session")
BatchListener = Callable[[dict[str, Any]], None]
SlotListener = Callable[[list[SlotChange]], None]


class SharedSession(Changes):
    """All streams and queries of one data directory."""

    def __init__(self, storage: Storage, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        tables = Tables(storage, settings.confinement.table_folder)
        archive, idempotency = Archive(storage), Idempotency(storage)
        deliveries = SinkDeliveries(storage, archive)
        super().__init__(storage, RecordLog(storage, CHANGELOGS), archive, settings, idempotency, tables, deliveries)
        self._clock = clock
        self._batches = RecordLog(storage, BATCHES)
        self._changelog_lock = threading.Lock()
        self._unwritten: Changelog | None = None
        self._snapshots = Snapshots(storage, self._archive)
        self._snapshot_lock = threading.Lock()
        self._maintenance = Maintenance()
        self._reoptimization = Reoptimization(storage, settings, self._statistics)
        self.scaling = Scaling(storage, settings)
        self._listeners: list[BatchListener] = []
        self._slot_listeners: list[SlotListener] = []
        self._deployment_listeners: list[Callable[[], None]] = []
        self._planned: PlannedBatch | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.snapshot_seq = 0
        """Batch records up to this one are not needed by a restart any more."""
        self.snapshot_epoch = 0
        """The same for changelogs."""
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the session does not progress, None while it does."""
        return self._problem or self._maintenance.problem

    # lifecycle

    def recover(self) -> None:
        """Bring the state back from the data directory and accept requests; CorruptData for a file it must have."""
        state = self._snapshots.load()
        self.snapshot_seq, self.snapshot_epoch = state.applied_seq, state.epoch
        self._deadlines = Deadlines(self._settings, state, self._now_us())
        replay_logs(self._storage, state, self._idempotency)
        for version in sorted(files_needed(state)):
            read_rows(self._storage, version)
        self._deadlines.watch(state.queries.values())
        self.deliveries.bring_up(state)
        with self._lock:
            self._state = state
        self._plan_pace = plan_snapshot.Pace(self._storage, state)
        self.scaling.start(self._now_us())
        journal = open_journal(self._storage, FOLDER, state.requests)
        self._requests = RequestLog(journal, state.requests, self._now_us, self._apply_requests)
        self._deploy_planned()  # queries that were RUNNING before a restart still are

    def start(self) -> None:
        """Recover, then follow batches and deadlines on a thread."""
        self.recover()
        self._maintenance.start()
        self._thread = threading.Thread(target=self._step_all, name="shared-session", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the threads and leave a snapshot, so that the next start is quick."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._maintenance.close()
        if self._requests is not None:
            self._requests.close()
            self.write_snapshot()

    def _step_all(self) -> None:
        while not self._stopping.wait(STEP_SECONDS if self._problem is None else RETRY_SECONDS):
            try:
                self.step()
                self._problem = None
            except Exception as error:  # the service must stay up to say what is wrong
                if self._problem is None:
                    log.exception("the session cannot go on; it tries again every %g s", RETRY_SECONDS)
                self._problem = str(error) or type(error).__name__

    def step(self) -> None:
        """Apply new batch records, then do what is due."""
        for _ in range(BATCHES_A_STEP):
            if not self._batches.has(self._state.applied_seq + 1):
                break
            self.apply_batch(self._batches.read(self._state.applied_seq + 1))
        if self._state.inactive:
            self._deploy_planned()
        self.tick()

    def _now_us(self) -> int:
        return int(self._clock() * 1_000_000)

    def on_batch(self, callback: BatchListener) -> None:
        """Call ``callback`` with each batch record, after it was applied, in order."""
        self._listeners.append(callback)

    def on_slots(self, callback: SlotListener) -> None:
        """Call ``callback`` with the slots that changed hands with a batch, before those of :meth:`on_batch`."""
        self._slot_listeners.append(callback)

    def on_deployment(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when queries are deployed by a batch that is not committed yet."""
        self._deployment_listeners.append(callback)

    def plan(self) -> dict[str, Any]:
        """Return the plan of everything as a graph, with its last changes and why, the executors, and the lanes."""
        lanes = [{"lane": lane, "cores": float(f"{c:.3g}")} for lane, c in enumerate(self._statistics.cores_of_lanes())]
        additions = {"changes": self._reoptimization.changes(), "executors": self.scaling.describe(), "lanes": lanes}
        return {**super().plan(), **additions}

    # requests and batches

    def _apply_requests(self, number: int, at_us: int, requests: Iterable[Request]) -> None:
        requests = list(requests)
        with self._lock:
            self._state.apply_requests(number, at_us, requests)
            self._idempotency.apply(at_us, requests)
            for request in requests:
                self._deadlines.watch(new_queries(request))

    def apply_batch(self, record: dict[str, Any]) -> None:
        """Apply the next batch record, then call the listeners; one that is applied already changes nothing."""
        with self._lock:
            if record["seq"] <= self._state.applied_seq:
                return
            changes = self._state.apply_batch(record)
            news = self.deliveries.look(changes, self._state)
        self.deliveries.tell(news, self._state)
        self._statistics.observe(record)
        self.scaling.observe(record)
        self._plan_snapshot_if_due()
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

    # what is due

    def tick(self) -> None:
        """Do what is due now: deletions by TTL, a changelog, removal of expired queries, a snapshot."""
        now_us = self._now_us()
        if self._deadlines.changelog_due(self._state, now_us) or self._unwritten is not None:
            self._write_changelog()
        if not self._deadlines.look_around(now_us):
            return
        retained_since_us = now_us - round(self._settings.retention_seconds * 1e6)
        self.scaling.look(now_us)
        problems = read_unavailable(self._storage)
        with self._lock:
            self._state.catalog.note_unavailable(problems)
            expired = self._deadlines.expired_ttls(self._state, now_us)
            overdue = self._deadlines.timed_out_drains(self._state, now_us)
            self._state.remove(self._state.settled(retained_since_us))
            self._archive.expire(retained_since_us)
            news = self.deliveries.look((), self._state)
        self.deliveries.tell(news, self._state)
        if expired:
            self._delete_expired(expired)
        if overdue or self._deadlines.compaction_due(self._state, now_us):
            self._write_changelog()
        self._idempotency.expire(now_us - round(self._settings.idempotency_seconds * 1e6))
        if self._deadlines.snapshot_due(self._state):
            self._maintenance.run("snapshot", self.write_snapshot)
        if self._reoptimization.is_due(now_us):
            self._maintenance.run("reoptimize", self.reoptimize)

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
        changelog = self._write_changelog(groups, splits) if groups or splits else None
        split_operators = set() if changelog is None else {split.operator for split in changelog.split}
        for change in changes:
            if change.split is not None and change.operator not in split_operators:  # its windows did not allow it
                continue
            if change.split is not None:
                self._reoptimization.note(change)
            log.info("plan changed", extra={"fields": change.to_json()})

    def _delete_expired(self, ids: list[str]) -> None:
        with self._lock:
            being_replaced = [query_id for query_id in ids if self._reservations.is_replaced(query_id)]
            self._watch_again(being_replaced)
        ids = [query_id for query_id in ids if query_id not in being_replaced]
        if not ids:
            return
        try:
            self._submit_ending(QueriesDeleted(tuple(ids), drain=True, why="ttl"), ids).wait()
        except Exception:
            with self._lock:
                self._watch_again(ids)
            raise

    def _watch_again(self, ids: list[str]) -> None:
        records = (self._state.queries.find(query_id) for query_id in ids)
        self._deadlines.watch(record for record in records if record is not None)

    def _write_changelog(
        self, groups: Mapping[str, int] | None = None, splits: Mapping[str, KeySplit] | None = None
    ) -> Changelog | None:
        """Cut a changelog of all that waits and write it, with new ``groups`` of queries and ``splits`` of keys.

        A former one that could not be written is written first. Return the new one, None when it would say nothing.
        """
        with self._changelog_lock:
            self._write_unwritten()
            now_us = self._now_us()
            with self._lock:
                changelog = cut_changelog(
                    self._state,
                    now_us,
                    self._deadlines.timed_out_drains(self._state, now_us),
                    self._deadlines.free_since_us(now_us),
                    groups,
                    splits,
                )
                if changelog is None:
                    return None
                self._state.apply_changelog(changelog)
                self._unwritten = changelog
            self._write_unwritten()
        return changelog

    def _write_unwritten(self) -> None:
        if self._unwritten is not None:
            record = self._unwritten.to_json()
            self._changelogs.append(self._unwritten.epoch, record)
            self._history.append(self._unwritten.epoch, record)
            self._unwritten = None

    # snapshots

    def write_snapshot(self) -> None:
        """Write the state, then drop the requests and files that nobody needs any more."""
        with self._snapshot_lock:
            with self._changelog_lock:
                self._write_unwritten()
                with self._lock:
                    pending, mark = self._snapshots.take(self._state), self._deadlines.mark(self._state)
            self._idempotency.save()
            self._snapshots.write(pending)
            with self._lock:
                self._snapshots.finish(self._state, pending)
                self._deadlines.snapshot_taken(mark)
            self.snapshot_seq, self.snapshot_epoch = pending.applied_seq, pending.epoch
            self._snapshots.sweep(pending)
            self._tables.sweep(self._table_versions)
            if self._requests is not None:
                self._requests.trim(pending.requests)

    def _table_versions(self) -> set[str]:
        """Return the versions of static tables that queries may still need, among other ids."""
        with self._lock:
            return self._reservations.used_ids | files_needed(self._state)

    def _plan_snapshot_if_due(self) -> None:
        with self._lock:
            if not self._plan_pace.due(self._state):
                return
            snapshot = plan_snapshot.take(self._state)
            self._plan_pace.restart(self._state)
        self._maintenance.run("plan snapshot", lambda: plan_snapshot.write(self._storage, snapshot))
