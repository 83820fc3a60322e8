"""See the service at work: generated streams, queries that come and go, rows as they arrive.

`python -m braid.bench_driver.demo [--seconds N]`, also `make demo` and `braid demo`. Exit status 0 when it went through
(Ctrl-C included), 1 when the service failed, 130 when it was interrupted before the service was ready.
"""

from __future__ import annotations

import argparse
import sys
import time

from braid.bench_driver.demo_script import EXAMPLES, STREAMS, Example, added_later, change_times, more_examples
from braid.bench_driver.demo_watch import DemoMoment, DemoWatch, Totals
from braid.bench_driver.measure import statistics
from braid.bench_driver.programs.standalone import interruptible
from braid.bench_driver.report.text import two_decimals
from braid.bench_driver.service_process import ServiceFailedError, ServiceProcess
from braid.client import BraidError, Client, Unreachable, query_body

LOOK_SECONDS = 2.0
DEPLOY_SECONDS = 60.0
SILENT_SECONDS = 15.0
INTERRUPTED = 130


def run_demo(seconds: int | None) -> int:
    """Run the demo for `seconds` after the service is ready, or until Ctrl-C; return the exit status."""
    demo: Demo | None = None
    with interruptible():
        try:
            service = ServiceProcess("demo")
            try:
                service.start()
                demo = Demo(service, seconds)
                demo.prepare()
                demo.run()
            finally:
                service.stop(keep_logs=isinstance(sys.exception(), Exception))
        except KeyboardInterrupt:
            # an interrupt while Python executes source text, as dataclasses do, would make a program run with -m end by
            # SIGINT whatever it returns; executing another text clears that
            exec("")
            if demo is None or not demo.prepared:
                print("Stopped before the service was ready.")
                return INTERRUPTED
        except (ServiceFailedError, BraidError) as error:
            log = "" if isinstance(error, ServiceFailedError) else f". What the service said is in {service.log}"
            print(f"braid demo: {error}{log}", file=sys.stderr)
            return 1
    assert demo is not None
    print("\n".join(demo.summary()))
    return 0


class Demo:
    """One run: `prepare` starts and fills the service, `run` shows and changes it, `summary` tells what it was."""

    def __init__(self, service: ServiceProcess, seconds: int | None) -> None:
        self._service = service
        self._seconds = seconds
        self._client = Client(service.url, timeout=20)
        self._watch = DemoWatch(self._client, {})
        self._added: dict[str, Example] = {}
        self._awaited: dict[str, str] = {}
        """By id of a query that was added or retired, the state that it will have."""
        self._retired = 0
        self._registered = 0
        self._start_seconds = 0.0
        self._elapsed = 0.0
        self.prepared = False

    def prepare(self) -> None:
        """Wait for the service, create the streams, register the examples; ServiceFailedError, BraidError."""
        print("Starting a service, which takes up to a minute …", flush=True)
        self._start_seconds = self._service.wait_ready()
        print(f"The service is ready after {self._start_seconds:.1f} s; watch it in a browser: {self._service.url}")
        for sql in STREAMS:
            print(f"Stream {self._client.create_stream(sql)['name']} created")
        examples = [*EXAMPLES, *more_examples()]
        bodies = [query_body(example.sql, name=example.name) for example in examples]
        queries = self._client.create_queries(bodies, wait=DEPLOY_SECONDS)
        self._registered = len(queries)
        print(f"{len(queries)} queries registered in one request; one will be added and one retired while they run")
        pairs = zip(examples, queries, strict=True)
        self._watch = DemoWatch(
            self._client, {example.name: query["id"] for example, query in pairs if example.watched}
        )
        self.prepared = True

    def run(self) -> None:
        """Show the service until the time is up; ServiceFailedError when it fails on the way."""
        began = last_answer = time.monotonic()
        changes = enumerate(change_times(self._seconds), start=1)
        number, due = next(changes)
        while True:
            look_began = time.monotonic()
            self._service.check_alive()
            self._elapsed = look_began - began
            try:
                if self._elapsed >= due:
                    self._change(number)
                    number, due = next(changes, (0, float("inf")))
                moment = self._watch.look()
                last_answer = time.monotonic()
            except Unreachable as error:
                if time.monotonic() - last_answer > SILENT_SECONDS:
                    raise self._service.failure(f"The service stopped answering: {error}") from error
            else:
                self._announce(moment)
                print(f"{self._elapsed:5.1f} s | {moment.text()}", flush=True)
            seconds_left = float("inf") if self._seconds is None else began + self._seconds - time.monotonic()
            if seconds_left <= 0:
                break
            time.sleep(max(0.0, min(seconds_left, look_began + LOOK_SECONDS - time.monotonic())))
        if not any(self._watch.totals.tuples.values()):
            raise self._service.failure("The generated streams must deliver rows, and none came")

    def _change(self, number: int) -> None:
        """Add a query as an odd change, retire the one that was added last as an even one."""
        if number % 2:
            example = added_later(number // 2 + 1)
            query = self._client.create_query(example.sql, name=example.name)
            self._registered += 1
            self._added[query["id"]] = example
            self._awaited[query["id"]] = "RUNNING"
            self._say(f"+ added {example.name}: {example.sql}")
        elif self._added:
            query_id, example = self._added.popitem()
            self._client.delete_query(query_id)
            self._retired += 1
            self._awaited[query_id] = "RETIRED"
            self._say(f"- retiring {example.name}: it drains, the others go on")

    def _announce(self, moment: DemoMoment) -> None:
        for query in moment.queries:
            if self._awaited.get(query["id"]) == query["state"]:
                del self._awaited[query["id"]]
                after = two_decimals(query["deployment_latency_seconds"])
                rows = f"with {query['rows_out']:,} rows delivered"
                since = f"after {after}" if query["state"] == "RUNNING" else rows
                self._say(f"  {query['name']} is {query['state']} {since}")

    def _say(self, news: str) -> None:
        print(f"{self._elapsed:5.1f} s  {news}", flush=True)

    def summary(self) -> list[str]:
        """Return what was done and seen, in lines."""
        ran = f"{self._elapsed:.0f} s on one service, which was ready after {self._start_seconds:.1f} s"
        lines = summary_lines(self._watch.totals, self._registered, self._retired)
        return ["", "What this demo did", f"  ran                 {ran}", *lines]


def summary_lines(totals: Totals, registered: int, retired: int) -> list[str]:
    """Return the totals as lines of `what  figures`."""
    deployments, latencies = list(totals.deployment_latency.values()), totals.event_time_latency
    tuples = ", ".join(f"{name} {count:,}" for name, count in totals.tuples.items())
    lines = [
        f"  queries             {registered} registered, {retired} retired",
        f"  rows read           {sum(totals.tuples.values()):,} ({tuples})",
        f"  rows delivered      {sum(totals.rows.values()):,} by all queries; the demo read {totals.rows_read:,}",
        f"  deployment latency  median {_figures(deployments)}",
        f"  event-time latency  median {_figures(latencies)}",
    ]
    return lines + [f"  FAILED              {query}: {error}" for query, error in totals.failed.items()]


def _figures(values: list[float]) -> str:
    return f"{two_decimals(statistics.median(values))}, max {two_decimals(max(values, default=None))}"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="python -m braid.bench_driver.demo", description="See the service at work.")
    parser.add_argument("--seconds", type=_positive, help="how long it runs once it is ready; else until Ctrl-C")
    return run_demo(parser.parse_args(arguments).seconds)


def _positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of seconds above 0, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
