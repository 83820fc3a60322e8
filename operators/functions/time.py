"""Functions of timestamps; dates widen to them, at midnight. All is UTC, in microseconds, of the years 1 to 9999.

Weeks begin on Monday (ISO 8601); ``dow`` counts from Sunday = 0, ``isodow`` from Monday = 1, as in PostgreSQL and
DuckDB.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.arithmetic import ARITHMETIC
from braid.operators.functions.casts import cast_to
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, kernel, typed
from braid.operators.functions.sql_text import sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, DATE, DOUBLE, TIMESTAMP, VARCHAR
from braid.sources.formats.time_patterns import TimePattern, read_pattern

_ADD = next(f for f in ARITHMETIC if f.name == "+")
# RFC 3339 and Python's datetime have the years 1 to 9999
_FIRST, _LAST = (int(np.datetime64(moment, "us").astype(np.int64)) for moment in (dt.datetime.min, dt.datetime.max))
_FIRST_MONTH, _LAST_MONTH = np.datetime64("0001-01"), np.datetime64("9999-12")
_UNITS = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)
# from Sunday and January
_DAY_NAMES = pa.array(["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"])
_MONTH_NAMES = pa.array(
    [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ]
)


def _millisecond(value: Datum) -> Datum:
    """Return the milliseconds since the minute began, as PostgreSQL does."""
    return kernel.add(kernel.multiply(kernel.second(value), 1000), kernel.millisecond(value))


def _microsecond(value: Datum) -> Datum:
    return kernel.add(kernel.multiply(_millisecond(value), 1000), kernel.microsecond(value))


def _epoch(value: Datum) -> Datum:
    return kernel.divide(kernel.cast(kernel.floor_temporal(value, unit="second"), pa.int64()), 1_000_000)


FIELDS: dict[str, Callable[[Datum], Datum]] = {
    "year": kernel.year,
    "quarter": kernel.quarter,
    "month": kernel.month,
    "week": kernel.iso_week,
    "day": kernel.day,
    "doy": kernel.day_of_year,
    "dow": lambda v: kernel.day_of_week(v, week_start=7, count_from_zero=True),
    "isodow": lambda v: kernel.day_of_week(v, week_start=1, count_from_zero=False),
    "hour": kernel.hour,
    "minute": kernel.minute,
    "second": kernel.second,
    "millisecond": _millisecond,
    "microsecond": _microsecond,
    "epoch": _epoch,
}


def _field(call: Call, arguments: Sequence[Datum]) -> Datum:
    return as_type(FIELDS[call.function](arguments[0]), pa.int64())


def _bind_date_trunc(function: Function, arguments: Arguments) -> Expression:
    unit = arguments[0]
    name = unit.value.lower() if isinstance(unit, Literal) and isinstance(unit.value, str) else None
    if name not in _UNITS:
        raise NotAllowed(f"DATE_TRUNC needs one of the units {', '.join(map(repr, _UNITS))}; got {sql_text(unit)}.")
    # the column first, as in all other calls
    return typed(TIMESTAMP, TIMESTAMP, VARCHAR)(function, (arguments[1], Literal(name, VARCHAR)))


def _date_trunc(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return kernel.floor_temporal(arguments[0], unit=arguments[1].as_py())


def _bind_to_timestamp(function: Function, arguments: Arguments) -> Expression:
    """Read a text in a pattern, or as CAST does, and a number as seconds since 1970."""
    if len(arguments) == 2:
        pattern = arguments[1]
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise NotAllowed(
                f"TO_TIMESTAMP needs a pattern in quotes, such as 'dd.MM.yyyy HH:mm'; got {sql_text(pattern)}."
            )
        read_pattern(pattern.value)
        return typed(TIMESTAMP, VARCHAR, VARCHAR)(function, arguments)
    if arguments[0].type == VARCHAR:
        return cast_to(arguments[0], TIMESTAMP)
    return typed(TIMESTAMP, DOUBLE)(function, arguments)


def _to_timestamp(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Return the moment so many seconds after 1970 began; NULL outside the years 1 to 9999.

    Of texts in a pattern, the moment that each says; NULL where it is none.
    """
    if len(arguments) == 2:
        return _in_pattern(arguments[0], read_pattern(arguments[1].as_py()))
    microseconds = kernel.round(kernel.multiply(arguments[0], 1e6))
    inside = kernel.and_(kernel.greater_equal(microseconds, float(_FIRST)), kernel.less(microseconds, float(_LAST)))
    whole = as_type(kernel.if_else(inside, microseconds, pa.scalar(None, pa.float64())), pa.int64())
    return kernel.cast(whole, pa.timestamp("us"))


def _in_pattern(texts: Datum, pattern: TimePattern) -> Datum:
    if isinstance(texts, pa.Scalar):
        return _in_pattern(pa.array([texts]), pattern)[0]
    parsed = None if pattern.width is None else pattern.parse_all(texts)
    if parsed is not None:
        return parsed
    encoded = texts.dictionary_encode()
    moments: list[int | None] = []
    for text in encoded.dictionary.to_pylist():
        try:
            moments.append(pattern.parse(text))
        except ValueError:
            moments.append(None)
    return pa.array(moments, pa.timestamp("us")).take(encoded.indices)


def _add_interval(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Add microseconds; NULL outside the years 1 to 9999."""
    whole = [as_type(a, pa.int64()) for a in arguments]
    total = _ADD.evaluate(Call("+", (), BIGINT), whole)
    inside = kernel.and_(kernel.greater_equal(total, _FIRST), kernel.less_equal(total, _LAST))
    return kernel.cast(kernel.if_else(inside, total, pa.scalar(None, pa.int64())), pa.timestamp("us"))


def _add_months(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Add months, keeping to the last day of a shorter month; NULL outside the years 1 to 9999."""
    value, months = arguments[0], arguments[1].as_py()
    moments = value.to_numpy(zero_copy_only=False).astype("M8[us]")
    day = moments.astype("M8[D]")
    month = moments.astype("M8[M]")
    target = month + np.timedelta64(months, "M")
    target[(target < _FIRST_MONTH) | (target > _LAST_MONTH)] = np.datetime64("NaT")
    last_day = (target + 1).astype("M8[D]") - np.timedelta64(1, "D")
    target_day = np.minimum(target.astype("M8[D]") + (day - month.astype("M8[D]")), last_day)
    result = target_day.astype("M8[us]") + (moments - day.astype("M8[us]"))
    return pa.array(result, pa.timestamp("us"))


def _last_day(_call: Call, arguments: Sequence[Datum]) -> Datum:
    next_month = kernel.ceil_temporal(arguments[0], unit="month", ceil_is_strictly_greater=True)
    return kernel.cast(kernel.subtract(next_month, pa.scalar(1, pa.duration("us"))), pa.date32(), safe=False)


def day_name(moments: pa.Array) -> pa.Array:
    """Return the names of the days that moments are in."""
    return _DAY_NAMES.take(FIELDS["dow"](moments))


def month_name(moments: pa.Array) -> pa.Array:
    """Return the names of the months that moments are in."""
    return _MONTH_NAMES.take(kernel.subtract(kernel.month(moments), 1))


TIME = (
    *(Function(n, f"EXTRACT({n.upper()} FROM timestamp)", typed(BIGINT, TIMESTAMP), _field) for n in FIELDS),
    Function("date_trunc", "DATE_TRUNC('unit', timestamp)", _bind_date_trunc, _date_trunc, 2, 2),
    Function("last_day", "LAST_DAY(timestamp)", typed(DATE, TIMESTAMP), _last_day),
    Function("dayname", "DAYNAME(timestamp)", typed(VARCHAR, TIMESTAMP), lambda _, arguments: day_name(arguments[0])),
    Function(
        "monthname", "MONTHNAME(timestamp)", typed(VARCHAR, TIMESTAMP), lambda _, arguments: month_name(arguments[0])
    ),
    Function(
        "to_timestamp",
        "TO_TIMESTAMP(seconds) or TO_TIMESTAMP(text, 'pattern')",
        _bind_to_timestamp,
        _to_timestamp,
        1,
        2,
    ),
    Function("add_interval", "timestamp ± INTERVAL", typed(TIMESTAMP, TIMESTAMP, BIGINT), _add_interval, 2, 2),
    Function("add_months", "timestamp ± INTERVAL", typed(TIMESTAMP, TIMESTAMP, BIGINT), _add_months, 2, 2),
)
