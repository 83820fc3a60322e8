"""`braid route`: deliver rows to sinks in this process."""

from __future__ import annotations

from typing import Any

import click

from api.cli.command import Command, given_flags


@click.command(
    short_help="Deliver rows to sinks.",
    cls=Command,
    examples=(
        "braid route --data-dir /var/lib/braid",
        "BRAID_DELIVERERS=0 braid serve",
        "braid route --share 1/4",
    ),
)
@click.option("--data-dir", default="braid-data", show_default=True, help="The data directory of the service.")
@click.option("--share", default="1/1", show_default=True, help="Which share of the queries: I/N.")
@click.option("--config", default="braid.toml", show_default=True, help="File with settings.")
@click.option("--supervised", is_flag=True, hidden=True)
@click.pass_context
def route(ctx: click.Context, /, share: str, supervised: bool, **options: Any) -> None:
    """Deliver rows to the sinks of queries, in a process besides the service.

    The service runs a deliverer itself. To spread the work over several, on machines that share the data directory,
    set `deliverers = 0` for the service and run each share once: 1/4, 2/4, 3/4, 4/4. One that finds its share taken
    waits until it is free.
    """
    from api.route import route as run

    raise SystemExit(run(given_flags(ctx, options), share, supervised))
