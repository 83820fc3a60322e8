"""What the driver asks of a system under test (SUT), whether Braid or one that a user would pick instead.

Lifecycle: `start` → `deploy` → any number of measured steps → `stop`; `stop` may come at any time and more than once.
A system either pulls its tuples from the driver's queues (`source` is QUEUE), so that throughput is read there, or
makes them up itself (OWN_GENERATOR), because it cannot read the queues; then `taken` says how many it took.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braid.bench_driver.mixed_query import MixedQuery, Query
from braid.bench_driver.nexmark_query import NexmarkQuery
from braid.bench_driver.query_spec import QuerySpec
from braid.bench_driver.workload import Churn, Workload

QUEUE = "queue"
OWN_GENERATOR = "own generator"


class SystemFailedError(Exception):
    """The system ended, refused, or did not get ready in time; the text says which and where its log is."""


class UnsupportedError(Exception):
    """The system cannot run such a query at all; the text is its own reason."""


@dataclass(frozen=True)
class SystemOutput:
    """Rows that came to the consumer at `arrived` and whose newest contributing tuple is of `event_time`.

    Both in seconds since 1970; `event_time` follows definition 3 of the thesis.
    """

    arrived: float
    event_time: float
    rows: int


@dataclass(frozen=True)
class SystemDeployment:
    """Queries that run: seconds from each request to RUNNING as the client saw it, and the seconds it took in all.

    `latencies` is empty for a system that gets its queries before it starts; `deletions` are the same of retirements.
    """

    queries: int
    latencies: tuple[float, ...]
    seconds: float
    deletions: tuple[float, ...] = ()


def queries_of_templates(queries: Sequence[Query], product: str) -> list[QuerySpec]:
    """Return queries for a system that has a dialect for those of the thesis's templates only.

    Raises:
        UnsupportedError: there are mixed queries or NEXMark's among them.
    """
    if any(isinstance(query, NexmarkQuery) for query in queries):
        raise UnsupportedError(f"{product} is not asked NEXMark's queries; their peer is flink")
    if any(isinstance(query, MixedQuery) for query in queries):
        raise UnsupportedError(f"{product} is not asked mixed queries; their peer is duckdb-batches")
    return [query for query in queries if isinstance(query, QuerySpec)]


class System(ABC):
    """One system under test. Every method raises SystemFailedError when the system does not do what it is asked.

    The methods that are not abstract suit a system that has nothing to say there.
    """

    name: str
    source: str

    @abstractmethod
    def start(self, workload: Workload, locations: Mapping[str, str]) -> None:
        """Start it and declare the workload's streams; `locations` is the Flight location of each stream's queue."""

    @abstractmethod
    def deploy(self, queries: Sequence[Query], per_second: float) -> SystemDeployment:
        """Run the queries, `per_second` of them a second where it takes queries while it runs.

        Raises UnsupportedError, with the system's own words, when it cannot run such queries.
        """

    @abstractmethod
    def begin_churn(self, queries: Sequence[Query], churn: Churn) -> None:
        """Until `end_churn`, go on making the next queries of the list and retiring as many of the oldest.

        Begins again at the list's start when it is used up. Raises UnsupportedError when its queries are fixed.
        """

    @abstractmethod
    def end_churn(self) -> SystemDeployment:
        """Stop making and retiring queries, wait for those under way, and tell of those since `begin_churn`."""

    @abstractmethod
    def outputs(self) -> list[SystemOutput]:
        """Return everything that the probe queries gave to their consumer so far."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what it was configured with, for the report."""

    @abstractmethod
    def stop(self) -> None:
        """End it and everything it started."""

    def offer(self, tuples_per_second: int | None) -> None:  # noqa: B027 - most pull from queues
        """Tell a system with a generator of its own the rate, None for as fast as it can; others ignore it."""

    def taken(self) -> list[tuple[float, int]]:
        """Return `(seconds since 1970, tuples taken so far by the slowest query)`; empty when it pulls from queues."""
        return []

    def left_out(self) -> str | None:
        """Return in words why rows of some query were left out since this was asked before, or why none come any more.

        None when nothing was left out.
        """
        return None

    def missing(self, max_seconds: float) -> str | None:  # noqa: ARG002 - most hand rows over before they take more
        """Return in words which rows that were there when asked nobody has got `max_seconds` later, None for none.

        A system whose rows wait for whoever reads them is not done with a tuple before they are read.
        """
        return None

    def has_adapted(self) -> bool:
        """Whether it has done what it does by and by to suit what comes; asked again and again at one rate."""
        return True

    def processor_seconds(self) -> float | None:
        """Return how long its processes kept processors busy so far, all together; None where that is not known."""
        return None
