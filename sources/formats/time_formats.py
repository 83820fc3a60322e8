"""How the times of an input are written: as RFC 3339, as numbers since 1970, or in a pattern.

Numbers may be fractions, and are rounded to the nearest microsecond; of nanoseconds the digits after the microseconds
are cut off, as in text.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import Field
from braid.sources.formats.temporal import MAX_US, MIN_US, parse_timestamp, timestamps_of_text
from braid.sources.formats.time_patterns import read_pattern

RFC_3339 = "rfc3339"
EPOCHS = {"epoch-seconds": 1, "epoch-millis": 10**3, "epoch-micros": 10**6, "epoch-nanos": 10**9}
"""How many units of each there are in a second."""

_BEYOND = "years run from 1 to 9999 in UTC"
_SECOND = 10**6
_SHORT = 40
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def check_time_format(text: str) -> str:
    """Return the name of a format in lower case, or a pattern as it is; NotAllowed says what may be written."""
    name = text.lower().replace("_", "-")
    if name in (RFC_3339, "rfc-3339", "iso-8601"):
        return ""
    if name in EPOCHS:
        return name
    if name.startswith("epoch"):
        raise NotAllowed(f"Times can be {', '.join(map(repr, EPOCHS))}; got {text!r}.")
    read_pattern(text)
    return text


def is_epoch(field: Field) -> bool:
    """Whether the times of a column are numbers."""
    return field.time_format in EPOCHS


def has_fractions(field: Field) -> bool:
    """Whether the times of a column are numbers that doubles carry, with a fraction down to microseconds."""
    return field.time_format in ("epoch-seconds", "epoch-millis")


def parse_time(value: Any, time_format: str) -> int:
    """Return the microseconds since 1970 UTC of a time in JSON; ValueError when it is none.

    Numbers may be texts as well.
    """
    if time_format in EPOCHS:
        return _of_number(value, time_format)
    if not isinstance(value, str) and time_format:
        raise ValueError(f"expected a text in the pattern {time_format}")
    if not isinstance(value, str):
        raise ValueError("" if isinstance(value, bool) or not isinstance(value, (int, float)) else _hint(value))
    if not time_format and len(value) <= _SHORT and _WHOLE.fullmatch(value):
        raise ValueError(_hint(int(value)))
    if time_format:
        return read_pattern(time_format).parse(value)
    try:
        return parse_timestamp(value)
    except ValueError as problem:
        hint = "; 'timestamp.format' declares another notation" if str(problem).startswith("expected") else ""
        raise ValueError(f"{problem}{hint}") from None


def _hint(number: float) -> str:
    digits = len(str(abs(int(number)))) if math.isfinite(number) else 0
    name = next(name for name, most in zip(EPOCHS, (11, 14, 17, 400), strict=True) if digits <= most)
    return f"expected RFC 3339; for numbers declare the stream with 'timestamp.format' = '{name}'"


def _of_number(value: Any, time_format: str) -> int:
    noun = time_format.removeprefix("epoch-")
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = int(value) if len(value) <= _SHORT and _WHOLE.fullmatch(value.strip()) else float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(f"expected {noun} since 1970")
    if isinstance(value, Decimal):
        value = int(value) if abs(value) < 2**63 and value == int(value) else float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(_BEYOND)
        whole = math.floor(value)
    else:
        whole = value
    per_second = EPOCHS[time_format]
    us = whole * _SECOND // per_second
    if whole != value and per_second <= _SECOND:
        us += round((value - whole) * (_SECOND // per_second))
    if not MIN_US <= us <= MAX_US:
        raise ValueError(_BEYOND)
    return us


def times_of(values: pa.Array, field: Field) -> pa.Array | None:
    """Return the texts, whole numbers or doubles of a column as timestamp[us]; None when some needs a closer look."""
    if not is_epoch(field):
        if not pa.types.is_string(values.type):
            return None
        return read_pattern(field.time_format).parse_all(values) if field.time_format else timestamps_of_text(values)
    if pa.types.is_string(values.type):
        if pc.any(pc.match_substring(values, "x", ignore_case=True)).as_py():  # Arrow reads hexadecimal digits
            return None
        try:
            values = values.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    return _of_numbers(values, EPOCHS[field.time_format])


def _of_numbers(values: pa.Array, per_second: int) -> pa.Array | None:
    is_null = np.asarray(values.is_null())
    numbers = np.asarray(values.fill_null(0))
    fraction: Any = 0
    if numbers.dtype.kind == "f":
        if not np.isfinite(numbers).all():
            return None
        floor = np.floor(numbers)
        if per_second <= _SECOND:
            fraction = np.rint((numbers - floor) * (_SECOND // per_second)).astype(np.int64)
        numbers = floor
    least, greatest = MIN_US * per_second // _SECOND, (MAX_US + 1) * per_second // _SECOND
    if ((numbers < max(least, -(2**63))) | (numbers >= min(greatest, 2**63 - 1))).any():
        return None
    whole = numbers.astype(np.int64)
    us = whole * (_SECOND // per_second) if per_second <= _SECOND else whole // (per_second // _SECOND)
    us = us + fraction
    return None if (us > MAX_US).any() else pa.array(us, mask=is_null).view(pa.timestamp("us"))
