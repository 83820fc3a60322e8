"""Profile the session alone under the load of a control plane: ``python -m tests.session.profile_session``.

No REST, no Spark: requests go to :class:`~braid.session.shared_session.SharedSession`, batch records are written by
hand, and the clock is a fake. Prints the processor time of each kind of work, then what cProfile says of it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from braid.session.state.query_record import RUNNING
from tests.session.driver import AGGREGATION, BEGINNING, SECOND, Driver

ARRAY = 100


class Load:
    """A session with many running queries, and the seconds of processor time that each kind of work took."""

    def __init__(self, folder: Path) -> None:
        self.driver = Driver(folder, max_queries=100_000)
        self.driver.stream()
        self.alive: deque[str] = deque()
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._second = 0
        self._random = random.Random(7)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Add the processor time of all threads in the context."""
        began = time.process_time()
        yield
        self.seconds[kind].append(time.process_time() - began)

    def create(self, count: int) -> None:
        """Create an array of queries."""
        sql = [AGGREGATION.format("purchases", round(self._random.random() * 1e6, 2)) for _ in range(count)]
        with self.timed(f"create {count}"):
            self.alive.extend(self.driver.create(*sql))

    def delete(self, count: int) -> None:
        """Delete the oldest queries, one request each."""
        for _ in range(count):
            with self.timed("delete 1"):
                self.driver.session.queries.delete(self.alive.popleft())

    def step(self) -> None:
        """Let the session do what is due."""
        with self.timed("step"):
            self.driver.session.step()

    def batch(self, results: bool = True) -> None:
        """Commit a batch in which every running query has rows."""
        state = self.driver.state
        latest = BEGINNING + self._second * SECOND
        slots = [(q.slot, 2, latest) for q in state.queries.values() if q.slot is not None and q.state == RUNNING]
        self._second += 1
        with self.timed("batch"):
            self.driver.batch({"s-1": self._second}, slots if results else ())

    def reads(self) -> None:
        """Read as a client does."""
        session = self.driver.session
        with self.timed("GET /queries"):
            session.lookup.page()
        with self.timed("GET /queries?state=PENDING"):
            session.lookup.page(state="PENDING")
        with self.timed("GET /queries?cursor=newest"):
            session.lookup.page(cursor=self.alive[-10])
        with self.timed("GET /queries/id"):
            session.lookup.describe(self.alive[-1])
        with self.timed("GET /queries/id/plan"):
            session.plans.of_query(self.alive[0])
        with self.timed("GET /changelogs"):
            session.changelogs_json(0)
        with self.timed("GET /changelogs?after=newest"):
            session.changelogs_json(session.epoch - 3)
        with self.timed("count by state"):
            session.lookup.count_by_state()

    def second(self, creates: int, deletes: int) -> None:
        """Let one second of load pass."""
        for half in range(2):
            for _ in range(creates // ARRAY // 2):
                self.create(ARRAY)
                self.driver.clock.advance(0.02)
                self.step()
                self.delete(deletes * ARRAY // creates)
                self.driver.clock.advance(0.02)
                self.step()
            self.batch(results=half == 1)
        self.reads()


def main() -> None:
    """Run the load and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--per-second", type=int, default=1000)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--lines", type=int, default=40)
    options = parser.parse_args()
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder))
        load.driver.session.step()
        load.batch(False)
        rss_before = process.memory_info().rss
        start = time.process_time()
        for _ in range(options.running // ARRAY):
            load.create(ARRAY)
            load.step()
        load.batch(False)
        print(f"{options.running} created in {time.process_time() - start:.2f} s of processor time")
        print(f"RSS per query: {(process.memory_info().rss - rss_before) / options.running:.0f} bytes")
        load.seconds.clear()
        profile = cProfile.Profile()
        start, wall_start = time.process_time(), time.perf_counter()
        if options.profile:
            profile.enable()
        for _ in range(options.seconds):
            load.second(options.per_second, options.per_second)
        profile.disable()
        cpu_seconds = time.process_time() - start
        print(f"{cpu_seconds / options.seconds:.2f} s of processor time per second of load")
        print(f"{time.perf_counter() - wall_start:.1f} s in all")
        for kind, seconds in load.seconds.items():
            print(
                f"{kind:32} {len(seconds):6} times, mean {1e3 * sum(seconds) / len(seconds):8.3f} ms,"
                f" max {1e3 * max(seconds):8.3f} ms, {sum(seconds) / options.seconds:6.3f} s a second"
            )
        print(f"RSS now {process.memory_info().rss / 2**20:.0f} MiB, queries known {len(load.driver.state.queries)}")
        if options.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(options.lines)
            pstats.Stats(profile).sort_stats("tottime").print_stats(options.lines)
        start = time.perf_counter()
        load.driver.crash()
        print(f"recovery after a crash: {time.perf_counter() - start:.2f} s")
        load.driver.end()


if __name__ == "__main__":
    main()
