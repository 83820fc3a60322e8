"""Print for people and for programs: tables, fields, JSON lines, and refusals with a caret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console

from braid.api.cli.table import StreamTable, cell_text, json_text
from braid.client import Refused

_INDENT = "  "


def stdout() -> Console:
    """Make a console on standard output; without a terminal there it writes no colour codes."""
    return Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Make a console on standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_json(values: Iterable[Any]) -> None:
    """Print one JSON value per line."""
    lines = [json_text(value) for value in values]
    if lines:
        click.echo("\n".join(lines))


class RowWriter:
    """Print rows as they come, as an aligned table or as JSON lines."""

    def __init__(self, as_json: bool) -> None:
        self._table = None if as_json else StreamTable(stdout())

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print some more rows."""
        if self._table is None:
            print_json(rows)
        else:
            self._table.add(rows)


def print_list(items: Sequence[Mapping[str, Any]], as_json: bool, nothing: str) -> None:
    """Print a whole list, or the sentence `nothing` for people when it is empty."""
    if as_json:
        print_json(items)
    elif items:
        StreamTable(stdout(), null="-").add(items)
    else:
        click.echo(nothing)


def note(sentence: str) -> None:
    """Tell a person on standard error: standard output holds rows only."""
    click.echo(sentence, err=True)


def print_fields(item: Mapping[str, Any], as_json: bool) -> None:
    """Print one object: a field per line, those of objects in it by their paths, and after them lists as tables."""
    if as_json:
        print_json([item])
        return
    console = stdout()
    fields = list(_fields(item))
    facts = [(name, value) for name, value in fields if not _is_table(value)]
    width = max((cell_len(name) for name, _ in facts), default=0)
    for name, value in facts:
        console.print(name + " " * (width - cell_len(name)), style="bold", end="  ", soft_wrap=True)
        lines = value.splitlines() if isinstance(value, str) else []
        shown = [cell_text(line) for line in lines] if len(lines) > 1 else [cell_text(value, null="-")]
        console.print(("\n" + " " * (width + 2)).join(shown), soft_wrap=True)
    for name, rows in fields:
        if _is_table(rows):
            console.print()
            console.print(name, style="bold")
            print_list(rows, False, "")


def _fields(item: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in item.items():
        if isinstance(value, Mapping) and value:
            yield from _fields(value, f"{path}{name}.")
        elif isinstance(value, list) and not _is_table(value):
            yield path + name, ", ".join(map(cell_text, value)) or None
        else:
            yield path + name, None if value == {} else value


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def show_refusal(refused: Refused) -> None:
    """Print why the service refused, and a caret under the place in the SQL when it is known."""
    console = stderr()
    console.print("Refused", style="bold red", end="", soft_wrap=True)
    lines = [cell_text(line) for line in refused.detail.splitlines()]
    console.print(f" ({refused.status} {cell_text(refused.title)}): " + "\n".join(lines), soft_wrap=True)
    if refused.position is not None:
        width = console.width if console.is_terminal else None
        for line in caret_lines(refused.sql or "", *refused.position, width):
            console.print(line, soft_wrap=True)
    if refused.retry_after is not None:
        console.print(f"Try again in {refused.retry_after:g} s.", soft_wrap=True)


def caret_lines(sql: str, line: int, column: int, width: int | None = None) -> list[str]:
    """Quote the line of `sql` that holds the place, with a caret under it.

    `line` and `column` count from one; the column after the last character is the end of the text. A
    terminal of `width` columns gets the stretch around the place, so that no line breaks. A place outside
    of the text is only named.
    """
    lines = sql.splitlines()
    place = f"{_INDENT}at line {line}, column {column}"
    if not (1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1):
        return [place]
    # one column per character keeps the caret right: a tab becomes a space
    text = "".join(character if character.isprintable() else " " for character in lines[line - 1])
    before, after = text[: column - 1], text[column - 1 :]
    if width is not None:
        room = max(20, width - len(_INDENT) - 1)
        before = _tail(before, max(room // 2, room - 1 - cell_len(after)))
        after = _head(after, room - cell_len(before))
    quote = [_INDENT + before + after, _INDENT + " " * cell_len(before) + "^"]
    return [place + ":", *quote] if len(lines) > 1 else quote


def _tail(text: str, room: int) -> str:
    if cell_len(text) <= room:
        return text
    while cell_len(text) > room - 1:
        text = text[1:]
    return "…" + text


def _head(text: str, room: int) -> str:
    if cell_len(text) <= room:
        return text
    while cell_len(text) > room - 1:
        text = text[:-1]
    return text + "…"
