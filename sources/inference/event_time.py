"""Which column of a sample is the event time, and how late rows come by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braid.sources.core.schema import TIMESTAMP
from braid.sources.formats.temporal import MAX_US
from braid.sources.inference.columns import EPOCH_WORDS, MISSING, Inferred, Times, words_of

SECOND = 10**6
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
_STEPS = (
    *(n * SECOND for n in (1, 2, 5, 10, 30)),
    *(n * MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * HOUR for n in (1, 2, 6, 12)),
    *(n * DAY for n in (1, 2, 7, 30, 90, 365)),
)
"""What LATENESS is rounded up to (µs)."""
_LONGEST_DAYS = 36_525
_NAMES = ("event_time", "event_timestamp", "event_ts", "eventtime", "timestamp", "ts", "time", "datetime")
_LIKELY = {"event", "time", "timestamp", "ts", "datetime", "occurred", "observed"}
_LATER = {
    *("updated", "modified", "deleted", "expires", "expiry", "ingested", "processed", "received"),
    *("end", "ended", "dropoff"),
}
"""Words for times that come after what happened."""


_FEW = 0.001
"""Such a part of the rows is not what the others are inferred from: their times are wrong."""
_FAR = 100
"""What is so many times as late as nearly all others is wrong."""


@dataclass(frozen=True)
class EventTime:
    """The column that is taken for the event time, with the reason, and the names of those that it could be as well.

    ``lateness_us`` is the ``disorder`` of the sample, rounded up. ``are_beyond`` says that times beyond now are no
    mistake; where they are, ``beyond`` counts them. Where one column has the day and another the time of day, the event
    time is a column besides, of ``day_and_clock``.
    """

    column: Inferred
    why: str
    others: tuple[str, ...]
    lateness_us: int
    disorder: Disorder
    are_beyond: bool
    beyond: int
    day_and_clock: tuple[Inferred, Inferred] | None = None


@dataclass(frozen=True)
class Disorder:
    """``rows`` come after one with a greater time, by up to ``us``; ``beyond`` of them beyond a LATENESS for that."""

    us: int
    rows: int
    beyond: int = 0

    @classmethod
    def of(cls, times: Times) -> Disorder:
        """Return the disorder of times in the order of their rows."""
        if not len(times):
            return cls(0, 0)
        behind = np.maximum.accumulate(times) - times
        rows, greatest = int(np.count_nonzero(behind)), int(behind.max())
        usual = max(int(np.quantile(behind, 1 - _FEW, method="higher")), SECOND)
        if greatest <= _FAR * usual:
            return cls(greatest, rows)
        return cls(usual, rows, int(np.count_nonzero(behind > rounded(usual))))


def choose_event_time(columns: Sequence[Inferred], latest_us: int = MAX_US) -> EventTime | None:
    """Return the event time of a sample, None when no column can be it; times after ``latest_us`` are beyond now."""
    candidates = [column for column in columns if column.times is not None]
    if not candidates:
        return None
    ranked = sorted(enumerate(candidates), key=lambda entry: (*_rank(entry[1]), entry[0]))
    column = ranked[0][1]
    clock = _clock_beside(column, columns) if _has_days_only(column) else None
    day_and_clock = None if clock is None else (column, clock)
    if day_and_clock is not None:
        column = _joined(*day_and_clock)
    assert column.times is not None
    present = column.times[column.times != MISSING]
    beyond = present > latest_us
    are_beyond = bool(beyond.mean() > _FEW) if len(present) else False
    disorder = Disorder.of(present if are_beyond else present[~beyond])
    others = tuple(other.name for _, other in ranked[1:])
    return EventTime(
        column,
        _reason(column, others) if day_and_clock is None else _reason_of_two(*day_and_clock),
        others,
        rounded(disorder.us),
        disorder,
        are_beyond,
        0 if are_beyond else int(np.count_nonzero(beyond)),
        day_and_clock,
    )


def _clock_beside(day: Inferred, columns: Sequence[Inferred]) -> Inferred | None:
    """Return the column of the times of day that a column of days goes with: the first after it, else the first."""
    at = next(number for number, column in enumerate(columns) if column is day)
    return next((column for column in (*columns[at:], *columns[:at]) if column.clock is not None), None)


def _joined(day: Inferred, clock: Inferred) -> Inferred:
    assert day.times is not None
    assert clock.clock is not None
    of_day = clock.clock[0]
    is_missing = (day.times == MISSING) | (of_day == MISSING)
    times = np.where(is_missing, MISSING, np.where(is_missing, 0, day.times) + np.where(is_missing, 0, of_day))
    return Inferred("event_time", TIMESTAMP, nulls=int(np.count_nonzero(is_missing)), times=times)


def rounded(us: int) -> int:
    """Return the LATENESS (µs) that takes in a disorder: the next step, or whole days, a century at most."""
    return next((step for step in _STEPS if step >= us), min(-(-us // DAY), _LONGEST_DAYS) * DAY)


def _rank(column: Inferred) -> tuple[bool, bool, bool, bool, int]:
    """Return what sorts candidates, the likeliest first."""
    assert column.times is not None
    name, words = column.name.lower(), set(words_of(column.name))
    present = column.times[column.times != MISSING]
    is_constant = len(present) > 1 and bool((present == present[0]).all())
    if name in _NAMES:
        likeness = 0
    elif words & _LATER:
        likeness = 3
    else:
        likeness = 1 if words & _LIKELY else 2
    return _has_days_only(column), column.nulls > 0, is_constant, column.type != TIMESTAMP, likeness


def _has_days_only(column: Inferred) -> bool:
    return bool(column.time_format) and column.time_format not in EPOCH_WORDS and ":" not in column.time_format


def _reason_of_two(day: Inferred, clock: Inferred) -> str:
    return f"{day.name!r} has its day, and {clock.name!r} its time of day"


def _reason(column: Inferred, others: Sequence[str]) -> str:
    held = "a time in each row"
    if column.time_format in EPOCH_WORDS:
        held = f"{EPOCH_WORDS[column.time_format]} since 1970 by their size"
    elif column.time_format:
        held = f"times in the pattern {column.time_format!r}"
    elif column.nulls:
        held = "a time in most rows"
    if not others:
        return f"it has {held}, and no other column does"
    is_named = column.name.lower() in _NAMES or set(words_of(column.name)) & _LIKELY
    return f"it has {held}, and {'its name says so' if is_named else 'is the first that has'}"
