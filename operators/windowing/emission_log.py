"""What a partition has emitted of windows that are not final: kept beside its buckets, in the same state and files.

Invariants, like those of :mod:`braid.operators.partition`:

- An operator with early queries has at most one entry, written in the last batch in which it changed; the head of the
  partition names it. Entries have negative numbers, so that they never meet those of buckets; these are digests, so
  that what another attempt at the batch emitted is another entry.
- What is in memory is a cache of that, brought up to the head before each batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from braid.operators.aggregation.shared_aggregation import aggregation_of, sliding_window
from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import COUNT_ALL, SESSIONS
from braid.operators.state.bucket_store import get_payload, put_payload
from braid.operators.state.partition_state import digest_of
from braid.operators.state.query_runs import Partials
from braid.operators.windowing.early_groups import Emitted
from braid.operators.windowing.early_rows import Current, Revision, revise
from braid.operators.windowing.fired_rows import Fired
from braid.sources.core.storage import Storage


@dataclass(frozen=True)
class _Entry:
    number: int
    path: str
    emitted: Emitted


@dataclass(frozen=True)
class StateChange:
    """Entries to store (with their bytes or path) and to drop, files to delete, and what the head is to name."""

    stored: Mapping[int, tuple[str, bytes]]
    dropped: Sequence[int]
    files: Sequence[str]
    names: Mapping[str, int]


class EmissionLog:
    """The early rows of one partition, operator by operator."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._entries: dict[str, _Entry] = {}
        self._revisions: dict[str, Revision] = {}
        self._counted: dict[str, tuple[LiveQuery, LiveQuery]] = {}

    def missing(self, names: Mapping[str, int]) -> dict[str, int]:
        """Forget what the head does not name; return what it names and is not in memory."""
        self._revisions = {}
        self._entries = {name: e for name, e in self._entries.items() if names.get(name) == e.number}
        return {name: number for name, number in names.items() if name not in self._entries}

    def load(self, name: str, number: int, path: str, data: bytes) -> None:
        """Take an entry of the state into memory."""
        self._entries[name] = _Entry(number, path, Emitted.deserialize(get_payload(self._storage, path, data)))

    @property
    def operators(self) -> list[str]:
        """The operators of which something was emitted."""
        return list(self._entries)

    @property
    def paths(self) -> list[str]:
        """The files that have some of it."""
        return [entry.path for entry in self._entries.values() if entry.path]

    @property
    def bytes(self) -> int:
        """The size of what is in memory."""
        tables = [table for entry in self._entries.values() for table in (entry.emitted.shown, entry.emitted.waiting)]
        return sum(table.nbytes for table in tables if table is not None)

    def counted(self, queries: Sequence[LiveQuery]) -> list[LiveQuery]:
        """Return the queries with COUNT(*) among their measures, by which a group shows that it did not change."""
        counted_before, self._counted = self._counted, {}
        for live in queries:
            pair = counted_before.get(live.id)
            if pair is None or pair[0] is not live:
                query = aggregation_of(live)
                measures = tuple(dict.fromkeys([*query.measures, COUNT_ALL]))
                pair = live, replace(live, query=replace(query, measures=measures))
            self._counted[live.id] = pair
        return [self._counted[live.id][1] for live in queries]

    def revise(
        self,
        name: str,
        current: Current | None,
        queries: Sequence[LiveQuery],
        before: int | None,
        after: int | None,
        now_us: int,
    ) -> Fired | None:
        """Return an operator's early rows of this batch, see :mod:`braid.operators.windowing.early_rows`."""
        emitted = self._entries[name].emitted if name in self._entries else Emitted()
        revision = self._revisions[name] = revise(emitted, current, queries, before, after, now_us)
        return revision.rows

    @property
    def due_us(self) -> int | None:
        """When the next delay runs out, by the revisions of this batch."""
        return min((r.due_us for r in self._revisions.values() if r.due_us is not None), default=None)

    def take_revisions(self, seq: int) -> StateChange:
        """Return how the state changes by the revisions of batch ``seq``; what is in memory changes with it."""
        stored: dict[int, tuple[str, bytes]] = {}
        dropped, files = [], []
        for name, revision in sorted(self._revisions.items()):
            if not revision.is_new:
                continue
            old_entry = self._entries.pop(name, None)
            if old_entry is not None:
                dropped.append(old_entry.number)
                files += [old_entry.path] if old_entry.path else []
            if not revision.emitted.is_empty:
                path, data = put_payload(self._storage, seq, revision.emitted.serialize())
                number = -digest_of(f"{seq} {name} {path}".encode(), data)
                stored[number] = path, data
                self._entries[name] = _Entry(number, path, revision.emitted)
        return StateChange(stored, dropped, files, {name: entry.number for name, entry in self._entries.items()})


def reach_of(new_buckets: Sequence[Partials], queries: Sequence[LiveQuery], before: int | None) -> tuple[int, int]:
    """Return ``(after, upto)``: where the windows end that may have changed by what a batch brought."""
    starts = [int(edge) for bucket in new_buckets for edge in (bucket.slices[:, 0].min(), bucket.slices[:, 0].max())]
    after = max(min(starts), EARLIEST if before is None else before)
    if queries[0].query.kind == SESSIONS:
        return after, LATEST
    return after, max(starts) + max(sliding_window(query).size_us for query in queries)
