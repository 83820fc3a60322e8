"""The few values of a column that are not as nearly all others, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence

EVERY_ROW = range(1, 2**31)
"""The numbers of rows of which none was passed over."""
_SHOWN = 2
_LONGEST = 40


def misfits_text(misfits: Sequence[tuple[int, str]], rows: Sequence[int]) -> str:
    """Return values, each with the first row that has it: ``'abc' (row 7) and others``.

    ``misfits`` are indices and values; ``rows`` has the number of the row at each index, counted from 1.
    """
    first: dict[str, int] = {}
    for index, text in misfits:
        first.setdefault(text, rows[index])
    shown = [f"{text[:_LONGEST]!r} (row {row})" for text, row in list(first.items())[:_SHOWN]]
    return " and ".join(shown if len(first) <= _SHOWN else [", ".join(shown), "others"])
