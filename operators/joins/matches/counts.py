"""Counting the rows of joins that readers form: those of each query by itself, or those of many queries at once.

Queries that differ in their predicates have different cells of the same keys. Of two streams each pair of an entry on
the left and one on the right with the same key counts for a pair of cells, once for all queries; how many rows a query
has is the sum over the pairs of its cells. That takes as many steps as the join without predicates has rows, so it is
done where these are not many more than the keys that the queries would look at by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.aggregation.due import Due
from braid.operators.aggregation.space_queries import Predicates, SpaceQueries
from braid.operators.joins.inputs import LiveInput, join_of
from braid.operators.joins.keys import InputKeys
from braid.operators.joins.matches.firing import DueJoins, JoinedWindow, WindowId
from braid.operators.joins.matches.relations import MANY, Rows
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.cells import CellMap
from braid.operators.predicates.query_set import Bools
from braid.operators.predicates.range_reduction import CellRuns, RangeReduction
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import COUNT_NAME

STEPS_PER_KEY = 4
"""So many pairs of entries take as long as a key of a query that is counted by itself."""

_MAX_CELLS = 1 << 24
_MAX_ROWS = 2.0**62
# so many numbers of (queries, cells) at once
_MAX_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class CountedWindow:
    """How many rows a window has, :data:`MANY` for that or more, and the greatest event time in its slices (µs)."""

    live_inputs: tuple[LiveInput, ...]
    start: int
    end: int
    rows: int
    newest: int


@dataclass(frozen=True)
class CountedJoins:
    """Windows that have rows, and for each input which of its ``keys`` may take part in some of these."""

    windows: Sequence[CountedWindow]
    keys: Sequence[InputKeys]
    wanted: Sequence[Bools]

    def with_more(self, other: CountedJoins) -> CountedJoins:
        """Add other windows of the same operator."""
        wanted = [is_wanted | is_wanted_too for is_wanted, is_wanted_too in zip(self.wanted, other.wanted, strict=True)]
        return CountedJoins([*self.windows, *other.windows], self.keys, wanted)


def count_alone(keys: Sequence[InputKeys], windows: Sequence[JoinedWindow]) -> CountedJoins:
    """Count the rows of each window from what its inputs hold by key."""
    wanted = [np.zeros(input_keys.distinct.num_rows, dtype=np.bool_) for input_keys in keys]
    for window in windows:
        for mask, contents, taking_part in zip(wanted, window.contents, window.joined.taking_part, strict=True):
            mask[contents.rows[taking_part]] = True
    counted = [CountedWindow(w.live_inputs, w.start, w.end, w.joined.total, w.newest) for w in windows]
    return CountedJoins(counted, keys, wanted)


def count_together(due: DueJoins, predicates: Predicates) -> tuple[CountedJoins, list[WindowId]]:
    """Count the rows of those windows for which pairs are quick; return also which windows are left to be counted."""
    candidates = list(_candidates(due, predicates))
    candidate_ids = {candidate.window_id for candidate in candidates}
    uncounted = [window_id for window_id in due.windows if window_id not in candidate_ids]
    if not candidates:
        return count_alone(due.keys, []), uncounted
    sides = [_Side(due, number, candidates, predicates) for number in (0, 1)]
    has_pairs = np.zeros(max(side.codes for side in sides), dtype=np.bool_)
    windows: list[CountedWindow] = []
    for group in _by_slices(candidates):
        left, right = (side.entries(group[0]) for side in sides)
        if left is None or right is None:
            continue
        by_cells = _count_pairs(left, right, STEPS_PER_KEY * len(group) * len(has_pairs), has_pairs)
        if by_cells is None:
            uncounted += [candidate.window_id for candidate in group]
            continue
        newest = max(left.newest, right.newest)
        counts = _rows(by_cells, *(side.runs(group) for side in sides)).tolist()
        for candidate, rows in zip(group, counts, strict=True):
            if rows:
                query, start, end = candidate.window_id
                windows.append(CountedWindow(due.by_id[query], start, end, min(rows, MANY), newest))
    return CountedJoins(windows, due.keys, [side.wanted(has_pairs) for side in sides]), uncounted


@dataclass(frozen=True)
class _Candidate:
    """A window of two inner inputs whose keys are numbered as one: what each reads, and in which cell space."""

    window_id: WindowId
    inputs: tuple[Due, Due]
    spaces: tuple[SpaceKey, SpaceKey]

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """The window, and from where on each input is read (µs)."""
        left, right = self.inputs
        return left.end, left.start, left.reads_from, right.reads_from


def _candidates(due: DueJoins, predicates: Predicates) -> Iterator[_Candidate]:
    """Yield the windows whose rows may be counted in pairs."""
    live_inputs = due.operator.joins[0]
    if len(live_inputs) != 2 or not live_inputs[0].attributes or live_inputs[0].attributes != live_inputs[1].attributes:
        return
    for window_id, inputs in due.windows.items():
        inputs_of_query = due.by_id[window_id[0]]
        is_inner = not any(live_input.input.outer_of for live_input in inputs_of_query)
        if len(inputs) == 2 and join_of(inputs_of_query[0].live).is_formed_late and is_inner:
            left, right = inputs[0], inputs[1]
            first, second = (SpaceKey.of(window.query.query, predicates(window.query)) for window in (left, right))
            yield _Candidate(window_id, (left, right), (first, second))


def _by_slices(candidates: Iterable[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield together the candidates that read the same slices in the same spaces; all of the same slices in a row."""
    ordered = sorted(candidates, key=lambda candidate: (candidate.bounds, candidate.spaces))
    for _, group in itertools.groupby(ordered, key=lambda candidate: (candidate.bounds, candidate.spaces)):
        yield list(group)


@dataclass(frozen=True)
class _Entries:
    """What one input has in a window: codes of keys, cells and numbers of tuples, shape (entries,) each."""

    code: npt.NDArray[np.int32]
    cell: npt.NDArray[np.int32]
    number: npt.NDArray[np.int64]
    cells: int
    newest: int


@dataclass(frozen=True)
class _Ordered:
    """Entries by the code of their key: those of code c are ``[starts[c], starts[c + 1])``."""

    starts: Rows
    cell: npt.NDArray[np.int32]
    number: npt.NDArray[np.int64]

    @classmethod
    def of(cls, entries: _Entries, codes: int) -> _Ordered:
        starts, order = np.zeros(codes + 1, dtype=np.int64), np.empty(len(entries.code), dtype=np.int32)
        kernels.order_by_code(order, starts, entries.code)
        return cls(starts, kernels.take(entries.cell, order), kernels.take(entries.number, order))

    def steps(self, entries: _Entries) -> int:
        """Return how many pairs they form with other entries."""
        return int(kernels.take(np.diff(self.starts), entries.code).sum())


@dataclass(frozen=True)
class _Space:
    """The cells of the queries of one space, and what they are in each bucket.

    ``cell_of`` and ``code_of`` renumber a bucket's cells and keys, -1 for what nobody needs; ``number_of`` says which
    of the ``runs`` are those of a query.
    """

    buckets: Sequence[Bucket]
    cell_of: Sequence[CellMap]
    code_of: Sequence[npt.NDArray[np.int32]]
    cells: int
    runs: CellRuns
    number_of: Mapping[str, int]


class _Side:
    """One of the two inputs: its entries in each window, and the cells of its queries."""

    def __init__(self, due: DueJoins, number: int, candidates: Iterable[_Candidate], predicates: Predicates) -> None:
        self._number = number
        (code,) = due.keys[number].codes.values()
        self._code = np.append(code, -1).astype(np.int32)  # the place of a key that is left out is -1
        queries: dict[SpaceKey, dict[str, LiveQuery]] = {}
        for candidate in candidates:
            query = candidate.inputs[number].query
            queries.setdefault(candidate.spaces[number], {})[query.id] = query
        self._spaces: dict[SpaceKey, _Space] = {}
        for key, by_id in queries.items():
            buckets = [bucket for bucket in due.buckets[number] if bucket.space == key]
            if buckets:
                runs, cells, cell_of = SpaceQueries(list(by_id.values()), predicates).cells(buckets)
                code_of = [self._code[due.keys[number].places[id(bucket.keys)]] for bucket in buckets]
                number_of = {query: i for i, query in enumerate(by_id)}
                self._spaces[key] = _Space(buckets, cell_of, code_of, cells, runs, number_of)
        self._bounds: tuple[int, ...] = ()
        self._known: dict[SpaceKey, _Entries | None] = {}

    @property
    def codes(self) -> int:
        """How many codes there are at most."""
        return 1 + int(self._code.max())

    def wanted(self, has_pairs: Bools) -> Bools:
        """Return which keys have a code with pairs."""
        return np.append(has_pairs, False)[self._code[:-1]]

    def runs(self, windows: Sequence[_Candidate]) -> CellRuns:
        """Return the cells of the queries of windows in the same space."""
        space = self._spaces[windows[0].spaces[self._number]]
        return space.runs.take([space.number_of[window.inputs[self._number].query.id] for window in windows])

    def entries(self, window: _Candidate) -> _Entries | None:
        """Return the entries in a window, None for none; they are kept for the next windows with the same bounds."""
        if self._bounds != window.bounds:
            self._bounds, self._known = window.bounds, {}
        key, due = window.spaces[self._number], window.inputs[self._number]
        if key not in self._known:
            space = self._spaces.get(key)
            self._known[key] = None if space is None else _entries(space, due.reads_from, due.end)
        return self._known[key]


def _entries(space: _Space, start: int, end: int) -> _Entries | None:
    """Return the entries of the slices that lie in ``[start, end)``."""
    code_parts, cell_parts, number_parts, newest_parts = [], [], [], []
    for bucket, cell_of, code_of in zip(space.buckets, space.cell_of, space.code_of, strict=True):
        is_inside = (bucket.slices[:, 0] >= start) & (bucket.slices[:, 1] <= end)
        edges = np.flatnonzero(np.diff(is_inside, prepend=False, append=False))
        for first, after in edges.reshape(-1, 2).tolist():
            newest_parts.append(int(bucket.latest[first:after].max()))
            low, high = int(bucket.starts[first]), int(bucket.starts[after])
            positions, cells, codes = np.empty((3, high - low), dtype=np.int32)
            cell_and_key = bucket.cell[low:high], bucket.key[low:high]
            count = kernels.keep_mapped(positions, cells, codes, *cell_and_key, cell_of, code_of)
            code_parts.append(codes[:count])
            cell_parts.append(cells[:count])
            number_parts.append(kernels.take(bucket.components[COUNT_NAME][low:high], positions[:count]))
            if bucket.is_full:
                occupied = number_parts[-1] > 0
                for parts in (code_parts, cell_parts, number_parts):
                    parts[-1] = parts[-1][occupied]
    if not newest_parts:
        return None
    numbers = np.concatenate(number_parts).astype(np.int64, copy=False)
    return _Entries(np.concatenate(code_parts), np.concatenate(cell_parts), numbers, space.cells, max(newest_parts))


def _count_pairs(left: _Entries, right: _Entries, max_steps: int, has_pairs: Bools) -> npt.NDArray[np.int64] | None:
    """Return how many pairs with the same code lie in each pair of cells; None where that is not quick.

    Codes with pairs are marked in ``has_pairs``, shape (codes,).
    """
    ordered = _Ordered.of(right, len(has_pairs))
    if ordered.steps(left) > max_steps or left.cells * right.cells > _MAX_CELLS:
        return None
    if float(left.number.sum()) * float(right.number.sum()) > _MAX_ROWS:
        return None
    by_cells = np.zeros((left.cells, right.cells), dtype=np.int64)
    kernels.count_pairs(
        by_cells, has_pairs, left.code, left.cell, left.number, ordered.starts, ordered.cell, ordered.number
    )
    return by_cells


def _rows(by_cells: npt.NDArray[np.int64], left: CellRuns, right: CellRuns) -> npt.NDArray[np.int64]:
    """Return how many rows there are in each query's cells on the left and on the right."""
    reduced = RangeReduction(by_cells, "sum")
    counts = []
    at_once = max(1, _MAX_AT_ONCE // by_cells.shape[1])
    for first in range(0, left.queries, at_once):
        chunk = np.arange(first, min(first + at_once, left.queries))
        left_sums = reduced.over(left.take(chunk))
        left_sums *= right.take(chunk).masks(by_cells.shape[1])
        counts.append(left_sums.sum(axis=1))
    return np.concatenate(counts)
