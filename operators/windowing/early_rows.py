"""Rows of windows that are not final yet: EMIT STREAM and EMIT AFTER DELAY (One SQL to Rule Them All, section 6.5).

A *group* is a window of a query with values of its keys. A partition remembers which row of each group of the open
windows it emitted last. In each batch it compares that with what the groups hold now: the difference is what changed. A
change is emitted at once, or a delay after the first change that was not emitted; until then it waits, with the newest
values. A session that grows is another group, but takes over the delay: what it was and what it is are emitted
together.

Tuples are only ever added to a group, so one whose number of tuples stayed the same has not changed. Whether a group
did change is a matter of the aggregates that its query's outputs are computed from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from braid.operators.aggregation.shared_aggregation import aggregation_of
from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import SESSIONS, VER, WINDOW_END, WINDOW_START
from braid.operators.state.keys import key_names
from braid.operators.windowing.early_groups import (
    EPOCH,
    NEVER,
    NEWEST,
    SINCE,
    THERE,
    Bools,
    EarlyGroups,
    Emitted,
    Numbers,
    QueriesBySlot,
    changelog_columns,
    whole_numbers,
)
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.window_rows import SLOT, WindowRows


def is_early(live: LiveQuery) -> bool:
    """Return whether rows of a query come before its windows are final."""
    emit = aggregation_of(live).emit
    return emit.delay_us is not None or not emit.after_watermark


def emits_changes(live: LiveQuery) -> bool:
    """Return whether the rows of a query are changes."""
    return aggregation_of(live).emit.stream


def with_change_columns(fired: Fired, now_us: int) -> Fired:
    """Return final rows as changes: each is the one row of its group that ever comes."""

    def columns(rows: int) -> dict[str, pa.Array]:
        return changelog_columns(np.zeros(rows, np.bool_), np.zeros(rows, np.int64), now_us)

    return replace(fired, rows=fired.rows.with_columns(columns))


def combine_fired(parts: Sequence[Fired]) -> Fired:
    """Return the rows of different queries of one operator as one."""
    if len(parts) == 1:
        return parts[0]
    by_slot = {
        slot: (n, us) for part in parts for slot, n, us in zip(part.slots, part.counts, part.latest_us, strict=True)
    }
    slots = sorted(by_slot)
    rows = WindowRows.concat([part.rows for part in parts])
    return Fired(rows, slots, [by_slot[s][0] for s in slots], [by_slot[s][1] for s in slots])


@dataclass(frozen=True)
class Current:
    """What groups hold now: all groups of the windows that end in ``(after, upto]``, but not of ``unknown`` slots.

    ``fired`` has ``count(*)`` among the measures of every query, and no row of a group that HAVING excludes.
    """

    fired: Fired | None
    after: int
    upto: int
    unknown: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Revision:
    """What comes of a batch: rows, what to remember, whether that changed, and when a delay runs out next (µs)."""

    rows: Fired | None
    emitted: Emitted
    is_new: bool
    due_us: int | None


def revise(
    emitted: Emitted,
    current: Current | None,
    queries: Sequence[LiveQuery],
    before: int | None,
    after: int | None,
    now_us: int,
) -> Revision:
    """Compare what groups hold now with what was emitted of them, and emit what is due.

    ``queries`` are the early ones of one operator; ``before`` and ``after`` are the watermarks around the batch, and
    ``now_us`` is its processing time. Groups that ``current`` does not cover are as they were.
    """
    fired = None if current is None else current.fired
    if not queries or (emitted.is_empty and fired is None):
        return Revision(None, Emitted(), not emitted.is_empty, None)
    by_slot = QueriesBySlot(queries)
    groups = EarlyGroups(emitted, fired, by_slot, key_names(len(aggregation_of(queries[0]).keys)))
    slot, start, end = (whole_numbers(groups.table, name) for name in (SLOT, WINDOW_START, WINDOW_END))
    at = by_slot.place(slot)

    is_there, row, changed = groups.now(_covered(current, slot, end))
    differs = groups.is_waiting.copy()
    differs[changed] = (is_there != groups.was_there)[changed]
    compared = np.flatnonzero(changed & is_there & groups.was_there)
    differs[compared] = groups.differ(by_slot, at[compared], groups.emitted_row[compared], row[compared])

    reached = NEVER if after is None else after
    closed = end <= reached
    since, last = np.where(groups.is_waiting, groups.since, now_us), end
    if queries[0].query.kind == SESSIONS:
        since, last = groups.over_sessions(np.minimum, since), groups.over_sessions(np.maximum, end)
    # a query that was deleted is gone once its windows are final: what is final does not wait
    due = differs & ((since + by_slot.delay[at] <= now_us) | ((last <= reached) & (by_slot.final | by_slot.leaves)[at]))
    repeated = closed & (end > (NEVER if before is None else before)) & (by_slot.final & ~by_slot.stream)[at]
    retracted = due & groups.was_there & by_slot.stream[at]
    inserted = is_there & (due | repeated)
    newest = np.where(changed, _newest(fired, slot), groups.newest)
    waits = differs & ~due
    is_kept = ((groups.emitted_row >= 0) | due) & (~closed | waits)

    rows = groups.rows(
        [(retracted, groups.emitted_row, groups.ver), (inserted, row, groups.ver + retracted)],
        (slot, start, end), newest, now_us,
    )  # fmt: skip
    epoch = by_slot.epoch[at]
    emitted_now = Emitted(
        groups.table_of(
            is_kept,
            np.where(due, row, groups.emitted_row),
            {EPOCH: epoch, THERE: np.where(due, is_there, groups.was_there), VER: groups.ver + retracted + inserted},
        ),
        groups.table_of(waits, row, {EPOCH: epoch, THERE: is_there, SINCE: since, NEWEST: newest}),
    )
    is_new = bool(
        groups.forgot
        or due.any()
        or np.count_nonzero(is_kept) != np.count_nonzero(groups.emitted_row >= 0)
        or (waits != groups.is_waiting).any()
        or (waits & changed).any()
    )
    due_us = int((since + by_slot.delay[at])[waits].min()) if waits.any() else None
    return Revision(rows, emitted_now, is_new, due_us)


def _covered(current: Current | None, slot: Numbers, end: Numbers) -> Bools:
    """Return whether it is known of each group what it holds now."""
    if current is None:
        return np.zeros(len(slot), dtype=np.bool_)
    is_covered: Bools = (end > current.after) & (end <= current.upto)
    if current.unknown:
        is_covered &= ~np.isin(slot, list(current.unknown))
    return is_covered


def _newest(fired: Fired | None, slot: Numbers) -> Numbers:
    """Return the greatest event time behind the rows of each slot."""
    if fired is None:
        return np.full(len(slot), NEVER, dtype=np.int64)
    latest = np.array([NEVER if us is None else us for us in fired.latest_us], dtype=np.int64)
    at = np.minimum(np.searchsorted(fired.slots, slot), len(latest) - 1)
    return np.where(np.array(fired.slots)[at] == slot, latest[at], NEVER)
