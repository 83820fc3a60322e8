"""`braid serve` and `braid deliver`: run the service, or a deliverer, in this process."""

from __future__ import annotations

from typing import Any

import click

from braid.api.cli.command import CliCommand, given_flags


@click.command(
    short_help="Start the service.",
    cls=CliCommand,
    examples=(
        "braid serve",
        "braid serve --port 9000 --data-dir /var/lib/braid --master 'local[4]'",
        "BRAID_PORT=9000 braid serve --config braid.toml",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 picks one.")
@click.option(
    "--data-dir",
    default="braid-data",
    show_default=True,
    help="Where everything is kept: a path or a filesystem URI. Started again on it, the service goes on.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--config", default="braid.toml", show_default=True, help="File with settings.")
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> None:
    """Start the service.

    Every setting is also BRAID_... in the environment. A flag wins over the environment, the environment
    over the file, the file over the default.
    """
    from braid.api.serve import serve as run

    raise SystemExit(run(given_flags(ctx, options)))


@click.command(
    short_help="Deliver rows to sinks.",
    cls=CliCommand,
    examples=(
        "braid deliver --data-dir /var/lib/braid",
        "BRAID_DELIVERERS=0 braid serve",
        "braid deliver --shard 1/4",
    ),
)
@click.option("--data-dir", default="braid-data", show_default=True, help="The data directory of the service.")
@click.option("--shard", default="1/1", show_default=True, help="Which shard of the queries: I/N.")
@click.option("--config", default="braid.toml", show_default=True, help="File with settings.")
@click.option("--supervised", is_flag=True, hidden=True)
@click.pass_context
def deliver(ctx: click.Context, /, shard: str, supervised: bool, **options: Any) -> None:
    """Deliver rows to the sinks of queries, in a process besides the service.

    The service runs a deliverer itself. To spread the work over several, on machines that share the data directory,
    set `deliverers = 0` for the service and run each shard once: 1/4, 2/4, 3/4, 4/4. One that finds its shard taken
    waits until it is free.
    """
    from braid.api.deliver import deliver as run

    raise SystemExit(run(given_flags(ctx, options), shard, supervised))
