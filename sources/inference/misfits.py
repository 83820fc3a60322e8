"""The few values of a column that are not as nearly all others, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 2
_LONGEST = 40


def misfits_text(misfits: Sequence[tuple[int, str]]) -> str:
    """Return values, each with the first row that has it, counted from 1: ``'abc' (row 7) and others``."""
    first: dict[str, int] = {}
    for row, text in misfits:
        first.setdefault(text, row)
    shown = [f"{text[:_LONGEST]!r} (row {row})" for text, row in list(first.items())[:_SHOWN]]
    return " and ".join(shown if len(first) <= _SHOWN else [", ".join(shown), "others"])
