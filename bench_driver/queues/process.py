"""The driver's side of a queue: start its process, steer it, and read throughput where the system pulls.

Lifecycle: `start` → `run` … `stop_generating` → `stop`. The process has a session of its own, so that Ctrl-C reaches
only the driver, and ends when its standard input closes: on `stop`, and also when the driver dies.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from braid.bench_driver.child import ChildFailedError, ChildProcess, module_command
from braid.bench_driver.queues.schedule import SECOND_US, Schedule, Share

START_SECONDS = 60.0
CALL_SECONDS = 30.0
ENDING_SECONDS = 1.0


class QueueFailedError(Exception):
    """The queue's process did not start, ended by itself, or refused; the text has its words."""


@dataclass(frozen=True)
class QueueSample:
    """At `at` (seconds since 1970): the greatest offsets generated and pulled."""

    at: float
    generated: int
    pulled: Mapping[str, int] = field(default_factory=dict)

    def length(self, consumer: str | None = None) -> int:
        """Return how many tuples wait for a consumer, or without one for the slowest of those that ever pulled."""
        slowest = min(self.pulled.values(), default=0)
        return max(0, self.generated - (slowest if consumer is None else self.pulled.get(consumer, 0)))


@dataclass(frozen=True)
class Pull:
    """A consumer pulled `[start, end)`; `at` is when the first tuples left, in seconds since 1970."""

    at: float
    consumer: str
    start: int
    end: int


class QueueProcess:
    """A generator and its queue for one stream, in a process of its own; a context manager. Threads may share it.

    The stream has its `share` of the rates that the queue is told.
    """

    def __init__(
        self, stream: str, dataset: str, options: Mapping[str, Any], seed: int, share: Share | None = None
    ) -> None:
        self.stream = stream
        self.share = share or Share()
        self.location = ""
        self.schedule = Schedule()
        self._order = {
            "stream": stream,
            "dataset": dataset,
            "options": dict(options),
            "seed": seed,
            "share": [self.share.tuples, self.share.of],
        }
        self._child: ChildProcess | None = None
        self._client: fl.FlightClient | None = None
        self._reading = threading.Lock()
        self._samples: list[QueueSample] = []
        self._pulls: list[Pull] = []
        self._next_sample = 0
        self._next_pull = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The id of the process; None before it is started."""
        return None if self._child is None else self._child.pid

    def start(self) -> Self:
        """Start the process and wait until it serves.

        Raises:
            QueueFailedError: it is already started, or does not start; then nothing is left of it.
        """
        if self._child is not None:
            raise QueueFailedError(f"The queue of {self.stream!r} can be started once; make a new one")
        self._child = ChildProcess(f"queue-{self.stream}", module_command("braid.bench_driver.queues.server")).start()
        try:
            self._child.send(self._order)
            said = self._child.wait_for(lambda value: "location" in value, START_SECONDS, "its location")
            self.location = said.value["location"]
            self._client = fl.FlightClient(self.location)
        except ChildFailedError as error:
            self.stop()
            raise QueueFailedError(f"The queue of {self.stream!r} did not start: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def run(self, at_us: int, profile: Sequence[tuple[float | None, int]]) -> None:
        """Generate from `at_us` on: `(seconds, tuples a second)` after the other, then nothing; None is for ever.

        The backlog that nobody began to pull is dropped. Times are microseconds since 1970.

        Raises:
            QueueFailedError: the process does not answer, or refuses the profile.
        """
        answer = self._call("run", {"at_us": at_us, "profile": [list(part) for part in profile]})
        self.schedule = Schedule.from_json(answer["segments"])

    def stop_generating(self) -> None:
        """Generate no more; the backlog can still be pulled."""
        self.schedule = Schedule.from_json(self._call("stop", {})["segments"])

    def samples(self) -> list[QueueSample]:
        """Return all samples so far, ten a second; each time the whole list."""
        with self._reading:
            answer = self._call("samples", {"after": self._next_sample})
            self._samples += [
                QueueSample(at / SECOND_US, generated, pulled) for at, generated, pulled in answer["samples"]
            ]
            self._next_sample = answer["next"]
            self.schedule = Schedule.from_json(answer["segments"])
            return list(self._samples)

    def pulls(self) -> list[Pull]:
        """Return all pulls so far, in the order in which they began; each time the whole list."""
        with self._reading:
            answer = self._call("pulls", {"after": self._next_pull})
            self._pulls += [Pull(at / SECOND_US, *fields) for at, *fields in answer["pulls"]]
            self._next_pull = answer["next"]
            return list(self._pulls)

    def check_alive(self, seconds: float = 0.0) -> None:
        """Raise QueueFailedError when the process has ended by itself, or does within `seconds`."""
        if self._child is not None and self._client is not None:
            try:
                self._child.check_alive(seconds)
            except ChildFailedError as error:
                raise QueueFailedError(str(error)) from error

    def stop(self) -> None:
        """End the process; harmless to repeat."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._child is not None:
            self._child.stop()

    def _call(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self._client is None:
            raise QueueFailedError(f"The queue of {self.stream!r} must be started before {action!r}, and not stopped")
        try:
            options = fl.FlightCallOptions(timeout=CALL_SECONDS)
            results = list(self._client.do_action((action, json.dumps(body).encode()), options))
        except (pa.ArrowException, OSError) as error:
            assert self._child is not None
            # of a process that ends its connections break first
            self.check_alive(ENDING_SECONDS if isinstance(error, fl.FlightUnavailableError) else 0.0)
            problem = self._child.failure(f"The queue of {self.stream!r} did not do {action!r}: {error}")
            raise QueueFailedError(str(problem)) from error
        return dict(json.loads(results[0].body.to_pybytes()))
