"""ASCII, CHR, TRANSLATE and REPEAT: texts by their characters, which are Unicode's code points."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.signature import Arguments, Datum, Function, by_distinct, by_row, constant, kernel, typed
from braid.operators.functions.sql_text import sql_text
from braid.operators.functions.text import LONGEST_PADDED
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, VARCHAR

# halves of characters in UTF-16, and no characters themselves
_SURROGATES = range(0xD800, 0xE000)


def _ascii(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Return the code point of the first character, 0 of an empty text."""
    first = kernel.utf8_slice_codeunits(arguments[0], 0, stop=1)
    return by_distinct(lambda character: ord(character) if character else 0, pa.int64(), first)


def _chr(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Return the character of a code point; NULL where there is none."""
    return by_distinct(lambda code: None if code in _SURROGATES else chr(code), pa.string(), arguments[0])


def _translate(_call: Call, arguments: Sequence[Datum]) -> Datum:
    text, old, new = arguments[0], constant(arguments[1]), constant(arguments[2])
    if old is None or new is None or not isinstance(text, pa.Array):
        return by_row(lambda t, o, n: t.translate(_table(o, n)), pa.string(), *arguments)
    table = _table(old, new)
    return by_distinct(lambda t: t.translate(table), pa.string(), text)


def _table(old: str, new: str) -> dict[int, str | None]:
    """Return what becomes of each character; of those that stand in ``old`` twice, the first counts."""
    table: dict[int, str | None] = {}
    for position, character in enumerate(old):
        table.setdefault(ord(character), new[position : position + 1] or None)
    return table


def _bind_repeat(function: Function, arguments: Arguments) -> Expression:
    count = arguments[1]
    if isinstance(count, Literal) and isinstance(count.value, int) and count.value > LONGEST_PADDED:
        raise NotAllowed(f"{function.usage} makes at most {LONGEST_PADDED} characters; got {sql_text(count)}.")
    return typed(VARCHAR, VARCHAR, BIGINT)(function, arguments)


def _repeat(_call: Call, arguments: Sequence[Datum]) -> Datum:
    """Return a text so often; NULL where that is more than LONGEST_PADDED characters, empty below once."""
    text, count = arguments
    count = kernel.max_element_wise(count, pa.scalar(0, pa.int64()), skip_nulls=False)
    count = kernel.min_element_wise(count, pa.scalar(LONGEST_PADDED + 1, pa.int64()), skip_nulls=False)
    # a text is at most 2^31 bytes, so that the product fits
    length = kernel.multiply(kernel.cast(kernel.utf8_length(text), pa.int64()), count)
    short = kernel.if_else(kernel.less_equal(length, LONGEST_PADDED), text, pa.scalar(None, pa.string()))
    return kernel.binary_repeat(short, count)


CHARACTERS = (
    Function("ascii", "ASCII(text)", typed(BIGINT, VARCHAR), _ascii),
    Function("chr", "CHR(code)", typed(VARCHAR, BIGINT), _chr),
    Function("translate", "TRANSLATE(text, from, to)", typed(VARCHAR, VARCHAR, VARCHAR, VARCHAR), _translate, 3, 3),
    Function("repeat", "REPEAT(text, count)", _bind_repeat, _repeat, 2, 2),
)
