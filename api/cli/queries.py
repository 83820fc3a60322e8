"""`braid queries`, `replace`, `pause`, `resume`, `drop`, `explain`: what runs, how, its changes, and its end."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import click

from braid.api.cli.command import LABEL, NAME, SQL, CliCommand, json_option, wait_option, with_client
from braid.api.cli.output import print_json, print_list
from braid.api.cli.plan import print_plan
from braid.api.client import BraidClient, BraidRefused

STATES = ("PENDING", "CATCHING_UP", "RUNNING", "PAUSED", "DRAINING", "RETIRED", "FINISHED", "FAILED")
ENDED = ("RETIRED", "FINISHED", "FAILED")


@click.command(
    short_help="List the queries.",
    cls=CliCommand,
    examples=(
        "braid queries",
        "braid queries --state RUNNING --label team=ads",
        "braid queries --json | jq .id",
    ),
)
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only queries in this state.")
@click.option("--label", type=LABEL, help="Only queries with this label, such as team=ads.")
@json_option
@with_client
def queries(braid: BraidClient, state: str | None, label: tuple[str, str] | None, as_json: bool) -> None:
    """List the queries."""
    matches = list(braid.queries(state, None if label is None else "=".join(label)))
    print_list(matches if as_json else [_summary(query) for query in matches], as_json, "no such query")


@click.command(
    short_help="Retire a query, or drop a stream or table.",
    cls=CliCommand,
    examples=(
        "braid drop q-17",
        "braid drop revenue",
        "braid drop --stream purchases",
        "braid drop --table packs",
    ),
)
@click.argument("name", type=NAME)
@click.option("--stream", "kind", flag_value="stream", help="NAME is a stream.")
@click.option("--table", "kind", flag_value="table", help="NAME is a table.")
@click.option("--no-drain", is_flag=True, help="Retire the query at once, without the windows that are complete.")
@with_client
def drop(braid: BraidClient, name: str, kind: str | None, no_drain: bool) -> None:
    """Retire the query with the id or name NAME, or drop a stream or a table."""
    if kind is not None:
        if no_drain:
            raise click.UsageError("--no-drain is for queries: leave it out with --stream and --table.")
        (braid.drop_stream if kind == "stream" else braid.drop_table)(name)
        click.echo(f"dropped the {kind} {name}")
        return
    query_id = find_query(braid, name)["id"]
    braid.delete_query(query_id, drain=not no_drain)
    click.echo(f"query {query_id} is {braid.query(query_id).get('state')}")


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
def replace(braid: BraidClient, id_or_name: str, sql: str, no_drain: bool, wait: float, as_json: bool) -> None:
    """Register SQL in the place of the query ID_OR_NAME, which retires (- reads the SQL from standard input).

    The new query sees exactly the rows that the old one does not. It has its name, sink, labels and TTL.
    """
    # under one key, asking again gives the query that was registered, not a second one
    key = str(uuid.uuid4())
    query = braid.replace_query(find_query(braid, id_or_name)["id"], sql, drain=not no_drain, wait=wait, key=key)
    _announce(query, f"; it replaces {query['replaces']}", as_json)


@click.command(
    short_help="Pause a query.",
    cls=CliCommand,
    examples=("braid pause revenue", "braid pause q-17"),
)
@click.argument("id_or_name", type=NAME)
@json_option
@with_client
def pause(braid: BraidClient, id_or_name: str, as_json: bool) -> None:
    """Stop reading for the query ID_OR_NAME until it is resumed; it keeps its rows, cursors and sink."""
    _announce(braid.pause_query(find_query(braid, id_or_name)["id"]), "", as_json)


@click.command(
    short_help="Run a paused query again.",
    cls=CliCommand,
    examples=("braid resume revenue", "braid resume q-17 --wait 5"),
)
@click.argument("id_or_name", type=NAME)
@wait_option("How long to wait for the query to run.")
@json_option
@with_client
def resume(braid: BraidClient, id_or_name: str, wait: float, as_json: bool) -> None:
    """Run the paused query ID_OR_NAME again; it sees no row of the time in between."""
    _announce(braid.resume_query(find_query(braid, id_or_name)["id"], wait=wait), "", as_json)


def _announce(query: Mapping[str, Any], addition: str, as_json: bool) -> None:
    if as_json:
        print_json([query])
    else:
        click.echo(f"query {query['id']} is {query['state']}{addition}")


@click.command(
    short_help="Show how a query runs and shares.",
    cls=CliCommand,
    examples=(
        "braid explain q-17",
        "braid explain q-17 --format dot | dot -Tsvg > plan.svg",
        'braid explain "SELECT user_id, price FROM purchases WHERE price > 5"',
    ),
)
@click.argument("sql_or_id", type=SQL)
@click.option("--format", "form", type=click.Choice(["text", "dot"]), default="text", show_default=True)
@json_option
@with_client
def explain(braid: BraidClient, sql_or_id: str, form: str, as_json: bool) -> None:
    """Show how a query runs and with whom it shares, or how an SQL text would; it is not registered."""
    words = sql_or_id.split()
    if len(words) == 1:
        query_id = find_query(braid, words[0])["id"]
        if form == "dot":
            click.echo(braid.plan_dot(query_id).rstrip("\n"))
            return
        graph = braid.plan(query_id)
        if as_json:
            print_json([graph])
        else:
            print_plan(graph)
        return
    if form == "dot":
        raise click.UsageError("--format dot needs the id of a registered query, got an SQL text.")
    # cut, not joined from the words: positions in a refusal count in the text that is sent
    text = sql_or_id.lstrip()
    outcome = braid.validate(text[len("explain") :].lstrip() if words[0].lower() == "explain" else text)
    if as_json:
        print_json([outcome])
        return
    plan = outcome.get("plan")
    print_plan({**{name: value for name, value in outcome.items() if name != "plan"}, **plan} if plan else outcome)


def find_query(braid: BraidClient, id_or_name: str) -> dict[str, Any]:
    """Read the query with this id, else the only one with this name, those first that are not ending."""
    try:
        return braid.query(id_or_name)
    except BraidRefused as refused:
        if refused.status != 404:
            raise
        matches = [query for query in braid.queries() if query.get("name") == id_or_name]
        for ended in (("DRAINING", *ENDED), ENDED):  # a name is free once its query drains
            matches = [query for query in matches if query.get("state") not in ended] or matches
        if not matches:
            raise
    if len(matches) > 1:
        ids = ", ".join(str(query["id"]) for query in matches)
        raise click.UsageError(f"{len(matches)} queries are named {id_or_name!r}: give the id, one of {ids}.")
    return matches[0]


def readable(query: Mapping[str, Any]) -> dict[str, Any]:
    """Put an SQL text on one line."""
    return {name: " ".join(value.split()) if name == "sql" and value else value for name, value in query.items()}


def _summary(query: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": query.get("id"),
        "name": query.get("name"),
        "state": query.get("state"),
        "rows": query.get("rows_out"),
        "deployed in": _seconds(query.get("deployment_latency_seconds")),
        "latency": _seconds(query.get("event_time_latency_seconds")),
        "sql": readable(query).get("sql"),
    }


def _seconds(value: Any) -> str | None:
    return None if value is None else f"{float(value):.2f} s"
