"""Which windows of which queries are due, in columns: with thousands of queries thousands of windows end together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from braid.operators.aggregation.shared_aggregation import by_window
from braid.operators.aggregation.space_queries import Places, Predicates, SpaceQueries, by_space
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.windowing.slicing import Times, due_windows, with_ends_in


@dataclass(frozen=True)
class Due:
    """A query's window that is due; ``reads_from`` is the start of the first slice that it may read."""

    query: LiveQuery
    start: int
    end: int
    reads_from: int


@dataclass(frozen=True)
class WindowsToFire:
    """Windows of queries of one space: number i is that of ``space.queries[query[i]]``; else as in :class:`Due`."""

    space: SpaceQueries
    query: Places
    start: Times
    end: Times
    reads_from: Times

    def __len__(self) -> int:
        return len(self.query)

    def take(self, positions: Places | slice) -> WindowsToFire:
        """Return some of them."""
        columns = (column[positions] for column in (self.query, self.start, self.end, self.reads_from))
        return WindowsToFire(self.space, *columns)

    def listed(self) -> Iterator[Due]:
        """Yield them one by one."""
        columns = (column.tolist() for column in (self.query, self.start, self.end, self.reads_from))
        for query, start, end, reads_from in zip(*columns, strict=True):
            yield Due(self.space.queries[query], start, end, reads_from)


class WindowedQueries:
    """The queries of one operator over windows that are not sessions, by window."""

    def __init__(self, queries: Sequence[LiveQuery], predicates: Predicates) -> None:
        windows = by_window(queries)
        ordered = [query for members in windows.values() for query in members]
        streams = [query.query.streams[0] for query in ordered]
        self._number = {window: number for number, window in enumerate(windows)}
        self._count = np.array([len(members) for members in windows.values()], dtype=np.int64)
        self._seen_after = np.array([q.after(s) for q, s in zip(ordered, streams, strict=True)], dtype=np.int64)
        self._until = np.array([q.until(s) for q, s in zip(ordered, streams, strict=True)], dtype=np.int64)
        split = by_space(ordered, predicates)
        self.spaces = {key: SpaceQueries(members, predicates) for key, members in split.items()}
        places = {query.id: (i, n) for i, members in enumerate(split.values()) for n, query in enumerate(members)}
        self._space, self._place = np.array([places[q.id] for q in ordered], dtype=np.int64).reshape(-1, 2).T

    def due(self, slices: Times, after: int, upto: int) -> Iterator[tuple[SpaceKey, WindowsToFire]]:
        """Yield the windows that contain one of the slices, shape (slices, 2), and end in ``(after, upto]``."""
        windows = with_ends_in(list(self._number), after, upto)
        if not windows:
            return
        numbers = [self._number[window] for window in windows]
        bounds = [due_windows(slices, window, after, upto) for window in windows]
        first_query = (np.cumsum(self._count) - self._count)[numbers]
        lengths = np.array([len(starts_and_ends) for starts_and_ends in bounds], dtype=np.int64)
        query, window = _pairs(first_query, self._count[numbers], lengths)
        start, end = np.concatenate(bounds)[window].T
        begin = self._seen_after[query] + 1
        is_seen = (self._until[query] >= end) & (end > begin)
        query, start, end, begin = (column[is_seen] for column in (query, start, end, begin))
        for number, (key, space) in enumerate(self.spaces.items()):
            in_space = np.flatnonzero(self._space[query] == number)
            if len(in_space):
                reads_from = np.maximum(start[in_space], begin[in_space])
                yield (
                    key,
                    WindowsToFire(space, self._place[query[in_space]], start[in_space], end[in_space], reads_from),
                )


def due_by_space(due: Iterable[Due], predicates: Predicates) -> Iterator[tuple[SpaceKey, WindowsToFire]]:
    """Yield windows by the space of their query."""
    windows = list(due)
    queries = {window.query.id: window.query for window in windows}
    for key, members in by_space(queries.values(), predicates).items():
        place = {query.id: number for number, query in enumerate(members)}
        in_space = [window for window in windows if window.query.id in place]
        rows = [(place[window.query.id], window.start, window.end, window.reads_from) for window in in_space]
        yield key, WindowsToFire(SpaceQueries(members, predicates), *np.array(rows, dtype=np.int64).T)


def _pairs(first: Places, count: Places, windows: Places) -> tuple[Places, Places]:
    """Pair queries ``[first[i], first[i] + count[i])`` with the next ``windows[i]`` windows each, for all i in turn."""
    pairs = count * windows
    range_number = np.repeat(np.arange(len(pairs)), pairs)
    nth = np.arange(len(range_number)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    windows_before = np.cumsum(windows) - windows
    return first[range_number] + nth // windows[range_number], windows_before[range_number] + nth % windows[
        range_number
    ]
