"""DATE and TIMESTAMP as text: one value with every rule, and whole columns where all are in the plain form.

A date is ``YYYY-MM-DD``. A timestamp is RFC 3339 or ``YYYY-MM-DD HH:MM:SS[.ffffff]``; without an offset it is UTC;
digits after the microseconds are cut off. Years run from 1 to 9999 in UTC.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH_DAY = date(1970, 1, 1).toordinal()
MIN_DAYS = date.min.toordinal() - EPOCH_DAY
MAX_DAYS = date.max.toordinal() - EPOCH_DAY
MIN_US = MIN_DAYS * DAY
MAX_US = (MAX_DAYS + 1) * DAY - 1
SHORTEST = len("2024-01-31T12:00:00")

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?", re.ASCII
)


def parse_date(text: str) -> int:
    """Return the days since 1970 of ``YYYY-MM-DD``; ValueError when it is none."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("expected YYYY-MM-DD")
    year, month, day = map(int, match.groups())
    return date(year, month, day).toordinal() - EPOCH_DAY


def parse_timestamp(text: str) -> int:
    """Return the microseconds since 1970 UTC of a timestamp; ValueError when it is none."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("expected RFC 3339, such as 2024-01-31T12:00:00.5Z or 2024-01-31 12:00:00")
    day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = match.groups()
    hours, minutes, seconds = int(hour), int(minute), int(second)
    ahead_hours, ahead_minutes = int(offset_hours or 0), int(offset_minutes or 0)
    if hours > 23 or minutes > 59 or seconds > 59 or ahead_hours > 23 or ahead_minutes > 59:
        raise ValueError("hours end at 23, minutes and seconds at 59")
    ahead = (ahead_hours * 3600 + ahead_minutes * 60) * (-1 if sign == "-" else 1)
    us = parse_date(day) * DAY + (hours * 3600 + minutes * 60 + seconds - ahead) * SECOND
    us += int((fraction or "")[:6].ljust(6, "0"))
    if not MIN_US <= us <= MAX_US:
        raise ValueError("years run from 1 to 9999 in UTC")
    return us


def dates_of_text(texts: Any) -> pa.Array | None:
    """Return ``texts`` as date32, or None when some text needs a closer look."""
    try:
        days = texts.cast(pa.date32())
    except pa.ArrowInvalid:
        return None
    return days if _within(days.cast(pa.int32()), MIN_DAYS, MAX_DAYS) else None


def timestamps_of_text(texts: Any) -> pa.Array | None:
    """Return ``texts`` as timestamp[us] in UTC, or None when some text needs a closer look.

    That is the case when only some have an offset, and for everything that :func:`parse_timestamp` and
    Arrow do not take alike.
    """
    present = texts.drop_null() if texts.null_count else texts
    if len(present) == 0:
        return pa.nulls(len(texts), pa.timestamp("us"))
    if not _have_seconds(present):
        return None
    first = present[0].as_py()
    has_offset = first.endswith("Z") or "+" in first or "-" in first[SHORTEST:]
    try:
        times = texts.cast(pa.timestamp("us", "UTC") if has_offset else pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    us = times.cast(pa.int64())
    return us.cast(pa.timestamp("us")) if _within(us, MIN_US, MAX_US) else None


def _have_seconds(texts: Any) -> bool:
    """Whether each text has colons where ``…THH:MM:SS`` has them; Arrow takes shorter forms as well."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts = ends[:-1]
    if (ends[1:] - starts).min() < SHORTEST:
        return False
    characters = np.frombuffer(data, np.uint8)
    return bool((characters[starts + 13] == ord(":")).all() and (characters[starts + 16] == ord(":")).all())


def _within(numbers: Any, least: int, greatest: int) -> bool:
    low, high = pc.min(numbers).as_py(), pc.max(numbers).as_py()
    return low is None or (low >= least and high <= greatest)
