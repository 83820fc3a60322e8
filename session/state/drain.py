"""Which deleted and paused queries have drained: a heap of thresholds per stream.

A query has drained on stream S when it saw no tuple of S (``active_to`` is None or equals ``active_from``), or when
no further row can come: a selection sees tuples up to ``active_to``, which are late once the watermark is above it; an
aggregation emits windows with ``window_end <= active_to``, all of which are final once the watermark reaches it.
Windows may fire later than they are final, where there are many; so it counts up to where they have fired.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from braid.session.state.query_record import QueryRecord

Streams = tuple[str, ...]


def threshold(record: QueryRecord, stream: str) -> int | None:
    """Return up to where windows of ``stream`` have fired when a query has drained; None when it has already."""
    assert record.active_to is not None
    assert record.active_from is not None
    active_to = record.active_to[stream]
    if active_to is None or active_to == record.active_from[stream]:
        return None
    return active_to + 1 if record.query.window is None else active_to


class Draining:
    """The queries that have not drained, and up to where windows must fire until each of them has."""

    def __init__(self) -> None:
        # by query and stream; an entry of a heap that differs is from before the query was resumed
        self._thresholds: dict[str, dict[str, int]] = {}
        self._heaps: dict[str, list[tuple[int, str]]] = {}
        # since when queries drain, by their streams and ids; in the order in which they began
        self._since: dict[Streams, dict[str, int]] = {}

    @property
    def ids(self) -> list[str]:
        """The queries that have not drained."""
        return list(self._thresholds)

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._thresholds

    def add(self, record: QueryRecord, fired: Callable[[str], int | None]) -> bool:
        """Watch a query, which ended no earlier than those before it; return True when it has drained already."""
        thresholds = {}
        for stream in record.query.streams:
            needed, reached = threshold(record, stream), fired(stream)
            if needed is not None and (reached is None or reached < needed):
                thresholds[stream] = needed
                heapq.heappush(self._heaps.setdefault(stream, []), (needed, record.id))
        if thresholds:
            self._thresholds[record.id] = thresholds
            self._since.setdefault(record.query.streams, {})[record.id] = record.active_to_us or 0
        return not thresholds

    def passed(self, stream: str, fired: int | None) -> list[str]:
        """Remove and return the queries that have drained now that windows of ``stream`` have fired up to ``fired``."""
        heap, drained = self._heaps.get(stream, []), []
        while heap and fired is not None and heap[0][0] <= fired:
            needed, query_id = heapq.heappop(heap)
            thresholds = self._thresholds.get(query_id)
            if thresholds is not None and thresholds.get(stream) == needed:
                del thresholds[stream]
                if not thresholds:
                    del self._thresholds[query_id]
                    drained.append(query_id)
        if not heap:
            self._heaps.pop(stream, None)
        return drained

    def remove(self, record: QueryRecord) -> None:
        """Stop watching a query."""
        self._thresholds.pop(record.id, None)
        ids = self._since.get(record.query.streams)
        if ids is not None and ids.pop(record.id, None) is not None and not ids:
            del self._since[record.query.streams]

    def silent(self, limit_us: int, moved_us: Callable[[str], int]) -> Iterator[str]:
        """Yield the queries that began to drain at or before ``limit_us`` and for which no windows fired since.

        ``moved_us`` returns when windows of a stream last fired. The cost depends on the queries that are yielded,
        not on those that drain.
        """
        for streams, ids in self._since.items():
            if max(map(moved_us, streams), default=0) > limit_us:
                continue
            for query_id, since_us in ids.items():
                if since_us > limit_us:
                    break
                yield query_id
