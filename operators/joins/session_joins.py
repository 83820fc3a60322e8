"""Joins over session windows: the sessions are of all inputs together, a sequence of them for each value of the keys.

All inputs are compared by the same attributes. Tuples of all of them that have equal attributes, and satisfy what their
input's predicate asks, follow each other in one sequence; where it pauses for the gap, a session ends (as sessions of
two streams are joined elsewhere, too). Each query has sessions of its own, for its predicates and its gap decide about
them, so nothing is counted before: partitions keep the tuples that some query wants, and rows are formed when a session
is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.expressions import typed_columns_of
from braid.operators.joins.inputs import LiveInput, columns_for_rows, join_of
from braid.operators.joins.keys import InputKeys, number_keys
from braid.operators.joins.matches.firing import JoinOperator, beyond_combinations
from braid.operators.joins.matches.formed_rows import MAX_FORMED, EvaluationFailed, rows_or_groups
from braid.operators.joins.matches.partners import Places, pieces
from braid.operators.joins.matches.relations import NO_ROW, JoinResult, Relation, Rows, TooManyCombinations
from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import WINDOW_END, WINDOW_START
from braid.operators.sessions.sessions import chain, gap_of
from braid.operators.state.tuple_bucket import TupleBucket
from braid.operators.tuples import Tuples
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.window_rows import WindowRows
from braid.sources.core.columns import arrays_of

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Input:
    """The tuples of one input; ``place`` is the number of their attributes' values, ``code`` the same, -1 for NULL."""

    tuples: Tuples
    times: Times
    place: Rows
    code: Rows


@dataclass(frozen=True)
class _Sessions:
    """The sessions of one query that end now: their bounds, and of each input the tuples and the session of each."""

    start: Times
    end: Times
    rows: Sequence[Rows]
    session: Sequence[Rows]
    newest: int


def fire_session_joins(
    operator: JoinOperator,
    tuples: Mapping[str, Sequence[TupleBucket]],
    after: int,
    upto: int,
    max_rows: int,
    failures: dict[str, str],
) -> Fired | None:
    """Return the rows of all sessions that end in ``(after, upto]``, or their groups; None for no rows.

    ``tuples`` are by operator of the inputs. Of a query ``max_rows`` are kept; ``failures`` gets messages by query id.
    """
    live_inputs = operator.joins[0]
    keys = _number(operator, tuples, operator.is_outer)
    inputs = [
        _input(tuples.get(live_input.operator, ()), input_keys, _columns_of(operator, live_input.number))
        for live_input, input_keys in zip(live_inputs, keys, strict=True)
    ]
    by_slot: dict[int, tuple[pa.Table, int]] = {}
    for inputs_of_query in operator.joins:
        live = inputs_of_query[0].live
        try:
            sessions = _sessions(inputs_of_query, inputs, after, upto)
            if sessions is None:
                continue
            rows = rows_or_groups(live, _pieces(inputs_of_query, inputs, sessions), max_rows, failures)
        except EvaluationFailed as problem:
            failures[live.id] = str(problem)
            continue
        if rows is not None and rows.num_rows:
            by_slot[live.slot] = rows, sessions.newest
    if not by_slot:
        return None
    slots = sorted(by_slot)
    tables = [by_slot[slot][0] for slot in slots]
    return Fired(
        WindowRows.of_tables(tables),
        slots,
        [table.num_rows for table in tables],
        [by_slot[slot][1] for slot in slots],
    )


def open_tuples(
    operator: JoinOperator, tuples: Mapping[str, Sequence[TupleBucket]], reached: int | None
) -> dict[int, bool]:
    """Return for each tuple bucket, by its id, whether some of it may still be part of a session that is not over.

    With the longest gap, whatever the predicates, tuples form the longest sessions; all others are within one of them.
    """
    buckets_of = {live_input.operator: tuples.get(live_input.operator, ()) for live_input in operator.joins[0]}
    buckets = [bucket for part_buckets in buckets_of.values() for bucket in part_buckets]
    if reached is None or not buckets:
        return {id(bucket): True for bucket in buckets}
    place_of = {}
    for live_input, keys in zip(operator.joins[0], _number(operator, tuples, None), strict=True):
        for bucket in buckets_of[live_input.operator]:
            place_of[id(bucket)] = kernels.take(keys.places[id(bucket.keys)], bucket.key)
    times = np.concatenate([bucket.times for bucket in buckets])
    place = np.concatenate([place_of[id(bucket)] for bucket in buckets]).astype(np.int64)
    gap = max(gap_of(live_inputs[0].query) for live_inputs in operator.joins)
    number, count = chain(place, times, times, gap)
    _, last = _bounds(number, count, times)
    is_open = (last + gap > reached)[number]
    ends = np.cumsum([len(bucket.key) for bucket in buckets])[:-1]
    masks = np.split(is_open, ends)
    return {id(bucket): bool(mask.any()) for bucket, mask in zip(buckets, masks, strict=True)}


def _number(
    operator: JoinOperator, tuples: Mapping[str, Sequence[TupleBucket]], is_outer: Sequence[bool] | None
) -> list[InputKeys]:
    """Number the keys of all inputs together, see :func:`braid.operators.joins.keys.number_keys`."""
    live_inputs = operator.joins[0]
    tables = [[bucket.keys for bucket in tuples.get(live_input.operator, ())] for live_input in live_inputs]
    return number_keys([live_input.attributes for live_input in live_inputs], is_outer, tables)


def _columns_of(operator: JoinOperator, number: int) -> set[str]:
    """Return the columns of an input that some query needs."""
    return {
        name for live_inputs in operator.joins for name in columns_for_rows(join_of(live_inputs[number].live), number)
    }


def _input(buckets: Sequence[TupleBucket], keys: InputKeys, names: Iterable[str]) -> _Input:
    """Bring together the tuples of an input whose keys may have partners."""
    ((_, code_of),) = keys.codes.items()
    tables, times, places = [], [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for bucket in buckets:
        place = kernels.take(keys.places[id(bucket.keys)], bucket.key)
        numbered = np.flatnonzero(place >= 0)
        tables.append(bucket.take(numbered, names))
        times.append(bucket.times[numbered])
        places.append(place[numbered].astype(np.int64))
    columns = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    time, place = np.concatenate(times), np.concatenate(places)
    arrays = arrays_of(columns)
    return _Input(Tuples(arrays, len(time)), time, place, code_of[place])


def _sessions(live_inputs: Sequence[LiveInput], inputs: Sequence[_Input], after: int, upto: int) -> _Sessions | None:
    """Return the sessions of a query that end in ``(after, upto]``, None for none."""
    seen_by_input = [_rows_seen(live_input, input_) for live_input, input_ in zip(live_inputs, inputs, strict=True)]
    place = np.concatenate([input_.place[rows] for input_, rows in zip(inputs, seen_by_input, strict=True)])
    times = np.concatenate([input_.times[rows] for input_, rows in zip(inputs, seen_by_input, strict=True)])
    gap = gap_of(live_inputs[0].query)
    number, count = chain(place, times, times, gap)
    first, last = _bounds(number, count, times)
    end = last + gap
    due = (end > after) & (end <= min(upto, min(_until(live_input.query) for live_input in live_inputs)))
    if not due.any():
        return None
    rows, session = [], []
    ends = np.cumsum([len(seen_rows) for seen_rows in seen_by_input])[:-1]
    for seen_rows, numbers in zip(seen_by_input, np.split(number, ends), strict=True):
        ended = due[numbers]
        rows.append(seen_rows[ended])
        session.append(numbers[ended])
    return _Sessions(first, end, rows, session, int(last[due].max()))


def _rows_seen(live_input: LiveInput, input_: _Input) -> Rows:
    """Return the tuples of an input that a query sees."""
    stream = live_input.query.query.streams[0]
    mask = (input_.times > live_input.query.after(stream)) & (input_.times <= live_input.query.until(stream))
    if live_input.input.where is not None and input_.tuples.length:
        mask &= np.asarray(input_.tuples.value(live_input.input.where).fill_null(False))
    return np.flatnonzero(mask)


def _until(query: LiveQuery) -> int:
    return query.until(query.query.streams[0])


def _bounds(number: Rows, count: int, times: Times) -> tuple[Times, Times]:
    """Return the first and the last time of each chain."""
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, number, times)
    np.maximum.at(last, number, times)
    return first, last


def _pieces(live_inputs: Sequence[LiveInput], inputs: Sequence[_Input], sessions: _Sessions) -> Iterator[Tuples]:
    """Return the joined rows of sessions, some at a time; raises EvaluationFailed for too many."""
    relations = [
        Relation(
            len(rows),
            {0: np.where(input_.code[rows] >= 0, session, -1)},
            live_input.input.outer_of,
            live_input.input.anti,
        )
        for live_input, input_, rows, session in zip(live_inputs, inputs, sessions.rows, sessions.session, strict=True)
    ]
    try:
        ones = [np.ones(relation.rows, dtype=np.int64) for relation in relations]
        joined = JoinResult(relations, ones, join_of(live_inputs[0].live).is_reordered)
    except TooManyCombinations as error:
        raise EvaluationFailed(beyond_combinations(error)) from None
    if joined.total > MAX_FORMED:
        raise EvaluationFailed(
            f"Sessions are left out: more than {MAX_FORMED} of their rows in one partition must be formed at once."
            " Join by more columns, or make the gap shorter."
        )
    return pieces(join_of(live_inputs[0].live), joined, partial(_piece, live_inputs, inputs, sessions))


def _piece(
    live_inputs: Sequence[LiveInput], inputs: Sequence[_Input], sessions: _Sessions, places: Sequence[Places]
) -> Tuples:
    """Return joined rows of sessions, given the place of the tuple of each input among those of the sessions."""
    length = len(places[0])
    columns: dict[str, pa.Array] = {}
    for live_input, input_, rows, at in zip(live_inputs, inputs, sessions.rows, places, strict=True):
        if not len(rows):
            continue
        missing = at == NO_ROW
        tuple_rows = pa.array(rows[np.where(missing, 0, at)], mask=missing)
        for name, values in input_.tuples.columns.items():
            columns[f"{live_input.input.alias}.{name}"] = values.take(tuple_rows)
    for expression in join_of(live_inputs[0].live).over_rows:
        for column in typed_columns_of(expression):  # an outer input may have no tuples, nor their columns
            columns.setdefault(column.name, pa.nulls(length, column.type.arrow))
    session = sessions.session[0][places[0]]  # the first input is never an outer one
    for name, bound in ((WINDOW_START, sessions.start), (WINDOW_END, sessions.end)):
        columns[name] = pa.array(bound[session]).view(pa.timestamp("us"))
    return Tuples(columns, length)
