"""Systems under test whose speed is known, to see whether the driver measures it.

They and their queues live on a :class:`FakeClock`: its time goes by only while the driver sleeps, so what is measured
depends on no machine.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from braid.bench_driver.query_spec import QuerySpec
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.process import Pull, QueueSample
from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.queues.schedule import RatePart, Schedule, Share
from braid.bench_driver.queues.tuple_queue import TupleQueue
from braid.bench_driver.systems.system import (
    OWN_GENERATOR,
    QUEUE,
    System,
    SystemDeployment,
    SystemFailedError,
    SystemOutput,
    UnsupportedError,
)
from braid.bench_driver.workload import Churn, Workload

CHUNK_SECONDS = 0.02
LOOK_SECONDS = 0.001
SAMPLE_SECONDS = 0.1
RING_ROWS = 10_000
BEGIN = 1_700_000_000.0


class FakeClock:
    """Time that goes by only while somebody sleeps, and what is to happen meanwhile."""

    def __init__(self) -> None:
        self._now = BEGIN
        self._numbers = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self.queues: dict[str, FakeQueue] = {}

    def now(self) -> float:
        """Return the seconds since 1970."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time go by, and do what is due in it, in order."""
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            at, _, call = heapq.heappop(self._calls)
            self._now = max(self._now, at)
            call()
        self._now = end

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        """Have something happen at a time, or next if that is over."""
        heapq.heappush(self._calls, (at, next(self._numbers), call))


class FakeQueue:
    """A real queue of tuples in this process, on a fake clock."""

    def __init__(self, clock: FakeClock, stream: str = "a", share: Share | None = None) -> None:
        self.clock = clock
        self.share = share or Share()
        self.location = f"fake:{stream}"
        self.tuples = TupleQueue(
            Ring(find_dataset("astream"), {}, 1, stream, RING_ROWS), lambda: round(clock.now() * 1e6), self.share
        )
        clock.queues[self.location] = self
        self._sample()

    @property
    def schedule(self) -> Schedule:
        """When its tuples are generated."""
        return self.tuples.schedule

    def run(self, at_us: int, profile: Sequence[tuple[float | None, int]]) -> None:
        """Generate by a profile."""
        self.tuples.run(at_us, [RatePart(seconds, rate) for seconds, rate in profile])

    def stop_generating(self) -> None:
        """Generate no more."""
        self.tuples.stop()

    def samples(self) -> list[QueueSample]:
        """Return all samples so far."""
        return [QueueSample(at / 1e6, generated, pulled) for at, generated, pulled in self.tuples.samples(0)[0]]

    def pulls(self) -> list[Pull]:
        """Return all pulls so far."""
        return [Pull(at / 1e6, consumer, start, end) for at, consumer, start, end in self.tuples.pulls(0)[0]]

    def _sample(self) -> None:
        self.tuples.sample()
        self.clock.call_at(self.clock.now() + SAMPLE_SECONDS, self._sample)


class FakeSystem(System):
    """Pulls from a queue and takes `1 / tuples_per_second` for each tuple, one after the other.

    It pulls small chunks, or all there is when it works in `batches`, each of which takes `batch_seconds` or longer. It
    lives on `clock`, that of its queues.
    `pulling` is False for one that takes nothing; `fails_in` names the method that fails, `refuses` the reason not to
    run the queries, `unread` rows that nobody gets, `left_out` why there are none.
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
        batch_seconds: float = 0.0,
        unread: str | None = None,
        left_out: str | None = None,
    ) -> None:
        self.clock = FakeClock()
        self._unread = unread
        self._left_out = left_out
        self.tuples_per_second = tuples_per_second
        self.batches = batches
        self.batch_seconds = batch_seconds
        self.calls: list[str] = []
        self.adapts_in = 0
        self.churned: tuple[Sequence[QuerySpec], Churn] | None = None
        self._pulling, self._fails_in, self._refuses = pulling, fails_in, refuses
        self._outputs: list[SystemOutput] = []
        self._pullers: list[_Puller] = []
        self._locations: dict[str, str] = {}

    def start(self, _: Workload, locations: Mapping[str, str]) -> None:
        """Take note of the queues."""
        self._called("start")
        self._locations = dict(locations)

    def deploy(self, queries: Sequence[QuerySpec], _: float) -> SystemDeployment:
        """Begin to pull from every stream."""
        self._called("deploy")
        if self._refuses is not None:
            raise UnsupportedError(self._refuses)
        if self._pulling:
            self._pullers = [
                _Puller(self, self.clock.queues[location], self._outputs) for location in self._locations.values()
            ]
        return SystemDeployment(len(queries), tuple(0.1 * (i + 1) for i in range(len(queries))), 1.0)

    def begin_churn(self, queries: Sequence[QuerySpec], churn: Churn) -> None:
        """Take note of what would come and go."""
        self._called("begin_churn")
        self.churned = (queries, churn)

    def end_churn(self) -> SystemDeployment:
        """Tell of twenty creations and ten deletions in six seconds."""
        self._called("end_churn")
        return SystemDeployment(20, (0.5,) * 20, 6.0, (1.5,) * 10)

    def outputs(self) -> list[SystemOutput]:
        """Return an output for every chunk."""
        self._called("outputs")
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
        return self.clock.now() / 2

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
    """Works off one stream."""

    def __init__(self, system: FakeSystem, queue: FakeQueue, outputs: list[SystemOutput]) -> None:
        self._system, self._queue, self._outputs = system, queue, outputs
        self._at, self._free = queue.tuples.generated(), 0.0
        self._stopped = False
        system.clock.call_at(system.clock.now(), self._pull)

    def stop(self) -> None:
        """Pull no more."""
        self._stopped = True

    def _pull(self) -> None:
        """Pull what comes next, once it is all there, and have it worked off when that takes."""
        if self._stopped:
            return
        clock, tuples = self._system.clock, self._queue.tuples
        rate = self._system.tuples_per_second
        generated = tuples.generated()
        end = self._at + max(1, int(rate * CHUNK_SECONDS))
        if self._system.batches:
            end = max(end, generated)
        if generated < end:
            clock.call_at(clock.now() + LOOK_SECONDS, self._pull)
            return
        for _ in tuples.read(self._at, end, "fake"):
            pass
        newest_us = self._queue.schedule.time_of(end - 1)
        assert newest_us is not None
        newest = newest_us / 1e6
        self._free = max(self._free, newest) + max((end - self._at) / rate, self._system.batch_seconds)
        self._at = end
        clock.call_at(self._free, lambda: self._put_out(newest))

    def _put_out(self, newest: float) -> None:
        if not self._stopped:
            self._outputs.append(SystemOutput(self._system.clock.now(), newest, 1))
            self._pull()


class FakeOwnGenerator(FakeSystem):
    """Makes its tuples up itself, and takes as many as it can or as it is offered; none where `pulling` is False.

    What it can rises evenly `rises_for` seconds long.
    """

    source = OWN_GENERATOR

    def __init__(self, tuples_per_second: int, pulling: bool = True, rises_for: float = 0.0) -> None:
        super().__init__(tuples_per_second, pulling=False)
        self._rises_for = rises_for
        self.offers: list[tuple[float, int | None]] = []
        self._takes = pulling

    def offer(self, tuples_per_second: int | None) -> None:
        """Take so many from now on."""
        self.offers.append((self.clock.now(), tuples_per_second))

    def taken(self) -> list[tuple[float, int]]:
        """Return what it took by now, ten times a second since the first offer."""
        if not self._takes:
            return []
        end, count, points = self.clock.now(), 0.0, []
        begin = self.offers[0][0] if self.offers else end - 1.0
        for tick in range(int((end - begin) * 10)):
            at = begin + tick / 10
            limit = [rate for since, rate in self.offers if since <= at][-1:]
            capacity = self.tuples_per_second * (min(1.0, tick / 10 / self._rises_for) if self._rises_for else 1.0)
            count += min(capacity, limit[0] if limit and limit[0] is not None else capacity) / 10
            points.append((at, int(count)))
        return points

    def outputs(self) -> list[SystemOutput]:
        """Return an output a tenth of a second after each count."""
        return [SystemOutput(at + 0.1, at, 1) for at, _ in self.taken() if at + 0.1 <= self.clock.now()]
