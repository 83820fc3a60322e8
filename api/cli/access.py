"""`braid tenants`, `braid keys`: who may use a service, and how much of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from braid.api.cli.command import NAME, CliCommand, CliGroup, json_option, with_client
from braid.api.cli.output import print_fields, print_list
from braid.client import Client

RIGHTS = ("read", "write", "admin", "monitor")
QUOTAS: Mapping[str, tuple[click.ParamType[Any], str]] = {
    "running_queries": (click.IntRange(0), "Most queries at a time."),
    "creations_a_minute": (click.IntRange(0), "Most queries created in a minute."),
    "cost_share": (click.FloatRange(0, 1, min_open=True), "Share of the cores that its queries may take."),
    "result_rows_a_second": (click.IntRange(0), "Most rows read in a second."),
    "query_levels": (click.IntRange(0), "Most queries that read one another in a chain."),
    "query_readers": (click.IntRange(0), "Most queries that read the same one."),
}


@click.group(
    cls=CliGroup,
    short_help="List, make and change tenants.",
    examples=("braid tenants list", "braid tenants set shop --running-queries 100", "braid tenants drop shop"),
)
def tenants() -> None:
    """List, make and change the tenants of a service with access control.

    BRAID_API_KEY must be a key with the right admin.
    """


@tenants.command(name="list", cls=CliCommand, short_help="List the tenants.", examples=("braid tenants list",))
@json_option
@with_client
def list_tenants(braid: Client, as_json: bool) -> None:
    """List the tenants with their quotas."""
    all_tenants = braid.tenants()
    print_list(all_tenants if as_json else [_flat(tenant) for tenant in all_tenants], as_json, "there is no tenant yet")


def _quota_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, (kind, text) in reversed(list(QUOTAS.items())):
        command = click.option(f"--{name.replace('_', '-')}", name, type=kind, help=text)(command)
    return command


@tenants.command(
    name="set",
    cls=CliCommand,
    short_help="Make a tenant, or change its quotas.",
    examples=("braid tenants set shop", "braid tenants set shop --running-queries 100 --cost-share 0.25"),
)
@click.argument("name", type=NAME)
@_quota_options
@json_option
@with_client
def set_tenant(braid: Client, /, name: str, as_json: bool, **quotas: Any) -> None:
    """Make the tenant NAME, or give it these quotas; those that are left out do not hold (any more)."""
    quotas_set = {quota: value for quota, value in quotas.items() if value is not None}
    tenant = braid.put_tenant(name, quotas_set)
    print_fields(tenant if as_json else _flat(tenant), as_json)


@tenants.command(name="drop", cls=CliCommand, short_help="Forget a tenant.", examples=("braid tenants drop shop",))
@click.argument("name", type=NAME)
@with_client
def drop_tenant(braid: Client, name: str) -> None:
    """Forget the tenant NAME, which must have no keys."""
    braid.drop_tenant(name)
    click.echo(f"dropped the tenant {name}")


@click.group(
    cls=CliGroup,
    short_help="List, make and revoke API keys.",
    examples=("braid keys list", "braid keys create shop --right write", "braid keys revoke k-3"),
)
def keys() -> None:
    """List, make and revoke the API keys of a service with access control.

    BRAID_API_KEY must be a key with the right admin.
    """


@keys.command(name="list", cls=CliCommand, short_help="List the keys.", examples=("braid keys list",))
@json_option
@with_client
def list_keys(braid: Client, as_json: bool) -> None:
    """List the keys, without their texts: these are kept nowhere."""
    all_keys = braid.keys()
    table_rows = [{**key, "rights": ", ".join(key["rights"])} for key in all_keys]
    print_list(all_keys if as_json else table_rows, as_json, "there is no key yet")


@keys.command(
    name="create",
    cls=CliCommand,
    short_help="Make a key for a tenant.",
    examples=(
        "braid keys create shop --right write",
        "braid keys create shop --right read --name dashboards",
        "braid keys create ops --right monitor --json | jq -r .key",
    ),
)
@click.argument("tenant", type=NAME)
@click.option(
    "--right",
    "rights",
    type=click.Choice(RIGHTS),
    multiple=True,
    default=("read", "write"),
    show_default=True,
    help="What it may do; may be given several times.",
)
@click.option("--name", help="What it is for.")
@json_option
@with_client
def create_key(braid: Client, tenant: str, rights: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Make a key for TENANT and print it. It is shown this once only."""
    api_key = braid.create_key(tenant, rights, name)
    print_fields(api_key if as_json else {**api_key, "rights": ", ".join(api_key["rights"])}, as_json)


@keys.command(name="revoke", cls=CliCommand, short_help="Revoke a key.", examples=("braid keys revoke k-3",))
@click.argument("key_id", metavar="ID", type=NAME)
@with_client
def revoke_key(braid: Client, key_id: str) -> None:
    """Revoke the key ID: requests with it are refused from now on."""
    braid.revoke_key(key_id)
    click.echo(f"revoked the key {key_id}")


def _flat(tenant: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": tenant.get("name"), **tenant.get("quotas", {})}
