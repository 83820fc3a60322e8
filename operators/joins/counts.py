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

from operators import kernels
from operators.bucket import Bucket
from operators.components import COUNT_NAME
from operators.joins.firing import DueJoins, JoinedWindow, Place
from operators.joins.keys import InputKeys
from operators.joins.parts import Part, join_of
from operators.joins.relations import MANY, Rows
from operators.live_queries import LiveQuery
from operators.predicates.cells import CellMap
from operators.predicates.query_set import Bools
from operators.predicates.range_reduction import CellRuns, RangeReduction
from operators.predicates.space_key import SpaceKey
from operators.windowing.due import Due
from operators.windowing.space_queries import Predicates, SpaceQueries

STEPS_PER_KEY = 4
"""So many pairs of entries take as long as a key of a query that is counted by itself."""

_MOST_CELLS = 1 << 24
_MOST_ROWS = 2.0**62
# so many numbers of (queries, cells) at once
_MOST_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class CountedWindow:
    """How many rows a window has, :data:`MANY` for that or more, and the greatest event time in its slices (µs)."""

    parts: tuple[Part, ...]
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
        wanted = [mine | theirs for mine, theirs in zip(self.wanted, other.wanted, strict=True)]
        return CountedJoins([*self.windows, *other.windows], self.keys, wanted)


def count_alone(keys: Sequence[InputKeys], windows: Sequence[JoinedWindow]) -> CountedJoins:
    """Count the rows of each window from what its inputs hold by key."""
    wanted = [np.zeros(each.distinct.num_rows, dtype=np.bool_) for each in keys]
    for window in windows:
        for mask, held, taking_part in zip(wanted, window.held, window.joined.taking_part, strict=True):
            mask[held.rows[taking_part]] = True
    counted = [CountedWindow(w.parts, w.start, w.end, w.joined.total, w.newest) for w in windows]
    return CountedJoins(counted, keys, wanted)


def count_together(due: DueJoins, predicates: Predicates) -> tuple[CountedJoins, list[Place]]:
    """Count the rows of those windows for which pairs are quick; return also the places of all others."""
    candidates = list(_candidates(due, predicates))
    known = {candidate.place for candidate in candidates}
    others = [place for place in due.windows if place not in known]
    if not candidates:
        return count_alone(due.keys, []), others
    sides = [_Side(due, number, candidates, predicates) for number in (0, 1)]
    met = np.zeros(max(side.codes for side in sides), dtype=np.bool_)
    windows: list[CountedWindow] = []
    for alike in _alike(candidates):
        left, right = (side.entries(alike[0]) for side in sides)
        if left is None or right is None:
            continue
        by_cells = _count_pairs(left, right, STEPS_PER_KEY * len(alike) * len(met), met)
        if by_cells is None:
            others += [each.place for each in alike]
            continue
        newest = max(left.newest, right.newest)
        for each, rows in zip(alike, _rows(by_cells, *(side.runs(alike) for side in sides)).tolist(), strict=True):
            if rows:
                query, start, end = each.place
                windows.append(CountedWindow(due.by_id[query], start, end, min(rows, MANY), newest))
    return CountedJoins(windows, due.keys, [side.wanted(met) for side in sides]), others


@dataclass(frozen=True)
class _Candidate:
    """A window of two inner inputs whose keys are numbered as one: what each reads, and in which cell space."""

    place: Place
    inputs: tuple[Due, Due]
    spaces: tuple[SpaceKey, SpaceKey]

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """The window, and from where on each input is read (µs)."""
        left, right = self.inputs
        return left.end, left.start, left.reads_from, right.reads_from


def _candidates(due: DueJoins, predicates: Predicates) -> Iterator[_Candidate]:
    """Yield the windows whose rows may be counted in pairs."""
    parts = due.operator.joins[0]
    if len(parts) != 2 or not parts[0].attributes or parts[0].attributes != parts[1].attributes:
        return
    for place, inputs in due.windows.items():
        mine = due.by_id[place[0]]
        if len(inputs) == 2 and join_of(mine[0].live).is_formed_late and not any(p.input.outer_of for p in mine):
            left, right = inputs[0], inputs[1]
            first, second = (SpaceKey.of(each.query.query, predicates(each.query)) for each in (left, right))
            yield _Candidate(place, (left, right), (first, second))


def _alike(candidates: Iterable[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield together those that read the same slices, in the same spaces; those of the same slices in a row."""
    ordered = sorted(candidates, key=lambda each: (each.bounds, each.spaces))
    for _, alike in itertools.groupby(ordered, key=lambda each: (each.bounds, each.spaces)):
        yield list(alike)


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
        return cls(starts, kernels.taken(entries.cell, order), kernels.taken(entries.number, order))

    def steps(self, others: _Entries) -> int:
        """Return how many pairs they form with others."""
        return int(kernels.taken(np.diff(self.starts), others.code).sum())


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
    """One of both inputs."""

    def __init__(self, due: DueJoins, number: int, candidates: Iterable[_Candidate], predicates: Predicates) -> None:
        self._number = number
        (code,) = due.keys[number].codes.values()
        self._code = np.append(code, -1).astype(np.int32)  # the place of a key that is left out is -1
        queries: dict[SpaceKey, dict[str, LiveQuery]] = {}
        for each in candidates:
            query = each.inputs[number].query
            queries.setdefault(each.spaces[number], {})[query.id] = query
        self._spaces: dict[SpaceKey, _Space] = {}
        for key, mine in queries.items():
            buckets = [bucket for bucket in due.buckets[number] if bucket.space == key]
            if buckets:
                runs, cells, cell_of = SpaceQueries(list(mine.values()), predicates).cells(buckets)
                code_of = [self._code[due.keys[number].places[id(bucket.keys)]] for bucket in buckets]
                number_of = {query: i for i, query in enumerate(mine)}
                self._spaces[key] = _Space(buckets, cell_of, code_of, cells, runs, number_of)
        self._bounds: tuple[int, ...] = ()
        self._known: dict[SpaceKey, _Entries | None] = {}

    @property
    def codes(self) -> int:
        """How many codes there are at most."""
        return 1 + int(self._code.max())

    def wanted(self, met: Bools) -> Bools:
        """Return which keys have a code that was met."""
        return np.append(met, False)[self._code[:-1]]

    def runs(self, alike: Sequence[_Candidate]) -> CellRuns:
        """Return the cells of the queries of windows in the same space."""
        space = self._spaces[alike[0].spaces[self._number]]
        return space.runs.taken([space.number_of[each.inputs[self._number].query.id] for each in alike])

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
    code, cell, number, newest = [], [], [], []
    for bucket, cell_of, code_of in zip(space.buckets, space.cell_of, space.code_of, strict=True):
        inside = (bucket.slices[:, 0] >= start) & (bucket.slices[:, 1] <= end)
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        for first, after in edges.reshape(-1, 2).tolist():
            newest.append(int(bucket.latest[first:after].max()))
            low, high = int(bucket.starts[first]), int(bucket.starts[after])
            kept, cells, codes = np.empty((3, high - low), dtype=np.int32)
            mine = bucket.cell[low:high], bucket.key[low:high]
            count = kernels.keep_mapped(kept, cells, codes, *mine, cell_of, code_of)
            code.append(codes[:count])
            cell.append(cells[:count])
            number.append(kernels.taken(bucket.components[COUNT_NAME][low:high], kept[:count]))
            if bucket.is_full:
                some = number[-1] > 0
                code[-1], cell[-1], number[-1] = code[-1][some], cell[-1][some], number[-1][some]
    if not newest:
        return None
    numbers = np.concatenate(number).astype(np.int64, copy=False)
    return _Entries(np.concatenate(code), np.concatenate(cell), numbers, space.cells, max(newest))


def _count_pairs(left: _Entries, right: _Entries, most_steps: int, met: Bools) -> npt.NDArray[np.int64] | None:
    """Return how many pairs with the same code lie in each pair of cells; None where that is not quick.

    Codes with pairs are marked in ``met``, shape (codes,).
    """
    ordered = _Ordered.of(right, len(met))
    if ordered.steps(left) > most_steps or left.cells * right.cells > _MOST_CELLS:
        return None
    if float(left.number.sum()) * float(right.number.sum()) > _MOST_ROWS:
        return None
    by_cells = np.zeros((left.cells, right.cells), dtype=np.int64)
    kernels.count_pairs(by_cells, met, left.code, left.cell, left.number, ordered.starts, ordered.cell, ordered.number)
    return by_cells


def _rows(by_cells: npt.NDArray[np.int64], left: CellRuns, right: CellRuns) -> npt.NDArray[np.int64]:
    """Return how many rows there are in each query's cells on the left and on the right."""
    reduced, found = RangeReduction(by_cells, "sum"), []
    at_once = max(1, _MOST_AT_ONCE // by_cells.shape[1])
    for first in range(0, left.queries, at_once):
        some = np.arange(first, min(first + at_once, left.queries))
        mine = reduced.over(left.taken(some))
        mine *= right.taken(some).masks(by_cells.shape[1])
        found.append(mine.sum(axis=1))
    return np.concatenate(found)
