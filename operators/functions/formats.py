"""DATE_FORMAT and STRFTIME: timestamps as texts of a format, in the letters of Java and in those of C.

A format is a constant, read when the query is created into texts and the names of fields. Each field is written for
all timestamps at once, and what stands between is joined to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.signature import Arguments, Datum, Function, constant, kernel, typed
from braid.operators.functions.sql_text import sql_text
from braid.operators.functions.time import FIELDS, day_name, month_name
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import TIMESTAMP, VARCHAR

_LONGEST_FORMAT = 100
# what is written for a character of a format at most: %B may be September
MAX_PER_CHARACTER = 5
_HALVES = pa.array(["AM", "PM"])
_JAVA_PARTS = re.compile(
    r"'(?:[^']|'')*'|'|(?P<letters>([A-Za-z])\2*)|(?P<reserved>[\[\]{}#])|[^A-Za-z'\[\]{}#]+", re.DOTALL
)
_C_PARTS = re.compile(r"%(?P<code>.?)|[^%]+", re.DOTALL)

Part = tuple[str, str]
"""A text to write as it is, and nothing; or nothing, and what to write of the timestamp: a key of _JAVA."""


def _padded(width: int, number: Callable[[Datum], Datum]) -> Callable[[Datum], Datum]:
    return lambda moments: kernel.utf8_lpad(kernel.cast(number(moments), pa.string()), width=width, padding="0")


def _hour_of_half(moments: Datum) -> Datum:
    """Return the hour of a clock that goes from 12 over 1 to 11."""
    return kernel.add(_remainder(kernel.add(kernel.hour(moments), 11), 12), 1)


def _remainder(numbers: Datum, divisor: int) -> Datum:
    return kernel.subtract(numbers, kernel.multiply(kernel.divide(numbers, divisor), divisor))


def _half(moments: Datum) -> Datum:
    return _HALVES.take(kernel.divide(kernel.hour(moments), 12))


def _year_of_century(moments: Datum) -> Datum:
    return _remainder(kernel.year(moments), 100)


def _second_fraction(digits: int) -> Callable[[Datum], Datum]:
    def fraction(moments: Datum) -> Datum:
        return kernel.divide(_remainder(FIELDS["microsecond"](moments), 1_000_000), 10 ** (6 - digits))

    return _padded(digits, fraction)


def _short(name: Callable[[Datum], Datum]) -> Callable[[Datum], Datum]:
    return lambda moments: kernel.utf8_slice_codeunits(name(moments), 0, stop=3)


_JAVA: dict[str, Callable[[Datum], Datum]] = {
    "y": _padded(1, kernel.year),
    "yy": _padded(2, _year_of_century),
    "yyyy": _padded(4, kernel.year),
    "uuuu": _padded(4, kernel.year),
    "Q": _padded(1, kernel.quarter),
    "M": _padded(1, kernel.month),
    "MM": _padded(2, kernel.month),
    "MMM": _short(month_name),
    "MMMM": month_name,
    "D": _padded(1, kernel.day_of_year),
    "DDD": _padded(3, kernel.day_of_year),
    "d": _padded(1, kernel.day),
    "dd": _padded(2, kernel.day),
    **{"E" * letters: _short(day_name) for letters in range(1, 4)},
    "EEEE": day_name,
    "a": _half,
    "H": _padded(1, kernel.hour),
    "HH": _padded(2, kernel.hour),
    "h": _padded(1, _hour_of_half),
    "hh": _padded(2, _hour_of_half),
    "m": _padded(1, kernel.minute),
    "mm": _padded(2, kernel.minute),
    "s": _padded(1, kernel.second),
    "ss": _padded(2, kernel.second),
    **{"S" * digits: _second_fraction(digits) for digits in range(1, 7)},
}
# the codes of STRFTIME, and the letters that write the same
_LETTERS_OF = {
    "Y": "yyyy",
    "y": "yy",
    "m": "MM",
    "B": "MMMM",
    "b": "MMM",
    "d": "dd",
    "j": "DDD",
    "A": "EEEE",
    "a": "EEE",
    "H": "HH",
    "I": "hh",
    "p": "a",
    "M": "mm",
    "S": "ss",
    "f": "SSSSSS",
}


def _java_parts(text: str) -> list[Part]:
    """Read a pattern of Java: letters are fields, other characters and what is in single quotes are texts."""
    parts: list[Part] = []
    for match in _JAVA_PARTS.finditer(text):
        letters, written = match["letters"], match[0]
        if letters is not None and letters not in _JAVA:
            raise _unknown_letters(letters, text)
        if match["reserved"] is not None:
            raise NotAllowed(
                f"In DATE_FORMAT, {written!r} must stand in single quotes, doubled inside a text: ''{written}''."
            )
        if written == "'":
            raise NotAllowed(f"In DATE_FORMAT, a single quote must be followed by another one; got {text!r}.")
        if letters is not None:
            parts.append(("", letters))
        elif written.startswith("'"):
            parts.append((written[1:-1].replace("''", "'") or "'", ""))
        else:
            parts.append((written, ""))
    return parts


def _unknown_letters(letters: str, text: str) -> NotAllowed:
    hint = (
        "Write STRFTIME(timestamp, format) for a format with %."
        if "%" in text
        else "Write letters that stand for themselves in single quotes, doubled inside a text: 'yyyy-MM-dd''T''HH:mm'."
    )
    return NotAllowed(f"DATE_FORMAT has no {letters!r}; it has {', '.join(_JAVA)}. {hint}")


def _strftime_parts(text: str) -> list[Part]:
    """Read a format of C: what follows a percent sign is a field, all else is text."""
    parts: list[Part] = []
    for match in _C_PARTS.finditer(text):
        code = match["code"]
        if code is None or code == "%":
            parts.append((code or match[0], ""))
        elif code in _LETTERS_OF:
            parts.append(("", _LETTERS_OF[code]))
        else:
            raise NotAllowed(
                f"STRFTIME has no {match[0]!r}; it has {', '.join(f'%{known}' for known in _LETTERS_OF)} and %%."
            )
    return parts


_READERS = {"date_format": lru_cache(maxsize=1024)(_java_parts), "strftime": lru_cache(maxsize=1024)(_strftime_parts)}


def _bind(function: Function, arguments: Arguments) -> Expression:
    form = arguments[1]
    if not isinstance(form, Literal) or not isinstance(form.value, str):
        raise NotAllowed(f"The format of {function.usage} must be a text in quotes; got {sql_text(form)}.")
    if len(form.value) > _LONGEST_FORMAT:
        raise NotAllowed(f"A format must have at most {_LONGEST_FORMAT} characters.")
    _READERS[function.name](form.value)
    return typed(VARCHAR, TIMESTAMP, VARCHAR)(function, arguments)


def _format(call: Call, arguments: Sequence[Datum]) -> Datum:
    moments = arguments[0]
    fields: dict[str, Datum] = {}
    pieces: list[Datum] = []
    for text, letters in _READERS[call.function](constant(arguments[1])):
        if letters and letters not in fields:
            fields[letters] = _JAVA[letters](moments)
        pieces.append(fields[letters] if letters else pa.scalar(text))
    if fields:
        return kernel.binary_join_element_wise(*pieces, "", null_handling="emit_null")
    text = "".join(piece.as_py() for piece in pieces)
    return kernel.if_else(kernel.is_valid(moments), pa.scalar(text), pa.scalar(None, pa.string()))


FORMATS = (
    Function("date_format", "DATE_FORMAT(timestamp, format)", _bind, _format, 2, 2),
    Function("strftime", "STRFTIME(timestamp, format)", _bind, _format, 2, 2),
)
