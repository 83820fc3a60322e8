"""`braid demo` and `braid bench`: see the service at work, and measure it."""

from __future__ import annotations

import click

from api.cli.command import WRONG_USAGE, Command


@click.command(
    short_help="See it work: stream, queries, changes.",
    cls=Command,
    examples=("braid demo", "braid demo --seconds 60"),
)
@click.option("--seconds", type=click.IntRange(min=1), default=30, show_default=True, help="How long it runs.")
def demo(seconds: int) -> None:
    """Start a service, feed it a stream, add and drop queries while it runs."""
    from bench_driver.demo import run_demo

    raise SystemExit(run_demo(seconds))


@click.command(
    short_help="Measure it (not in this version).",
    cls=Command,
    examples=("braid bench", "python -m bench_driver.first_mark"),
)
def bench() -> None:
    """Measure the service (not part of this version)."""
    click.echo(
        "The full benchmark driver is not part of this version; "
        "`python -m bench_driver.first_mark` takes the measurement there is.",
        err=True,
    )
    raise SystemExit(WRONG_USAGE)
