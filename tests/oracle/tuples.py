"""Make the tuples of a push: out of order, late, on window edges, duplicated, with NULLs."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

from tests.oracle.model import (
    SECOND,
    SEQUENCE,
    Column,
    Kind,
    Push,
    Row,
    StreamSchema,
    Value,
    from_micros,
    micros,
)

WORDS = ("a", "b", "ab", "abc", "", "A", "b%", "a_c")
WIDE_WORDS = ("Ä", "é", "ß", "漢字", "it's", 'say "hi"', "a,b", "back\\slash", "tab\t", "zz top", "🙂")
DAY_ZERO = dt.date(2024, 2, 27)


def draw_value(column: Column, rng: random.Random) -> Value:
    """Draw one non-NULL value from a column's domain."""
    few, wide = column.domain == "few", column.domain == "wide"
    match column.kind:
        case Kind.BOOLEAN:
            return rng.random() < 0.5
        case Kind.INT:
            bound = 100_000 if wide else 1000
            return rng.randint(-3, 6) if few else rng.randint(-bound, bound)
        case Kind.BIGINT:
            bound = 10**14 if wide else 10**6
            return rng.randint(0, 9) if few else rng.randint(-bound, bound)
        case Kind.DOUBLE:
            if wide:
                return round(10 ** rng.uniform(-3, 11) + 0.001, 4)
            return rng.randint(0, 16) / 4 if few else rng.randint(-8000, 8000) / 8
        case Kind.DECIMAL:
            bound = 10**9 if wide else 100_000
            return Decimal(rng.randint(0, 10) * 25 if few else rng.randint(-bound, bound)) / 100
        case Kind.VARCHAR:
            if few:
                return rng.choice(WORDS[:5])
            return rng.choice(WORDS + WIDE_WORDS) if wide else "".join(rng.choices("abcXY_% ", k=rng.randint(1, 4)))
        case Kind.DATE:
            return DAY_ZERO + dt.timedelta(days=rng.randint(0, 4) if few else rng.randint(-20_000, 20_000))
        case Kind.TIMESTAMP:
            days = 3 if few else 10_000
            return dt.datetime(2024, 2, 28) + dt.timedelta(days=rng.randint(-days, days), seconds=rng.randint(0, 3))


def draw_time(start: int, newest: int, share: float, push: Push, lateness: int, rng: random.Random) -> int:
    """Draw one event time, in microseconds, for the tuple at `share` of a push that starts at `start`."""
    if rng.random() < push.late_rate:
        return newest - lateness - rng.randint(1, 20 * SECOND)
    ideal = start + int(share * push.span)
    style = rng.random()
    if style < 0.25:  # on an edge of windows, or just beside it
        return ideal // SECOND * SECOND + rng.choice((0, 0, 0, -1, 1))
    if style < 0.30:  # exactly on the watermark, as far as one can tell: not late
        return newest - lateness
    if style < 0.45:
        return ideal
    return ideal - rng.randint(0, max(lateness, SECOND // 2))


def make_tuples(schema: StreamSchema, push: Push, newest: int | None, first_sequence: int) -> list[Row]:
    """Make the tuples of one push.

    Args:
        schema: the stream.
        push: what to make.
        newest: the greatest event time pushed before, in microseconds; None before the first push.
        first_sequence: the sequence number of the first tuple.
    """
    rng = random.Random(push.seed)
    before = micros(schema.base) if newest is None else newest
    start = before + push.gap
    top = start if push.gap else before
    rows: list[Row] = []
    for index in range(push.count):
        if rows and rng.random() < 0.06:  # a duplicate but for its number
            rows.append(rng.choice(rows) | {SEQUENCE: first_sequence + index})
            continue
        time = draw_time(start, top, (index + 1) / push.count, push, schema.lateness, rng)
        top = max(top, time)
        row: Row = {}
        for column in schema.columns:
            if column.name == SEQUENCE:
                row[column.name] = first_sequence + index
            elif column.name == schema.event_time:
                row[column.name] = from_micros(time)
            else:
                is_null = rng.random() < column.null_rate
                row[column.name] = None if is_null else draw_value(column, rng)
        rows.append(row)
    return rows


def closing_tuple(schema: StreamSchema, time: int, sequence: int) -> Row:
    """Make a tuple that only moves the clock: NULL but for its number and time."""
    row: Row = {column.name: None for column in schema.columns}
    return row | {SEQUENCE: sequence, schema.event_time: from_micros(time)}
