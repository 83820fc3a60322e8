"""`braid queries`, `replace`, `pause`, `resume`, `drop`, `explain`: what runs, how, its changes, and its end."""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import click

from braid.api.cli.command import LABEL, NAME, SQL, CliCommand, json_option, wait_option, with_client
from braid.api.cli.output import note, print_json, print_list
from braid.api.cli.plan import print_plan
from braid.client import Client, Refused

_LONGEST_SINK = 60
REASONS = {
    "unreadable": "its stream cannot be read",
    "no_tuple": "no row came",
    "malformed": "all are malformed",
    "watermark": "its window is not over",
    "filtered": "none is let through",
    "pending": "it does not run yet",
    "catching_up": "it reads the past",
    "paused": "it is paused",
    "draining": "it is on its way out",
    "ended": "it is over",
    "failed": "it failed",
}
"""What a list says of ``waiting_for``; ``braid results`` says all of it."""
STATES = ("PENDING", "CATCHING_UP", "RUNNING", "PAUSED", "DRAINING", "RETIRED", "FINISHED", "FAILED")
OVER = STATES[-3:]


@click.command(
    short_help="List the queries.",
    cls=CliCommand,
    examples=(
        "braid queries",
        "braid queries --all",
        "braid queries --state RUNNING --label team=ads",
        "braid queries --json | jq .id",
    ),
)
@click.option("--all", "show_all", is_flag=True, help="Also those that are over, or stand for subqueries.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only queries in this state.")
@click.option("--label", type=LABEL, help="Only queries with this label, such as team=ads.")
@json_option
@with_client
def queries(braid: Client, show_all: bool, state: str | None, label: tuple[str, str] | None, as_json: bool) -> None:
    """List the queries; with --json all of them."""
    matches = list(braid.queries(state, None if label is None else "=".join(label)))
    shown = matches if show_all or as_json or state else present(matches)
    nothing = "no such query" if state or label else "no query goes on"
    print_list(shown if as_json else query_summaries(shown), as_json, nothing)
    if left_out := len(matches) - len(shown):
        note(f"{left_out} more, retired, finished without a name, or of subqueries: braid queries --all")


@click.command(
    short_help="Retire a query, or drop a stream or table.",
    cls=CliCommand,
    examples=(
        "braid drop q-17",
        "braid drop revenue",
        "braid drop revenue --cascade",
        "braid drop --stream purchases",
        "braid drop --table packs",
    ),
)
@click.argument("name", type=NAME)
@click.option("--stream", "kind", flag_value="stream", help="NAME is a stream.")
@click.option("--table", "kind", flag_value="table", help="NAME is a table.")
@click.option("--no-drain", is_flag=True, help="Retire the query at once, without the windows that are complete.")
@click.option("--cascade", is_flag=True, help="Retire the queries that read it, too.")
@with_client
def drop(braid: Client, name: str, kind: str | None, no_drain: bool, cascade: bool) -> None:
    """Retire the query with the id or name NAME, or drop a stream or a table."""
    if kind is not None:
        if no_drain:
            raise click.UsageError("--no-drain is for queries: leave it out with --stream and --table.")
        if cascade and kind == "table":
            raise click.UsageError("--cascade is for queries and streams: leave it out with --table.")
        with _naming_what_goes(braid, cascade):
            braid.drop_stream(name, cascade) if kind == "stream" else braid.drop_table(name)
            click.echo(f"dropped the {kind} {name}")
        return
    try:
        with _naming_what_goes(braid, cascade, name):
            query = braid.delete_query(name, drain=not no_drain, cascade=cascade)
        is_over = query["state"] in ("FINISHED", "FAILED")
        already = " already: nothing runs, and its rows go after their retention" if is_over else ""
        _announce(query, already, as_json=False)
    except Refused as refused:
        if refused.status == HTTPStatus.NOT_FOUND:
            for found, option in ((braid.streams(), "stream"), (braid.tables(), "table")):
                if any(each["name"].lower() == name.lower() for each in found):
                    raise click.ClickException(f"{name} is a {option}: braid drop --{option} {name}") from None
        raise


@click.command(
    short_help="Put another query in the place of one.",
    cls=CliCommand,
    examples=(
        'braid replace revenue "SELECT gem_pack, SUM(price) AS revenue\n'
        ' FROM purchases [RANGE 1 MINUTE] GROUP BY gem_pack"',
        "braid replace q-17 --no-drain - < query.sql",
    ),
)
@click.argument("id_or_name", type=NAME)
@click.argument("sql", type=SQL)
@click.option("--no-drain", is_flag=True, help="Retire the old one at once, without the windows that are complete.")
@wait_option("How long to wait for the new query to run.")
@json_option
@with_client
def replace(braid: Client, id_or_name: str, sql: str, no_drain: bool, wait: float, as_json: bool) -> None:
    """Register SQL in the place of the query ID_OR_NAME, which retires (- reads the SQL from standard input).

    The new query sees exactly the rows that the old one does not. It has its name, sink, labels and TTL.
    """
    # under one key, asking again gives the query that was registered, not a second one
    key = str(uuid.uuid4())
    query = braid.replace_query(id_or_name, sql, drain=not no_drain, wait=wait, key=key)
    replaced = query["replaces"]
    _announce(query, f"; it replaces {replaced}, whose rows are there: braid results {replaced}", as_json)
    begins = ", ".join(f"{time} ({stream})" for stream, time in query["active_from"].items() if time)
    if begins and not (as_json or (query.get("operator") or "selection").startswith("selection")):
        partial = "A window that was open then has only those, and is marked `_partial`."
        note(f"It sees what is later than {begins}. {partial}")


@click.command(
    short_help="Pause a query.",
    cls=CliCommand,
    examples=("braid pause revenue", "braid pause q-17"),
)
@click.argument("id_or_name", type=NAME)
@json_option
@with_client
def pause(braid: Client, id_or_name: str, as_json: bool) -> None:
    """Stop reading for the query ID_OR_NAME until it is resumed; it keeps its rows, cursors and sink."""
    _announce(braid.pause_query(id_or_name), "", as_json)


@click.command(
    short_help="Run a paused query again.",
    cls=CliCommand,
    examples=("braid resume revenue", "braid resume q-17 --wait 5"),
)
@click.argument("id_or_name", type=NAME)
@wait_option("How long to wait for the query to run.")
@json_option
@with_client
def resume(braid: Client, id_or_name: str, wait: float, as_json: bool) -> None:
    """Run the paused query ID_OR_NAME again; it sees no row of the time in between."""
    _announce(braid.resume_query(id_or_name, wait=wait), "", as_json)


def _announce(query: Mapping[str, Any], addition: str, as_json: bool) -> None:
    if as_json:
        print_json([query])
    else:
        click.echo(f"query {query['id']} is {query['state']}{addition}")


@click.command(
    short_help="Show how a query runs and shares.",
    cls=CliCommand,
    examples=(
        "braid explain revenue",
        "braid explain q-17 --format dot | dot -Tsvg > plan.svg",
        'braid explain "SELECT user_id, price FROM purchases WHERE price > 5"',
    ),
)
@click.argument("sql_or_query", type=SQL)
@click.option("--format", "form", type=click.Choice(["text", "dot"]), default="text", show_default=True)
@json_option
@with_client
def explain(braid: Client, sql_or_query: str, form: str, as_json: bool) -> None:
    """Show how a query, given by its id or name, runs and with whom it shares; or how an SQL text would.

    An SQL text is not registered.
    """
    words = sql_or_query.split()
    if len(words) == 1:
        if form == "dot":
            click.echo(braid.plan_dot(words[0]).rstrip("\n"))
            return
        graph = braid.plan(words[0])
        if as_json:
            print_json([graph])
        else:
            print_plan(graph)
        return
    if form == "dot":
        raise click.UsageError("--format dot needs the id or name of a registered query, got an SQL text.")
    # cut, not joined from the words: positions in a refusal count in the text that is sent
    text = sql_or_query.lstrip()
    outcome = braid.validate(text[len("explain") :].lstrip() if words[0].lower() == "explain" else text)
    if as_json:
        print_json([outcome])
        return
    plan = outcome.get("plan")
    print_plan({**{name: value for name, value in outcome.items() if name != "plan"}, **plan} if plan else outcome)


@contextmanager
def _naming_what_goes(braid: Client, cascade: bool, name: str = "") -> Iterator[None]:
    """Say which queries go with what the block drops, besides the one called ``name``."""
    before = _going_on(braid) if cascade else {}
    yield
    gone = before.items() - _going_on(braid).items() if cascade else set()
    if names := sorted(called for query_id, called in gone if name not in (query_id, called)):
        note(f"with it: {', '.join(names)}")


def _going_on(braid: Client) -> dict[str, str]:
    """Return the names of the queries that are not over or on their way out, by id."""
    return {
        query["id"]: query.get("name") or query["id"]
        for query in braid.queries()
        if query["state"] not in ("DRAINING", *OVER) and not query.get("subquery")
    }


def present(queries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the queries that a person asked for, without those that are retired, or finished and of no name."""

    def is_over(query: Mapping[str, Any]) -> bool:
        return query.get("state") == "RETIRED" or (query.get("state") == "FINISHED" and not query.get("name"))

    return [query for query in queries if not is_over(query) and not query.get("subquery")]


def readable(query: Mapping[str, Any]) -> dict[str, Any]:
    """Put an SQL text on one line."""
    return {name: " ".join(value.split()) if name == "sql" and value else value for name, value in query.items()}


def query_summaries(queries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what a list of queries shows; what they wait for only where one does."""
    any_waits = any(query.get("waiting_for") for query in queries)
    any_sinks = any(query.get("delivery") for query in queries)
    return [_summary(query, any_waits, any_sinks) for query in queries]


def _summary(query: Mapping[str, Any], with_reason: bool, with_sink: bool) -> dict[str, Any]:
    reason = str((query.get("waiting_for") or {}).get("reason"))
    delivery = query.get("delivery") or {}
    sink = ": ".join(filter(None, (delivery.get("state"), delivery.get("error"))))
    return {
        "id": query.get("id"),
        "name": "(subquery)" if query.get("subquery") else query.get("name"),
        "state": query.get("state"),
        "rows": query.get("rows_out"),
        **({"why no rows": REASONS.get(reason)} if with_reason else {}),
        **({"sink": textwrap.shorten(sink, _LONGEST_SINK, placeholder=" …") or None} if with_sink else {}),
        "deployed in": _seconds(query.get("deployment_latency_seconds")),
        "latency": _seconds(query.get("event_time_latency_seconds")),
        "sql": readable(query).get("sql"),
    }


def _seconds(value: Any) -> str | None:
    return None if value is None else f"{float(value):.2f} s"
