"""How far two timestamps are apart: TIMESTAMPDIFF counts whole units, DATEDIFF the boundaries of units between them.

Both are negative when the end comes before the start. A month is whole at the same day and time of the next one, or at
its last day where it is shorter, as adding months has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, kernel, typed
from braid.operators.functions.sql_text import sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR

_DAY = 86_400_000_000
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": _DAY,
    "week": 7 * _DAY,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_UNITS = (*_MICROSECONDS, *_MONTHS)


def _bind(function: Function, arguments: Arguments) -> Expression:
    unit, start, end = arguments
    name = unit.value.lower() if isinstance(unit, Literal) and isinstance(unit.value, str) else ""
    name = name if name in _UNITS else name.removesuffix("s")
    if name not in _UNITS:
        raise NotAllowed(f"{function.usage} needs one of the units {', '.join(_UNITS)}; got {sql_text(unit)}.")
    # columns first, as in all other calls
    return typed(BIGINT, TIMESTAMP, TIMESTAMP, VARCHAR)(function, (start, end, Literal(name, VARCHAR)))


def _whole_units(_call: Call, arguments: Sequence[Datum]) -> Datum:
    start, end, unit = arguments[0], arguments[1], arguments[2].as_py()
    if unit in _MONTHS:
        return kernel.divide(_whole_months(start, end), _MONTHS[unit])
    return kernel.divide(kernel.subtract(_microseconds(end), _microseconds(start)), _MICROSECONDS[unit])


def _whole_months(start: Datum, end: Datum) -> Datum:
    """Return the most months that can be added to the earlier moment without passing the later one, signed."""
    earlier = kernel.min_element_wise(start, end, skip_nulls=False)
    later = kernel.max_element_wise(start, end, skip_nulls=False)
    begin = kernel.min_element_wise(_in_month(earlier), _last_day_at(later, earlier), skip_nulls=False)
    is_short = as_type(kernel.less(_in_month(later), begin), pa.int64())
    months = kernel.subtract(kernel.subtract(_months(later), _months(earlier)), is_short)
    return kernel.if_else(kernel.greater(start, end), kernel.negate(months), months)


def _in_month(moment: Datum) -> Datum:
    """Return the microseconds since the month began."""
    return kernel.subtract(_microseconds(moment), _microseconds(kernel.floor_temporal(moment, unit="month")))


def _last_day_at(moment: Datum, clock: Datum) -> Datum:
    """Return how far into the month its last day is at the time of day of another moment."""
    month = kernel.floor_temporal(moment, unit="month")
    next_month = kernel.ceil_temporal(moment, unit="month", ceil_is_strictly_greater=True)
    days = kernel.subtract(_microseconds(next_month), _microseconds(month))
    time_of_day = kernel.subtract(_microseconds(clock), _microseconds(kernel.floor_temporal(clock, unit="day")))
    return kernel.add(kernel.subtract(days, _DAY), time_of_day)


def _boundaries(_call: Call, arguments: Sequence[Datum]) -> Datum:
    start, end, unit = arguments[0], arguments[1], arguments[2].as_py()
    # seven days are a week, whatever Mondays are between, as DuckDB has it
    unit, size = ("day", 7) if unit == "week" else (unit, 1)
    return kernel.divide(kernel.subtract(_number(end, unit), _number(start, unit)), size)


def _number(moment: Datum, unit: str) -> Datum:
    """Return the number of the unit that a moment is in, counted from the same one for all moments."""
    if unit in _MONTHS:
        return kernel.divide(kernel.subtract(_months(moment), 1), _MONTHS[unit])
    return kernel.divide(_microseconds(kernel.floor_temporal(moment, unit=unit)), _MICROSECONDS[unit])


def _months(moment: Datum) -> Datum:
    return kernel.add(kernel.multiply(kernel.year(moment), 12), kernel.month(moment))


def _microseconds(moment: Datum) -> Datum:
    return as_type(moment, pa.int64())


DIFFERENCES = (
    Function("timestampdiff", "TIMESTAMPDIFF(unit, start, end)", _bind, _whole_units, 3, 3),
    Function("datediff", "DATEDIFF('unit', start, end)", _bind, _boundaries, 3, 3),
)
