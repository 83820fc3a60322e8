"""When the session must act by itself: changelogs, TTLs, drains, compaction, snapshots.

Looks at times and changes no state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from braid.session.settings import Settings
from braid.session.state.query_record import QueryRecord
from braid.session.state.session_state import SessionState

LOOK_AROUND_US = 200_000
JUMP_US = 1_000_000
"""By how much a clock is set, not slewed."""
FEW_TTLS = 1000
SNAPSHOT_BATCHES = 1000
SNAPSHOT_REQUESTS = 5000
SNAPSHOT_CHANGES = 5000


class Deadlines:
    """The deadlines of one session; all times in microseconds."""

    def __init__(self, settings: Settings, snapshot: SessionState, now_us: int, monotonic: Callable[[], float]) -> None:
        """Begin at ``now_us``: the time before, when nothing could progress, does not count for drain timeouts.

        Nor does the time before the clock is set, which ``monotonic``, in seconds, tells: a clock that nobody sets.
        ``snapshot`` is the state of the last snapshot; the queries are watched by :meth:`watch`.
        """
        self._settings = settings
        self._monotonic = monotonic
        self._ahead_us = self._ahead_at(now_us)
        self._drains_since_us = now_us
        self._looked_us: int | None = None
        self._ttls: list[tuple[int, str]] = []
        self.snapshot_taken(self.mark(snapshot))

    def watch(self, records: Iterable[QueryRecord]) -> None:
        """Watch the TTLs of queries."""
        for record in records:
            if record.ttl_due_us is not None:
                heapq.heappush(self._ttls, (record.ttl_due_us, record.id))

    def look_around(self, now_us: int) -> bool:
        """Whether deadlines that need not be exact are looked at now: at most every :data:`LOOK_AROUND_US`."""
        if self._looked_us is not None and 0 <= now_us - self._looked_us < LOOK_AROUND_US:
            return False
        self._looked_us = now_us
        return True

    def changelog_due(self, state: SessionState, now_us: int) -> bool:
        """Whether a changelog must be cut: a batch is full, or the first request has waited long enough (4.3.1.1)."""
        waiting = state.pending
        since_us = waiting.since_us
        if since_us is None:
            return False
        return (
            waiting.urgent
            or waiting.requests >= self._settings.changelog_batch_size
            or not 0 <= now_us - since_us < self._settings.changelog_timeout_seconds * 1e6  # below: it was set back
        )

    def expired_ttls(self, state: SessionState, now_us: int) -> list[str]:
        """Return the queries to delete because their TTL has passed; each once."""
        if len(self._ttls) > 2 * len(state.queries) + FEW_TTLS:  # most are of queries that the state has no more
            self._ttls = [ttl for ttl in self._ttls if state.queries.find(ttl[1]) is not None]
            heapq.heapify(self._ttls)
        expired = []
        while self._ttls and self._ttls[0][0] <= now_us:
            _, query_id = heapq.heappop(self._ttls)
            record = state.queries.find(query_id)
            if record is not None and record.is_wanted:
                expired.append(query_id)
        return expired

    def timed_out_drains(self, state: SessionState, now_us: int) -> list[str]:
        """Return the queries that have drained for too long without a watermark of their streams rising."""
        ahead_us = self._ahead_at(now_us)
        if abs(ahead_us - self._ahead_us) >= JUMP_US:
            self._drains_since_us = now_us
        self._ahead_us = ahead_us
        limit_us = now_us - round(self._settings.drain_timeout * 1e6)
        if self._drains_since_us > limit_us:
            return []

        def moved_us(stream_id: str) -> int:
            stream = state.catalog.by_id(stream_id)
            return 0 if stream is None else stream.fired_moved_us

        silent = state.draining.silent(limit_us, moved_us)
        return [query_id for query_id in silent if state.queries[query_id].freed_epoch is None]

    def _ahead_at(self, now_us: int) -> int:
        """Return by how much the clock is ahead of the one that nobody sets."""
        return now_us - round(self._monotonic() * 1e6)

    def free_since_us(self, now_us: int) -> int:
        """Return since when slots at the end must have been free to be dropped."""
        return now_us - round(self._settings.slot_compaction_seconds * 1e6)

    def compaction_due(self, state: SessionState, now_us: int) -> bool:
        """Whether slots at the end have been free for long enough (4.3.2.4)."""
        return state.slots.compacted_capacity(self.free_since_us(now_us)) < state.slots.capacity

    def snapshot_due(self, state: SessionState) -> bool:
        """Whether a restart would have to replay much: more than it would read from a snapshot."""
        seq, requests, changes_before = self._snapshot_mark
        changes = state.queries_created + state.queries_deleted - changes_before
        return (
            state.applied_seq - seq >= SNAPSHOT_BATCHES
            or state.requests - requests >= SNAPSHOT_REQUESTS
            or changes >= max(SNAPSHOT_CHANGES, state.queries.unfinished)
        )

    def mark(self, state: SessionState) -> tuple[int, int, int]:
        """Return how far a snapshot taken now reaches."""
        return state.applied_seq, state.requests, state.queries_created + state.queries_deleted

    def snapshot_taken(self, mark: tuple[int, int, int]) -> None:
        """Count from the mark of a snapshot that was written."""
        self._snapshot_mark = mark
