"""`braid streams`, `braid tables`, `braid push`: what queries read from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import click

from braid.api.cli.command import KEY, NAME, CliCommand, json_option, wait_option, with_client
from braid.api.cli.output import RowWriter, print_fields, print_json, print_list
from braid.api.cli.table import cell_text
from braid.client import MEDIA_TYPES, BraidError, Client

# a body this big is well below what a service accepts, and big enough to be fast
_CHUNK_BYTES = 1 << 20
_ERRORS_SHOWN = 20
_SUFFIXES = {".csv": "csv", ".json": "json", ".arrow": "arrow"}

_PLACE = re.compile(r"^(line|element|row) \d+:? ")
"""What a detail begins with: the place in one piece, which the place in the whole input replaces."""


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
@json_option
@with_client
def streams(braid: Client, name: str | None, dead_letters: bool, as_json: bool) -> None:
    """List the streams, or show the stream NAME with its columns, clock, watermark and counts.

    Late and malformed rows are dead letters: queries that run do not see them, and each says why. A reason such as
    `late, q-7` is from reading the past for q-7.
    """
    if dead_letters:
        if name is None:
            raise click.UsageError("--dead-letters are those of one stream: name it.")
        _print_dead_letters(braid, name, as_json)
        return
    if name is None:
        declared = braid.streams()
        shown = declared if as_json else [stream_summary(item) for item in declared]
        print_list(shown, as_json, "no stream is declared yet")
        return
    stream = braid.stream(name)
    print_fields(stream if as_json else _readable([stream])[0], as_json)


@click.command(short_help="List the static tables.", cls=CliCommand, examples=("braid tables", "braid tables --json"))
@json_option
@with_client
def tables(braid: Client, as_json: bool) -> None:
    """List the static tables that queries can join with."""
    declared = braid.tables()
    print_list(declared if as_json else _readable(declared), as_json, "no table is declared yet")


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


@click.command(
    short_help="Push rows to a stream.",
    cls=CliCommand,
    examples=(
        "braid push purchases purchases.ndjson",
        "tail -f purchases.ndjson | braid push purchases",
        "braid push purchases purchases.csv",
        "braid push purchases purchases.ndjson --key purchases-monday   # safe to repeat",
    ),
)
@click.argument("stream", type=NAME)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(MEDIA_TYPES)),
    help="Without it, as FILE ends (.csv, .json, .arrow), else ndjson, which is sent as it comes.",
)
@click.option("--end", is_flag=True, help="Nothing comes after these: windows are final, and queries finish.")
@click.option("--key", type=KEY, help="Idempotency key: the same push with the same key counts once.")
@json_option
@with_client
def push(
    braid: Client, stream: str, file: BinaryIO, form: str | None, end: bool, key: str | None, as_json: bool
) -> None:
    """Push the rows in FILE (default: - for standard input) to STREAM.

    Rows that do not fit the stream are counted as rejected and kept as dead letters; the others are
    accepted. Accepted rows that are late become dead letters, too. Where all rows are rejected the command
    fails. A line of names tells the delimiter of CSV.
    """
    form = form or _SUFFIXES.get(Path(getattr(file, "name", "")).suffix.lower(), "ndjson")
    accepted = rejected = late = lines = error_count = 0
    is_json = form != "ndjson"
    errors: list[Any] = []
    missing: list[str] = []
    pieces = ndjson_pieces(file, steady=key is not None) if form == "ndjson" else iter([file.read()])
    number = -1
    try:
        for number, piece in enumerate(pieces):
            answer = braid.push(stream, piece, form, key=None if key is None else f"{key}-{number}")
            accepted += int(answer.get("accepted", 0))
            rejected += int(answer.get("rejected", 0))
            late += int(answer.get("late", 0))
            for error in answer.get("errors") or []:
                is_json = is_json or "must be JSON" not in str(error.get("detail"))
                if isinstance(error.get("line"), int):
                    # the service counts the lines of one piece
                    error = error | {"line": error["line"] + lines}
                if as_json:
                    errors.append(error)
                elif error_count < _ERRORS_SHOWN:
                    detail = _PLACE.sub("", cell_text(error.get("detail")))
                    place = "row" if form == "csv" else "line"  # rows are counted without the line of names
                    click.echo(f"{place} {error.get('line')}: {detail}", err=True)
                error_count += 1
            missing += answer.get("missing") or []
            lines += piece.count(b"\n")
        if number < 0:
            braid.stream(stream)  # nothing to push, but a stream that is not there is still an error
    except (BraidError, KeyboardInterrupt):
        if accepted or rejected:
            click.echo(f"Up to line {lines}: accepted {accepted}, rejected {rejected}. Then:", err=True)
        raise
    if end:
        braid.end_stream(stream)
    if as_json:
        answered = {"accepted": accepted, "rejected": rejected, "errors": errors}
        print_json([answered | ({"missing": missing} if missing else {}) | ({"late": late} if late else {})])
    else:
        if error_count > _ERRORS_SHOWN:
            click.echo(f"… and {error_count - _ERRORS_SHOWN} more", err=True)
        click.echo(f"accepted {accepted}, rejected {rejected}")
        if late:
            click.echo(
                f"{late} of the accepted rows {'is' if late == 1 else 'are'} late, below the watermark of {stream}:"
                f" queries that run do not see them. `braid streams {stream} --dead-letters` lists them.",
                err=True,
            )
        if missing:
            names = ", ".join(map(cell_text, missing))
            click.echo(f"{stream} has columns that are not in the first line, and are NULL: {names}", err=True)
    if rejected and not accepted:
        if not as_json and not is_json:
            click.echo("Are these no JSON objects, one a line? Then say what they are: --format csv, …", err=True)
        raise click.exceptions.Exit(1)


def _print_dead_letters(braid: Client, stream: str, as_json: bool) -> None:
    """Print all dead letters of a stream, and where files of some are gone, that."""
    writer = RowWriter(as_json)
    cursor = None
    while True:
        page = braid.dead_letters(stream, cursor)
        letters = page["rows"]
        writer.write(letters if as_json else [_readable_letter(letter) for letter in letters])
        if gap := page.get("gap"):
            click.echo(str(gap.get("detail")), err=True)
        elif not letters:
            break
        cursor = page["cursor"]
    if cursor is None and not as_json:
        click.echo(f"no row of {stream} was late or malformed", err=True)


def _readable_letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter with its row last, which a narrow terminal shortens."""
    row = letter["tuple"] if letter.get("raw") is None else letter["raw"]
    reason = f"{letter['reason']}, {letter['query']}" if letter.get("query") else letter["reason"]
    return {"received_at": letter["received_at"], "reason": reason, "detail": letter["detail"], "row": row}


def ndjson_pieces(file: BinaryIO, steady: bool) -> Iterator[bytes]:
    """Cut a stream of lines into pieces of whole lines.

    A pipe gives what it has at once, so rows are sent as they come; `steady` waits for full pieces
    instead, so that the same input is always cut alike, which an idempotency key needs.
    """
    read = file.read if steady else getattr(file, "read1", file.read)
    rest = b""
    while chunk := read(_CHUNK_BYTES):
        whole_lines, newline, chunk_rest = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            continue
        yield rest + whole_lines + newline
        rest = chunk_rest
    if rest.strip():
        yield rest


def stream_summary(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list of streams shows; one stream alone shows all."""
    source = stream.get("source")
    connector = source.get("connector") if isinstance(source, Mapping) else source
    listed_fields = ("clock", "watermark", "tuples", "late", "malformed", "queries")
    shown = {field: stream[field] for field in listed_fields if field in stream}
    return {"name": stream.get("name"), "connector": connector, **shown, **_ending(stream)}


def _ending(stream: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands for the watermark of a stream that has ended, which is the end of the year 9999."""
    return {"watermark": "ended"} if stream.get("ended") else {}


def _readable(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write columns as in SQL, and put them last, where a narrow terminal shortens them."""
    readable = []
    for item in items:
        fields = {name: value for name, value in item.items() if name != "columns"} | _ending(item)
        if "columns" in item:
            fields["columns"] = _columns(item["columns"])
        readable.append(fields)
    return readable


def _columns(columns: Any) -> Any:
    if isinstance(columns, Mapping):
        return ", ".join(f"{name} {kind}" for name, kind in columns.items())
    if isinstance(columns, list) and all(isinstance(column, Mapping) and "name" in column for column in columns):
        return ", ".join(f"{column['name']} {column.get('type', '')}".rstrip() for column in columns)
    return columns
