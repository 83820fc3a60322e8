"""How many executors the job should have: decided from how long tuples take and how busy the cores are.

The optimizer of the thesis (5.4.3) scales out when latency is high and cores are the bottleneck, and gives back what is
little used. Here both thresholds must be broken for a period, and what is given back must not be missed:

- **out**, by one, when tuples took longer than ``latency_seconds`` and the cores were :data:`BUSY` for a period, and
  all executors asked for before have come. Slow tuples alone are not enough: a slow source or one hot key makes them.
- **in**, by one, when tuples took less than half of that, and the work would leave the cores of one executor fewer
  below :data:`EASY`, for :data:`PATIENCE` periods. An executor that was asked for and has not come is given up so, too.

:data:`EASY` is less than :data:`BUSY` for the same number of executors, so the same work never leads out and in again,
whatever tuples take. When executors came or left, both periods begin anew.

All is pure: times are arguments, in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

BUSY = 0.4
"""Which share of the cores works where tasks are short of them; the rest waits for what a batch costs besides."""
EASY = 0.25
PATIENCE = 12
_US = 1e6


@dataclass(frozen=True)
class Rules:
    """From ``least`` to ``most`` executors; tuples should not take longer than ``latency_seconds``."""

    least: int
    most: int
    latency_seconds: float
    period_seconds: float

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"There must be 1 <= least <= most executors; got {self.least} and {self.most}.")
        if self.latency_seconds <= 0 or self.period_seconds <= 0:
            raise ValueError(f"Latency and period must be above 0; got {self!r}.")

    def clamped(self, executors: int) -> int:
        """Return the number nearest to ``executors`` that is allowed."""
        return min(max(executors, self.least), self.most)


@dataclass(frozen=True)
class Pool:
    """The executors that there are, at least one, their cores together, and the partitions, which are fixed."""

    executors: int
    cores: int
    partitions: int

    def usable_cores(self, executors: int) -> float:
        """Return how many cores so many executors of this size have that a partition uses."""
        return min(executors * self.cores / self.executors, self.partitions)

    @property
    def useful(self) -> int:
        """How many executors of this size have a core for each partition; more would do nothing."""
        return -(-self.partitions * self.executors // self.cores)


@dataclass(frozen=True)
class Load:
    """What was seen at a moment: how long tuples take, how many cores work, how many tuples wait at their sources."""

    at: float
    latency_seconds: float
    busy_cores: float
    waiting: int

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], before_us: int) -> Load:
        """Read it off the records of one or more batches; the batch before them was committed at ``before_us``.

        What takes long is a batch, from its planning to its commit, and what waits, at the pace of the batches. That
        is the part of event-time latency which cores can help; the age of the data, as in a replay, is none. Of several
        batches it is the mean.
        """
        committed_us, waiting = records[-1]["committed_us"], records[-1]["waiting"]
        seconds = sum(max(0, record["committed_us"] - record["planned_us"]) for record in records) / _US
        tuples = sum(stream["tuples"] for record in records for stream in record["streams"].values())
        worked_us = sum(sum(record["source_busy_us"]) + sum(record["operator_busy_us"]) for record in records)
        return cls(
            at=committed_us / _US,
            latency_seconds=seconds / len(records) + (seconds * waiting / tuples if tuples else 0.0),
            busy_cores=worked_us / max(1, committed_us - before_us),
            waiting=waiting,
        )


@dataclass(frozen=True)
class Decision:
    """So many executors are ``wanted``, ``since`` a moment; and what is needed to decide again.

    ``seen`` is how many there were last. Since ``high_since`` out has been called for, since ``low_since`` in.
    """

    wanted: int
    why: str
    since: float
    seen: int | None = None
    high_since: float | None = None
    low_since: float | None = None


def decide(before: Decision, load: Load, pool: Pool, rules: Rules) -> Decision:
    """Return the next decision, which differs from ``before`` in ``wanted`` by one at most."""
    wanted, high_since, low_since = before.wanted, before.high_since, before.low_since
    if before.seen != pool.executors:
        high_since = low_since = None
    is_slow = load.latency_seconds > rules.latency_seconds
    is_quick = load.latency_seconds <= rules.latency_seconds / 2
    is_high = is_slow and load.busy_cores >= BUSY * pool.usable_cores(pool.executors)
    is_low = is_quick and load.busy_cores <= EASY * pool.usable_cores(wanted - 1)
    high_since = _since(high_since, is_high, load.at)
    low_since = _since(low_since, is_low, load.at)
    is_out_due = high_since is not None and load.at - high_since >= rules.period_seconds
    is_in_due = low_since is not None and load.at - low_since >= PATIENCE * rules.period_seconds
    if is_out_due and pool.executors == wanted < min(rules.most, pool.useful):
        return Decision(wanted + 1, _why_out(load, pool, rules), load.at, pool.executors)
    if is_in_due and pool.executors <= wanted > rules.least:
        return Decision(wanted - 1, _why_in(load, pool, rules), load.at, pool.executors)
    return replace(before, seen=pool.executors, high_since=high_since, low_since=low_since)


def _since(since: float | None, holds: bool, at: float) -> float | None:
    """Return since when something holds without a break."""
    return (at if since is None else since) if holds else None


def _why_out(load: Load, pool: Pool, rules: Rules) -> str:
    return (
        f"For {rules.period_seconds:g} s rows took longer than {rules.latency_seconds:g} s, now"
        f" {load.latency_seconds:.1f} s, and {load.busy_cores:.2f} of {pool.usable_cores(pool.executors):g} cores"
        f" worked; {load.waiting} rows wait."
    )


def _why_in(load: Load, pool: Pool, rules: Rules) -> str:
    return (
        f"For {PATIENCE * rules.period_seconds:g} s rows took less than {rules.latency_seconds / 2:g} s, and one"
        f" executor fewer has enough for the work, now {load.busy_cores:.2f} of"
        f" {pool.usable_cores(pool.executors):g} cores."
    )
