"""`braid infer`: the CREATE STREAM statement that reads a file, a folder or a topic."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click

from braid.api.cli.command import LABEL, CliCommand, json_option, with_client
from braid.api.cli.output import note, print_json
from braid.client import Client

_SAMPLE_BYTES = 4 << 20
_SMALL_BYTES = 16 << 20
_ROWS = 20_000
_PARQUET = b"PAR1"


@click.command(
    short_help="Print the CREATE STREAM that fits a file, folder or topic.",
    cls=CliCommand,
    examples=(
        "braid infer flights.csv",
        "braid infer flights.csv | braid sql -",
        "zcat flights.csv.gz | braid infer - --name flights",
        "braid infer events/ --name purchases",
        "braid infer purchases --brokers localhost:9092",
    ),
)
@click.argument("source", metavar="FILE|FOLDER|TOPIC|-")
@click.option("--name", help="Name of the stream; without it, after the file, folder or topic.")
@click.option("--brokers", metavar="HOST:PORT,…", help="The Kafka brokers of TOPIC.")
@click.option(
    "--option",
    "options",
    type=LABEL,
    multiple=True,
    help="An option of the connector, such as delimiter=';'; repeatable.",
)
@json_option
@with_client
def infer(
    braid: Client,
    source: str,
    name: str | None,
    brokers: str | None,
    options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Print a CREATE STREAM statement that works on what is in a FILE, FOLDER or TOPIC; nothing is declared.

    The first rows of a FILE of this machine, or of what is piped in for "-", are sent to the service; its rows can be
    pushed to the stream. A FOLDER is read where the service runs, and so is a TOPIC, by the stream as well. Comments
    say what was guessed, and why; pipe the statement into `braid sql -` to declare the stream.
    """
    given = dict(options)
    path = Path(source)
    if brokers is not None:
        answer = braid.infer_from("kafka", {"topic": source, "properties.bootstrap.servers": brokers, **given}, name)
    elif source == "-" or path.is_file():
        if given:
            raise click.UsageError("--option is for folders and topics: leave it out with a file.")
        sample = _piped_sample() if source == "-" else _sample_of(path)
        answer = braid.infer(sample, name=name, file="" if source == "-" else path.name)
    elif path.is_dir() or "://" in source:
        place = str(path.resolve()) if path.is_dir() else source
        answer = braid.infer_from("file", {"path": place, **given}, name)
    else:
        raise click.UsageError(f"there is no file or folder {source!r}; if it is a topic, name its --brokers.")
    _print(answer, as_json)


def _print(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json([answer])
    else:
        click.echo(answer["sql"])
        for column in answer.get("columns") or []:
            if column.get("type") == "TIMESTAMP" and column.get("comment"):  # a pipe takes those of the statement along
                note(
                    f"Column {column['name']!r}: {column['comment']}. To read its times in another way, save the"
                    " statement, change it, and send it with `braid sql -`."
                )


def _piped_sample() -> bytes:
    with click.open_file("-", "rb") as piped:
        head: bytes = piped.read(_SAMPLE_BYTES)
        return head + piped.read(_SMALL_BYTES) if head.startswith(_PARQUET) else head


def _sample_of(path: Path) -> bytes:
    """Return the first rows of a file; of large Parquet, whose columns are described at its end, as a small file."""
    with path.open("rb") as file:
        head = file.read(_SAMPLE_BYTES)
        if not head.startswith(_PARQUET):
            return head
        size = path.stat().st_size
        return head + file.read() if size <= _SMALL_BYTES else _first_rows(path)


def _first_rows(path: Path) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(path)
        batch = next(parquet.iter_batches(_ROWS), None)
    except pa.ArrowException as problem:
        raise click.ClickException(f"{path} must be Parquet: {problem}") from None
    small = io.BytesIO()
    pq.write_table(pa.Table.from_batches([] if batch is None else [batch], parquet.schema_arrow), small)
    return small.getvalue()
