"""`braid push`: rows of files and of standard input, to a stream."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from braid.api.cli.command import KEY, NAME, CliCommand, json_option, with_client
from braid.api.cli.output import note, print_json
from braid.api.cli.table import cell_text
from braid.client import MEDIA_TYPES, BraidError, Client, Unreachable

# a body this big is well below what a service accepts, and big enough to be fast
_CHUNK_BYTES = 1 << 20
_MAX_ERRORS_SHOWN = 20
_MAX_ERRORS_ALIKE = 3
_SUFFIXES = {".csv": "csv", ".json": "json", ".arrow": "arrow", ".ndjson": "ndjson", ".jsonl": "ndjson"}
_SUFFIXES |= {".feather": "arrow", ".parquet": "arrow"}

_PLACE = re.compile(r"^(line|element|row) \d+:? ")
"""What a detail begins with: the place in one piece, which the place in the whole input replaces."""


@dataclass
class Pushed:
    """What the service answered to all pieces so far."""

    stream: str
    as_json: bool
    accepted: int = 0
    rejected: int = 0
    late: int = 0
    ahead: int = 0
    repeated: int = 0
    pieces: int = 0
    shown: Counter[str] = field(default_factory=Counter)
    errors: list[Any] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    has_key: bool = False
    _lacking: list[str] | None = None  # what one piece of a file lacks, another may have
    _names_are_shown: bool = False

    def end_file(self) -> None:
        """Take note of the columns that no piece of a file had."""
        self.missing += (name for name in self._lacking or [] if name not in self.missing)
        self._lacking = None

    def add(self, answer: dict[str, Any], form: str, file: str | None) -> None:
        """Count an answer to a piece; show its errors."""
        self.pieces += 1
        self.accepted += int(answer.get("accepted", 0))
        self.rejected += int(answer.get("rejected", 0))
        self.late += int(answer.get("late", 0))
        self.ahead += int(answer.get("ahead", 0))
        self.repeated += int(answer.get("repeated", 0))
        missing = answer.get("missing") or []
        self._lacking = missing if self._lacking is None else [name for name in self._lacking if name in missing]
        self.unknown += (name for name in answer.get("unknown") or [] if name not in self.unknown)
        if missing and self.rejected and not (self.accepted or self.as_json or self._names_are_shown):
            self._show_names(missing)  # why all of the rows are rejected
        for error in answer.get("errors") or []:
            if self.as_json:
                self.errors.append(error if file is None else {"file": file, **error})
                continue
            detail = _PLACE.sub("", cell_text(error.get("detail")))
            if self.shown[detail] < _MAX_ERRORS_ALIKE and self.shown.total() < _MAX_ERRORS_SHOWN:
                self.shown[detail] += 1
                place = "row" if form == "csv" else "line"  # rows are counted without the line of names
                named = "" if file is None else f"{file}: "
                click.echo(f"{named}{place} {error.get('line')}: {detail}", err=True)

    def show(self) -> None:
        """Print the totals."""
        stream = self.stream
        if self.as_json:
            totals = {"accepted": self.accepted, "rejected": self.rejected, "errors": self.errors}
            optional = {
                "missing": self.missing,
                "unknown": self.unknown,
                "late": self.late,
                "ahead": self.ahead,
                "repeated": self.repeated,
            }
            print_json([totals | {name: value for name, value in optional.items() if value}])
            return
        if hidden := self.rejected - self.shown.total():
            note(f"… and {hidden} more; `braid streams {self.stream} --dead-letters` lists what was rejected.")
        click.echo(f"accepted {self.accepted}, rejected {self.rejected}")
        if self.repeated:
            which = "They" if self.repeated == self.accepted else f"{self.repeated} of the accepted rows"
            note(f"{which} had come with this --key before, and count once.")
        if self.late:
            click.echo(
                f"{self.late} of the accepted rows {'is' if self.late == 1 else 'are'} late, below the watermark of"
                f" {stream}: queries that run do not see them; a query that starts at 'earliest' may."
                f" `braid streams {stream} --dead-letters` lists them."
                + ("" if self.has_key or self.late < self.accepted else " To push a file at most once, give --key."),
                err=True,
            )
        if self.ahead:
            click.echo(
                f"{self.ahead} of the accepted rows {'is' if self.ahead == 1 else 'are'} further ahead of now than"
                f" {stream} allows (option max_future): queries do not see them."
                f" `braid streams {stream} --dead-letters` lists them.",
                err=True,
            )
        if not self._names_are_shown:
            self._show_names(self.missing)

    def _show_names(self, missing: Sequence[str]) -> None:
        """Print which columns the rows lack, and which names of theirs are no columns."""
        self._names_are_shown = True
        others = ", ".join(map(cell_text, self.unknown))
        if missing:
            names = ", ".join(map(cell_text, missing))
            besides = f". Names in the rows that are no columns: {others}" if others else ""
            click.echo(f"Columns of {self.stream} that the rows lack, and are NULL: {names}{besides}", err=True)
        elif others:
            click.echo(f"Some rows have names that are no columns of {self.stream}: {others}", err=True)


@click.command(
    short_help="Push rows to a stream.",
    cls=CliCommand,
    examples=(
        "braid push purchases purchases.ndjson",
        "tail -f purchases.ndjson | braid push purchases",
        "braid push flights flights/*.csv --end",
        "braid push purchases purchases.ndjson --key purchases-monday   # safe to repeat",
    ),
)
@click.argument("stream", type=NAME)
@click.argument("files", type=click.Path(exists=True, dir_okay=False, allow_dash=True), nargs=-1, metavar="[FILE]…")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(MEDIA_TYPES)),
    help="Without it, as FILE ends (.csv, .json, .arrow, .parquet), else ndjson. It and csv are sent as they come.",
)
@click.option("--end", is_flag=True, help="Nothing comes after these: windows are final, and queries finish.")
@click.option("--key", type=KEY, help="Idempotency key: the same push with the same key counts once.")
@json_option
@with_client
def push(
    braid: Client, stream: str, files: tuple[str, ...], form: str | None, end: bool, key: str | None, as_json: bool
) -> None:
    """Push the rows of each FILE, one after the other (default: - for standard input), to STREAM.

    Rows that do not fit the stream are counted as rejected and kept as dead letters; the others are
    accepted. Accepted rows that are late become dead letters, too. Where all rows are rejected the command
    fails. A line of names tells the delimiter of CSV. --end alone, typed in a terminal, pushes nothing.
    """
    pushed = Pushed(stream, as_json, has_key=key is not None)
    is_only_the_end = end and not files and sys.stdin.isatty()
    for name in files or (() if is_only_the_end else ("-",)):
        named_form = form or _SUFFIXES.get(Path(name).suffix.lower())
        file_form = named_form or "ndjson"
        if name == "-" and sys.stdin.isatty():
            note(f"Type rows as {file_form}; Ctrl-D on a line of its own ends them.")
        with click.open_file(name, "rb") as file:
            pieces = _pieces(file, file_form, steady=key is not None)
            if named_form is None:
                pieces = _checked(pieces, name)
            _push_pieces(braid, pieces, file_form, key, pushed, name if len(files) > 1 else None)
            pushed.end_file()
    if pushed.pieces == 0:
        braid.stream(stream)  # nothing to push, but a stream that is not there is still an error
    if end:
        braid.end_stream(stream)
    if as_json or not is_only_the_end:
        pushed.show()
    if end and not as_json:
        note(f"Stream {stream} has ended: its last windows close, and it takes no more rows.")
    if pushed.rejected and not pushed.accepted:
        raise click.exceptions.Exit(1)


def _checked(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the pieces of what nobody said the format of; refuse it before anything is pushed if it is no JSON."""
    for number, piece in enumerate(pieces):
        if number == 0 and piece.strip() and not piece.lstrip().startswith(b"{"):
            raise click.UsageError(
                f"{'standard input' if name == '-' else name} must be JSON, an object a line; it begins with"
                f" {piece.strip()[:40].decode(errors='replace')!r}. Say what it is: --format csv, …"
            )
        yield piece


def _push_pieces(
    braid: Client, pieces: Iterator[bytes], form: str, key: str | None, pushed: Pushed, shown_name: str | None
) -> None:
    """Push a file piece by piece; where one cannot be pushed, say first how far it got."""
    before = 0
    try:
        for piece in pieces:
            piece_key = None if key is None else f"{key}-{pushed.pieces}"
            answer = braid.push(pushed.stream, piece, form, key=piece_key, first=before + 1)
            pushed.add(answer, form, shown_name)
            before += piece.count(b"\n") if form == "ndjson" else answer["accepted"] + answer["rejected"]
    except (BraidError, KeyboardInterrupt) as problem:
        if isinstance(problem, KeyboardInterrupt | Unreachable) and key is None:
            note("What was on its way may be there, too. A push with --key can be repeated from its beginning.")
        if pushed.accepted or pushed.rejected:
            place = f"{'line' if form == 'ndjson' else 'row'} {before}"
            place += "" if shown_name is None else f" of {shown_name}"
            click.echo(f"Up to {place}: accepted {pushed.accepted}, rejected {pushed.rejected}. Then:", err=True)
        raise


def _pieces(file: IO[bytes], form: str, steady: bool) -> Iterator[bytes]:
    if form == "ndjson":
        return ndjson_pieces(file, steady)
    if form == "csv":
        return csv_pieces(file, steady)
    if form == "arrow":
        from braid.api.cli.arrow_files import arrow_pieces  # what it needs takes as long to import as all else

        return arrow_pieces(file.read())
    return iter([file.read()])


def _reader(file: IO[bytes], steady: bool) -> Callable[[int], bytes]:
    """Return how a file is read: a pipe gives what it has at once, so rows are sent as they come.

    `steady` waits for full pieces instead, so that the same input is always cut alike, which an idempotency key needs.
    """
    return file.read if steady else getattr(file, "read1", file.read)


def ndjson_pieces(file: IO[bytes], steady: bool) -> Iterator[bytes]:
    """Cut a stream of lines into pieces of whole lines."""
    read, rest = _reader(file, steady), b""
    while chunk := read(_CHUNK_BYTES):
        whole_lines, newline, chunk_rest = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            continue
        yield rest + whole_lines + newline
        rest = chunk_rest
    if rest.strip():
        yield rest


def csv_pieces(file: IO[bytes], steady: bool) -> Iterator[bytes]:
    """Cut CSV into pieces of whole rows, each below the line of names; one piece at least.

    A row ends at a newline outside of double quotes.
    """
    read = _reader(file, steady)
    names = rest = b""
    is_first = True
    while chunk := read(_CHUNK_BYTES):
        rest = rest + chunk if names else (rest + chunk).lstrip(b"\r\n")
        if not names and _end_of_rows(rest):
            names = _first_row(rest)
            rest = rest[len(names) :]
        if names and (end := _end_of_rows(rest)):
            yield names + rest[:end]
            rest, is_first = rest[end:], False
    if rest or is_first:
        yield names + rest


def _end_of_rows(text: bytes) -> int:
    """Return where the last whole row ends."""
    end, quotes = len(text), text.count(b'"')
    while (newline := text.rfind(b"\n", 0, end)) >= 0:
        quotes -= text.count(b'"', newline, end)
        if quotes % 2 == 0:
            return newline + 1
        end = newline
    return 0


def _first_row(text: bytes) -> bytes:
    end = text.index(b"\n") + 1
    while text.count(b'"', 0, end) % 2:
        end = text.index(b"\n", end) + 1
    return text[:end]
