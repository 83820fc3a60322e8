"""Text functions. Positions and lengths count characters from 1, as SQL does.

CONCAT and ``||`` of NULL are NULL, as in Flink SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from operators.expressions import Call, Expression, Literal
from operators.functions.casts import cast_to
from operators.functions.signature import Arguments, Datum, Function, as_type, by_row, constant, kernel, typed
from operators.functions.sql_text import sql_text
from sources.errors import NotAllowed
from sources.schema import BIGINT, BOOLEAN, NULL, VARCHAR


def _text(kernel: Callable[..., Datum]) -> Callable[[Call, Sequence[Datum]], Datum]:
    return lambda _, arguments: kernel(arguments[0])


def _length(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return as_type(kernel.utf8_length(arguments[0]), pa.int64())


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


def _starts_with(_call: Call, arguments: Sequence[Datum]) -> Datum:
    part = constant(arguments[1])
    if part is not None:
        return kernel.starts_with(arguments[0], part)
    return by_row(str.startswith, pa.bool_(), *arguments)


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
    parts, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise NotAllowed(
                    f"In LIKE, the escape character {escape!r} must precede %, _ or itself; got {pattern!r}."
                )
            parts.append((pattern[at], False))
        else:
            parts.append((character, character in "%_"))
        at += 1
    return parts


@lru_cache(maxsize=4096)
def kernel_pattern(pattern: str, escape: str) -> str:
    r"""Return the pattern as ``match_like`` reads it, whose escape character is ``\``."""
    return "".join(c if wildcard or c not in "%_\\" else "\\" + c for c, wildcard in like_parts(pattern, escape))


class _Pattern:
    """A LIKE pattern as the stretches between its ``%``, each of which fits texts of one length only.

    The first and the last stand at the ends of a text, those between are found one after the other as early as can be:
    no choice is ever taken back, so the time is not exponential in the length of the pattern as with one expression.
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
        made = [re.compile("".join(stretch), re.DOTALL | flags) for stretch in stretches]
        self._first, self._between, self._last = made[0], made[1:-1], made[-1]

    def matches(self, text: str) -> bool:
        """Return whether the whole text fits."""
        if self._is_whole:
            return self._first.fullmatch(text) is not None
        found = self._first.match(text)
        end = len(text) - self._last_length
        for stretch in self._between:
            if found is None:
                return False
            found = stretch.search(text, found.end(), max(end, 0))
        return found is not None and found.end() <= end and self._last.fullmatch(text, end) is not None


_pattern = lru_cache(maxsize=4096)(_Pattern)


def _like(call: Call, arguments: Sequence[Datum]) -> Datum:
    text, pattern = as_type(arguments[0], pa.string()), constant(arguments[1])
    escape = constant(arguments[2]) if len(arguments) == 3 else ""
    insensitive = call.function == "ilike"
    if pattern is not None:
        return kernel.match_like(text, kernel_pattern(pattern, escape), ignore_case=insensitive)
    flags = re.IGNORECASE if insensitive else 0

    def matches(value: str, wanted: str) -> bool | None:
        try:
            return _pattern(wanted, escape, flags).matches(value)
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
    Function("replace", "REPLACE(text, old, new)", typed(VARCHAR, VARCHAR, VARCHAR, VARCHAR), _replace, 3, 3),
    Function("strpos", "STRPOS(text, part)", typed(BIGINT, VARCHAR, VARCHAR), _strpos, 2, 2),
    Function("starts_with", "STARTS_WITH(text, prefix)", typed(BOOLEAN, VARCHAR, VARCHAR), _starts_with, 2, 2),
    Function("like", "text LIKE pattern [ESCAPE character]", _bind_like, _like, 2, 3),
    Function("ilike", "text ILIKE pattern [ESCAPE character]", _bind_like, _like, 2, 3),
)
