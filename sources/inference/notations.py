"""The notation of a column of times: RFC 3339, or a pattern of ``timestamp.format``, such as ``dd.MM.yyyy HH:mm``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from braid.sources.formats.temporal import parse_timestamp
from braid.sources.formats.time_patterns import read_pattern

RFC_3339 = ""
"""Stands for the notation that needs no ``timestamp.format``."""
_DATES = ("yyyy-MM-dd", "dd.MM.yyyy", "dd/MM/yyyy", "MM/dd/yyyy", "dd-MM-yyyy", "yyyy/MM/dd")
_SHORT_DATES = ("d.M.yyyy", "d/M/yyyy", "M/d/yyyy", "d.M.yy", "d/M/yy", "M/d/yy")
_CLOCKS = ("HH:mm:ss", "HH:mm", "hh:mm a", "hh:mm:ss a")
_SHORT_CLOCKS = ("H:mm[:ss]", "h:mm[:ss] a")
_PATTERNS = sorted(
    (
        *(f"{day} {clock}" for day in _DATES for clock in _CLOCKS),
        *(f"{day} {clock}" for day in (*_DATES, *_SHORT_DATES) for clock in _SHORT_CLOCKS),
    ),
    key=lambda pattern: pattern.startswith("d") and pattern.endswith(" a"),  # with AM and PM the month comes first
)
_NOTATIONS = (RFC_3339, *_PATTERNS, *_DATES)
"""All that are tried; of several that read as many texts, the first."""
_LIKELY = re.compile(r"\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}", re.ASCII)
_CLOCK = re.compile(r"\s*\d{1,2}:\d\d", re.ASCII)
_EPOCH_DAY = "1970-01-01 "
_MOST = 0.5
"""A notation must read such a part of the texts that differ; the others are wrong."""
_LOOKED_AT = 50


@dataclass(frozen=True)
class Notation:
    """A pattern, the microseconds since 1970 of the texts that it reads, and another that reads them, too, if any.

    ``pattern`` is :data:`RFC_3339` for times in that notation.
    """

    pattern: str
    times: dict[str, int]
    other: str = ""


def notation_of(texts: Iterable[str]) -> Notation | None:
    """Return how most of some texts are written as times or dates, None where no notation reads them."""
    distinct = list(dict.fromkeys(texts))
    first = list(islice(distinct, _LOOKED_AT))
    if sum(_LIKELY.match(text) is not None for text in first) < len(first) * _MOST:
        return None
    likely = [pattern for pattern in _NOTATIONS if _are_enough(_read(pattern, first), first)]
    read = {pattern: times for pattern in likely if _are_enough(times := _read(pattern, distinct), distinct)}
    if not read:
        return None
    best = max(read, key=lambda pattern: len(read[pattern]))  # the first of those
    return Notation(best, read[best], next(_otherwise(best, read), ""))


def clock_of(texts: Iterable[str]) -> Notation | None:
    """Return how most of some texts are written as times of a day, in microseconds from midnight; None if they are not.

    The pattern is of that time alone.
    """
    distinct = list(dict.fromkeys(texts))
    if not distinct or sum(_CLOCK.match(text) is not None for text in distinct) < len(distinct) * _MOST:
        return None
    on_a_day = [_EPOCH_DAY + text.strip() for text in distinct]
    read = {clock: _read(f"yyyy-MM-dd {clock}", on_a_day) for clock in (*_CLOCKS, *_SHORT_CLOCKS)}
    best = max(read, key=lambda clock: len(read[clock]))  # the first of those
    if not _are_enough(read[best], distinct):
        return None
    times = {text: read[best].get(on) for text, on in zip(distinct, on_a_day, strict=True)}
    return Notation(best, {text: us for text, us in times.items() if us is not None})


def _are_enough(times: dict[str, int], texts: list[str]) -> bool:
    return bool(times) and len(times) >= _MOST * len(texts)


def _otherwise(best: str, read: dict[str, dict[str, int]]) -> Iterator[str]:
    """Yield the patterns that read the same texts as other times: days and months may change their places."""
    for pattern, times in read.items():
        if times.keys() >= read[best].keys() and any(times[text] != us for text, us in read[best].items()):
            yield pattern


def _read(pattern: str, texts: Iterable[str]) -> dict[str, int]:
    """Return the texts that a pattern reads, with their times."""
    parse = read_pattern(pattern).parse if pattern else parse_timestamp
    times = dict[str, int]()
    for text in texts:
        with suppress(ValueError):
            times[text] = parse(text)
    return times
