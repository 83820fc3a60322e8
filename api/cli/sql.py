"""`braid sql`: send any one statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from braid.api.cli.command import SQL, CliCommand, json_option, with_client
from braid.api.cli.output import print_fields, print_json, print_list
from braid.api.cli.plan import print_plan
from braid.api.cli.queries import query_summaries
from braid.api.cli.streams import NO_STREAM, NO_TABLE, ending, stream_summary, table_summary
from braid.client import Client


@click.command(
    short_help="Send any one statement.",
    cls=CliCommand,
    examples=(
        'braid sql "CREATE STREAM purchases\n'
        "(user_id BIGINT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '2' SECOND)\n"
        "WITH (connector = 'push', format = 'json')\"",
        'braid sql "SHOW QUERIES"',
        "braid sql - < stream.sql",
    ),
)
@click.argument("statement", type=SQL)
@json_option
@with_client
def sql(braid: Client, statement: str, as_json: bool) -> None:
    """Send one STATEMENT: CREATE, DROP, SHOW, DESCRIBE, EXPLAIN or SELECT (- reads it from standard input).

    A SELECT registers a query; `braid results ID --follow` reads its rows.
    """
    print_outcome(statement, braid.sql(statement), as_json)


def print_outcome(statement: str, answer: Any, as_json: bool, in_shell: bool = False) -> None:
    """Print what a statement did: a sentence for CREATE, DROP and SELECT, a table or a tree for others."""
    words = _COMMENT.sub(" ", statement).lower().replace(";", " ").split()[:2]
    if as_json or not isinstance(answer, Mapping):
        print_answer(answer, as_json)
    elif words[0] in ("describe", "desc"):
        print_answer({**answer, **ending(answer)}, as_json)
    elif words in (["create", "stream"], ["create", "table"]):
        click.echo(f"{words[1]} {answer['name']} is declared")
    elif words[0] == "drop":
        name = answer.get("dropped", answer.get("id"))
        click.echo(f"dropped {name}" if name else "nothing was there to drop")
    elif "deployment_latency_seconds" in answer:
        query, name = answer["id"], answer.get("name") or answer["id"]
        shown = query if name == query else f"{query} ({name})"
        typed = (f"\\watch {query}", f"DROP QUERY '{query}'")
        rows, drop = typed if in_shell else (f"braid results {query} --follow", f"braid drop {query}")
        click.echo(f"query {shown} is {answer['state']}; `{rows}` prints its rows, `{drop}` retires it")
    elif words[0] == "show":
        print_list(_SUMMARIES[words[1]](answer[words[1]]), as_json, _NONE[words[1]])
    else:
        print_answer(answer, as_json)


def print_answer(answer: Any, as_json: bool) -> None:
    """Print what a statement gave: a list as a table, a graph as a tree, an object by its fields."""
    items = _list_in(answer)
    if items is not None:
        nothing = next(iter(answer.keys() & _NONE.keys()), None) if isinstance(answer, Mapping) else None
        print_list(items, as_json, _NONE.get(nothing or "", "nothing there"))
    elif not isinstance(answer, Mapping):
        print_json([answer])
    elif "nodes" in answer and not as_json:
        print_plan(answer)
    else:
        print_fields(answer, as_json)


def _list_in(answer: Any) -> list[Mapping[str, Any]] | None:
    """Find the list in `[…]`, `{"streams": […]}` or `{"rows": […], "cursor": …}`."""
    if isinstance(answer, Mapping) and "nodes" not in answer and answer.keys() <= _ENVELOPE:
        answer = next((value for value in answer.values() if isinstance(value, list)), None)
    if isinstance(answer, list) and all(isinstance(item, Mapping) for item in answer):
        return answer
    return None


_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_NONE = {
    "streams": NO_STREAM,
    "tables": NO_TABLE,
    "queries": "no query is registered",
}
_SUMMARIES: dict[str, Callable[[list[Any]], list[dict[str, Any]]]] = {
    "streams": lambda streams: [stream_summary(stream) for stream in streams],
    "tables": lambda tables: [table_summary(table) for table in tables],
    "queries": query_summaries,
}
_ENVELOPE = {"streams", "tables", "queries", "rows", "cursor", "next_cursor", "end"}
