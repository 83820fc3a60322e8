"""See the service at work: generated streams, queries that come and go, rows as they arrive.

`python -m bench_driver.demo [--seconds N]`, also `make demo` and `braid demo`. Exit status 0 when it went through
(Ctrl-C included), 1 when the service failed, 130 when it was interrupted before the service was ready.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from api.client import BraidClient, BraidError, BraidUnreachable, query_body
from bench_driver import statistics
from bench_driver.demo_screen import Header, draw, plain_console, plain_line, plain_rows, seconds_text
from bench_driver.demo_script import EXAMPLES, STREAMS, Example, added_later, change_times, more_examples
from bench_driver.demo_watch import Snapshot, Totals, Watch
from bench_driver.service_process import ServiceFailedError, ServiceProcess

LOOK_SECONDS = 0.5
PLAIN_SECONDS = 2.0
DEPLOY_SECONDS = 60.0
SILENT_SECONDS = 15.0
INTERRUPTED = 130


def run_demo(seconds: int | None) -> int:
    """Run the demo for `seconds` after the service is ready, or until Ctrl-C; return the exit status."""
    console = plain_console()
    demo: Demo | None = None
    with _interruptible():
        try:
            service = ServiceProcess("demo")
            try:
                service.start()
                demo = Demo(service, seconds, console)
                demo.prepare()
                demo.run()
            finally:
                service.stop(keep_logs=isinstance(sys.exception(), Exception))
        except KeyboardInterrupt:
            # an interrupt while Python executes source text, as dataclasses do, would make a program run with -m end by
            # SIGINT whatever it returns; executing another text clears that
            exec("")
            if demo is None or not demo.prepared:
                console.print("Stopped before the service was ready.")
                return INTERRUPTED
        except ServiceFailedError as error:
            print(f"braid demo: {error}", file=sys.stderr)
            return 1
        except BraidError as error:
            print(f"braid demo: {error}. What the service said is in {service.log}", file=sys.stderr)
            return 1
    assert demo is not None
    console.print(demo.summary())
    return 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the signals that end a program end this one in order: as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        # what follows is cleaning up, which a second Ctrl-C must not tear apart
        for number in previous_handlers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


class Demo:
    """One run: `prepare` starts and fills the service, `run` shows and changes it, `summary` tells what it was."""

    def __init__(self, service: ServiceProcess, seconds: int | None, console: Console) -> None:
        self._service = service
        self._seconds = seconds
        self._console = console
        self._client = BraidClient(service.url, timeout=20)
        self._watch = Watch(self._client, {})
        self._news: deque[str] = deque(maxlen=8)
        self._added: dict[str, Example] = {}
        self._awaited: set[str] = set()
        self._draining: set[str] = set()
        self._retired = 0
        self._registered = 0
        self._start_seconds = 0.0
        self._elapsed = 0.0
        self.prepared = False

    def prepare(self) -> None:
        """Wait for the service, create the streams, register the examples; ServiceFailedError, BraidError."""
        say = self._console.print
        if self._console.is_terminal:
            with self._console.status("Starting a service …") as status:
                self._start_seconds = self._service.wait_ready(tick=lambda why: status.update(self._starting(why)))
        else:
            say("Starting a service, which takes 10 to 30 seconds …")
            self._start_seconds = self._service.wait_ready()
        say(f"The service is ready after {self._start_seconds:.1f} s at {self._service.url}")
        for sql in STREAMS:
            say(f"Stream {self._client.create_stream(sql)['name']} created")
        examples = [*EXAMPLES, *more_examples()]
        bodies = [query_body(example.sql, name=example.name) for example in examples]
        queries = self._client.create_queries(bodies, wait=DEPLOY_SECONDS)
        self._registered = len(queries)
        say(f"{len(queries)} queries registered in one request")
        pairs = zip(examples, queries, strict=True)
        watched = {example.name: query["id"] for example, query in pairs if example.watched}
        self._watch = Watch(self._client, watched)
        self.prepared = True

    def _starting(self, why: str) -> str:
        waited = time.monotonic() - self._service.started_at
        return f"Starting a service, {waited:.0f} s (it takes 10 to 30): {why}"

    def run(self) -> None:
        """Show the service until the time is up; ServiceFailedError when it fails on the way."""
        began = time.monotonic()
        self._news.append(f"{self._registered} queries run; one will be added and one retired while they do")
        if not self._console.is_terminal:
            for moment in self._moments(began, PLAIN_SECONDS):
                self._console.print("\n".join([plain_line(self._header(), moment), *plain_rows(moment)]))
        else:
            with Live(console=self._console, screen=True, auto_refresh=False) as live:
                for moment in self._moments(began, LOOK_SECONDS):
                    width, height = self._console.size
                    live.update(draw(self._header(), moment, self._news, width, height), refresh=True)
        if not any(self._watch.totals.tuples.values()):
            raise self._service.failure("The generated streams must deliver tuples, and none came")

    def _header(self) -> Header:
        return Header(self._service.url, self._elapsed, self._seconds)

    def _moments(self, began: float, pause: float) -> Iterator[Snapshot]:
        """Yield what the service looks like every `pause` seconds, and make the changes that are due."""
        changes = change_times(self._seconds)
        next_change, number = next(changes, None), 0
        last_answer = time.monotonic()
        while True:
            look_began = time.monotonic()
            self._service.check_alive()
            self._elapsed = look_began - began
            try:
                if next_change is not None and self._elapsed >= next_change:
                    number += 1
                    self._change(number)
                    next_change = next(changes, None)
                snapshot = self._watch.look()
                last_answer = time.monotonic()
            except BraidUnreachable as error:
                if time.monotonic() - last_answer > SILENT_SECONDS:
                    raise self._service.failure(f"The service stopped answering: {error}") from error
            else:
                self._announce(snapshot)
                yield snapshot
            seconds_left = float("inf") if self._seconds is None else began + self._seconds - time.monotonic()
            if seconds_left <= 0:
                return
            time.sleep(max(0.0, min(seconds_left, look_began + pause - time.monotonic())))

    def _change(self, number: int) -> None:
        """Add a query as an odd change, retire the one that was added last as an even one."""
        if number % 2:
            example = added_later(number // 2 + 1)
            query = self._client.create_query(example.sql, name=example.name)
            self._registered += 1
            self._added[query["id"]] = example
            self._awaited.add(query["id"])
            self._say(f"+ added {example.name}: {example.sql}")
        elif self._added:
            query_id, example = self._added.popitem()
            self._client.delete_query(query_id)
            self._retired += 1
            self._draining.add(query_id)
            self._say(f"- retiring {example.name}: it drains, the others go on")

    def _announce(self, snapshot: Snapshot) -> None:
        for query in snapshot.queries:
            if query.id in self._awaited and query.state == "RUNNING":
                self._awaited.discard(query.id)
                self._say(f"  {query.name} is RUNNING after {seconds_text(query.deployment_latency)}")
            elif query.id in self._draining and query.state == "RETIRED":
                self._draining.discard(query.id)
                self._say(f"  {query.name} is RETIRED with {query.rows:,} rows delivered")

    def _say(self, news: str) -> None:
        line = f"{self._elapsed:5.1f} s  {news}"
        self._news.append(line)
        if not self._console.is_terminal:
            self._console.print(line)

    def summary(self) -> str:
        """Tell what was done and seen."""
        lines = summary_lines(self._watch.totals, self._registered, self._retired)
        run_text = f"{self._elapsed:.0f} s on one service, which was ready after {self._start_seconds:.1f} s"
        return "\n".join(["", "What this demo did", f"  ran                 {run_text}", *lines])


def summary_lines(totals: Totals, registered: int, retired: int) -> list[str]:
    """Return the totals as lines of `what  figures`."""
    deployments, latencies = list(totals.deployment_latency.values()), totals.event_time_latency
    tuples = ", ".join(f"{name} {count:,}" for name, count in totals.tuples.items())
    lines = [
        f"  queries             {registered} registered, {retired} retired",
        f"  tuples              {sum(totals.tuples.values()):,} ({tuples})",
        f"  rows delivered      {sum(totals.rows.values()):,}, of which {totals.rows_read:,} were read here",
        f"  deployment latency  median {_figures(deployments)}",
        f"  event-time latency  median {_figures(latencies)}",
    ]
    lines += [f"  FAILED              {query}: {error}" for query, error in totals.failed.items()]
    return lines


def _figures(values: list[float]) -> str:
    return f"{seconds_text(statistics.median(values))}, max {seconds_text(max(values, default=None))}"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="python -m bench_driver.demo", description="See the service at work.")
    parser.add_argument("--seconds", type=_positive, help="how long it runs once it is ready; else until Ctrl-C")
    return run_demo(parser.parse_args(arguments).seconds)


def _positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of seconds above 0, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
