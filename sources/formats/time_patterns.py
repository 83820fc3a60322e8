"""Times in a pattern of Java's letters, as Flink and Spark know them: ``yyyy-MM-dd HH:mm:ss[.SSS]``.

Letters are fields, what stands in single quotes is text, and what stands in brackets may be missing. Without a zone a
time is UTC; names are English. A pattern whose fields all have a fixed number of digits is read for a whole column at
once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.sources.core.errors import NotAllowed
from braid.sources.formats.temporal import DAY, EPOCH_DAY, MAX_US, MIN_US, SECOND

LONGEST_PATTERN = 100
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

# letters: the field that they are of, and what may be written for them
_LETTERS: dict[str, tuple[str, str]] = {
    "y": ("year", r"\d{1,4}"),
    "yyyy": ("year", r"\d{4}"),
    "uuuu": ("year", r"\d{4}"),
    "yy": ("short_year", r"\d{2}"),
    "M": ("month", r"\d{1,2}"),
    "MM": ("month", r"\d{2}"),
    "MMM": ("month_name", "|".join(_MONTHS)),
    "MMMM": ("month_name", "|".join(_LONG_MONTHS)),
    "d": ("day", r"\d{1,2}"),
    "dd": ("day", r"\d{2}"),
    "D": ("day_of_year", r"\d{1,3}"),
    "DDD": ("day_of_year", r"\d{3}"),
    **{"E" * letters: ("weekday", "|".join(name[:3] for name in _DAYS)) for letters in range(1, 4)},
    "EEEE": ("weekday", "|".join(_DAYS)),
    "H": ("hour", r"\d{1,2}"),
    "HH": ("hour", r"\d{2}"),
    "h": ("half_hour", r"\d{1,2}"),
    "hh": ("half_hour", r"\d{2}"),
    "a": ("half", "am|pm"),
    "m": ("minute", r"\d{1,2}"),
    "mm": ("minute", r"\d{2}"),
    "s": ("second", r"\d{1,2}"),
    "ss": ("second", r"\d{2}"),
    **{"S" * digits: ("fraction", rf"\d{{{digits}}}") for digits in range(1, 10)},
    "X": ("zone", r"z|[+-]\d{2}(?:\d{2})?"),
    "XX": ("zone", r"z|[+-]\d{4}"),
    "XXX": ("zone", r"z|[+-]\d{2}:\d{2}"),
    **{"Z" * letters: ("zone", r"[+-]\d{4}") for letters in range(1, 4)},
}
_FIXED = ("yyyy", "uuuu", "MM", "dd", "HH", "mm", "ss", *("S" * digits for digits in range(1, 10)))
_PARTS = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])|'")


@dataclass(frozen=True)
class TimePattern:
    """A pattern that was read: what texts look like, and, where all have the same length, where their fields are.

    ``fields`` maps fields to the first character and the one after the last, ``texts`` characters to what stands there.
    """

    written: str
    expression: re.Pattern[str]
    width: int | None
    fields: Mapping[str, tuple[int, int]]
    texts: Mapping[int, int]

    def parse(self, text: str) -> int:
        """Return the microseconds since 1970 UTC of a time; ValueError when it is none."""
        match = self.expression.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"expected a time in the pattern {self.written}")
        found = {field: written.lower() for field, written in match.groupdict().items() if written is not None}
        hours, minutes, seconds = _hours(found), int(found.get("minute", 0)), int(found.get("second", 0))
        if hours > 23 or minutes > 59 or seconds > 59:
            raise ValueError("hours end at 23, minutes and seconds at 59")
        us = (_day(found).toordinal() - EPOCH_DAY) * DAY + (hours * 3600 + minutes * 60 + seconds) * SECOND
        us += int(found.get("fraction", "")[:6].ljust(6, "0")) - _zone_us(found.get("zone", "z"))
        if not MIN_US <= us <= MAX_US:
            raise ValueError("years run from 1 to 9999 in UTC")
        return us

    def parse_all(self, texts: pa.Array) -> pa.Array | None:
        """Return texts as timestamp[us] in UTC, or None when some text needs a closer look."""
        if self.width is None:
            try:
                one_by_one = [None if text is None else self.parse(text) for text in texts.to_pylist()]
            except ValueError:
                return None
            return pa.array(one_by_one, pa.timestamp("us"))
        present = texts.drop_null() if texts.null_count else texts
        us = np.zeros(len(texts), dtype=np.int64)
        is_null = np.asarray(texts.is_null())
        if len(present):
            parsed = self._parse_fixed(present)
            if parsed is None:
                return None
            us[~is_null] = parsed
        return pa.array(us, mask=is_null).view(pa.timestamp("us"))

    def _parse_fixed(self, texts: pa.Array) -> npt.NDArray[np.int64] | None:
        """Return texts without NULL in microseconds since 1970, shape (rows,); None when some is not a good time."""
        assert self.width is not None
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        if (np.diff(ends) != self.width).any():
            return None
        characters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].reshape(-1, self.width).T
        if any((characters[at] != character).any() for at, character in self.texts.items()):
            return None
        digits = {at: characters[at] - ord("0") for begin, end in self.fields.values() for at in range(begin, end)}
        if any((digit > 9).any() for digit in digits.values()):
            return None
        numbers: dict[str, npt.NDArray[np.int64]] = {}
        for field, (begin, end) in self.fields.items():
            number = np.zeros(len(texts), dtype=np.int64)
            for at in range(begin, min(end, begin + 6)):  # of a fraction six digits are kept
                number = number * 10 + digits[at]
            numbers[field] = number * 10 ** (6 - min(end - begin, 6)) if field == "fraction" else number
        return _microseconds(numbers)


def _microseconds(numbers: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64] | None:
    year, month, day = numbers["year"], numbers["month"], numbers["day"]
    zero = np.zeros_like(year)
    hour, minute, second = (numbers.get(field, zero) for field in ("hour", "minute", "second"))
    is_good = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    if not is_good.all():
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first_days = months.astype("datetime64[D]").astype(np.int64)
    if (first_days + day > (months + 1).astype("datetime64[D]").astype(np.int64)).any():
        return None
    seconds = (first_days + day - 1) * 86_400 + hour * 3600 + minute * 60 + second
    return seconds * SECOND + numbers.get("fraction", zero)


def _hours(found: Mapping[str, str]) -> int:
    if "half_hour" not in found:
        return int(found.get("hour", 0))
    hour = int(found["half_hour"])
    if not 1 <= hour <= 12:
        raise ValueError("hours of a half day run from 1 to 12")
    return hour % 12 + (12 if found["half"] == "pm" else 0)


def _day(found: Mapping[str, str]) -> date:
    year = int(found["year"]) if "year" in found else 2000 + int(found["short_year"])
    if "day_of_year" in found:
        day = date(year, 1, 1) + timedelta(days=int(found["day_of_year"]) - 1)
        if day.year != year:
            raise ValueError(f"year {year} has no such day")
        return day
    month = int(found["month"]) if "month" in found else _MONTHS.index(found["month_name"][:3]) + 1
    return date(year, month, int(found["day"]))


def _zone_us(written: str) -> int:
    """Return how far a zone is ahead of UTC."""
    if written == "z":
        return 0
    digits = written[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("hours end at 23, minutes and seconds at 59")
    return (hours * 60 + minutes) * 60 * SECOND * (-1 if written[0] == "-" else 1)


@lru_cache(maxsize=256)
def read_pattern(text: str) -> TimePattern:
    """Read a pattern; NotAllowed says which letters there are, and what it lacks."""
    if len(text) > LONGEST_PATTERN:
        raise NotAllowed(f"A pattern of times must have at most {LONGEST_PATTERN} characters; got {len(text)}.")
    expression, depth, at = "", 0, 0
    fields: dict[str, tuple[int, int]] = {}
    texts: dict[int, int] = {}
    is_fixed, seen = True, set[str]()
    for match in _PARTS.finditer(text):
        letters, quoted, other = match["letters"], match["quoted"], match["other"]
        if letters is not None:
            if letters not in _LETTERS:
                raise _unknown(letters, text)
            field, written = _LETTERS[letters]
            if field in seen:
                raise NotAllowed(
                    f"A pattern of times must have each field once; {text!r} has the {_noun(field)} twice."
                )
            seen.add(field)
            expression += f"(?P<{field}>{written})"
            fields[field] = (at, at + len(letters))
            at += len(letters)
            is_fixed = is_fixed and letters in _FIXED
        elif other in ("[", "]"):
            depth += 1 if other == "[" else -1
            expression += "(?:" if other == "[" else ")?"
            is_fixed = False
            if depth < 0:
                break
        elif quoted is None and other is None:
            raise NotAllowed(f"In a pattern of times a single quote must be closed; got {text!r}.")
        else:
            literal = other or (quoted or "").replace("''", "'") or "'"
            expression += re.escape(literal)
            texts |= {at + i: character for i, character in enumerate(literal.encode())}
            at += len(literal.encode())
    if depth:
        raise NotAllowed(f"Brackets in a pattern of times must be closed as they are opened; got {text!r}.")
    _check_complete(seen, text)
    pattern = re.compile(expression, re.ASCII | re.IGNORECASE)
    return TimePattern(text, pattern, at if is_fixed else None, fields, texts)


def _check_complete(seen: set[str], text: str) -> None:
    has_year = not seen.isdisjoint(("year", "short_year"))
    has_day = "day_of_year" in seen or ("day" in seen and not seen.isdisjoint(("month", "month_name")))
    if not (has_year and has_day):
        raise NotAllowed(f"A pattern of times must have year, month and day, as 'yyyy-MM-dd HH:mm:ss'; got {text!r}.")
    if ("half_hour" in seen) != ("half" in seen):
        raise NotAllowed(f"In a pattern of times hh (1 to 12) goes with a (AM or PM), HH is 0 to 23; got {text!r}.")


def _unknown(letters: str, text: str) -> NotAllowed:
    hint = "for a pattern with % write the letters of Java: " if "%" in text else ""
    return NotAllowed(
        f"A pattern of times has no {letters!r}; {hint}it has {', '.join(_LETTERS)}, such as 'yyyy-MM-dd HH:mm:ss'."
        " Letters that stand for themselves are in single quotes, doubled inside a text: 'yyyy-MM-dd''T''HH:mm'."
    )


def _noun(field: str) -> str:
    return field.removeprefix("short_").removeprefix("half_").removesuffix("_name").replace("_", " ")
