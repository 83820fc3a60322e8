"""A few rows as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from braid.client.messages import Object


@dataclass(frozen=True, repr=False)
class Table:
    """Rows with a title, a state and a note; a notebook shows them as a table."""

    title: str
    state: str
    note: str
    rows: list[Object]

    def __str__(self) -> str:
        lines = [self.columns, *([_text(row.get(name)) for name in self.columns] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        return "\n".join([f"{self.title} {self.state}: {self.note}", *padded]).rstrip()

    __repr__ = __str__

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order of their first appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def _repr_html_(self) -> str:
        caption = f"<caption>{escape(self.title)} <b>{escape(self.state)}</b>: {escape(self.note)}</caption>"
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        lines = ("".join(f"<td>{escape(_text(row.get(name)))}</td>" for name in self.columns) for row in self.rows)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def unreadable(title: str, error: Exception) -> Table:
    """Return a table that says why there is none."""
    return Table(title, "", str(error), [])


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)
