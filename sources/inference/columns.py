"""The type of one column, inferred from its values in a sample, and the times that it may hold.

A type is one that all values in the sample fit, so that the stream takes every row of the sample. Where several do, it
is the narrowest whose other values are not changed: digits with a leading zero or a plus sign are text, and DECIMAL is
for what is declared as such and for whole numbers beyond BIGINT.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    ELEMENT,
    INT,
    JSON,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    array_of,
    map_of,
)
from braid.sources.formats.arrow_checks import is_text, sound_array
from braid.sources.formats.arrow_stream import DECIMALS, PER_SECOND, check_castable
from braid.sources.formats.coercion import RANGES
from braid.sources.formats.temporal import parse_date
from braid.sources.inference.misfits import EVERY_ROW, misfits_text
from braid.sources.inference.notations import clock_of, notation_of
from braid.sources.inference.numbers import advice_on_numbers, is_double

MISSING = np.iinfo(np.int64).min
"""Stands for NULL among times."""
MIN_GAPPED = 20
"""So many whole floats beside NULLs are integers that were written by a program whose integers have no NULL."""
MAX_DIGITS = 38
MAX_MEMBERS = 100
"""Objects with more members in the sample are no STRUCT: what they have depends on the tuple."""

_WHOLE = re.compile(r"-?(0|[1-9]\d{0,37})", re.ASCII)
_WHOLE_FLOAT = re.compile(r"-?(0|[1-9]\d{0,14})\.0+", re.ASCII)
_EPOCH = re.compile(r"\d{9,19}(\.\d+)?", re.ASCII)
_BOOLEANS = ("true", "false")

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Inferred:
    """A column of a sample.

    ``type`` is None for one that a stream cannot have; ``why`` is what a person should know of the choice. ``nulls``
    counts its NULLs, and times that cannot be read. ``times`` are microseconds since 1970 by row, :data:`MISSING` for
    these, of a column that can be the event time; ``time_format`` is the ``timestamp.format`` that it takes then,
    nothing for a TIMESTAMP. ``parts`` are the members of a STRUCT of JSON. ``source`` is the path of what is such a
    member. ``misfits`` shows the first values that are no times, of a text column without times its first value.
    ``clock`` has the times of day of a column of texts, microseconds from midnight by row, and their pattern.
    ``is_local``: some of its times do not say how far they are from UTC.
    """

    name: str
    type: ColumnType | None
    why: str = ""
    nulls: int = 0
    times: Times | None = None
    time_format: str = ""
    parts: tuple[Inferred, ...] = ()
    source: str = ""
    misfits: str = ""
    clock: tuple[Times, str] | None = None
    is_local: bool = False


# an epoch number by its size: so many of them a second; and whether such a number is as likely something else
_EPOCHS: Mapping[str, tuple[int, bool]] = {
    "epoch-seconds": (1, True),
    "epoch-millis": (10**3, False),
    "epoch-micros": (10**6, False),
    "epoch-nanos": (10**9, True),
}
EPOCH_WORDS = {
    "epoch-seconds": "seconds",
    "epoch-millis": "milliseconds",
    "epoch-micros": "microseconds",
    "epoch-nanos": "nanoseconds",
}
_YEAR_2000, _YEAR_2100 = 946_684_800, 4_102_444_800
# what an ISO time ends with that says its offset from UTC
_OFFSET = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)\s*$", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TIME_WORDS = {
    *("at", "created", "date", "datetime", "epoch", "event", "ms", "millis", "observed", "occurred", "received"),
    *("sent", "time", "timestamp", "ts", "updated", "us", "ns"),
}


def words_of(name: str) -> list[str]:
    """Return the words that a name is made of, in lower case: ``eventTime_ms`` gives event, time, ms."""
    return [word.lower() for word in _WORDS.findall(name)]


def column_of_texts(name: str, texts: Sequence[str | None], rows: Sequence[int] = EVERY_ROW) -> Inferred:
    """Tell a column of CSV, where NULL is None; the type is VARCHAR if nothing else fits.

    ``rows`` has the number of each text's row, by which what is odd is found.
    """
    values = {text for text in texts if text is not None}
    nulls = sum(text is None for text in texts)
    if not values:
        return Inferred(name, VARCHAR, "no value in the sample", nulls)
    words = {text.strip() for text in values}  # blanks around them do not count
    if all(word.lower() in _BOOLEANS for word in words):
        return Inferred(name, BOOLEAN, nulls=nulls)
    if all(map(_WHOLE.fullmatch, words)):
        return _of_integers(name, [None if text is None else int(text) for text in texts], nulls)
    if all(_WHOLE.fullmatch(word) or _WHOLE_FLOAT.fullmatch(word) for word in words):
        return _of_whole_floats(name, len(texts) - nulls, len(words), nulls)
    if all(map(is_double, words)):
        return _with_epochs(Inferred(name, DOUBLE, nulls=nulls), texts, rows)
    return _of_times(name, texts, nulls, rows) or _with_epochs(_of_text(name, texts, nulls, rows), texts, rows)


def column_of_json(name: str, values: Sequence[Any], rows: Sequence[int] = EVERY_ROW) -> Inferred:
    """Tell a column of JSON values, fractions as Decimal; the type is None where no type takes all of them.

    ``rows`` has the number of each value's row.
    """
    present = [value for value in values if value is not None]
    nulls = len(values) - len(present)
    kinds = {type(value) for value in present}
    if not present:
        return Inferred(name, VARCHAR, "no value in the sample", nulls)
    if kinds == {bool}:
        return Inferred(name, BOOLEAN, nulls=nulls)
    if kinds == {int}:
        return _of_integers(name, values, nulls)
    if bool not in kinds and not kinds & {str, dict, list}:
        numbers = set(map(_double, present))
        if not all(map(math.isfinite, numbers)):
            return Inferred(name, None, "numbers beyond DOUBLE", nulls)
        if all(number.is_integer() and abs(number) < 10**15 for number in numbers):
            return _of_whole_floats(name, len(present), len(numbers), nulls)
        return _with_epochs(Inferred(name, DOUBLE, nulls=nulls), values, rows)
    if kinds == {str}:
        return _of_times(name, values, nulls, rows) or Inferred(name, VARCHAR, nulls=nulls)
    if kinds == {dict}:
        members = {member: [(value or {}).get(member) for value in values] for member in _names(present)}
        parts = tuple(column_of_json(member, inner, rows) for member, inner in members.items())
        declared = _struct_of(parts)
    else:
        parts, declared = (), _array_type(present) if kinds == {list} else None
    if declared is not None:
        return Inferred(name, declared, nulls=nulls, parts=parts)
    several = f"values of several types: {', '.join(sorted(set(map(_kind_of, kinds))))}" if len(kinds) > 1 else ""
    if kinds <= {int, Decimal, float, str}:
        several = "numbers and texts: CAST(JSON_VALUE(…, '$') AS DOUBLE) gives NULL for texts that are no number"
    odd = next((part for part in parts if part.type in (None, JSON) and part.why), None)
    if odd is not None:
        why = odd.why.replace("'$", f"'{_member('$', odd.name)}")
        several = f"its part {odd.name!r}: {why}"
    return _with_epochs(Inferred(name, JSON, several or "parts that differ from tuple to tuple", nulls), values, rows)


def times_within(columns: Iterable[Inferred], path: str = "$") -> Iterator[Inferred]:
    """Yield the members of structs that can be the event time, as far as a path can name them."""
    for column in columns:
        if '"' in column.name:
            continue
        place = _member(path, column.name)
        if path != "$" and column.times is not None:
            yield replace(column, source=place)
        yield from times_within(column.parts, place)


def _member(path: str, name: str) -> str:
    return f'{path}["{name}"]' if re.search(r"\W", name) else f"{path}.{name}"


def _names(objects: Sequence[dict[str, Any]]) -> list[str]:
    """Return the members of objects; none where there are too many."""
    names = dict.fromkeys(name for value in objects for name in value)
    return list(names) if len(names) <= MAX_MEMBERS else []


def _struct_of(parts: Sequence[Inferred]) -> ColumnType | None:
    """Return the STRUCT of some members; None where not all of them have a type."""
    members = tuple((part.name, part.type) for part in parts if part.type not in (None, JSON))
    declared = tuple((name, kind) for name, kind in members if kind is not None)
    return _nested(lambda: ColumnType("STRUCT", members=declared)) if parts and len(declared) == len(parts) else None


def _array_type(arrays: Sequence[list[Any]]) -> ColumnType | None:
    element = column_of_json(ELEMENT, [part for array in arrays for part in array]).type
    return None if element is None or element == JSON else _nested(lambda: array_of(element))


def _nested(build: Callable[[], ColumnType]) -> ColumnType | None:
    try:
        return build()
    except NotAllowed:  # names that differ in case only, or too deep
        return None


def column_of_arrow(name: str, array: pa.Array | pa.ChunkedArray) -> Inferred:
    """Tell a column of Parquet: its type is declared. MalformedRequest for an array that is corrupt."""
    kind: Any = array.type
    column_type = _declared(kind.value_type if types.is_dictionary(kind) else kind)
    if column_type is None:
        return Inferred(name, None, f"Arrow's type {str(kind)[:100]}", array.null_count)
    try:
        check_castable(kind, Field(name, column_type))
    except MalformedRequest:
        return Inferred(name, None, f"Arrow's type {str(kind)[:100]}", array.null_count)
    values = sound_array(array, name)
    if column_type.members:
        return Inferred(name, column_type, nulls=values.null_count)
    if column_type == VARCHAR:
        return _of_times(name, values.to_pylist(), values.null_count, EVERY_ROW) or Inferred(
            name, VARCHAR, nulls=values.null_count
        )
    if column_type in (INT, BIGINT):
        return _of_integers(name, values.to_pylist(), values.null_count, column_type)
    if column_type == TIMESTAMP:
        numbers = values.view(pa.int64()).to_pylist()
        per_second = PER_SECOND[values.type.unit]
        us = [None if number is None else number * 10**6 // per_second for number in numbers]
        return Inferred(name, TIMESTAMP, nulls=values.null_count, times=_array_of(us), is_local=values.type.tz is None)
    if column_type == DOUBLE and pc.all(pc.is_finite(values.cast(pa.float64(), safe=False))).as_py() is False:
        return Inferred(name, DOUBLE, "rows with NaN or infinity are malformed", values.null_count)
    return Inferred(name, column_type, nulls=values.null_count)


def _declared(kind: Any) -> ColumnType | None:
    """Return the type that takes all values of one of Arrow's types, None where there is none."""
    if isinstance(kind, DECIMALS):
        fits = 1 <= kind.precision <= MAX_DIGITS and 0 <= kind.scale <= kind.precision
        return ColumnType("DECIMAL", kind.precision, kind.scale) if fits else None
    if types.is_nested(kind):
        return _declared_parts(kind)
    if types.is_integer(kind):
        if types.is_uint64(kind):
            return ColumnType("DECIMAL", 20, 0)
        return BIGINT if types.is_int64(kind) or types.is_uint32(kind) else INT
    tests: tuple[tuple[Callable[[Any], bool], ColumnType], ...] = (
        (types.is_boolean, BOOLEAN),
        (types.is_floating, DOUBLE),
        (is_text, VARCHAR),
        (types.is_date, DATE),
        (types.is_timestamp, TIMESTAMP),
    )
    return next((column_type for is_one, column_type in tests if is_one(kind)), None)


def _declared_parts(kind: Any) -> ColumnType | None:
    if types.is_struct(kind):
        members = [(member.name, _declared(member.type)) for member in kind]
        declared = tuple((name, part) for name, part in members if part is not None)
        is_whole = bool(members) and len(declared) == len(members)
        return _nested(lambda: ColumnType("STRUCT", members=declared)) if is_whole else None
    part = _declared(kind.item_type if types.is_map(kind) else kind.value_type)
    if part is None:
        return None
    return _nested(lambda: map_of(VARCHAR, part) if types.is_map(kind) else array_of(part))


def _of_integers(name: str, numbers: Sequence[int | None], nulls: int, declared: ColumnType | None = None) -> Inferred:
    present = [number for number in numbers if number is not None]
    if declared is None:
        declared = next((BIGINT if kind == "BIGINT" else INT for kind in RANGES if _within(present, kind)), None)
    if declared is None:
        digits = max(len(str(abs(number))) for number in present)
        if digits > MAX_DIGITS:
            is_double = all(math.isfinite(_double(number)) for number in present)
            return Inferred(name, DOUBLE if is_double else None, "whole numbers of more than 38 digits", nulls)
        return Inferred(name, ColumnType("DECIMAL", MAX_DIGITS), "whole numbers beyond BIGINT", nulls)
    epoch = _epoch_of(name, present)
    if not epoch:
        return Inferred(name, declared, nulls=nulls)
    per_second, _ = _EPOCHS[epoch]
    times = _array_of([None if number is None else number * 10**6 // per_second for number in numbers])
    return Inferred(name, declared, f"{EPOCH_WORDS[epoch]} since 1970", nulls, times, epoch)


def _within(numbers: Sequence[int], kind: str) -> bool:
    least, greatest = RANGES[kind]
    return least <= min(numbers) and max(numbers) <= greatest


def _epoch_of(name: str, numbers: Sequence[int]) -> str:
    """Return which epoch format all of the numbers have, nothing if none or if the name does not make it likely."""
    if not numbers:
        return ""
    least, greatest = min(numbers), max(numbers)
    for epoch, (per_second, needs_name) in _EPOCHS.items():
        if _YEAR_2000 * per_second <= least and greatest < _YEAR_2100 * per_second:
            return epoch if not needs_name or _TIME_WORDS & set(words_of(name)) else ""
    return ""


def _of_whole_floats(name: str, count: int, different: int, nulls: int) -> Inferred:
    if nulls and count >= MIN_GAPPED and different > 1:
        return Inferred(name, BIGINT, "whole numbers with gaps, written as 517.0; DOUBLE if fractions may come", nulls)
    return Inferred(name, DOUBLE, nulls=nulls)


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _of_times(name: str, texts: Sequence[str | None], nulls: int, rows: Sequence[int]) -> Inferred | None:
    """Return a TIMESTAMP or DATE column if all texts are such, and a VARCHAR if most are times in one notation."""
    notation = notation_of(text for text in texts if text is not None)
    if notation is None:
        return None
    us = [None if text is None else notation.times.get(text) for text in texts]
    times = _array_of(us)
    if notation.pattern:
        is_local = "X" not in notation.pattern
    else:
        is_local = not all(_OFFSET.search(text, len("2026-01-31")) for text in notation.times)
    if us.count(None) == nulls and not notation.pattern:
        return Inferred(name, TIMESTAMP, nulls=nulls, times=times, is_local=is_local)
    if all(text is None or _is_date(text) for text in texts):
        return Inferred(name, DATE, "", us.count(None), times, notation.pattern, is_local=is_local)
    misfits = _misfits(texts, us, rows)
    why = f"times beside {misfits}" if misfits else ""
    if notation.other:
        why = f"{notation.other!r} would fit as well"
    return Inferred(name, VARCHAR, why, us.count(None), times, notation.pattern, misfits=misfits, is_local=is_local)


def _with_epochs(column: Inferred, values: Sequence[Any], rows: Sequence[int]) -> Inferred:
    """Return a column with the times of its numbers since 1970, fractions or texts, if most values are such."""
    numbers = [Decimal(text) if _EPOCH.fullmatch(text := str(value).strip()) else None for value in values]
    present = [int(number) for number in numbers if number is not None]
    are_most = 2 * len(present) >= sum(value is not None for value in values)
    epoch = _epoch_of(column.name, present) if are_most else ""
    if not epoch:
        return column
    per_second, _ = _EPOCHS[epoch]
    us = [None if number is None else int(number * 10**6 // per_second) for number in numbers]
    misfits = _misfits(values, us, rows)
    why = f"{EPOCH_WORDS[epoch]} since 1970{f' beside {misfits}' if misfits else ''}"
    return replace(column, why=why, nulls=us.count(None), times=_array_of(us), time_format=epoch, misfits=misfits)


def _of_text(name: str, texts: Sequence[str | None], nulls: int, rows: Sequence[int]) -> Inferred:
    odd = [(index, text) for index, text in enumerate(texts) if text is not None][:1]
    notation = clock_of(text for text in texts if text is not None)
    us = [None if text is None or notation is None else notation.times.get(text) for text in texts]
    clock = None if notation is None else (_array_of(us), notation.pattern)
    return Inferred(name, VARCHAR, advice_on_numbers(texts, rows), nulls, misfits=misfits_text(odd, rows), clock=clock)


def _misfits(values: Sequence[Any], read: Sequence[int | None], rows: Sequence[int]) -> str:
    both = enumerate(zip(values, read, strict=True))
    odd = [(index, str(value)) for index, (value, us) in both if value is not None and us is None]
    return misfits_text(odd, rows)


def _is_date(text: str) -> bool:
    try:
        parse_date(text)
    except ValueError:
        return False
    return True


def _array_of(us: Sequence[int | None]) -> Times:
    return np.array([MISSING if t is None else t for t in us], dtype=np.int64)


def _kind_of(kind: type) -> str:
    return {str: "text", bool: "true and false", dict: "objects", list: "arrays"}.get(kind, "numbers")
