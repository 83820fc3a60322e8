"""`braid query` and `braid results`: rows, live and kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import click

from braid.api.cli.catching_up import catching_up
from braid.api.cli.command import LABEL, NAME, SQL, CliCommand, json_option, sink_value, wait_option, with_client
from braid.api.cli.output import RowWriter, note
from braid.api.cli.owned_query import announce, interruptible, leave_interrupted_line, owned_query, registration
from braid.client import Client, ResultPage

_QUIET_SECONDS = 10.0
_FIRST_ROW_SECONDS = 5.0
_PAGE_ROWS = 1000


@click.command(
    short_help="Register a query and follow its rows.",
    cls=CliCommand,
    examples=(
        'braid query "SELECT user_id, price FROM purchases WHERE price > 5"',
        "braid query --name revenue --label team=ads --detach \\\n"
        '"SELECT gem_pack, SUM(price) AS revenue\n'
        ' FROM purchases [RANGE 8 SECONDS SLIDE 4 SECONDS] GROUP BY gem_pack"',
        "braid query --json --limit 100 - < query.sql > rows.ndjson",
    ),
)
@click.argument("sql", type=SQL)
@click.option("--name", help="Name of the query.")
@click.option("--sink", metavar="SINK", help="Where its rows go besides `braid results`; { … } is read as JSON.")
@click.option("--ttl", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Retire it after that.")
@click.option("--label", "labels", type=LABEL, multiple=True, help="Label, such as team=ads; may be repeated.")
@click.option("--start", metavar="START", help="now, earliest, a time (UTC), or '-1 hour': before the stream's clock.")
@click.option("--detach", is_flag=True, help="Only register it; it goes on when this command has ended.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N rows.")
@wait_option("How long registering waits for the query to run.")
@json_option
@with_client
def query(
    braid: Client,
    sql: str,
    name: str | None,
    sink: str | None,
    ttl: float | None,
    labels: tuple[tuple[str, str], ...],
    start: str | None,
    detach: bool,
    limit: int | None,
    wait: float,
    as_json: bool,
) -> None:
    """Register SQL as a query and follow its rows (- reads the SQL from standard input).

    The query is retired when the command ends: with Ctrl-C, or after --limit rows. Over streams that end the
    command ends by itself, with all rows. With --detach it is only registered. Rows go to standard output, all
    else to standard error.
    """
    if detach and limit is not None:
        raise click.UsageError("--limit counts rows that are followed: leave it out with --detach.")
    fields: Any = {
        "name": name,
        "sink": sink_value(sink),
        "ttl_seconds": ttl,
        "labels": dict(labels) or None,
        "start": start,
    }

    register = registration(sql, wait, **fields)
    if detach:
        announce(register(braid), as_json, detach=True)
    else:
        with interruptible():
            follow_and_retire(braid, register, limit, as_json)


@click.command(
    short_help="Print the rows of a query.",
    cls=CliCommand,
    examples=(
        "braid results revenue",
        "braid results q-17 --follow --json > rows.ndjson",
        "braid results q-17 --after CURSOR --limit 100",
    ),
)
@click.argument("query_id", metavar="ID_OR_NAME", type=NAME)
@click.option("--after", metavar="CURSOR", help="Start after this cursor, which the last call printed.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N rows.")
@click.option("--follow", is_flag=True, help="Wait for more rows until the query is retired.")
@json_option
@with_client
def results(braid: Client, query_id: str, after: str | None, limit: int | None, follow: bool, as_json: bool) -> None:
    """Print the rows of the query ID_OR_NAME, and the cursor to go on after them."""
    described = braid.get_query(query_id)
    query_id = str(described["id"])  # cursors are of one query, and another may get the name
    waiting_for = described.get("waiting_for")
    if waiting_for is not None:
        note(f"no row: {waiting_for['detail']}")
    writer = RowWriter(as_json)
    cursor, end = after, False
    with interruptible():
        pages = (
            braid.follow_pages(query_id, after, max_rows=limit)
            if follow
            else _pages_so_far(braid, query_id, after, limit)
        )
        try:
            for page in pages:
                _note_gap(page)
                writer.write(page.rows)
                cursor, end = page.cursor, page.end
        except KeyboardInterrupt:
            leave_interrupted_line()
        finally:
            if cursor is not None:
                note(f"cursor: {cursor}" + ("  (the end)" if end else ""))
                open_window = described.get("open_window")
                if open_window is not None and sys.stdout.isatty() and not (follow or end):
                    note(f"no further row yet: {open_window['detail']}")


def _pages_so_far(braid: Client, query_id: str, after: str | None, max_rows: int | None) -> Iterator[ResultPage]:
    """Yield the pages there are now, without waiting for more."""
    rows_left = max_rows
    while rows_left is None or rows_left > 0:
        page = braid.results(query_id, after, _PAGE_ROWS if rows_left is None else min(_PAGE_ROWS, rows_left))
        yield page
        if page.end or not (page.rows or page.gap):
            return
        after = page.cursor
        rows_left = None if rows_left is None else rows_left - len(page.rows)


def follow_and_retire(
    braid: Client, register: Callable[[Client], dict[str, Any]], limit: int | None = None, as_json: bool = False
) -> None:
    """Register a query, print its rows until it ends or an interrupt comes, and retire it."""
    with suppress(KeyboardInterrupt), owned_query(braid, register, as_json) as owned:
        writer, hint = RowWriter(as_json), _NoRowHint()
        with catching_up(braid, owned.registered) as end_progress:
            for page in braid.follow_pages(owned.id, wait=_FIRST_ROW_SECONDS, max_rows=limit, on_empty=hint.tell):
                hint.note_rows()
                if sys.stdout.isatty():
                    end_progress()
                _note_gap(page)
                writer.write(page.rows)
                owned.cursor, owned.is_over = page.cursor, page.end
        if owned.is_over:
            ended = braid.get_query(owned.id)
            note(f"query {owned.id} is {ended.get('state', 'RETIRED')}")
            if ended.get("waiting_for"):
                note(f"no row: {ended['waiting_for']['detail']}")
            elif ended.get("state") == "FINISHED":
                _note_set_aside(braid, ended)


class _NoRowHint:
    """Tells once why a query has given no row yet and, in a terminal, once why it gives no further one."""

    def __init__(self) -> None:
        self._is_due = self._is_further_due = True
        self._rows_at: float | None = None

    def note_rows(self) -> None:
        """Take note that rows have come."""
        self._is_due, self._rows_at = False, time.monotonic()

    def tell(self, query: Mapping[str, Any]) -> None:
        """Take the query as it is after a wait without rows."""
        if query.get("state") == "CATCHING_UP" and sys.stderr.isatty():
            return  # a progress bar tells it
        waiting_for, open_window = query.get("waiting_for"), query.get("open_window")
        if self._is_due and waiting_for is not None:
            self._is_due = False
            note(f"no row yet: {waiting_for['detail']}")
        elif self._is_further_due and open_window is not None and self._is_quiet() and sys.stderr.isatty():
            self._is_further_due = False
            note(f"no further row yet: {open_window['detail']}")

    def _is_quiet(self) -> bool:
        return self._rows_at is not None and time.monotonic() - self._rows_at >= _QUIET_SECONDS


def _note_set_aside(braid: Client, query: dict[str, Any]) -> None:
    """Tell how many rows of a query's streams were late or malformed."""
    streams = {str(stream["name"]): stream for stream in braid.streams()}
    for name in query.get("active_from") or {}:
        stream = streams.get(name, {})  # none where the query reads another
        if count := stream.get("late"):
            click.echo(
                f"{_were(count)} late in stream {name}: {'it' if count == 1 else 'they'} came more than its LATENESS"
                f" ({stream['lateness_seconds']:g} s) after later ones, as rows do that are pushed twice."
                " Queries that ran then did not see them; one that starts at 'earliest' may."
                f" `braid streams {name} --dead-letters` lists them.",
                err=True,
            )
        if count := stream.get("malformed"):
            note(f"{_were(count)} malformed in stream {name}. `braid streams {name} --dead-letters` lists them.")


def _were(rows: int) -> str:
    return "1 row was" if rows == 1 else f"{rows} rows were"


def _note_gap(page: ResultPage) -> None:
    if page.gap is not None:
        note(str(page.gap.get("detail")))
