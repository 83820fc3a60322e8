"""`braid demo` and `braid bench`: see the service at work, and measure it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from braid.api.cli.command import WRONG_USAGE, CliCommand, CliGroup
from braid.api.cli.output import stderr

INSTALL = "pip install 'braid-sql[bench]'"
REFUSED = 1


@click.command(
    short_help="See it work: stream, queries, changes.",
    cls=CliCommand,
    examples=("braid demo", "braid demo --seconds 60"),
)
@click.option("--seconds", type=click.IntRange(min=1), default=30, show_default=True, help="How long it runs.")
def demo(seconds: int) -> None:
    """Start a service, feed it a stream, add and drop queries while it runs."""
    from braid.bench_driver.demo import run_demo

    raise SystemExit(run_demo(seconds))


class CountsType(click.ParamType[Any]):
    """Numbers of queries, `1,20,100`."""

    name = "n,n,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read whole numbers from 1 on."""
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(part) for part in value.split(","))
        except ValueError:
            counts = ()
        if not counts or min(counts) < 1:
            self.fail(f"numbers of queries look like 1,20,100 and are at least 1, got {value!r}.", param, ctx)
        return counts


class NamesType(click.ParamType[Any]):
    """Names, `spark,flink`."""

    name = "name,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split at commas."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in value.split(","))
        if not all(names):
            self.fail(f"names look like spark,flink, got {value!r}.", param, ctx)
        return names


class BenchGroup(CliGroup):
    """`braid bench WORKLOAD…` runs; `list` and `compare` are commands of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what is no command's name for the arguments of `run`."""
        # click would show this group's help for no arguments; `run` says which workloads there are
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if not asks_for_help and (not args or args[0] not in self.commands):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the usual form."""
        return self.commands["run"].collect_usage_pieces(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of `run`, then the other commands."""
        self.commands["run"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class _Run(CliCommand):
    """The command whose name need not be typed: its errors and help point to `braid bench`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an error names the command as it was typed."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = ctx.parent
            raise

    def get_help(self, ctx: click.Context) -> str:
        """Return the help of `braid bench`."""
        return super().get_help(ctx) if ctx.parent is None else ctx.parent.get_help()


@click.group(
    short_help="Measure it, beside Spark and Flink.",
    cls=BenchGroup,
    examples=(
        "braid bench --list",
        "braid bench rovio-aggregation --quick",
        "braid bench astream-sc1 --queries 1,20,100,1000 --peers spark,flink",
        "braid bench mixed-bids:sessions=0.1 --queries 100 --peers duckdb",
        "braid bench every-second --rate 1000000",
        "braid bench shared-data --rate 1000000 --beside query_groups=off",
        "braid bench ajoin-sc1:ways=[2] ajoin-sc1:ways=[3] --queries 1,100 --read all",
        "braid bench compare bench-before bench-report",
    ),
)
def bench() -> None:
    """Measure workloads from outside: sustainable throughput, latency, deployment latency.

    Options of a workload's queries, which its file lists, may follow its name as :NAME=VALUE.

    Generators, queues and consumers run in processes of their own. report.json and report.html go to --output; a
    report that is there already is kept beside them.

    Exit status: 0 all was measured or is listed with its reason, 1 Braid could not be measured, 2 wrong usage.
    """


@bench.command(hidden=True, cls=_Run, examples=("braid bench rovio-aggregation --quick",))
@click.argument("workloads", metavar="WORKLOAD…", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="List the workloads and the peers.")
@click.option("--queries", type=CountsType(), help="Numbers of queries, such as 1,20,100; else the workload's own.")
@click.option(
    "--peers", type=NamesType(), default=(), help="Systems beside Braid: spark, flink, duckdb, or one of theirs."
)
@click.option(
    "--beside",
    "variants",
    multiple=True,
    metavar="SETTING=VALUE,…",
    help="Braid with other settings, too, such as query_groups=off, in alternation.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="bench-report",
    show_default=True,
    help="Folder of the report.",
)
@click.option("--quick", is_flag=True, help="Short steps and few queries: rough figures within 3 minutes.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Times everything is measured."
)
@click.option("--seconds", type=click.FloatRange(min=1), help="How long a step lasts.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    help="Offer so many rows a second and stream, and look at latency there, instead of searching.",
)
@click.option(
    "--read",
    "reading",
    type=click.Choice(["probes", "all", "none"]),
    default="probes",
    show_default=True,
    help="Whose rows are read meanwhile: of a few of Braid's queries, of all, or of none.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of queries and rows.")
@click.pass_context
def run(
    context: click.Context,
    workloads: tuple[str, ...],
    listing: bool,
    queries: tuple[int, ...] | None,
    peers: tuple[str, ...],
    variants: tuple[str, ...],
    output: Path,
    quick: bool,
    rounds: int,
    seconds: float | None,
    rate: int | None,
    reading: str,
    seed: int,
) -> None:
    """Measure workloads; the same without the word `run`."""
    if listing:
        _list()
        return
    from braid.bench_driver.bench import missing_packages, run_bench
    from braid.bench_driver.bench_task import Options, resolve_peers, variant
    from braid.bench_driver.workload import list_workloads, load_workload

    if not workloads:
        raise click.UsageError(f"name one or more workloads: {', '.join(list_workloads())}.", context.parent)
    try:
        for name in workloads:
            load_workload(name)
        resolve_peers(peers)
        for settings in variants:
            variant(settings)
    except ValueError as error:
        raise click.UsageError(f"{error}.", context.parent) from None
    if missing := missing_packages():
        click.echo(f"Error: `braid bench` needs {', '.join(missing)}: install it with {INSTALL}", err=True)
        raise SystemExit(REFUSED)
    options = Options(quick, rounds, seconds, seed, reading, rate, variants)
    try:
        status = run_bench(workloads, queries, peers, output, options, stderr())
    except OSError as error:
        click.echo(f"Error: the report cannot be written to {str(output)!r}: {error}", err=True)
        status = REFUSED
    raise SystemExit(status)


@bench.command("list", short_help="List the workloads and the peers.", cls=CliCommand, examples=("braid bench list",))
def list_command() -> None:
    """List the workloads and the peers."""
    _list()


@bench.command(
    short_help="Set two reports side by side.",
    cls=CliCommand,
    examples=("braid bench compare bench-before bench-report", "braid bench compare a.json b.json"),
)
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Set two reports side by side: folders, or files such as report.json."""
    from braid.bench_driver.report.compare import compare_files
    from braid.bench_driver.report.document import ReportError
    from braid.bench_driver.report.terminal import render_comparison

    try:
        comparison = compare_files(before, after)
    except ReportError as error:
        click.echo(f"Error: {error}.", err=True)
        raise SystemExit(WRONG_USAGE) from None
    click.echo(render_comparison(comparison))


def _list() -> None:
    from braid.bench_driver.bench_task import PEERS
    from braid.bench_driver.workload import list_workloads, load_workload

    workloads = [load_workload(name) for name in list_workloads()]
    width = max(len(workload.name) for workload in workloads)
    click.echo("Workloads:")
    for workload in workloads:
        counts = ", ".join(f"{n:,}" for n in workload.counts)
        noun = "query" if workload.counts == (1,) else "queries"
        click.echo(f"  {workload.name:{width}}  {workload.about} ({counts} {noun})")
    click.echo("\nPeers:")
    for family, members in PEERS.items():
        click.echo(f"  {family:{width}}  {', '.join(members)}")
