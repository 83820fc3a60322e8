"""When the session must act by itself: changelogs, TTLs, drains, compaction, snapshots.

Looks at times and changes no state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from session.query_record import DRAINING, QueryRecord
from session.session_state import SessionState
from session.settings import Settings

LOOK_AROUND_US = 200_000
SNAPSHOT_BATCHES = 1000
SNAPSHOT_REQUESTS = 500
SNAPSHOT_QUERIES = 5000


class Deadlines:
    """The deadlines of one session; all times in microseconds."""

    def __init__(self, settings: Settings, snapshot: SessionState, now_us: int) -> None:
        """Begin at ``now_us``: drains that went on before do not time out while nothing could progress.

        ``snapshot`` is the state of the last snapshot; the queries are watched by :meth:`watch`.
        """
        self._settings = settings
        self._started_us = now_us
        self._looked_us: int | None = None
        self._ttls: list[tuple[int, str]] = []
        self.snapshot_taken(snapshot)

    def watch(self, records: Iterable[QueryRecord]) -> None:
        """Watch the TTLs of queries."""
        for record in records:
            if record.ttl_due_us is not None:
                heapq.heappush(self._ttls, (record.ttl_due_us, record.id))

    def look_around(self, now_us: int) -> bool:
        """Whether it is time to look at what need not be exact; at most every :data:`LOOK_AROUND_US`."""
        if self._looked_us is not None and 0 <= now_us - self._looked_us < LOOK_AROUND_US:
            return False
        self._looked_us = now_us
        return True

    def changelog_due(self, state: SessionState, now_us: int) -> bool:
        """Whether what waits must be told: a batch is full, or the first has waited for the timeout (4.3.1.1)."""
        waiting = state.waiting
        since_us = waiting.since_us
        if since_us is None:
            return False
        return (
            waiting.urgent
            or waiting.requests >= self._settings.changelog_batch_size
            or now_us - since_us >= self._settings.changelog_timeout_seconds * 1e6
        )

    def expired_ttls(self, state: SessionState, now_us: int) -> list[str]:
        """Return the queries to delete because their TTL has passed; each once."""
        expired = []
        while self._ttls and self._ttls[0][0] <= now_us:
            _, query_id = heapq.heappop(self._ttls)
            record = state.queries.get(query_id)
            if record is not None and not record.is_finished and record.state != DRAINING:
                expired.append(query_id)
        return expired

    def timed_out_drains(self, state: SessionState, now_us: int) -> list[str]:
        """Return the queries that have drained for too long without a waterline of their streams rising."""
        limit_us = now_us - self._settings.drain_timeout * 1e6
        if self._started_us > limit_us:
            return []
        late = []
        for query_id in state.draining.ids:
            record = state.queries[query_id]
            moved = [
                stream.waterline_moved_us
                for stream_id in record.query.streams
                if (stream := state.catalog.by_id(stream_id)) is not None
            ]
            if record.freed_epoch is None and max([record.active_to_us or 0, *moved]) <= limit_us:
                late.append(query_id)
        return late

    def free_since_us(self, now_us: int) -> int:
        """Return since when slots at the end must have been free to be dropped."""
        return now_us - round(self._settings.slot_compaction_seconds * 1e6)

    def compaction_due(self, state: SessionState, now_us: int) -> bool:
        """Whether slots at the end have been free for long enough (4.3.2.4)."""
        return state.slots.compacted_capacity(self.free_since_us(now_us)) < state.slots.capacity

    def snapshot_due(self, state: SessionState) -> bool:
        """Whether a restart would have to replay much."""
        seq, requests, created = self._snapshot
        return (
            state.applied_seq - seq >= SNAPSHOT_BATCHES
            or state.requests - requests >= SNAPSHOT_REQUESTS
            or state.queries_created - created >= SNAPSHOT_QUERIES
        )

    def snapshot_taken(self, state: SessionState) -> None:
        """Count from here."""
        self._snapshot = (state.applied_seq, state.requests, state.queries_created)
