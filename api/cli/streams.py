"""`braid streams`, `braid tables`, `braid refresh`: the relations that queries read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from braid.api.cli.command import NAME, CliCommand, json_option, wait_option, with_client
from braid.api.cli.output import RowWriter, print_fields, print_json, print_list
from braid.client import Client

NO_STREAM, NO_TABLE = "no stream is declared yet", "no table is declared yet"
_PAGE_LETTERS = 1000


@click.command(
    short_help="List the streams, or show one.",
    cls=CliCommand,
    examples=(
        "braid streams",
        "braid streams purchases",
        "braid streams purchases --dead-letters",
        "braid streams --json",
    ),
)
@click.argument("name", type=NAME, required=False)
@click.option("--dead-letters", is_flag=True, help="Print the late and malformed rows of NAME, the oldest first.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N dead letters.")
@json_option
@with_client
def streams(braid: Client, name: str | None, dead_letters: bool, limit: int | None, as_json: bool) -> None:
    """List the streams, or show the stream NAME with its columns, clock, watermark and counts.

    Late and malformed rows are dead letters: queries that run do not see them, and each says why. A reason such as
    `late, q-7` is from reading the past for q-7.
    """
    if limit is not None and not dead_letters:
        raise click.UsageError("--limit counts dead letters: give --dead-letters, too, or leave it out.")
    if dead_letters:
        if name is None:
            raise click.UsageError("--dead-letters are those of one stream: name it.")
        _print_dead_letters(braid, name, limit, as_json)
        return
    if name is None:
        declared = braid.streams()
        shown = declared if as_json else [stream_summary(item) for item in declared]
        print_list(shown, as_json, NO_STREAM)
        return
    stream = braid.stream(name)
    print_fields(stream if as_json else stream | ending(stream), as_json)


@click.command(
    short_help="List the static tables, or show one.",
    cls=CliCommand,
    examples=("braid tables", "braid tables packs", "braid tables --json"),
)
@click.argument("name", type=NAME, required=False)
@json_option
@with_client
def tables(braid: Client, name: str | None, as_json: bool) -> None:
    """List the static tables that queries can join with, or show the table NAME."""
    if name is not None:
        print_fields(braid.table(name), as_json)
        return
    declared = braid.tables()
    print_list(declared if as_json else [table_summary(table) for table in declared], as_json, NO_TABLE)


@click.command(
    short_help="Read the file of a static table anew.",
    cls=CliCommand,
    examples=("braid refresh packs", "braid refresh packs --wait 60"),
)
@click.argument("table", type=NAME)
@wait_option("How long to wait until queries have the rows.")
@json_option
@with_client
def refresh(braid: Client, table: str, wait: float, as_json: bool) -> None:
    """Give the rows that the file of the static TABLE has now to all queries that use it.

    Rows that come from then on are joined with them; what was joined before stays.
    """
    answer = braid.refresh_table(table, wait)
    if as_json:
        print_json([answer])
    else:
        progress = "waits for the next batch" if answer["refreshing"] else "is refreshed"
        click.echo(f"table {answer['name']} {progress}; {answer['queries']} queries use it")


def _print_dead_letters(braid: Client, stream: str, limit: int | None, as_json: bool) -> None:
    """Print the dead letters of a stream, `limit` at most, and where files of some are gone, that."""
    writer = RowWriter(as_json)
    cursor, readers = None, dict[int, Any]()
    while limit is None or limit > 0:
        page = braid.dead_letters(stream, cursor, _PAGE_LETTERS if limit is None else min(limit, _PAGE_LETTERS))
        letters = page["rows"]
        writer.write(letters if as_json else [_readable_letter(letter) for letter in _unlike(letters, readers)])
        if gap := page.get("gap"):
            click.echo(str(gap.get("detail")), err=True)
        elif not letters:
            break
        cursor = page["cursor"]
        limit = None if limit is None else limit - len(letters)
    if cursor is None and not as_json:
        click.echo(f"no row of {stream} was late or malformed", err=True)


def _unlike(letters: Iterable[Mapping[str, Any]], readers: dict[int, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield letters without those that reading the past repeats: the same input is malformed each time.

    ``readers`` takes for whom each was malformed first.
    """
    for letter in letters:
        key = hash((letter["received_at"], str(letter.get("tuple")), letter.get("raw")))
        if letter["reason"] != "malformed" or readers.setdefault(key, letter.get("query")) == letter.get("query"):
            yield letter


def _readable_letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter with its row last, which a narrow terminal shortens."""
    row = letter["tuple"] if letter.get("raw") is None else letter["raw"]
    reason = f"{letter['reason']}, {letter['query']}" if letter.get("query") else letter["reason"]
    return {"received_at": letter["received_at"], "reason": reason, "detail": letter["detail"], "row": row}


def stream_summary(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list of streams shows; one stream alone shows all."""
    source = stream.get("source")
    connector = source.get("connector") if isinstance(source, Mapping) else source
    listed_fields = ("clock", "watermark", "tuples", "late", "malformed", "queries")
    shown = {field: stream[field] for field in listed_fields if field in stream}
    return {"name": stream.get("name"), "connector": connector, **shown, **ending(stream)}


def ending(stream: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands for the watermark of a stream that has ended, which is the end of the year 9999."""
    return {"watermark": "ended"} if stream.get("ended") else {}


def table_summary(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list of tables shows, the columns last, where a narrow terminal shortens them."""
    shown = {field: table[field] for field in ("name", "queries", "refreshed_at") if field in table}
    columns = ", ".join(f"{column['name']} {column['type']}" for column in table.get("columns", ()))
    return {**shown, "columns": columns}
