"""`braid watch`: the newest rows of a query as one table, updated in place.

In a terminal the table is redrawn where it stands. Elsewhere it is printed anew each time that it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from braid.api.cli.command import SQL, CliCommand, with_client
from braid.api.cli.output import note, stdout
from braid.api.cli.owned_query import interruptible, leave_interrupted_line, owned_query, registration
from braid.api.cli.statements import is_query
from braid.api.cli.table import ColumnDigits, StreamTable, cell_text
from braid.client import Client

Row = Mapping[str, Any]

_WINDOW = "window_end"
_OF_CHANGES = ("_op", "_ptime", "_ver")
_REDRAWS_PER_SECOND = 8
_MAX_ROWS = 1000
# the title, three lines of the table's head and one of its foot, the caption, and the line of the cursor
_LINES_AROUND = 7
_MIN_WIDTH = 12


class Newest:
    """The rows to show: all of the newest window where rows have a `window_end`, else the last ones.

    Of changes (EMIT STREAM), the rows that hold after them.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Take some more rows, in the order in which they came."""
        for row in rows:
            if self.rows and _WINDOW in row:
                shown, got = str(self.rows[0].get(_WINDOW)), str(row[_WINDOW])
                if got < shown:
                    continue
                if got > shown:
                    self.rows = []
            self._change(row)
        del self.rows[:-_MAX_ROWS]

    def _change(self, row: Row) -> None:
        if "_op" not in row:
            self.rows.append(row)
            return
        held = {name: value for name, value in row.items() if name not in _OF_CHANGES}
        if row["_op"] == "insert":
            self.rows.append(held)
        elif held in self.rows:
            self.rows.remove(held)


def drawn(rows: Sequence[Row], title: str, height: int) -> Table:
    """Draw as many of the newest rows as fit into `height` lines."""
    shown = rows[-max(1, height - _LINES_AROUND) :]
    left_out = len(rows) - len(shown)
    table = Table(title=title, title_justify="left", caption=f"{left_out} more rows" if left_out else None)
    names = list(dict.fromkeys(name for row in shown for name in row))
    for name in names:
        number = any(isinstance(row.get(name), int | float | ColumnDigits) for row in shown)
        width = min(_MIN_WIDTH, max(len(cell_text(text)) for text in (name, *(row.get(name) for row in shown))))
        table.add_column(
            cell_text(name),
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=width,
        )
    for row in shown:
        table.add_row(*(cell_text(row.get(name)) for name in names))
    return table


@click.command(
    short_help="Show the newest rows of a query, live.",
    cls=CliCommand,
    examples=(
        "braid watch revenue",
        'braid watch "SELECT gem_pack, SUM(price) AS revenue, window_end\n'
        ' FROM purchases [RANGE 8 SECONDS] GROUP BY gem_pack"',
    ),
)
@click.argument("name_or_sql", type=SQL)
@with_client
def watch(braid: Client, name_or_sql: str) -> None:
    """Show the newest rows of a query, given by its id or name or as SQL, in a table that is updated in place.

    Rows with a window_end: those of the newest window. Others: the last ones that fit. Of EMIT STREAM: the rows that
    hold. Ctrl-C ends it, and retires a query that was given as SQL. Without a terminal the table is printed each time
    that it changes.
    """
    with interruptible():
        watch_query(braid, name_or_sql)


def watch_query(braid: Client, name_or_sql: str) -> None:
    """Show a query until it ends or an interrupt comes."""
    if is_query(name_or_sql):
        with suppress(KeyboardInterrupt), owned_query(braid, registration(name_or_sql)) as owned:
            _show(braid, owned.registered)
        return
    try:
        _show(braid, braid.get_query(name_or_sql.strip()))
    except KeyboardInterrupt:
        leave_interrupted_line()


def _show(braid: Client, query: Mapping[str, Any]) -> None:
    query_id, newest = str(query["id"]), Newest()
    title = f"{query['name']} ({query_id})" if query.get("name") else query_id
    with _screen(title) as screen:
        for page in braid.follow_pages(query_id):
            newest.add(page.rows)
            if page.rows:
                screen(newest.rows)


@contextmanager
def _screen(title: str) -> Iterator[Any]:
    console = stdout()
    if not console.is_terminal:
        note(f"{title}: rows are printed as they come")
        yield lambda rows: StreamTable(console).add(rows)
        return
    with Live(console=console, refresh_per_second=_REDRAWS_PER_SECOND, vertical_overflow="crop") as live:
        live.update(f"{title}: no row yet")
        yield lambda rows: live.update(drawn(rows, title, console.height))
