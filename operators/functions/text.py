"""Text functions. Positions and lengths count characters from 1, as SQL does; negative ones count from the end.

CONCAT and ``||`` of NULL are NULL, as in Flink SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.casts import cast_to
from braid.operators.functions.coercion import coerce
from braid.operators.functions.signature import (
    Arguments,
    Datum,
    Function,
    as_type,
    by_row,
    constant,
    kernel,
    rows_of,
    typed,
)
from braid.operators.functions.sql_text import sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, NULL, VARCHAR

LONGEST_PADDED = 1000


def _text(kernel: Callable[..., Datum]) -> Callable[[Call, Sequence[Datum]], Datum]:
    return lambda _, arguments: kernel(arguments[0])


def _length(_call: Call, arguments: Sequence[Datum]) -> Datum:
    (text,) = arguments
    length = kernel.binary_length if isinstance(text, pa.StringArray) and _is_ascii(text) else kernel.utf8_length
    return as_type(length(text), pa.int64())


def _is_ascii(texts: pa.StringArray) -> bool:
    """Return whether each character of some texts is one byte; to find out takes a fifth of counting characters."""
    _, offsets, data = texts.buffers()
    if offsets is None or data is None or not len(texts):
        return False
    first, after = np.frombuffer(offsets, dtype=np.int32)[[texts.offset, texts.offset + len(texts)]]
    return first == after or int(np.frombuffer(data, dtype=np.int8)[first:after].min()) >= 0


_TRIMS = {"trim": kernel.utf8_trim, "ltrim": kernel.utf8_ltrim, "rtrim": kernel.utf8_rtrim}
_STRIPS: dict[str, Callable[[str, str], str]] = {"trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}


def _trim(call: Call, arguments: Sequence[Datum]) -> Datum:
    characters = " " if len(arguments) == 1 else constant(arguments[1])
    if characters:
        return _TRIMS[call.function](arguments[0], characters=characters)
    if characters == "":
        return arguments[0]
    return by_row(_STRIPS[call.function], pa.string(), *arguments)


def _substring(_call: Call, arguments: Sequence[Datum]) -> Datum:
    text, (start, length) = arguments[0], (constant(a) for a in (*arguments[1:], pa.scalar(2**31))[:2])
    if start is None or length is None or not -(2**31) <= start <= 2**31:
        return by_row(_substring_of, pa.string(), *arguments)
    if start < 0:
        stop = start + length
        if length <= 0:
            return kernel.utf8_slice_codeunits(text, 0, stop=0)
        return kernel.utf8_slice_codeunits(text, start, stop=stop if stop < 0 else None)
    first, stop = max(start - 1, 0), max(start - 1 + length, 0)
    return kernel.utf8_slice_codeunits(text, min(first, stop), stop=stop)


def _substring_of(text: str, start: int, length: int = 2**64) -> str:
    begin = start - 1 if start >= 0 else len(text) + start
    return text[max(begin, 0) : max(begin + length, 0)]


def _left(_call: Call, arguments: Sequence[Datum]) -> Datum:
    count = constant(arguments[1])
    if count is not None and 0 <= count <= 2**31:
        return kernel.utf8_slice_codeunits(arguments[0], 0, stop=count)
    return by_row(lambda text, count: text[:count], pa.string(), *arguments)


def _right(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return by_row(lambda text, count: text[-count:] if count else "", pa.string(), *arguments)


def _bind_pad(function: Function, arguments: Arguments) -> Expression:
    length = arguments[1]
    if not (isinstance(length, Literal) and isinstance(length.value, int) and 0 <= length.value <= LONGEST_PADDED):
        raise NotAllowed(
            f"{function.usage} needs a whole number of characters from 0 to {LONGEST_PADDED}; got {sql_text(length)}."
        )
    return typed(VARCHAR, VARCHAR, BIGINT, VARCHAR)(function, arguments)


def _pad(call: Call, arguments: Sequence[Datum]) -> Datum:
    """Fill texts up at one end, and cut longer ones at the right."""

    def padded(text: str, length: int, fill: str = " ") -> str:
        missing = max(length - len(text), 0)
        padding = (fill * -(-missing // max(len(fill), 1)))[:missing]
        return (padding + text if call.function == "lpad" else text + padding)[:length]

    return by_row(padded, pa.string(), *arguments)


def _split_part(_call: Call, arguments: Sequence[Datum]) -> Datum:
    def part(text: str, separator: str, number: int) -> str | None:
        parts = text.split(separator) if separator else [text]
        index = number - 1 if number > 0 else number + len(parts)
        if number == 0:
            return None
        return parts[index] if 0 <= index < len(parts) else ""

    return by_row(part, pa.string(), *arguments)


# accents may be characters of their own
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*")


def _initcap(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Write each word of letters and digits with its first letter large and the others small."""
    return by_row(lambda text: _WORD.sub(lambda word: word[0].capitalize(), text), pa.string(), *arguments)


def _bind_concat(function: Function, arguments: Arguments) -> Expression:
    """Join texts; other values are cast, nested joins flattened."""
    parts: list[Expression] = []
    for argument in arguments:
        if isinstance(argument, Call) and argument.function == function.name:
            parts.extend(argument.arguments)
        else:
            parts.append(cast_to(argument, VARCHAR))
    return Call(function.name, tuple(parts), VARCHAR)


def _concat(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return kernel.binary_join_element_wise(*arguments, "", null_handling="emit_null")


def _bind_concat_ws(function: Function, arguments: Arguments) -> Expression:
    separator, *values = arguments
    if separator.type not in (VARCHAR, NULL):
        raise function.refuse(arguments)
    return Call(function.name, (coerce(separator, VARCHAR), *(cast_to(v, VARCHAR) for v in values)), VARCHAR)


def _concat_ws(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Join what is not NULL; Arrow's kernel mixes up rows in which all is NULL."""

    def joined(separator: str | None, *values: str | None) -> str | None:
        return None if separator is None else separator.join(value for value in values if value is not None)

    return pa.array([joined(*row) for row in rows_of(arguments)], pa.string())


def _replace(_call: Call, arguments: Sequence[Datum]) -> Datum:
    text, old, new = arguments[0], constant(arguments[1]), constant(arguments[2])
    if old and new is not None:
        return kernel.replace_substring(text, old, new)
    return by_row(lambda t, o, n: t.replace(o, n) if o else t, pa.string(), *arguments)


def _strpos(_call: Call, arguments: Sequence[Datum]) -> Datum:
    text, part = arguments[0], constant(arguments[1])
    # the kernel counts bytes
    if part is not None and kernel.all(kernel.string_is_ascii(text)).as_py() is not False:
        return as_type(kernel.add(kernel.find_substring(text, part), 1), pa.int64())
    return by_row(lambda t, p: t.find(p) + 1, pa.int64(), *arguments)


_TESTS: dict[str, tuple[Callable[..., Datum], Callable[[str, str], bool]]] = {
    "starts_with": (kernel.starts_with, str.startswith),
    "ends_with": (kernel.ends_with, str.endswith),
    "contains": (kernel.match_substring, str.__contains__),
}


def _test(call: Call, arguments: Sequence[Datum]) -> Datum:
    test_for_constant, test_row = _TESTS[call.function]
    part = constant(arguments[1])
    return by_row(test_row, pa.bool_(), *arguments) if part is None else test_for_constant(arguments[0], part)


def _bind_like(function: Function, arguments: Arguments) -> Expression:
    if any(a.type not in (VARCHAR, NULL) for a in arguments):
        raise function.refuse(arguments, "LIKE compares texts; write CAST(… AS VARCHAR) around a number.")
    if len(arguments) == 3:
        escape = arguments[2]
        if not (isinstance(escape, Literal) and isinstance(escape.value, str) and len(escape.value) == 1):
            raise NotAllowed(f"ESCAPE must be followed by one character; got {sql_text(escape)}.")
        pattern = arguments[1]
        if isinstance(pattern, Literal) and isinstance(pattern.value, str):
            kernel_pattern(pattern.value, escape.value)
    return Call(function.name, arguments, BOOLEAN)


def like_parts(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """Split a LIKE pattern into characters and whether each is a wildcard; ``escape`` may be empty.

    Raises NotAllowed when the escape character does not precede a wildcard or itself.
    """
    parts, position = [], 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            if position == len(pattern) or pattern[position] not in ("%", "_", escape):
                raise NotAllowed(
                    f"In LIKE, the escape character {escape!r} must precede %, _ or itself; got {pattern!r}."
                )
            parts.append((pattern[position], False))
        else:
            parts.append((character, character in "%_"))
        position += 1
    return parts


@lru_cache(maxsize=4096)
def kernel_pattern(pattern: str, escape: str) -> str:
    r"""Return the pattern as ``match_like`` reads it, whose escape character is ``\``."""
    return "".join(c if is_wild or c not in "%_\\" else "\\" + c for c, is_wild in like_parts(pattern, escape))


class _Pattern:
    """A LIKE pattern as the stretches between its ``%``, each of which matches texts of one length only.

    The first and the last match at the ends of a text, those between one after the other, each as early as can be. No
    choice is ever taken back, so time is not exponential in the length of the pattern, as it is with one expression.
    """

    def __init__(self, pattern: str, escape: str, flags: int) -> None:
        stretches: list[list[str]] = [[]]
        for character, is_wild in like_parts(pattern, escape):
            if is_wild and character == "%":
                stretches.append([])
            else:
                stretches[-1].append("." if is_wild else re.escape(character))
        self._is_whole = len(stretches) == 1
        self._last_length = len(stretches[-1])
        compiled = [re.compile("".join(stretch), re.DOTALL | flags) for stretch in stretches]
        self._first, self._between, self._last = compiled[0], compiled[1:-1], compiled[-1]

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches a whole text."""
        if self._is_whole:
            return self._first.fullmatch(text) is not None
        match = self._first.match(text)
        end = len(text) - self._last_length
        for stretch in self._between:
            if match is None:
                return False
            match = stretch.search(text, match.end(), max(end, 0))
        return match is not None and match.end() <= end and self._last.fullmatch(text, end) is not None


_pattern = lru_cache(maxsize=4096)(_Pattern)


def _like(call: Call, arguments: Sequence[Datum]) -> Datum:
    text, pattern = as_type(arguments[0], pa.string()), constant(arguments[1])
    escape = constant(arguments[2]) if len(arguments) == 3 else ""
    ignore_case = call.function == "ilike"
    if pattern is not None:
        return kernel.match_like(text, kernel_pattern(pattern, escape), ignore_case=ignore_case)
    flags = re.IGNORECASE if ignore_case else 0

    def matches(value: str, pattern_of_row: str) -> bool | None:
        try:
            return _pattern(pattern_of_row, escape, flags).matches(value)
        except NotAllowed:
            return None

    return by_row(matches, pa.bool_(), text, as_type(arguments[1], pa.string()))


TEXT = (
    Function("upper", "UPPER(text)", typed(VARCHAR, VARCHAR), _text(kernel.utf8_upper)),
    Function("lower", "LOWER(text)", typed(VARCHAR, VARCHAR), _text(kernel.utf8_lower)),
    Function("length", "LENGTH(text)", typed(BIGINT, VARCHAR), _length),
    *(Function(n, f"{n.upper()}(text[, characters])", typed(VARCHAR, VARCHAR, VARCHAR), _trim, 1, 2) for n in _TRIMS),
    Function(
        "substring",
        "SUBSTRING(text, start[, length])",
        typed(VARCHAR, VARCHAR, BIGINT, BIGINT),
        _substring,
        2,
        3,
    ),
    Function("concat", "CONCAT(value, …)", _bind_concat, _concat, 1, None),
    Function("concat_ws", "CONCAT_WS(separator, value, …)", _bind_concat_ws, _concat_ws, 2, None),
    Function("replace", "REPLACE(text, old, new)", typed(VARCHAR, VARCHAR, VARCHAR, VARCHAR), _replace, 3, 3),
    Function("strpos", "STRPOS(text, part)", typed(BIGINT, VARCHAR, VARCHAR), _strpos, 2, 2),
    *(Function(n, f"{n.upper()}(text, part)", typed(BOOLEAN, VARCHAR, VARCHAR), _test, 2, 2) for n in _TESTS),
    Function("left", "LEFT(text, count)", typed(VARCHAR, VARCHAR, BIGINT), _left, 2, 2),
    Function("right", "RIGHT(text, count)", typed(VARCHAR, VARCHAR, BIGINT), _right, 2, 2),
    *(Function(n, f"{n.upper()}(text, length[, fill])", _bind_pad, _pad, 2, 3) for n in ("lpad", "rpad")),
    Function("reverse", "REVERSE(text)", typed(VARCHAR, VARCHAR), _text(kernel.utf8_reverse)),
    Function("initcap", "INITCAP(text)", typed(VARCHAR, VARCHAR), _initcap),
    Function(
        "split_part",
        "SPLIT_PART(text, separator, number)",
        typed(VARCHAR, VARCHAR, VARCHAR, BIGINT),
        _split_part,
        3,
        3,
    ),
    Function("like", "text LIKE pattern [ESCAPE character]", _bind_like, _like, 2, 3),
    Function("ilike", "text ILIKE pattern [ESCAPE character]", _bind_like, _like, 2, 3),
)
