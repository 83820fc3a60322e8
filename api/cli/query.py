"""`braid query` and `braid results`: rows, live and kept.

`braid query` owns the query it registered: however the command ends (Ctrl-C, SIGTERM, a closed terminal, `--limit`,
a closed pipe, an error), it retires the query or says that it could not.
"""

from __future__ import annotations

import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import click

from braid.api.cli.catching_up import catching_up
from braid.api.cli.command import LABEL, NAME, SQL, CliCommand, json_option, sink_value, wait_option, with_client
from braid.api.cli.output import RowWriter, print_json
from braid.client import BraidError, Client, QueryFailed, ResultPage

_RETIRE_SECONDS = 10.0
_FIRST_ROW_SECONDS = 5.0
_PAGE_ROWS = 1000
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
@click.option("--start", metavar="START", help="now, earliest, a time, or an interval before now such as '-1 hour'.")
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

    # under one key, asking again gives the query that was registered, not a second one
    key = str(uuid.uuid4())

    def register(client: Client) -> dict[str, Any]:
        return client.create_query(sql, wait=wait, key=key, **fields)

    if detach:
        _announce(register(braid), as_json, detach=True)
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
        _note(f"no row: {waiting_for['detail']}")
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
            _leave_interrupted_line()
        finally:
            if cursor is not None:
                _note(f"cursor: {cursor}" + ("  (the end)" if end else ""))


@dataclass
class Interrupt:
    """The signal that came, if any did."""

    number: int | None = None

    @property
    def ends_shell(self) -> bool:
        """Say whether the command must end, not only the query it follows."""
        return self.number is not None and self.number != signal.SIGINT


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Make SIGINT, SIGTERM and SIGHUP a KeyboardInterrupt.

    SIGINT is one also where a shell started the command in the background. SIGHUP stays ignored below `nohup`.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        interrupt.number = number
        _ignore_interrupts()
        raise KeyboardInterrupt

    numbers = [number for number in _SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    previous_handlers = {number: signal.signal(number, raise_interrupt) for number in numbers}
    try:
        yield interrupt
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _ignore_interrupts() -> None:
    """Let a second Ctrl-C not keep the command from retiring its query, which takes a bounded time."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


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
    braid: Client, register: Callable[[Client], dict[str, Any]], limit: int | None, as_json: bool
) -> None:
    """Register a query, print its rows until it ends or an interrupt comes, and retire it."""
    registered: dict[str, Any] | None = None
    cursor, is_over = None, False
    try:
        registered = register(braid)
        _announce(registered, as_json, detach=False)
        writer = RowWriter(as_json)
        query_id = str(registered["id"])
        with catching_up(braid, registered):
            hint = _NoRowHint()
            for page in braid.follow_pages(query_id, wait=_FIRST_ROW_SECONDS, max_rows=limit, on_empty=hint.tell):
                hint.is_due = False
                _note_gap(page)
                writer.write(page.rows)
                cursor, is_over = page.cursor, page.end
        if is_over:
            ended = braid.get_query(query_id)
            _note(f"query {query_id} is {ended.get('state', 'RETIRED')}")
            if ended.get("waiting_for"):
                _note(f"no row: {ended['waiting_for']['detail']}")
            elif ended.get("state") == "FINISHED":
                _note_set_aside(braid, ended)
    except KeyboardInterrupt:
        _leave_interrupted_line()
        if registered is None:
            registered = _register_again(braid, register)
    except QueryFailed:
        is_over = True  # a failed query holds nothing that could be retired, and its error stays readable
        raise
    finally:
        _ignore_interrupts()
        if registered is not None and not is_over:
            _retire(braid, registered, cursor)


@contextmanager
def retired_at_the_end(braid: Client, register: Callable[[Client], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Register a query, give it to the block, and retire it however the block ends; an interrupt ends the block."""
    registered: dict[str, Any] | None = None
    try:
        registered = register(braid)
        _announce(registered, as_json=False, detach=False)
        yield registered
    except KeyboardInterrupt:
        _leave_interrupted_line()
        if registered is None:
            registered = _register_again(braid, register)
            raise
    except QueryFailed:
        registered = None  # it holds nothing that could be retired, and its error stays readable
        raise
    finally:
        _ignore_interrupts()
        if registered is not None:
            _retire(braid, registered, None)


class _NoRowHint:
    """Tells once why a query has given no row yet; not after its first row."""

    def __init__(self) -> None:
        self.is_due = True

    def tell(self, query: Mapping[str, Any]) -> None:
        """Take the query as it is after a wait without rows."""
        waiting_for = query.get("waiting_for")
        if self.is_due and waiting_for is not None:
            self.is_due = False
            _note(f"no row yet: {waiting_for['detail']}")


def _retire(braid: Client, registered: dict[str, Any], cursor: str | None) -> None:
    """Delete the query; a sink still gets the windows that are complete, nobody else would read them."""
    query_id = str(registered["id"])
    try:
        # an interrupt may have left the connections of `braid` in the middle of an answer
        with Client(braid.url, timeout=_RETIRE_SECONDS, api_key=braid.api_key) as client:
            client.delete_query(query_id, drain=registered.get("sink") is not None)
    except BraidError as error:
        after_option = "" if cursor is None else f" --after {cursor}"
        click.echo(
            f"Query {query_id} could not be retired ({error}): it goes on. Retire it with "
            f"`braid drop {query_id}`, or read on with `braid results {query_id} --follow{after_option}`.",
            err=True,
        )
        return
    _note(f"retired query {query_id}")


def _register_again(braid: Client, register: Callable[[Client], dict[str, Any]]) -> dict[str, Any] | None:
    """Send the request again, under the same key, to learn which query it registered."""
    try:
        with Client(braid.url, timeout=_RETIRE_SECONDS, api_key=braid.api_key) as client:
            return register(client)
    except BraidError as error:
        click.echo(
            f"Interrupted before the service answered ({error}): `braid queries` shows whether it is there.",
            err=True,
        )
        return None


def _leave_interrupted_line() -> None:
    # the terminal has written ^C into the current line
    if sys.stdout.isatty():
        click.echo()


def _announce(registered: dict[str, Any], as_json: bool, detach: bool) -> None:
    query_id, state = registered["id"], registered.get("state")
    if state == "FAILED":
        raise QueryFailed(f"query {query_id} is FAILED: {registered.get('error')}")
    if detach and as_json:
        print_json([registered])
        return
    name = f" ({registered['name']})" if registered.get("name") else ""
    latency = registered.get("deployment_latency_seconds")
    deployed = "" if latency is None else f", deployed in {float(latency):.2f} s"
    ending = "" if detach else "; Ctrl-C retires it"
    click.echo(f"query {query_id}{name} is {state}{deployed}{ending}", err=not detach)


def _note_set_aside(braid: Client, query: dict[str, Any]) -> None:
    """Tell how many rows of a query's streams were late or malformed, which no query counts."""
    for name in query.get("active_from") or {}:
        stream = braid.stream(name)
        if stream.get("late"):
            click.echo(
                f"{stream['late']} rows of stream {name} were late, and no query sees them: they came more than its"
                f" LATENESS ({stream['lateness_seconds']:g} s) after later ones. `braid infer` says which one fits;"
                f" `braid streams {name} --dead-letters` lists them.",
                err=True,
            )
        if count := stream.get("malformed"):
            _note(f"{count} rows of stream {name} were malformed. `braid streams {name} --dead-letters` lists them.")


def _note_gap(page: ResultPage) -> None:
    if page.gap is not None:
        _note(str(page.gap.get("detail")))


def _note(sentence: str) -> None:
    """Tell a person on standard error: standard output holds rows only."""
    click.echo(sentence, err=True)
