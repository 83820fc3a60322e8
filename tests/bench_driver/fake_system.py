"""Systems under test whose speed is known, to see whether the driver measures it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from bench_driver.query_spec import QuerySpec
from bench_driver.systems.system import (
    OWN_GENERATOR,
    QUEUE,
    Deployment,
    Output,
    SystemFailedError,
    UnsupportedError,
)
from bench_driver.workload import Churn, Workload

CHUNK_SECONDS = 0.02
STOP_SECONDS = 10.0


class FakeSystem:
    """Pulls from a real queue and takes `1 / tuples_per_second` for each tuple, one after the other.

    When it is done with a chunk is worked out from when its tuples came, not from when this process gets the processor:
    delayed by other programs, it catches up at once. So its speed is exact on a busy machine, too. It pulls small
    chunks, or all there is when it works in `batches`. `pulling` is False for one that takes nothing; `fails_in` names
    the method that fails, `refuses` the reason not to run the queries, `unread` rows that nobody gets, `left_out` why
    there are none.
    """

    name = "fake"
    source = QUEUE

    def __init__(
        self,
        tuples_per_second: int,
        pulling: bool = True,
        fails_in: str | None = None,
        refuses: str | None = None,
        batches: bool = False,
        unread: str | None = None,
        left_out: str | None = None,
    ) -> None:
        self._unread = unread
        self._left_out = left_out
        self.tuples_per_second = tuples_per_second
        self.batches = batches
        self.calls: list[str] = []
        self.adapts_in = 0
        self.churned: tuple[Sequence[QuerySpec], Churn] | None = None
        self._pulling, self._fails_in, self._refuses = pulling, fails_in, refuses
        self._outputs: list[Output] = []
        self._pullers: list[_Puller] = []
        self._locations: dict[str, str] = {}

    def start(self, _: Workload, locations: Mapping[str, str]) -> None:
        """Take note of the queues."""
        self._called("start")
        self._locations = dict(locations)

    def deploy(self, queries: Sequence[QuerySpec], _: float) -> Deployment:
        """Begin to pull from every stream."""
        self._called("deploy")
        if self._refuses is not None:
            raise UnsupportedError(self._refuses)
        if self._pulling:
            self._pullers = [_Puller(self, *place, self._outputs) for place in self._locations.items()]
        return Deployment(len(queries), tuple(0.1 * (i + 1) for i in range(len(queries))), 1.0)

    def begin_churn(self, queries: Sequence[QuerySpec], churn: Churn) -> None:
        """Take note of what would come and go."""
        self._called("begin_churn")
        self.churned = (queries, churn)

    def end_churn(self) -> Deployment:
        """Tell of twenty creations and ten deletions in six seconds."""
        self._called("end_churn")
        return Deployment(20, (0.5,) * 20, 6.0, (1.5,) * 10)

    def offer(self, _: int | None) -> None:
        """Ignore it: the queues say what comes."""

    def taken(self) -> list[tuple[float, int]]:
        """Return nothing: the queues say what it took."""
        return []

    def outputs(self) -> list[Output]:
        """Return an output for every chunk."""
        self._called("outputs")
        for puller in self._pullers:
            puller.check()
        return list(self._outputs)

    def left_out(self) -> str | None:
        """Return why it leaves rows out."""
        self._called("left_out")
        return self._left_out

    def missing(self, _: float) -> str | None:
        """Return what its readers never get."""
        self._called("missing")
        return self._unread

    def has_adapted(self) -> bool:
        """Return True when asked the last time that it should not be."""
        self._called("has_adapted")
        return self.calls.count("has_adapted") > self.adapts_in

    def processor_seconds(self) -> float:
        """Return half of the time that goes by."""
        return time.monotonic() / 2

    def settings(self) -> dict[str, Any]:
        """Return its speed."""
        return {"tuples_per_second": self.tuples_per_second}

    def stop(self) -> None:
        """Pull no more, also when stopping fails."""
        for puller in self._pullers:
            puller.stop()
        self._pullers = []
        self._called("stop")

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if method == self._fails_in:
            raise SystemFailedError(f"{method} failed on purpose")


class _Puller:
    """A thread that works off one stream."""

    def __init__(self, system: FakeSystem, stream: str, location: str, outputs: list[Output]) -> None:
        self._system, self._stream, self._location, self._outputs = system, stream, location, outputs
        self._lock = threading.Lock()
        self._reader: fl.FlightStreamReader | None = None
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=f"fake-{stream}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise SystemFailedError when it ended by itself."""
        if self._error is not None:
            raise SystemFailedError(f"the fake system ended: {self._error}")

    def stop(self) -> None:
        """End the thread, also while it waits for tuples."""
        self._stopping.set()
        deadline = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            with self._lock:
                if self._reader is not None:
                    self._reader.cancel()
            self._thread.join(0.1)
        assert not self._thread.is_alive(), "the fake system does not end"

    def _work(self) -> None:
        try:
            with fl.FlightClient(self._location) as client:
                self._pull(client)
        except Exception as error:
            if not self._stopping.is_set():
                self._error = error

    def _pull(self, client: fl.FlightClient) -> None:
        at, free = self._generated(client), 0.0
        while not self._stopping.is_set():
            rate = self._system.tuples_per_second
            end = at + max(1, int(rate * CHUNK_SECONDS))
            if self._system.batches:
                end = max(end, self._generated(client))
            ticket = {"path": self._stream, "partition": "0", "start": at, "end": end, "consumer": "fake"}
            reader = client.do_get(fl.Ticket(json.dumps(ticket).encode()))
            with self._lock:
                self._reader = reader
            # not read_all(): when it is cancelled, pyarrow interrupts the main thread
            newest = max(chunk.data["time"].cast(pa.int64())[-1].as_py() for chunk in reader) / 1e6
            free = max(free, newest) + (end - at) / rate
            self._stopping.wait(max(0.0, free - time.time()))
            self._outputs.append(Output(time.time(), newest, 1))
            at = end

    def _generated(self, client: fl.FlightClient) -> int:
        [answer] = client.do_action(("offsets", json.dumps({"path": self._stream, "consumer": "fake"}).encode()))
        return int(json.loads(answer.body.to_pybytes())["partitions"]["0"]["end"])


class FakeOwnGenerator(FakeSystem):
    """Makes its tuples up itself, and takes as many as it can or as it is offered; none where `pulling` is False."""

    source = OWN_GENERATOR

    def __init__(self, tuples_per_second: int, pulling: bool = True) -> None:
        super().__init__(tuples_per_second, pulling=False)
        self.offers: list[tuple[float, int | None]] = []
        self._takes = pulling

    def offer(self, tuples_per_second: int | None) -> None:
        """Take so many from now on."""
        self.offers.append((time.time(), tuples_per_second))

    def taken(self) -> list[tuple[float, int]]:
        """Return what it took by now, ten times a second since the first offer."""
        if not self._takes:
            return []
        end, count, points = time.time(), 0.0, []
        begin = self.offers[0][0] if self.offers else end - 1.0
        for tick in range(int((end - begin) * 10)):
            at = begin + tick / 10
            limit = [rate for since, rate in self.offers if since <= at][-1:]
            capacity = self.tuples_per_second
            count += min(capacity, limit[0] if limit and limit[0] is not None else capacity) / 10
            points.append((at, int(count)))
        return points

    def outputs(self) -> list[Output]:
        """Return an output a tenth of a second after each count."""
        return [Output(at + 0.1, at, 1) for at, _ in self.taken() if at + 0.1 <= time.time()]
