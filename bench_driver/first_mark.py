"""The first speed marks, measured from outside: start, deployment, one query, 200 queries, 1000 queries.

`python -m bench_driver.first_mark [--quick] [--peer spark] [--only PART] [--output FILE.json]` prints a table, and
writes all figures as JSON. It takes about ten minutes, `--quick` about five, the peer another quarter of an hour. Exit
status 1 when a part failed; the others are still measured. The driver and the service share the machine's cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from api.client import BraidError
from bench_driver.first_mark_report import render
from bench_driver.first_mark_workload import SEED
from bench_driver.machine import machine, versions
from bench_driver.scenarios import measure_deployments, measure_load, measure_starts
from bench_driver.service_process import ServiceFailedError
from bench_driver.versus_spark import PeerFailedError, measure_versus_spark

PARTS = ("start", "deployment", "one", "many", "thousand")
ONE_RATE = 1_000_000
MANY_RATE = 500_000
MANY = 200
THOUSAND = 1000
# below this, batches of some seconds are too few to tell a rate
LEAST_PEER_SECONDS = 20.0


def say(text: str) -> None:
    """Tell on standard error how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def measure(parts: list[str], quick: bool, peer: str | None) -> dict[str, Any]:
    """Run the parts that are wanted and return the report."""
    seconds, rounds = (16.0, 1) if quick else (60.0, 2)
    report: dict[str, Any] = {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {"quick": quick, "seconds": seconds, "seed": SEED},
        "machine": machine(),
        "versions": versions(),
        "start": None,
        "deployment": None,
        "load": [],
        "peer": None,
        "failures": [],
    }

    def load(queries: int, rate: int, filtered: bool = True) -> None:
        report["load"].append(asdict(measure_load(queries, rate, seconds, say, filtered)))

    scenarios: dict[str, Callable[[], Any]] = {
        "start": lambda: report.update(start=asdict(measure_starts(1 if quick else 3, say))),
        "deployment": lambda: report.update(deployment=asdict(measure_deployments(10 if quick else 50, say))),
        "one": lambda: load(1, ONE_RATE, filtered=False),
        "many": lambda: load(MANY, MANY_RATE),
        "thousand": lambda: load(THOUSAND, MANY_RATE),
    }
    wanted = {name: scenarios[name] for name in parts}
    if peer == "spark":
        wanted["peer"] = lambda: report.update(
            peer=measure_versus_spark(rounds, max(LEAST_PEER_SECONDS, seconds / 2), say)
        )
    for name, scenario in wanted.items():
        say(f"measuring: {name}")
        try:
            scenario()
        except (ServiceFailedError, BraidError, PeerFailedError, httpx.HTTPError) as error:
            say(f"{name} failed: {error}")
            report["failures"].append({"scenario": name, "error": str(error)})
    return report


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m bench_driver.first_mark", description="Measure the speed of this checkout on this machine."
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first impression")
    parser.add_argument("--peer", choices=["spark"], help="also measure stock Spark on the same queries")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure this part only; may be given several times"
    )
    parser.add_argument("--no-parts", action="store_true", help="measure nothing but the peer")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="where to write all figures")
    options = parser.parse_args(arguments)
    if options.no_parts and not options.peer:
        parser.error("--no-parts leaves nothing to measure: give --peer with it")
    output: Path | None = options.output
    if output is not None:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.touch()
        except OSError as error:
            parser.error(f"--output must be a file that can be written, got {str(output)!r}: {error.strerror}")
    parts = [] if options.no_parts else [part for part in PARTS if part in (options.only or PARTS)]
    try:
        report = measure(parts, options.quick, options.peer)
    except KeyboardInterrupt:
        say("interrupted: nothing is reported")
        return 130
    print(render(report))
    if output is not None:
        output.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
