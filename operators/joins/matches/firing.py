"""Firing windows of joins: from what each input holds by key to the number of joined rows, or to their groups.

The rows of a window are, for each combination of equal keys, all combinations of the tuples that have them. They are
counted and aggregated in this factorised form, key by key, and no pair is formed: a window costs as many steps as it
has keys, however many rows come out (what the thesis's late materialization, 5.3.2, does to rows, done to aggregates,
too). What an input holds is added up slice by slice, once for all joins that read it, so two slices are never joined
with each other and there is no history of joined pairs to keep (4.3.1.4, figures 4.5 and 5.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from braid.operators.aggregation.due import Due
from braid.operators.aggregation.firing import window_contents
from braid.operators.aggregation.shared_aggregation import sliding_window
from braid.operators.aggregation.space_queries import Predicates
from braid.operators.arrays import Numbers
from braid.operators.joins.inputs import LiveInput, join_of, live_inputs_of, splits_of
from braid.operators.joins.keys import InputKeys, number_keys
from braid.operators.joins.matches.relations import JoinResult, Relation, Rows, TooManyCombinations, picked
from braid.operators.joins.query import Join
from braid.operators.live_queries import LiveQueries
from braid.operators.query_parts import JOIN
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import COUNT_NAME
from braid.operators.state.tuple_bucket import TupleBucket, between
from braid.operators.windowing.slicing import due_windows, with_ends_in
from braid.operators.windowing.window_contents import WindowContents
from braid.operators.windows import Window

# a query's window: the query's id, the window's start and end (µs)
WindowId = tuple[str, int, int]


@dataclass(frozen=True)
class JoinOperator:
    """Live joins whose live inputs run in the same operators, and those live inputs, by slot.

    ``operator`` is the name under which the plan has them; those with other key splits of it have other names.
    """

    name: str
    operator: str
    joins: Sequence[tuple[LiveInput, ...]]

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams of their inputs."""
        return join_of(self.joins[0][0].live).streams

    @property
    def is_sessions(self) -> bool:
        """Whether they are over sessions: all of them are, or none."""
        return join_of(self.joins[0][0].live).has_sessions

    @cached_property
    def is_outer(self) -> list[bool]:
        """Of each input whether it is an outer one in any of them."""
        return [
            any(live_input.input.outer_of for live_input in joins_at_input)
            for joins_at_input in zip(*self.joins, strict=True)
        ]

    @cached_property
    def by_window(self) -> dict[Window, list[tuple[LiveInput, ...]]]:
        """The joins by their window; not for sessions."""
        joins: dict[Window, list[tuple[LiveInput, ...]]] = {}
        for live_inputs in self.joins:
            window = sliding_window(live_inputs[0].live)
            joins.setdefault(window, []).append(live_inputs)
        return joins

    def reached(self, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the watermark of their windows: the least of their streams, None when one has none."""
        of_streams = [watermarks.get(stream) for stream in self.streams]
        return None if None in of_streams else min(watermark for watermark in of_streams if watermark is not None)


@dataclass(frozen=True)
class DueJoins:
    """The windows of an operator's queries that are due, and the keys in the buckets that they read.

    ``windows`` tell what each input reads, by its number; inputs that cannot have tuples there are missing. ``buckets``
    are those of each input.
    """

    operator: JoinOperator
    windows: Mapping[WindowId, Mapping[int, Due]]
    buckets: Sequence[Sequence[Bucket]]
    keys: Sequence[InputKeys]

    @cached_property
    def by_id(self) -> dict[str, tuple[LiveInput, ...]]:
        """The live inputs of each query."""
        return {live_inputs[0].live.id: live_inputs for live_inputs in self.operator.joins}


@dataclass(frozen=True)
class InputContents:
    """What an input holds of a window: rows of ``keys.distinct``, and for each of them the components of its tuples.

    ``newest`` is the greatest event time in its slices (µs), None for a live input without tuples.
    """

    keys: InputKeys
    rows: Rows
    numbers: Mapping[str, Numbers]
    newest: int | None = None


@dataclass(frozen=True)
class JoinedWindow:
    """A window of a join that has rows: what its live inputs hold, by key, and what these give when they are joined."""

    live_inputs: tuple[LiveInput, ...]
    start: int
    end: int
    contents: Sequence[InputContents]
    joined: JoinResult

    @property
    def join(self) -> Join:
        """The query."""
        return join_of(self.live_inputs[0].live)

    @cached_property
    def combinations(self) -> list[Rows]:
        """For each part the number of the key that takes part in each combination of keys, ``NO_ROW`` for none.

        Raises TooManyCombinations.
        """
        return self.joined.combinations()

    @cached_property
    def multiplicities(self) -> list[Numbers]:
        """How many tuples each live input has in each combination; 1 where an outer one has none."""
        pairs = zip(self.contents, self.combinations, strict=True)
        return [picked(input_contents.numbers[COUNT_NAME], at, 1) for input_contents, at in pairs]

    def rows(self) -> Numbers:
        """Return the number of joined rows of each combination."""
        return product(self.multiplicities, len(self.combinations[0]))

    @property
    def newest(self) -> int:
        """The greatest event time in the slices that it was made of (µs)."""
        return max(input_contents.newest for input_contents in self.contents if input_contents.newest is not None)


def join_operators(live: LiveQueries) -> dict[str, JoinOperator]:
    """Return the operators of live joins, by name."""
    by_name: dict[tuple[str, str], list[tuple[LiveInput, ...]]] = {}
    for query in live.of_kind(JOIN):
        for split, starts in splits_of(query, live.splits.get(query.operator, ())):
            name = split.name_of(query.operator)
            by_name.setdefault((name, query.operator), []).append(live_inputs_of(query, split, starts))
    return {name: JoinOperator(name, operator, members) for (name, operator), members in by_name.items()}


def due_joins(
    operator: JoinOperator,
    buckets: Mapping[str, Sequence[Bucket]],
    tuples: Mapping[str, Sequence[TupleBucket]],
    after: int,
    upto: int,
) -> DueJoins | None:
    """Return the windows that end in ``(after, upto]``, None for none.

    ``buckets`` and ``tuples`` are by operator of the live inputs; of tuples only the keys are looked at.
    """
    windows = dict(_due(operator, buckets, after, upto))
    if not windows:
        return None
    live_inputs = operator.joins[0]
    first, last = min(start for _, start, _ in windows), max(end for _, _, end in windows)
    due_of_inputs = [
        [due[live_input.number] for due in windows.values() if live_input.number in due] for live_input in live_inputs
    ]
    buckets_of_inputs = [
        _read_by(buckets.get(live_input.operator, ()), due)
        for live_input, due in zip(live_inputs, due_of_inputs, strict=True)
    ]
    keys = number_keys(
        [live_input.attributes for live_input in live_inputs],
        operator.is_outer,
        [
            [*(b.keys for b in counted), *(b.keys for b in between(tuples.get(live_input.operator, ()), first, last))]
            for live_input, counted in zip(live_inputs, buckets_of_inputs, strict=True)
        ],
    )
    return DueJoins(operator, windows, buckets_of_inputs, keys)


def join_windows(
    due: DueJoins, window_ids: Iterable[WindowId], predicates: Predicates, failures: dict[str, str]
) -> Iterator[JoinedWindow]:
    """Yield those of some windows that have joined rows.

    A window with too many combinations of keys is left out, and ``failures`` gets a message for its query, by its id.
    """
    by_window: dict[WindowId, dict[int, list[InputContents]]] = {}
    ids = list(window_ids)
    for number, (keys, buckets) in enumerate(zip(due.keys, due.buckets, strict=True)):
        due_of_input = [due.windows[window_id][number] for window_id in ids if number in due.windows[window_id]]
        for windows in window_contents(buckets, due_of_input, predicates, keys):
            for window, contents in _by_due(windows, keys):
                window_id = window.query.id.rpartition("#")[0], window.start, window.end
                by_window.setdefault(window_id, {}).setdefault(number, []).append(contents)
    for (query, start, end), inputs in by_window.items():
        live_inputs = due.by_id[query]
        input_contents = [
            _concatenated(inputs.get(live_input.number), due.keys[live_input.number]) for live_input in live_inputs
        ]
        relations = [
            Relation(
                len(contents.rows),
                {attribute: code[contents.rows] for attribute, code in contents.keys.codes.items()},
                live_input.input.outer_of,
                live_input.input.anti,
            )
            for live_input, contents in zip(live_inputs, input_contents, strict=True)
        ]
        try:
            counts = [contents.numbers[COUNT_NAME] for contents in input_contents]
            joined = JoinResult(relations, counts, join_of(live_inputs[0].live).is_reordered)
        except TooManyCombinations as error:
            failures[query] = beyond_combinations(error)
            continue
        if joined.taking_part[0].any():
            yield JoinedWindow(live_inputs, start, end, input_contents, joined)


def beyond_combinations(error: TooManyCombinations) -> str:
    """Return what to tell of a window that is left out."""
    return f"A window is left out: it has {error}. Join by more columns, or make the window shorter."


def _due(
    operator: JoinOperator, buckets: Mapping[str, Sequence[Bucket]], after: int, upto: int
) -> Iterator[tuple[WindowId, dict[int, Due]]]:
    """Yield the windows that are due, each with what its inputs read, by the number of each that may have tuples there.

    The first input is never an outer one, so there are no rows without it.
    """
    first = buckets.get(operator.joins[0][0].operator, ())
    if not first:
        return
    slices = np.unique(np.concatenate([bucket.slices for bucket in first]), axis=0)
    for window in with_ends_in(list(operator.by_window), after, upto):
        bounds = due_windows(slices, window, after, upto).tolist()
        for live_inputs in operator.by_window[window]:
            begins = [live_input.query.after(live_input.query.query.streams[0]) + 1 for live_input in live_inputs]
            until = min(live_input.query.until(live_input.query.query.streams[0]) for live_input in live_inputs)
            first_start, last_start = live_inputs[0].starts
            for start, end in bounds:
                if end > until or end <= begins[0] or not first_start < start <= last_start:
                    continue
                yield (
                    (live_inputs[0].live.id, start, end),
                    {
                        live_input.number: Due(live_input.query, start, end, max(start, begin))
                        for live_input, begin in zip(live_inputs, begins, strict=True)
                        if end > begin
                    },
                )


def _read_by(buckets: Sequence[Bucket], due: Sequence[Due]) -> list[Bucket]:
    """Return the buckets that have a slice in some due window."""
    if not due:
        return []
    first, last = min(window.reads_from for window in due), max(window.end for window in due)
    return [b for b in buckets if ((b.slices[:, 0] >= first) & (b.slices[:, 1] <= last)).any()]


def _by_due(windows: WindowContents, keys: InputKeys) -> Iterator[tuple[Due, InputContents]]:
    """Yield what each of several windows holds."""
    counts = windows.counts(windows.runs)
    names = [name for name in windows.totals.names if name != COUNT_NAME]
    totals = {name: windows.over(name, windows.runs) for name in names}
    newest = windows.newest.tolist()
    for number, due in enumerate(windows.due.listed()):
        present = np.flatnonzero(counts[number])
        numbers = {COUNT_NAME: counts[number][present]}
        for name, total in totals.items():
            assert total is not None
            numbers[name] = total[number][present]
        ranks = {name: dictionary for name, dictionary in windows.dictionaries.items() if name in numbers}
        values = _values_of_ranks(numbers, ranks)
        yield due, InputContents(keys, present + windows.first_key, {**numbers, **values}, newest[number])


def _values_of_ranks(numbers: Mapping[str, Numbers], dictionaries: Mapping[str, pa.Array]) -> dict[str, Numbers]:
    """Return the values that ranks stand for: ordered alike, and comparable beyond one dictionary."""
    values_of: dict[str, Numbers] = {}
    for name, dictionary in dictionaries.items():
        ranks = numbers[name]
        known = (ranks >= 0) & (ranks < len(dictionary))
        values = np.full(len(ranks), None, dtype=object)
        values[known] = np.array([*dictionary.to_pylist(), None], dtype=object)[ranks[known]]
        values_of[name] = values
    return values_of


def _concatenated(contents: Sequence[InputContents] | None, keys: InputKeys) -> InputContents:
    """Return all that one window holds, given what it holds of several ranges of keys."""
    if not contents:
        return InputContents(keys, np.empty(0, dtype=np.int64), {COUNT_NAME: np.empty(0, dtype=np.int64)})
    if len(contents) == 1:
        return contents[0]
    names = contents[0].numbers
    numbers = {name: np.concatenate([one.numbers[name] for one in contents]) for name in names}
    return InputContents(contents[0].keys, np.concatenate([one.rows for one in contents]), numbers, contents[0].newest)


def product(factors: Iterable[Numbers], length: int) -> Numbers:
    """Return the products of numbers, of so many rows; 1 for no factors."""
    products: Numbers = np.ones(length, dtype=np.int64)
    for factor in factors:
        products = products * factor
    return products
