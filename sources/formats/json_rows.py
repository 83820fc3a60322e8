"""What both JSON formats share: parsing a text, and turning parsed objects into columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import orjson

from braid.sources.core.schema import Field, Schema
from braid.sources.formats.coercion import complaint, show
from braid.sources.formats.columns import convert_values, members_of
from braid.sources.formats.decoded import Decoded, DecodedColumn, assemble

LONGEST_INT = 400  # beyond all columns; reading and showing an integer takes the square of its digits
CROWDED_BYTES = 1 << 20
BYTES_PER_CONTAINER = 16

_BLANKS = re.compile(r"[ \t\n\r]*")
_DIGITS = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else 32 for byte in range(256))
_MANY_DIGITS = b"0" * 20  # of which the quick parser makes a double


class Unparsable:
    """Stands in for a value whose text is no JSON."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def needs_exact_numbers(schema: Schema) -> bool:
    """Whether a double would lose digits that a column of ``schema`` keeps."""
    return any(f.type.has_kind("DECIMAL") for f in schema.read)


def parse_json(text: bytes, exact: bool) -> Any:
    """Parse one JSON text in UTF-8; ValueError when it is none.

    With ``exact`` fractions are Decimals. Without, the quick parser goes first; it refuses numbers beyond doubles and
    halves of surrogate pairs, which are good JSON and matter only in columns of the stream: then the exact parse
    decides, as it does where a number has more digits than a double keeps. A long text that is made of little but
    arrays and objects would take a hundred times its bytes, and is refused.
    """
    _check_not_crowded(text)
    if not exact and _MANY_DIGITS not in text.translate(_DIGITS):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    try:
        return _EXACT.decode(text.decode())
    except UnicodeDecodeError as problem:
        raise ValueError(f"byte {problem.start + 1} is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"{problem.msg} at character {problem.pos + 1}") from None


def elements_of(text: bytes, exact: bool) -> Iterator[Any]:
    """Yield the elements of a JSON array in UTF-8, each as :func:`parse_json` gives it; ValueError where it is none."""
    _check_not_crowded(text)
    decoded = text.decode()
    scan = (_EXACT if exact else _DOUBLES).scan_once
    at = _after_blanks(decoded, _after_blanks(decoded, 0) + 1)
    if decoded[at : at + 1] != "]":
        at -= 1
        while True:
            try:
                element, at = scan(decoded, _after_blanks(decoded, at + 1))
            except StopIteration as problem:
                raise ValueError(f"Expecting value at character {problem.value + 1}") from None
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError as problem:
                raise ValueError(f"{problem.msg} at character {problem.pos + 1}") from None
            yield element
            at = _after_blanks(decoded, at)
            if decoded[at : at + 1] != ",":
                break
    if decoded[at : at + 1] != "]":
        raise ValueError(f"Expecting ',' delimiter at character {at + 1}")
    end = _after_blanks(decoded, at + 1)
    if end != len(decoded):
        raise ValueError(f"Extra data at character {end + 1}")


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


def _check_not_crowded(text: bytes) -> None:
    if len(text) > CROWDED_BYTES and (text.count(b"[") + text.count(b"{")) * BYTES_PER_CONTAINER > len(text):
        raise ValueError(f"it has more arrays and objects than one for every {BYTES_PER_CONTAINER} bytes")


def decode_rows(
    schema: Schema,
    rows: Sequence[Any],
    unit: str,
    line: Callable[[int], int],
    raw: Callable[[int], str],
) -> Decoded:
    """Turn parsed JSON values into tuples; what is no object or does not fit is malformed.

    ``unit`` ("line", "element") and ``line(i)`` name input ``i`` in messages; ``raw(i)`` is its text.
    """
    unreadable: dict[int, str] = {}
    objects: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        if type(row) is dict:
            objects.append(row)
            continue
        objects.append({})
        if isinstance(row, Unparsable):
            unreadable[i] = f" must be JSON: {row.reason}"
        else:
            unreadable[i] = f" must be a JSON object, got {show(row)}"
    columns = [convert_values(f, _values(objects, f)) for f in schema.read]
    return assemble(
        schema, columns, unreadable, lambda i: f"{unit} {line(i)}", line, lambda wrong: [raw(i) for i in wrong]
    )


def convert_json_texts(field: Field, texts: Sequence[str | None]) -> DecodedColumn:
    """Convert texts in which the values of a column with parts are written as JSON; NULL stays NULL."""
    values: list[Any] = []
    errors: dict[int, str] = {}
    exact = field.type.has_kind("DECIMAL")
    for i, text in enumerate(texts):
        try:
            values.append(None if text is None else parse_json(text.encode(), exact))
        except ValueError as problem:
            values.append(None)
            errors[i] = complaint(field.name, field.type, text, f"it must be JSON: {problem}")
    column = convert_values(field, values)
    return DecodedColumn(column.values, {**column.errors, **errors})


def _values(objects: Sequence[dict[str, Any]], field: Field) -> list[Any]:
    """Return a column: what its path leads to, NULL where there is nothing."""
    name, *steps = field.path
    values = members_of(objects, str(name))
    for step in steps:
        values = [_inside(value, step) for value in values]
    return values


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step) if type(value) is dict else None
    return value[step] if type(value) is list and step < len(value) else None


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= LONGEST_INT else Decimal(text)


def _fraction(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return float(text)


def _double(text: str) -> Decimal | float:
    """Return a double, and what is beyond doubles exactly."""
    number = float(text)
    return number if math.isfinite(number) else _fraction(text)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_EXACT: Any = json.JSONDecoder(parse_float=_fraction, parse_int=_whole, parse_constant=_refuse_constant)
_DOUBLES: Any = json.JSONDecoder(parse_float=_double, parse_int=_whole, parse_constant=_refuse_constant)
