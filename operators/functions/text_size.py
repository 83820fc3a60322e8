"""How large texts may become: what an expression makes of many rows at once must fit in memory.

Arrow's offsets of texts have 32 bits, and some of its kernels let them flow over unnoticed, or double their memory
until there is none. So how many bytes a function can make at most is known before it is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.signature import Datum, as_type, constant, kernel, rows_of
from braid.sources.core.errors import TooLarge

# twice what is added up at once (`BYTES_AT_ONCE` in source_task.py)
MAX_BYTES = 1 << 29
_BYTES_A_CHARACTER = 4  # at most, in UTF-8
_LONGEST_REPEATED = 1000 * _BYTES_A_CHARACTER
_GROUP = re.compile(r"\\\\|\\(\d)")


def check_size(usage: str, size: int, rows: int) -> None:
    """Raise TooLarge when so many bytes are too many texts to be made of so many rows at once."""
    if size > MAX_BYTES:
        raise TooLarge(
            f"{usage} would make up to {size >> 20} MB of texts of {rows} rows at once, and may make"
            f" {MAX_BYTES >> 20} MB; make shorter texts, or read fewer rows at once."
        )


def check_call(usage: str, call: Call, arguments: Sequence[Datum]) -> None:
    """Raise TooLarge when a call makes too many texts of its arguments, one of which is an array at least."""
    max_bytes = _MAX_BYTES.get(call.function)
    if max_bytes is not None and pa.types.is_string(call.type.arrow):
        rows = max(len(a) for a in arguments if isinstance(a, pa.Array))
        check_size(usage, max_bytes(arguments, rows), rows)


def constant_bytes(expression: Expression) -> int:
    """Return about how many bytes of a text that an expression makes are the same in each row."""
    if isinstance(expression, Literal):
        return len(expression.value.encode()) if isinstance(expression.value, str) else 0
    if not isinstance(expression, Call):
        return 0
    if expression.function in ("lpad", "rpad"):
        length = expression.arguments[1]
        return length.value if isinstance(length, Literal) and isinstance(length.value, int) else 0
    sizes = [constant_bytes(argument) for argument in expression.arguments]
    return max(sizes) if expression.function in _CHOICES else sum(sizes)


def size_of(value: Datum, rows: int) -> int:
    """Return how many bytes the texts of an argument are, one for each of the rows; 0 for what are no texts."""
    if not pa.types.is_string(value.type):
        return 0
    if isinstance(value, pa.Scalar):
        return rows * len(value.as_py().encode()) if value.is_valid else 0
    return _total(kernel.binary_length(value), rows)


def _total(numbers: Datum, rows: int) -> int:
    """Return the sum of one number a row, NULL counting as 0."""
    if isinstance(numbers, pa.Scalar):
        return rows * (numbers.as_py() or 0)
    return kernel.sum(numbers).as_py() or 0


def _lengths(text: Datum) -> Datum:
    return kernel.cast(kernel.binary_length(as_type(text, pa.string())), pa.int64())


def _joined(arguments: Sequence[Datum], rows: int) -> int:
    return sum(size_of(argument, rows) for argument in arguments)


def _joined_with_separator(arguments: Sequence[Datum], rows: int) -> int:
    return _joined(arguments[1:], rows) + size_of(arguments[0], rows) * max(0, len(arguments) - 2)


def _chosen(arguments: Sequence[Datum], rows: int) -> int:
    arrays = [argument for argument in arguments if isinstance(argument, pa.Array)]
    scalars = [size_of(argument, rows) for argument in arguments if not isinstance(argument, pa.Array)]
    return _joined(arrays, rows) + max(scalars, default=0)


def _replaced(arguments: Sequence[Datum], rows: int) -> int:
    text, old, new = arguments
    size = size_of(text, rows)
    if isinstance(old, pa.Scalar) and isinstance(new, pa.Scalar):
        before, after = constant(old), constant(new)
        if not before or after is None:
            return size
        gain = max(0, len(after.encode()) - len(before.encode()))
        most = size + size // len(before.encode()) * gain
        return most if most <= MAX_BYTES else size + _total(kernel.count_substring(text, before), rows) * gain
    most = size + _total(kernel.multiply(_lengths(text), _lengths(new)), rows)
    if most <= MAX_BYTES:
        return most
    replaced = (row for row in rows_of(arguments) if None not in row and row[1])
    return size + sum(text.count(old) * len(new.encode()) for text, old, new in replaced)


def _replaced_by_pattern(arguments: Sequence[Datum], rows: int) -> int:
    text, pattern, replacement = arguments[0], constant(arguments[1]), constant(arguments[2])
    size = size_of(text, rows)
    groups = sum(1 for group in _GROUP.findall(replacement) if group)
    # matches do not overlap, so what groups take of them is no more than the text
    with_groups, length = size * (1 + groups), len(replacement.encode())
    most = with_groups + (size + rows) * length
    if most <= MAX_BYTES:
        return most
    return with_groups + _total(kernel.count_substring_regex(text, pattern), rows) * length


def _padded(arguments: Sequence[Datum], rows: int) -> int:
    length: int = constant(arguments[1]) or 0
    fill: Any = arguments[2] if len(arguments) > 2 else pa.scalar(" ")
    is_ascii = isinstance(fill, pa.Scalar) and str(fill).isascii()
    return size_of(arguments[0], rows) + rows * length * (1 if is_ascii else _BYTES_A_CHARACTER)


def _repeated(arguments: Sequence[Datum], rows: int) -> int:
    text, count = arguments
    count = kernel.max_element_wise(kernel.min_element_wise(count, _LONGEST_REPEATED), 0)
    sizes = kernel.multiply(_lengths(text), kernel.cast(count, pa.int64()))
    return _total(kernel.min_element_wise(sizes, _LONGEST_REPEATED, skip_nulls=False), rows)


_CHOICES = ("case", "coalesce", "nullif", "greatest", "least")

# the functions whose texts may be more than those of their arguments, which are in memory already
_MAX_BYTES: dict[str, Callable[[Sequence[Datum], int], int]] = {
    "concat": _joined,
    "concat_ws": _joined_with_separator,
    "replace": _replaced,
    "regexp_replace": _replaced_by_pattern,
    "lpad": _padded,
    "rpad": _padded,
    "repeat": _repeated,
    **dict.fromkeys(_CHOICES, _chosen),
}
