"""What the systems have in common whose queries run in a program of the peer: its answers, queries that come and go.

The program says on its standard output, an object a line, which queries (or jobs) run and which have stopped, what came
to the consumer (`arrived`, `latest`), how many tuples were taken, and what was refused or has failed.
"""

from __future__ import annotations

import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from braid.bench_driver.child import ChildProcess, OutputLine
from braid.bench_driver.systems.system import (
    System,
    SystemDeployment,
    SystemFailedError,
    SystemOutput,
    UnsupportedError,
)
from braid.bench_driver.workload import Churn

RUNNING, STOPPED = "running", "stopped"
CHURN_SECONDS = 120.0
POLL_SECONDS = 0.02


@dataclass
class PeerAnswers:
    """What the program said so far; `failed` has the number of a query, None for none of them, and the reason."""

    lines: int = 0
    acknowledged_at: dict[tuple[str, int], float] = field(default_factory=dict)
    """When it said that a query is RUNNING or STOPPED, in seconds since 1970."""
    outputs: list[SystemOutput] = field(default_factory=list)
    taken: list[tuple[float, int]] = field(default_factory=list)
    refused: str | None = None
    failed: tuple[int | None, str] | None = None

    def take(self, lines: Sequence[OutputLine]) -> None:
        """Take in what it said since the last time."""
        self.lines += len(lines)
        for line in lines:
            match line.value:
                case {"arrived": arrived, "latest": latest}:
                    self.outputs += [SystemOutput(arrived, event_time, rows) for event_time, rows in latest]
                case {"taken": [at, rows]}:
                    self.taken.append((at, rows))
                case {"running": int(number)}:
                    self.acknowledged_at[RUNNING, number] = line.arrived
                case {"stopped": int(number)}:
                    self.acknowledged_at[STOPPED, number] = line.arrived
                case {"refused": _, "reason": reason}:
                    self.refused = reason
                case {"failed": number, "reason": reason}:
                    self.failed = number, reason


class ChurnThread(threading.Thread):
    """Replaces queries every so often; a round is asked for when the one before is acknowledged (thesis 4.4.1).

    `replace` makes the query of a number and retires the oldest, and returns both; `acknowledged` tells whether both
    are done. `replacements` are (when it was due, query created, query retired): waiting for the round before is
    latency, too.
    """

    def __init__(
        self,
        churn: Churn,
        replace: Callable[[int], tuple[int, int]],
        acknowledged: Callable[[int, int], bool],
    ) -> None:
        super().__init__(name="churn", daemon=True)
        self._churn = churn
        self._replace = replace
        self._acknowledged = acknowledged
        self._ending = threading.Event()
        self._given_up = threading.Event()
        self.replacements: list[tuple[float, int, int]] = []
        self.error: SystemFailedError | UnsupportedError | None = None
        self.began = time.time()

    def run(self) -> None:
        """Make rounds until told to end, or until one fails."""
        due = self.began
        try:
            while not self._ending.wait(max(0.0, due - time.time())):
                first = len(self.replacements)
                latest = [(due, *self._replace(first + i)) for i in range(self._churn.queries)]
                self.replacements += latest
                while not all(self._acknowledged(created, retired) for _, created, retired in latest):
                    if self._given_up.is_set():
                        return
                    time.sleep(POLL_SECONDS)
                due += self._churn.every_seconds
        except (SystemFailedError, UnsupportedError) as error:
            self.error = error

    def end(self, seconds: float) -> None:
        """Ask for no more, and wait that long for what was asked for."""
        self._ending.set()
        self.join(seconds)
        self._given_up.set()
        self.join()


class PeerSystem(System):
    """One peer; `product` is whose words a refusal is in."""

    product: str

    def __init__(self, name: str) -> None:
        self.name = name
        self._peer: ChildProcess | None = None
        self._answers = PeerAnswers()
        self._reading = threading.Lock()
        self._churn: ChurnThread | None = None

    @abstractmethod
    def _problem(self, number: int | None, reason: str) -> str:
        """Return in words that a query, or the program, has failed."""

    def end_churn(self) -> SystemDeployment:
        """Ask for no more, wait for what was asked for, and tell of it."""
        churn, self._churn = self._churn, None
        if churn is None:
            raise SystemFailedError(f"{self.name}: a churn must be begun before it is ended")
        churn.end(CHURN_SECONDS)
        if isinstance(churn.error, UnsupportedError):
            raise churn.error
        unfinished = [created for _, created, retired in churn.replacements if not self._acknowledged(created, retired)]
        if churn.error is not None or unfinished:
            wanted = f"{len(unfinished)} of {len(churn.replacements)} must be made and retired, and are not"
            raise self._started().failure(f"{self.name} does not sustain the churn: {churn.error or wanted}")
        times = self._answers.acknowledged_at
        creations = tuple(times[RUNNING, created] - due for due, created, _ in churn.replacements)
        deletions = tuple(times[STOPPED, retired] - due for due, _, retired in churn.replacements)
        return SystemDeployment(len(creations), creations, time.time() - churn.began, deletions)

    def taken(self) -> list[tuple[float, int]]:
        """Return what the slowest query took of the peer's own generator, whenever it took some."""
        self._read()
        return list(self._answers.taken)

    def outputs(self) -> list[SystemOutput]:
        """Return the rows of the probe queries, those read at once and of one millisecond of event time together."""
        self._read()
        return list(self._answers.outputs)

    def _open(self, peer: ChildProcess, task: Mapping[str, Any], seconds: float) -> Any:
        """Start the program, tell it its task, and return what it says when it is ready; a failure leaves nothing."""
        self._peer = peer.start()
        try:
            peer.send(task)
            return peer.wait_for(lambda line: "ready" in line, seconds, f"word that {self.product} is ready").value[
                "ready"
            ]
        except BaseException:
            self.stop()
            raise

    def _run(
        self,
        requests: Sequence[Callable[[], int]],
        per_second: float,
        deadline: float,
        requirement: str,
        unacknowledged: float = math.inf,
    ) -> tuple[float, ...]:
        """Make requests, each of which gives the number of what it starts, and wait until all of that runs.

        So many a second are due, and no more than so many are `unacknowledged` (thesis 4.4.1). Returns the seconds from
        when each was due until it ran.

        Raises:
            SystemFailedError: the requirement is not met by the deadline, in seconds since 1970.
        """
        began = time.time()
        due: dict[int, float] = {}
        for place, request in enumerate(requests):
            while time.time() < began + place / per_second or place - self._running(due) >= unacknowledged:
                self._pause(deadline, f"{requirement}, got {self._running(due)} of them running")
            due[request()] = began + place / per_second
        self._wait_running(due, deadline, requirement)
        return tuple(self._answers.acknowledged_at[RUNNING, number] - due_at for number, due_at in due.items())

    def stop(self) -> None:
        """End the program and everything else in its session, and remove their files."""
        churn, self._churn = self._churn, None
        if churn is not None:
            churn.end(0.0)
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.stop()

    def _started(self) -> ChildProcess:
        if self._peer is None:
            raise SystemFailedError(f"{self.name} must be started before it is asked anything, and is not running")
        return self._peer

    def _start_churn(self, churn: Churn, replace_oldest: Callable[[int], tuple[int, int]]) -> None:
        """Begin a churn; `replace_oldest` makes the query of a number and retires the oldest, and returns both."""
        if self._churn is not None:
            raise SystemFailedError(f"{self.name}: the churn before must be ended before another begins")
        self._churn = ChurnThread(churn, replace_oldest, self._acknowledged)
        self._churn.start()

    def _acknowledged(self, created: int, retired: int) -> bool:
        self._read()
        return {(RUNNING, created), (STOPPED, retired)} <= self._answers.acknowledged_at.keys()

    def _wait_running(self, numbers: Collection[int], deadline: float, requirement: str) -> None:
        while (running := self._running(numbers)) < len(numbers):
            self._pause(deadline, f"{requirement}, got {running} of them running")

    def _running(self, numbers: Collection[int]) -> int:
        self._read()
        return sum((RUNNING, number) in self._answers.acknowledged_at for number in numbers)

    def _pause(self, deadline: float, problem: str) -> None:
        self._read()
        if time.time() >= deadline:
            raise self._started().failure(f"{self.name}: {problem}")
        time.sleep(POLL_SECONDS)

    def _read(self) -> None:
        """Take in what the program said since the last time.

        Raises SystemFailedError when it or a query failed, UnsupportedError when it refused one.
        """
        peer = self._peer
        if peer is None or not peer.is_started:
            return
        with self._reading:
            self._answers.take(peer.lines(self._answers.lines))
            refused, failed = self._answers.refused, self._answers.failed
        if refused is not None:
            raise UnsupportedError(f"{self.product}: {refused}")
        if failed is not None:
            raise peer.failure(f"{self.name}: {self._problem(*failed)}")
        peer.check_alive()
