"""REGEXP_LIKE, REGEXP_EXTRACT and REGEXP_REPLACE, in the syntax of RE2: time is linear in the length of the text.

A pattern is a constant, so that it is checked when the query is created and compiled once a batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, constant, kernel
from braid.operators.functions.sql_text import sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BOOLEAN, INT, NULL, VARCHAR

# a compiled pattern grows with both
_LONGEST_PATTERN, _MAX_REPETITIONS = 1000, 200
_LONGEST_REPLACEMENT = 100
_REPETITION = re.compile(r"\{(\d+)(?:,(\d*))?\}")
# the whole pattern is a group, too, and a replacement names one by a digit
_MAX_GROUPS = 8
_ANY_TEXT = pa.array([""])


def _bind_like(function: Function, arguments: Arguments) -> Expression:
    text, pattern = arguments[0], _checked(function, arguments)
    return Call(function.name, (text, pattern), BOOLEAN)


def _bind_extract(function: Function, arguments: Arguments) -> Expression:
    text, pattern = arguments[0], _checked(function, arguments)
    group = arguments[2] if len(arguments) == 3 else Literal(0, INT)
    number = group.value if isinstance(group, Literal) and group.type.is_integer else None
    if not isinstance(number, int) or not 0 <= number <= min(_groups(pattern), _MAX_GROUPS):
        raise NotAllowed(
            f"The group of {function.usage} must count a pair of brackets in the pattern, which has"
            f" {_groups(pattern)}, up to {_MAX_GROUPS}; 0 is the whole match. Got {sql_text(group)}."
        )
    return Call(function.name, (text, pattern, Literal(number, INT)), VARCHAR)


def _bind_replace(function: Function, arguments: Arguments) -> Expression:
    """Take the flag g for what is meant anyway: all matches, as in Flink and Spark."""
    text, pattern, replacement = arguments[0], _checked(function, arguments), arguments[2]
    if not isinstance(replacement, Literal) or not isinstance(replacement.value, str):
        raise NotAllowed(f"The replacement of {function.usage} must be a text in quotes; got {sql_text(replacement)}.")
    if len(replacement.value) > _LONGEST_REPLACEMENT:
        raise NotAllowed(f"A replacement must have at most {_LONGEST_REPLACEMENT} characters.")
    try:
        _replaced(_ANY_TEXT, str(pattern.value), replacement.value)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid replacement string: ").rstrip(".")
        raise NotAllowed(
            f"The replacement {sql_text(replacement)} does not fit the pattern {sql_text(pattern)}: {reason}."
            r" Write \1 for the first group, \0 for the whole match, \\ for a backslash."
        ) from None
    flags = arguments[3] if len(arguments) == 4 else Literal("g", VARCHAR)
    if flags != Literal("g", VARCHAR):
        raise NotAllowed(
            f"The flags of {function.usage} may be 'g', for all matches, which is meant without it, too; got"
            f" {sql_text(flags)}. Write (?i) in the pattern to ignore case."
        )
    return Call(function.name, (text, pattern, replacement), VARCHAR)


def _checked(function: Function, arguments: Arguments) -> Literal:
    """Return the pattern; NotAllowed when it is none, or the text is no text."""
    text, pattern = arguments[:2]
    if text.type not in (VARCHAR, NULL):
        raise function.refuse(arguments)
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise NotAllowed(f"The pattern of {function.usage} must be a text in quotes; got {sql_text(pattern)}.")
    repetitions = sum(int(most or least) for least, most in _REPETITION.findall(pattern.value))
    if len(pattern.value) > _LONGEST_PATTERN or repetitions > _MAX_REPETITIONS:
        raise NotAllowed(
            f"A pattern must have at most {_LONGEST_PATTERN} characters, and its repetitions such as {{2,5}} must"
            f" add up to at most {_MAX_REPETITIONS}."
        )
    try:
        kernel.match_substring_regex(_ANY_TEXT, pattern.value)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise NotAllowed(f"The pattern {sql_text(pattern)} is no regular expression of RE2: {reason}.") from None
    return pattern


def _groups(pattern: Literal) -> int:
    """Return how many groups a pattern has, found by asking for more and more of them."""
    for number in range(_MAX_GROUPS + 1):
        try:
            _extracted(_ANY_TEXT, str(pattern.value), number)
        except pa.ArrowInvalid:
            return number - 1
    return _MAX_GROUPS


def _extracted(text: Datum, pattern: str, group: int) -> Datum:
    """Return the group of the leftmost match; for a text without a match the whole text."""
    return kernel.replace_substring_regex(text, f"(?s:^.*?)({pattern})(?s:.*)$", rf"\{group + 1}", max_replacements=1)


def _like(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return kernel.match_substring_regex(as_type(arguments[0], pa.string()), constant(arguments[1]))


def _extract(_call: Call, arguments: Sequence[Datum]) -> Datum:
    text, pattern, group = as_type(arguments[0], pa.string()), constant(arguments[1]), constant(arguments[2])
    matches = kernel.match_substring_regex(text, pattern)
    return kernel.if_else(matches, _extracted(text, pattern, group), pa.scalar(None, pa.string()))


def _replaced(text: Datum, pattern: str, replacement: str) -> Datum:
    return kernel.replace_substring_regex(text, pattern, replacement)


def _replace(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return _replaced(as_type(arguments[0], pa.string()), constant(arguments[1]), constant(arguments[2]))


REGULAR_EXPRESSIONS = (
    Function("regexp_like", "REGEXP_LIKE(text, pattern)", _bind_like, _like, 2, 2),
    Function("regexp_extract", "REGEXP_EXTRACT(text, pattern[, group])", _bind_extract, _extract, 2, 3),
    Function("regexp_replace", "REGEXP_REPLACE(text, pattern, replacement[, 'g'])", _bind_replace, _replace, 3, 4),
)
