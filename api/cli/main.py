"""The console entry point `braid`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

import click

from braid import __version__
from braid.api.cli.access import keys, tenants
from braid.api.cli.bench import bench, demo
from braid.api.cli.command import CliGroup, root_url_option
from braid.api.cli.infer import infer
from braid.api.cli.push import push
from braid.api.cli.queries import drop, explain, pause, queries, replace, resume
from braid.api.cli.query import query, results
from braid.api.cli.serve import deliver, serve
from braid.api.cli.shell import shell
from braid.api.cli.sql import sql
from braid.api.cli.streams import refresh, streams, tables
from braid.api.cli.watch import watch


@click.group(
    cls=CliGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        "braid serve",
        'braid query "SELECT user_id, price FROM purchases WHERE price > 5"',
        "braid --url http://127.0.0.1:9000 queries",
    ),
)
@root_url_option
@click.version_option(__version__, prog_name="braid")
def cli(url: str) -> None:
    """Run thousands of ad-hoc SQL queries over live streams at nearly the cost of one.

    A service with access control takes the API key in BRAID_API_KEY.

    Exit status: 0 done, 1 refused by the service, 2 wrong usage, 3 not reachable.
    """


QUERIES = (query, queries, results, watch, replace, pause, resume, drop, explain)
WORK = (serve, deliver, *QUERIES, streams, tables, refresh, infer, push, sql, shell)
for command in (*WORK, tenants, keys, demo, bench):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a row must not be lost because the terminal's encoding lacks a letter
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="braid")


if __name__ == "__main__":
    main()
