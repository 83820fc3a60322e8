"""An aligned table for rows that have not all come yet.

Widths follow the rows seen so far; when a later page needs more room the columns grow and the header is
printed again. In a terminal that is too narrow, texts are shortened; numbers and times never are: where
they do not fit, each row becomes a block of its own, a field per line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console

_GAP = 2
_NARROWEST_TEXT = 8
# a column that has to grow grows to a multiple of this, so that it does not have to again with the next row
_GROWTH = 4
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class ColumnDigits(float):
    """A number that is not whole, with the text that it came as: of a DECIMAL all digits count, zeros too."""

    def __init__(self, text: str) -> None:
        self.text = text


def cell_text(value: Any, null: str = "NULL") -> str:
    """Write a JSON value for people: no control characters, no fraction of a second that is zero."""
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ColumnDigits):
        return value.text
    if isinstance(value, float):
        return f"{value:.12g}"
    if not isinstance(value, str):
        value = json_text(value)
    if value.endswith(".000000Z") and _TIME.fullmatch(value):
        return value.replace(".000000", "")
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in value)


def json_text(value: Any) -> str:
    """Write a JSON value as JSON, numbers with the digits that they came with."""
    if isinstance(value, ColumnDigits):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_text(name)}: {json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def fit_widths(natural: Sequence[int], least: Sequence[int], room: int | None) -> list[int] | None:
    """Shrink the widest columns until all fit into `room`; None when not even the least widths do.

    Widths are in terminal cells without the gaps between the columns; no `room` is no limit.
    """
    widths = list(natural)
    if room is None:
        return widths
    excess = sum(widths) + _GAP * (len(widths) - 1) - room
    while excess > 0:
        shrinkable = [column for column, width in enumerate(widths) if width > least[column]]
        if not shrinkable:
            return None
        widths[max(shrinkable, key=lambda column: widths[column])] -= 1
        excess -= 1
    return widths


class StreamTable:
    """Print rows to a console as they come; see the module's text for the layout."""

    def __init__(self, console: Console, null: str = "NULL") -> None:
        self._console = console
        self._null = null
        self._names: list[str] = []
        self._natural: list[int] = []
        self._least: list[int] = []
        self._right: list[bool] = []
        self._layout: tuple[int | None, list[int] | None] | None = None
        self._count = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print some more rows."""
        if not rows:
            return
        self._learn_columns(rows)
        cells = [[cell_text(row.get(name), self._null) for name in self._names] for row in rows]
        self._measure(rows, cells)
        room = self._console.width if self._console.is_terminal else None
        layout = (room, fit_widths(self._natural, self._least, room))
        if layout != self._layout:
            self._layout = layout
            if layout[1] is not None:
                self._console.print(self._line(self._names, layout[1]), style="bold", soft_wrap=True)
        for row in cells:
            self._count += 1
            if layout[1] is None:
                self._print_block(row)
            else:
                self._console.file.write(self._line(row, layout[1]) + "\n")
        self._console.file.flush()

    def _learn_columns(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            for name in row:
                if name not in self._names:
                    self._names.append(name)
                    self._natural.append(cell_len(cell_text(name)))
                    self._least.append(min(self._natural[-1], _NARROWEST_TEXT))
                    self._right.append(_are_numbers([row.get(name) for row in rows]))
                    self._layout = None

    def _measure(self, rows: Sequence[Mapping[str, Any]], cells: Sequence[Sequence[str]]) -> None:
        for column, name in enumerate(self._names):
            widest = max(cell_len(row[column]) for row in cells)
            if widest > self._natural[column]:
                natural = widest if self._layout is None else -(-widest // _GROWTH) * _GROWTH
                self._natural[column] = natural
            exact_widths = [
                cell_len(text[column]) for row, text in zip(rows, cells, strict=True) if _is_exact(row.get(name))
            ]
            shortest = min(widest, _NARROWEST_TEXT)
            self._least[column] = max(self._least[column], shortest, *exact_widths, 0)

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        parts = []
        for text, width, right in zip(cells, widths, self._right, strict=True):
            free = width - cell_len(text)
            if free < 0:
                parts.append(set_cell_size(text, width - 1) + "…")
            else:
                parts.append(" " * free + text if right else text + " " * free)
        return (" " * _GAP).join(parts).rstrip()

    def _print_block(self, cells: Sequence[str]) -> None:
        self._console.print(f"-- row {self._count}", style="bold", soft_wrap=True)
        width = max(map(cell_len, self._names))
        for name, text in zip(self._names, cells, strict=True):
            self._console.file.write(f"{name}{' ' * (width - cell_len(name))}  {text}\n")


def _are_numbers(values: Sequence[Any]) -> bool:
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float, ColumnDigits}


def _is_exact(value: Any) -> bool:
    """Say whether a shortened form of this value would mislead."""
    if isinstance(value, str):
        return _TIME.fullmatch(value) is not None
    return isinstance(value, int | float)
