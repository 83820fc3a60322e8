"""Commands on queries that run: replace, pause, resume."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from session.admission import NOBODY, Owner
from session.commands import Commands, StartedCommand, Wake, key_of_request
from session.idempotency import current
from session.query_record import PAUSED, PENDING, RUNNING, QueryRecord, full_name
from session.query_requests import QueryRequest, Replacement
from session.requests import QueryPaused, QueryReplaced, QueryResumed
from sources.core.errors import Conflict

MOST_DEPLOYMENTS = 1000


class Changes(Commands):
    """The session as clients change its queries."""

    def begin_replace(
        self, id_or_name: str, replacement: Replacement, drain: bool = True, *on_done: Wake, owner: Owner = NOBODY
    ) -> StartedCommand:
        """Begin to accept a query in the place of another, which retires with the same changelog.

        The new one sees exactly the tuples that the old one does not, and is of the same tenant, whoever asks. Conflict
        for an old one that is already on its way out; otherwise as :meth:`begin_create` and :meth:`begin_delete`.
        """
        begun = self._begun_before()
        if begun is not None:
            return begun
        replaced = self._find(id_or_name)
        with self._lock:
            self._reservations.check_replaced(replaced)
        if owner.tenant != replaced.tenant:
            owner = Owner(replaced.tenant, check=owner.check)
        request, inherited = replacement.after(replaced)
        planned = self._plan([request], owner, inherited, may_replace=True)
        with self._lock:
            self._reservations.check_replaced(replaced)
            self._reservations.check_queries(self._state, planned, self._settings.max_queries, owner, replaced.id)
            self._reservations.hold_queries(planned)
            self._reservations.hold_replaced(replaced.id)
        try:
            return self._begin_new(
                planned,
                lambda records: QueryReplaced(
                    replace(records[0], replaces=replaced.id), replaced.id, drain, key_of_request()
                ),
                partial(self._release_replaced, replaced.id),
                *on_done,
            )
        except BaseException:
            self._release_replaced(replaced.id)
            raise

    def _release_replaced(self, query_id: str) -> None:
        with self._lock:
            self._reservations.release_replaced(query_id)

    def begin_pause(self, id_or_name: str, *on_done: Wake) -> StartedCommand:
        """Begin to pause a query, which then drains as if it were deleted; harmless to repeat.

        Conflict for one that is on its way out. ``on_done`` are not called when there is nothing to wait for.
        """
        record = self._find(id_or_name)
        with self._lock:
            if _had_effect_before() or record.state == PAUSED:
                return StartedCommand(None, lambda: [self.query(record.id)])
            if not record.is_wanted:
                raise _not_allowed_now(record, "PENDING or RUNNING to be paused")
            logged = self._submit_ending(QueryPaused(record.id, key_of_request()), [record.id], *on_done)
        return StartedCommand(logged, lambda: [self.query(record.id)])

    def begin_resume(self, id_or_name: str, *on_done: Wake) -> StartedCommand:
        """Begin to run a paused query again, as soon as it has drained; harmless to repeat.

        Conflict for one that is on its way out, or was resumed too often. ``on_done`` are not called when there is
        nothing to wait for.
        """
        record = self._find(id_or_name)
        with self._lock:
            if _had_effect_before() or record.state in (PENDING, RUNNING):
                return StartedCommand(None, lambda: [self.query(record.id)])
            if record.state != PAUSED:
                raise _not_allowed_now(record, "PAUSED to be resumed")
            if len(record.all_deployments) >= MOST_DEPLOYMENTS:
                raise Conflict(
                    f"A query can be deployed {MOST_DEPLOYMENTS} times; {record.id} was. PUT /queries/{record.id} puts"
                    " a new one in its place.",
                    query_id=record.id,
                )
            logged = self._submit(QueryResumed(record.id, key_of_request()), *on_done)
        return StartedCommand(logged, lambda: [self.query(record.id)])

    def _find(self, id_or_name: str) -> QueryRecord:
        """Return a query, finished or not; UnknownObject or Gone."""
        with self._lock:
            record = self._state.queries.find(self._state.names.get(id_or_name, id_or_name))
        return record or self._archive.find_name(id_or_name) or self._archived(id_or_name)

    def create_or_replace(self, name: str, sql: str, owner: Owner = NOBODY) -> dict[str, Any]:
        """Carry out CREATE OR REPLACE QUERY: replace the owner's query of this name, or create one if there is none."""
        with self._lock:
            record = self._state.queries.find(self._state.names.get(full_name(owner.tenant, name), ""))
            replaced = record.id if record is not None and record.is_wanted else None
        if replaced is not None:
            return self.begin_replace(replaced, Replacement(sql), owner=owner).wait()[0]
        return self.begin_create([QueryRequest(sql)], owner=owner, may_replace=True).wait()[0]


def _not_allowed_now(record: QueryRecord, requirement: str) -> Conflict:
    return Conflict(
        f"A query must be {requirement}; {record.id} is {record.state}. Register a new one with POST /queries.",
        query_id=record.id,
    )


def _had_effect_before() -> bool:
    """Whether the current request already had its effect in an earlier, interrupted run."""
    running = current()
    return running is not None and running.has_effect
