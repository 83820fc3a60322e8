"""The shared session (thesis 4.3.1.1): takes requests, batches them into changelogs, and follows their progress.

What is durable lies in three logs: requests (written here, group commit), changelogs (written here), batches (written
by the router, read here). :class:`~session.session_state.SessionState` is a fold over them; this module owns the one
instance, its lock, and the threads that feed it. Invariants:

- A request is answered once it is on disk and applied. What fails before changes nothing.
- The state changes under the lock: by the request log's writer thread (requests), under the changelog lock
  (changelogs), and by whoever steps the session (batches). No file is written under the lock.
- A changelog is applied, then written; until it is written no other is cut and no snapshot is taken.

Lifecycle: ``start`` → … → ``close``. ``start`` recovers and steps the session on a thread; a test that steps by hand
calls ``recover`` instead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from operators.queries import Query
from session import plan_snapshot, snapshot
from session.admission import PlannedQuery, QueryRequest, Reservations, plan_requests
from session.changelog import Changelog
from session.changelog_cutter import cut_changelog
from session.deadlines import Deadlines
from session.execution import execute_statement
from session.idempotency import Idempotency, current
from session.query_record import DRAINING
from session.reads import Reads, result_columns
from session.recovery import BATCHES, CHANGELOGS, load_snapshot, replay_logs
from session.request_log import Logged, RequestLog
from session.requests import (
    Key,
    Outcome,
    OutcomeRecorded,
    QueriesAccepted,
    QueriesDeleted,
    Request,
    StreamCreated,
    StreamDropped,
)
from session.settings import Settings
from session.sql.select import plan_select
from session.sql.statements import Select
from session.statements import read_create_stream, to_definition
from sources.errors import MalformedRequest, NotAllowed, NotReady
from sources.record_log import RecordLog
from sources.storage import Storage

STEP_SECONDS = 0.02
RETRY_SECONDS = 1.0
BATCHES_A_STEP = 50

log = logging.getLogger("braid.session")
BatchListener = Callable[[dict[str, Any]], None]


class SharedSession(Reads):
    """All streams and queries of one data directory."""

    def __init__(self, storage: Storage, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        super().__init__(RecordLog(storage, CHANGELOGS))
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._batches = RecordLog(storage, BATCHES)
        self._reservations = Reservations()
        self._idempotency = Idempotency(storage)
        self._changelog_lock = threading.Lock()
        self._unwritten: Changelog | None = None
        self._requests: RequestLog | None = None
        self._listeners: list[BatchListener] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.snapshot_seq = 0
        """Batch records up to this one are not needed by a restart any more."""
        self.snapshot_epoch = 0
        """The same for changelogs."""
        self.problem: str | None = None
        """Why the session does not progress, None while it does."""

    # lifecycle

    def recover(self) -> None:
        """Bring the state back from the data directory and accept requests."""
        state = load_snapshot(self._storage)
        self.snapshot_seq, self.snapshot_epoch = state.applied_seq, state.epoch
        self._deadlines = Deadlines(self._settings, state, self._now_us())
        replay_logs(self._storage, state, self._idempotency)
        self._deadlines.watch(state.queries.values())
        with self._lock:
            self._state = state
        self._plan_epoch = plan_snapshot.latest_epoch(self._storage)
        self._requests = RequestLog(self._storage, state.requests, self._now_us, self._apply_requests)

    def start(self) -> None:
        """Recover, then follow batches and deadlines on a thread."""
        self.recover()
        self._thread = threading.Thread(target=self._step_all, name="shared-session", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the threads and leave a snapshot, so that the next start is quick."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._requests is not None:
            self._requests.close()
            self.write_snapshot()

    def _step_all(self) -> None:
        while not self._stopping.wait(STEP_SECONDS if self.problem is None else RETRY_SECONDS):
            try:
                self.step()
                self.problem = None
            except Exception as error:  # the service must stay up to say what is wrong
                if self.problem is None:
                    log.exception("the session cannot go on; it tries again every %g s", RETRY_SECONDS)
                self.problem = str(error) or type(error).__name__

    def step(self) -> None:
        """Apply new batch records, then do what is due."""
        for _ in range(BATCHES_A_STEP):
            if not self._batches.has(self._state.applied_seq + 1):
                break
            self.apply_batch(self._batches.read(self._state.applied_seq + 1))
        self.tick()

    def _now_us(self) -> int:
        return int(self._clock() * 1_000_000)

    def on_batch(self, callback: BatchListener) -> None:
        """Have ``callback`` called with each batch record, after it was applied, in order."""
        self._listeners.append(callback)

    # streams

    def create_stream(self, sql: str) -> dict[str, Any]:
        """Declare a stream and return its description; pushes may use it at once. Conflict for a name that is taken."""
        statement = read_create_stream(sql)
        running = current()
        if running is not None and running.has_effect:
            return self.stream(statement.name)
        with self._lock:
            if statement.if_not_exists and statement.name in self._state.catalog:
                return self.stream(statement.name)
            self._reservations.hold_stream_name(self._state, statement.name)
        try:
            with self._lock:
                stream_id = self._state.new_stream_id()
                definition = to_definition(statement, stream_id, sql, self._now_us())
                logged = self._submit(StreamCreated(definition, _key()))
            logged.wait()
        finally:
            with self._lock:
                self._reservations.release_stream_name(statement.name)
        self._write_changelog()
        return self.stream(statement.name)

    def drop_stream(self, name: str) -> None:
        """Drop a stream; Conflict while a query that is not RETIRED or FAILED uses it."""
        running = current()
        if running is not None and running.has_effect:
            return
        with self._lock:
            stream_id = self._reservations.hold_drop(self._state, name)
        try:
            self._submit(StreamDropped(stream_id, _key())).wait()
        finally:
            with self._lock:
                self._reservations.release_drop(stream_id)
        self._write_changelog()

    def create_table(self, sql: str) -> dict[str, Any]:
        """Refuse: static tables are not in this version."""
        raise NotAllowed(
            f"Static tables are not supported in this version; got {sql.strip()[:80]!r}."
            " Push the rows to a stream instead."
        )

    # queries

    def create_queries(self, requests: Iterable[QueryRequest]) -> list[dict[str, Any]]:
        """Accept all of the queries or none, and return their descriptions."""
        requests = list(requests)
        if not requests:
            raise MalformedRequest("At least one query must be given; got an empty list.")
        running = current()
        if running is not None and running.has_effect:
            return [self.query(query_id) for query_id in running.effect]
        planned = self._plan(requests)
        with self._lock:
            self._reservations.check_queries(self._state, planned, self._settings.max_queries)
            self._reservations.hold_queries(planned)
        try:
            with self._lock:  # ids are given in the order of the log
                ids, now_us = self._state.new_query_ids(len(planned)), self._now_us()
                records = tuple(p.to_record(id_, now_us) for p, id_ in zip(planned, ids, strict=True))
                answer = [record.describe() for record in records]
                logged = self._submit(QueriesAccepted(records, _key()))
            logged.wait()
        finally:
            with self._lock:
                self._reservations.release_queries(planned)
        return answer

    def validate(self, request: QueryRequest) -> dict[str, Any]:
        """Return what a query would run as and with whom it would share, or raise what a POST would."""
        planned = self._plan([request])
        with self._lock:
            self._reservations.check_queries(self._state, planned, self._settings.max_queries)
        return self._explain(planned[0].query, planned[0].streams)

    def _plan(self, requests: list[QueryRequest]) -> list[PlannedQuery]:
        with self._lock:
            catalog = self._state.catalog.copy()
        return plan_requests(requests, catalog)

    def explain(self, select: Select) -> dict[str, Any]:
        """Return how a SELECT would run, as :meth:`validate` does."""
        with self._lock:
            catalog = self._state.catalog.copy()
        query = plan_select(select, catalog)
        names = {definition.id: definition.name for definition in catalog.values()}
        return self._explain(query, {stream: names[stream] for stream in query.streams})

    def execute(self, sql: str) -> dict[str, Any]:
        """Carry out any one statement; see :func:`session.execution.execute_statement`."""
        return execute_statement(self, sql)

    def _explain(self, query: Query, streams: dict[str, str]) -> dict[str, Any]:
        plan = self._state.plan.explain(query, streams)
        graph = {"nodes": plan.pop("nodes"), "edges": plan.pop("edges")}
        return {**plan, "columns": result_columns(query), "plan": graph}

    def delete_query(self, id_or_name: str, drain: bool = True) -> dict[str, Any]:
        """Retire a query and return its description; harmless to repeat. ``drain=False`` stops it at once."""
        with self._lock:
            record = self._find_by_name(id_or_name)
            done = record.is_finished or (record.state == DRAINING and (drain or not record.drain))
        if not done:
            self._submit(QueriesDeleted((record.id,), drain, key=_key())).wait()
        return self.query(record.id)

    # idempotency

    def idempotent(self, key: str, fingerprint: str, action: Callable[[], Outcome]) -> Outcome:
        """Return the first outcome of ``key``, running ``action`` at most once to its end; see session.idempotency."""
        bound = Key(key, fingerprint)

        def record(outcome: Any) -> None:
            self._submit(OutcomeRecorded(bound, self._now_us(), outcome)).wait()

        return self._idempotency.run(bound, action, record)

    # what changes the state

    def _submit(self, request: Request) -> Logged:
        if self._requests is None:
            raise NotReady("The service is starting; send the request again in a moment.")
        return self._requests.submit(request)

    def _apply_requests(self, number: int, at_us: int, requests: Iterable[Request]) -> None:
        requests = list(requests)
        with self._changed:
            self._state.apply_requests(number, at_us, requests)
            self._idempotency.apply(at_us, requests)
            for request in requests:
                if isinstance(request, QueriesAccepted):
                    self._deadlines.watch(request.queries)
            self._changed.notify_all()

    def apply_batch(self, record: dict[str, Any]) -> None:
        """Apply the next batch record, then tell the listeners; one that is applied already changes nothing."""
        with self._changed:
            if record["seq"] <= self._state.applied_seq:
                return
            self._state.apply_batch(record)
            self._changed.notify_all()
        self._write_plan_snapshot()
        for callback in self._listeners:
            callback(record)

    def tick(self) -> None:
        """Do what is due now: deletions by TTL, a changelog, forgetting, a snapshot."""
        now_us = self._now_us()
        if self._deadlines.changelog_due(self._state, now_us) or self._unwritten is not None:
            self._write_changelog()
        if not self._deadlines.look_around(now_us):
            return
        with self._lock:
            expired = self._deadlines.expired_ttls(self._state, now_us)
            late = self._deadlines.timed_out_drains(self._state, now_us)
            self._state.forget_finished(now_us - round(self._settings.retention_seconds * 1e6))
        if expired:
            self._delete_expired(expired)
        if late or self._deadlines.compaction_due(self._state, now_us):
            self._write_changelog()
        self._idempotency.expire(now_us - round(self._settings.idempotency_seconds * 1e6))
        if self._deadlines.snapshot_due(self._state):
            self.write_snapshot()

    def _delete_expired(self, ids: list[str]) -> None:
        try:
            self._submit(QueriesDeleted(tuple(ids), drain=True, why="ttl")).wait()
        except Exception:
            with self._lock:  # try again later
                self._deadlines.watch(self._state.queries[query_id] for query_id in ids)
            raise

    def _write_changelog(self) -> None:
        """Cut a changelog of all that waits and write it; one that could not be written is written first."""
        with self._changelog_lock:
            self._write_unwritten()
            now_us = self._now_us()
            with self._lock:
                changelog = cut_changelog(
                    self._state,
                    now_us,
                    self._deadlines.timed_out_drains(self._state, now_us),
                    self._deadlines.free_since_us(now_us),
                )
                if changelog is None:
                    return
                self._state.apply_changelog(changelog)
                self._unwritten = changelog
            self._write_unwritten()

    def _write_unwritten(self) -> None:
        if self._unwritten is not None:
            self._changelogs.append(self._unwritten.epoch, self._unwritten.to_json())
            self._unwritten = None

    def write_snapshot(self) -> None:
        """Write the state, then drop the requests that it covers."""
        with self._changelog_lock:
            self._write_unwritten()
            with self._lock:
                taken = snapshot.take(self._state)
                self._deadlines.snapshot_taken(self._state)
        self._idempotency.save()
        self._storage.put(snapshot.PATH, snapshot.to_bytes(taken))
        self.snapshot_seq, self.snapshot_epoch = taken["applied_seq"], taken["epoch"]
        if self._requests is not None:
            self._requests.trim(taken["requests"])

    def _write_plan_snapshot(self) -> None:
        with self._lock:
            state = self._state
            if state.epoch - self._plan_epoch < plan_snapshot.EVERY_EPOCHS or state.active_epoch < state.epoch:
                return
            if state.waiting.urgent:
                return
            live, self._plan_epoch = plan_snapshot.live_queries(state), state.epoch
        plan_snapshot.write_plan_snapshot(self._storage, live)


def _key() -> Key | None:
    running = current()
    return None if running is None else running.key
