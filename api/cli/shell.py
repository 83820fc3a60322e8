"""`braid shell`: statements typed in a terminal, or read from a pipe."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from braid.api.cli.command import CliCommand, show_error, with_client
from braid.api.cli.output import print_fields, print_list
from braid.api.cli.owned_query import interruptible, registration
from braid.api.cli.queries import present, query_summaries
from braid.api.cli.query import follow_and_retire
from braid.api.cli.sql import print_outcome
from braid.api.cli.statements import is_query, open_part, split, words
from braid.api.cli.streams import ending, stream_summary, table_summary
from braid.api.cli.table import ColumnDigits
from braid.api.cli.watch import watch_query
from braid.client import BraidError, Client, QueryFailed, Refused, Unreachable
from braid.session.sql.parsing.tokenizer import RESERVED

_WORDS = sorted(RESERVED | {"STREAM", "STREAMS", "TABLE", "TABLES", "QUERY", "QUERIES", "SHOW", "DESCRIBE", "RANGE"})
_TIMEOUT_SECONDS = 30.0
_HELP = r"""A statement ends with a semicolon and may take several lines. SELECT follows its rows until Ctrl-C.

\d              list streams, tables and queries (SHOW QUERIES: retired ones, too)
\d NAME         describe one of them
\watch NAME     show the newest rows of a query, live
braid …         any command of the command line, as in braid push purchases rows.csv
\?              print this
\q              leave (also Ctrl-D)"""


_OPEN_PARTS = {"'": "text", '"': "name", "*/": "comment"}
_PLAIN_WORDS = {"help": "\\?", "exit": "\\q", "quit": "\\q"}
"""What newcomers type alone on a line, as the command that it means."""


class Quit(Exception):
    """The user leaves the shell."""


def run(braid: Client, statement: str) -> None:
    """Run a statement, a backslash command, or one of the command line; raise the client's errors, and Quit."""
    if _is_command_line(statement):
        _run_command_line(braid, statement)
        return
    # over connections of its own: an interrupt may leave them in the middle of an answer
    with Client(braid.url, timeout=_TIMEOUT_SECONDS, api_key=braid.api_key, parse_float=ColumnDigits) as own:
        _Statements(own).run(statement)


def _run_command_line(braid: Client, line: str) -> None:
    """Run what messages advise as `braid …`, against the service of the shell."""
    try:
        words = shlex.split(line)[1:]
    except ValueError as error:
        raise click.ClickException(f"{error} in {line!r}") from None
    root = click.get_current_context().find_root().command
    try:
        status = root.main(["--url", braid.url, *words], prog_name="braid", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    if status:
        raise click.exceptions.Exit(status)


class _Statements:
    def __init__(self, braid: Client) -> None:
        self._braid = braid

    def run(self, statement: str) -> None:
        if statement.startswith("\\"):
            self._run_command(statement)
        elif is_query(statement):
            with interruptible() as interrupt:
                follow_and_retire(self._braid, registration(statement))
            if interrupt.ends_shell:
                raise Quit
        else:
            print_outcome(statement, self._braid.sql(statement), as_json=False, in_shell=True)

    def _run_command(self, line: str) -> None:
        name, _, argument = line.rstrip("; \n").partition(" ")
        argument = argument.strip()
        commands: dict[str, Callable[[str], None]] = {
            "\\d": self._describe,
            "\\watch": self._watch,
            "\\?": lambda _: click.echo(_HELP),
            "\\q": self._quit,
        }
        if name in commands:
            commands[name](argument)
        else:
            raise click.ClickException(
                f"a command must be one of {', '.join(commands)}, got {name}: \\? explains them."
            )

    def _quit(self, argument: str) -> None:  # noqa: ARG002
        raise Quit

    def _watch(self, argument: str) -> None:
        if not argument:
            raise click.ClickException("\\watch needs the name of a query: \\d lists them.")
        with interruptible() as interrupt:
            watch_query(self._braid, argument)
        if interrupt.ends_shell:
            raise Quit

    def _describe(self, name: str) -> None:
        if not name:
            for title, items in (
                ("Streams", [stream_summary(stream) for stream in self._braid.streams()]),
                ("Tables", [table_summary(table) for table in self._braid.tables()]),
                ("Queries", query_summaries(present(self._braid.queries()))),
            ):
                if items:
                    click.echo(title)
                    print_list(items, False, "")
            return
        for describe in (self._braid.stream, self._braid.table, self._braid.get_query):
            try:
                item = describe(name)
            except Refused as refused:
                if refused.status != HTTPStatus.NOT_FOUND:
                    raise
                continue
            print_fields({**item, **ending(item)}, False)
            return
        raise click.ClickException(f"there is no stream, table or query {name!r}: \\d lists them.")


class NameCompleter(Completer):
    """Complete keywords, names that the service has, their columns, and backslash commands."""

    def __init__(self, braid: Client) -> None:
        self._url, self._api_key = braid.url, braid.api_key
        self._names: list[str] = []

    def learn_names(self) -> None:
        """Ask the service for its names again; without an answer, the last ones stay."""
        try:
            with Client(self._url, timeout=2.0, api_key=self._api_key) as client:
                found = [*client.streams(), *client.tables()]
                names = [str(item["name"]) for item in found]
                names += [column["name"] for item in found for column in item.get("columns") or []]
                names += [str(query.get("name") or query["id"]) for query in client.queries("RUNNING")]
        except BraidError:
            return
        self._names = sorted(set(names))

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Offer what begins with the word before the cursor."""
        line = document.text_before_cursor.lstrip()
        if line.startswith("\\") and " " not in line:
            begun, offered = line, ["\\d", "\\watch", "\\?", "\\q"]
        else:
            begun, offered = document.get_word_before_cursor(), [*self._names, *_WORDS]
        if begun or complete_event.completion_requested:
            for word in offered:
                if word.lower().startswith(begun.lower()):
                    yield Completion(word, start_position=-len(begun))


def is_whole(text: str) -> bool:
    """Say whether Enter runs a text: a backslash command, an empty line, or statements that all end."""
    return _command(text) is not None or not words(split(text)[1])


def _is_command_line(line: str) -> bool:
    return line.split(maxsplit=1)[:1] == ["braid"]


def _command(text: str) -> str | None:
    """Return the command that a typed line is, if it is one and no statement."""
    line = text.strip()
    is_command = line.startswith("\\") or _is_command_line(line)
    return line if is_command else _PLAIN_WORDS.get(line.rstrip("; ").lower())


def history_file() -> Path:
    """Return where typed statements are kept; make its folder."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "braid"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / "history"


def prompt_session(braid: Client, **options: Any) -> tuple[PromptSession[str], NameCompleter]:
    """Make the prompt: Enter ends what is whole and begins a new line elsewhere."""
    keys, completer = KeyBindings(), NameCompleter(braid)

    @keys.add("enter", filter=Condition(lambda: is_whole(session.default_buffer.text)))
    def accept(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_file())),
        completer=ThreadedCompleter(completer),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=lambda width, *_: "... ".rjust(width),
        rprompt=lambda: missing(session.default_buffer.text),
        key_bindings=keys,
        **options,
    )
    return session, completer


def missing(text: str) -> str:
    """Return what a text of several lines still needs."""
    if "\n" not in text:
        return ""
    mark = open_part(text)
    return f"{mark} ends the {_OPEN_PARTS[mark]}" if mark else "a semicolon ends the statement"


def typed(braid: Client, **options: Any) -> Iterator[list[str]]:
    """Yield what a user types: the statements of one Enter at a time, until Ctrl-D."""
    session, completer = prompt_session(braid, **options)
    while True:
        completer.learn_names()
        try:
            text = session.prompt("braid> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        command = _command(text)
        yield split(text)[0] if command is None else [command]


def piped(lines: Iterable[str]) -> Iterator[str]:
    """Yield the statements of a text as soon as their semicolon has come; the last one may lack it."""
    text = ""
    for line in lines:
        if not words(text) and (line.lstrip().startswith("\\") or _is_command_line(line)):
            yield line.strip()
            text = ""
            continue
        statements, text = split(text + line)
        yield from statements
    if words(text):
        yield text.strip()


@click.command(
    short_help="Type statements, with history and completion.",
    cls=CliCommand,
    examples=("braid shell", "braid shell < statements.sql"),
)
@with_client
def shell(braid: Client) -> None:
    r"""Run statements that end with a semicolon, typed or from a pipe.

    SELECT follows its rows until Ctrl-C, which retires its query and leaves the shell open. From a pipe, the first
    statement that is refused ends the shell with exit status 1. \? lists more commands.
    """
    try:
        if not sys.stdin.isatty():
            for statement in piped(sys.stdin):
                run(braid, statement)
            return
        click.echo(f"Braid at {braid.url}. \\? for help.")
        for statements in typed(braid):
            try:
                for statement in statements:
                    run(braid, statement)
            except (Refused, QueryFailed, Unreachable) as error:
                show_error(error)
            except click.ClickException as error:
                error.show()
            except click.exceptions.Exit:
                pass  # what went wrong is said
            except KeyboardInterrupt:
                click.echo()
    except Quit:
        return
