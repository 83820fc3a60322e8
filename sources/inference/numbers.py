"""Columns of texts that are numbers but for a few, or numbers in a local notation such as ``1.299,00``.

They stay text, which takes every row; the advice says which expression reads their numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from braid.sources.inference.misfits import EVERY_ROW, misfits_text

_FEW = 0.1
"""Such a part of the values may be mistakes; one may be in any case."""
_PLACEHOLDERS = ("na", "n/a", "nan", "null", "none", "nil", "-", "?", "inf", "-inf", "")
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_PLUS = re.compile(r"\+[\d.]+", re.ASCII)
_CODE = re.compile(r"\+?\d+", re.ASCII)
_POINTS = re.compile(r"-?[1-9]\d{0,2}(\.\d{3})+", re.ASCII)
# of several that read as many texts the first is meant
_NOTATIONS = (
    (
        "numbers with commas between thousands",
        re.compile(r"-?(\d{1,3}(,\d{3})+|0|[1-9]\d*)(\.\d+)?", re.ASCII),
        "CAST(REPLACE(…, ',', '') AS DOUBLE)",
    ),
    (
        "numbers with a decimal comma",
        re.compile(r"-?(0|[1-9]\d*)(,\d+)?", re.ASCII),
        "CAST(REPLACE(…, ',', '.') AS DOUBLE)",
    ),
    (
        "numbers with a decimal comma and points between thousands",
        re.compile(r"-?(\d{1,3}(\.\d{3})+|0|[1-9]\d*)(,\d+)?", re.ASCII),
        "CAST(REPLACE(REPLACE(…, '.', ''), ',', '.') AS DOUBLE)",
    ),
)


def is_double(text: str) -> bool:
    """Return whether a text is a number that DOUBLE holds; +49 30 … are telephone numbers."""
    return _NUMBER.fullmatch(text) is not None and not _PLUS.fullmatch(text) and math.isfinite(float(text))


def may_be_thousands(texts: Iterable[str]) -> bool:
    """Return whether the points of all numbers may stand between thousands, as in ``2.350``."""
    points = [_POINTS.fullmatch(text.strip()) is not None for text in texts]
    return len(points) > 1 and all(points)


def advice_on_numbers(texts: Sequence[str | None], rows: Sequence[int] = EVERY_ROW) -> str:
    """Return how the numbers of a column of texts are read, nothing if it holds hardly any or reads as DOUBLE.

    ``rows`` has the number of each text's row.
    """
    words = {text.strip() for text in texts if text is not None}
    plain = {word for word in words if is_double(word)}
    best = ("numbers", plain, "CAST(… AS DOUBLE)")
    for noun, pattern, expression in _NOTATIONS:
        read = {word for word in words if pattern.fullmatch(word)}
        if len(read) > len(best[1]):
            best = (noun, read, expression)
    noun, read, expression = best
    if not words - read:
        return f"{noun}: {expression}" if read is not plain else ""
    odd = [(index, text) for index, text in enumerate(texts) if text is not None and text.strip() not in read]
    are_few = len(odd) <= max(_FEW * sum(text is not None for text in texts), 1)
    are_placeholders = all(text.strip().lower() in _PLACEHOLDERS for _, text in odd)
    if len(read) < 2 or not (are_few or are_placeholders) or any(_CODE.fullmatch(text.strip()) for _, text in odd):
        return ""
    return f"{noun} beside {misfits_text(odd, rows)}: {expression} gives NULL for these"
