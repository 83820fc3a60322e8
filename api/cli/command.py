"""What all commands share: help with examples, the service's URL, exit statuses.

Exit statuses: 0 done, 1 refused by the service, 2 wrong usage, 3 not reachable.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from braid.api.cli.output import show_refusal
from braid.api.cli.table import ColumnDigits
from braid.client import DEFAULT_URL, Client, QueryFailed, Refused, Unreachable, checked_url

REFUSED = 1
WRONG_USAGE = 2
NOT_REACHABLE = 3
# on top of what a call waits for; a service that is busy with a big batch may take seconds to answer
_TIMEOUT_SECONDS = 30.0

# not an option: other users of the machine can read command lines
API_KEY = "BRAID_API_KEY"

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class CliCommand(click.Command):
    """A command whose help ends with examples, each printed as it would be typed."""

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say of an SQL text that a shell has cut into words that it stands in quotes."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" in error.message and any(isinstance(p.type, SqlType) for p in self.params):
                raise click.UsageError(f'{error.message} Put the SQL in quotes: "SELECT …".', ctx) from None
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples below the options."""
        formatter.write("\nExamples:\n" if len(self.examples) > 1 else "\nExample:\n")
        for example in self.examples:
            formatter.write("  " + example.replace("\n", "\n      ") + "\n")


class CliGroup(CliCommand, click.Group):
    """All commands, in the order they were added; turns the client's errors into exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Keep the order of a first session with the service."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say on stderr why it could not be done."""
        try:
            return super().invoke(ctx)
        except (Refused, QueryFailed, Unreachable) as error:
            ctx.exit(show_error(error))


def show_error(error: Refused | QueryFailed | Unreachable) -> int:
    """Say on stderr why something could not be done; return the exit status."""
    match error:
        case Refused():
            show_refusal(error)
            return REFUSED
        case Unreachable():
            click.echo(
                f"Error: no Braid service answers at {error.url} ({error.reason}): "
                "start it with `braid serve`, or name its address with --url or BRAID_URL.",
                err=True,
            )
            return NOT_REACHABLE
        case _:
            click.echo(f"Error: {error}", err=True)
            return REFUSED


class NameType(click.ParamType[Any]):
    """A name or id that can stand in a path."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that a URL would resolve away."""
        if value.strip() in ("", ".", ".."):
            self.fail(f"a name or id is needed here, got {value!r}.", param, ctx)
        return str(value)


class SqlType(click.ParamType[Any]):
    """A statement; `-` reads it from standard input."""

    name = "sql"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an empty statement before the service is asked."""
        statement = sys.stdin.read() if value == "-" else value
        if not statement.strip():
            self.fail("an SQL statement is needed here, got an empty one.", param, ctx)
        return str(statement)


class LabelType(click.ParamType[Any]):
    """A label, `key=value`."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first equals sign."""
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not (key and equals):
            self.fail(f"a label must look like team=ads, got {value!r}.", param, ctx)
        return key, text


class KeyType(click.ParamType[Any]):
    """An idempotency key, which travels in a header."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what a header cannot carry; the longest leaves room for a piece's number."""
        if not (value.isascii() and value.isprintable() and value.strip() == value and 0 < len(value) <= 240):
            self.fail(f"a key must be 1 to 240 printable ASCII characters, got {value!r}.", param, ctx)
        return str(value)


NAME, SQL, LABEL, KEY = NameType(), SqlType(), LabelType(), KeyType()


def sink_value(text: str | None) -> Any:
    """Read a sink: a JSON object if it looks like one, a name otherwise."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"a sink that starts with {{ must be JSON: {error}.", param_hint="--sink") from None


def given_flags(ctx: click.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that stand on the command line, without those that have their default."""
    return {
        name: value for name, value in options.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def _url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    if value is None:
        return None
    try:
        return checked_url(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


root_url_option = click.option(
    "--url",
    metavar="URL",
    envvar="BRAID_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    callback=_url,
    help="Address of the service.",
)


def wait_option(help: str) -> Callable[[F], F]:
    """Return the option `--wait`: a first query may come while the service still warms up."""
    seconds = click.FloatRange(min=0)
    return click.option("--wait", type=seconds, default=30.0, show_default=True, metavar="SECONDS", help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")


def with_client(command: Callable[Concatenate[Client, P], R]) -> Callable[..., R]:
    """Give a command a client of the service at `--url`, which may stand before or after its name."""

    @click.option("--url", metavar="URL", callback=_url, help="Address of the service, as in `braid --url`.")
    @functools.wraps(command)
    def run(*args: Any, url: str | None, **kwargs: Any) -> R:
        address = url or click.get_current_context().find_root().params.get("url") or DEFAULT_URL
        try:
            api_key = os.environ.get(API_KEY) or None
            client = Client(address, timeout=_TIMEOUT_SECONDS, api_key=api_key, parse_float=ColumnDigits)
        except ValueError as error:
            raise click.UsageError(f"{API_KEY}: {error}.") from None
        with client as braid:
            return command(braid, *args, **kwargs)

    return run
