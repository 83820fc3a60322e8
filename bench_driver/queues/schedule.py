"""When each tuple is generated: event times from a plan of constant rates, whatever the system under test does.

A schedule is a list of segments. Tuple `i` of a segment has the event time `at_us + (i - first_offset) * 10^6 / rate`,
rounded down to whole microseconds; a segment ends where the next one begins. All arithmetic is on integers, so both
directions are exact: `time_of` an offset, and how many tuples are `generated` by a time. Times never fall.

A schedule only ever changes beyond the tuples that somebody has: `after` keeps the offsets before a cut as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

SECOND_US = 1_000_000
MAX_RATE = 100_000_000

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Share:
    """How many of each `of` tuples of a workload are a stream's: its rate is that share of the workload's.

    Rates are whole groups of `of` tuples a second, so that the streams of a workload keep step with each other.
    """

    tuples: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not (_is_int(self.tuples) and _is_int(self.of) and 0 < self.tuples <= self.of):
            raise ValueError(f"a share must be two whole numbers with 0 < tuples <= of, got {self!r}")

    def groups(self, rate: int) -> int:
        """Return how many groups a second a workload's rate is, rounded up."""
        return -(-rate // self.of)

    def rate(self, rate: int) -> int:
        """Return the stream's tuples a second where `rate` is the workload's."""
        return self.groups(rate) * self.tuples

    def of_workload(self, rate: float) -> float:
        """Return the workload's rate where the stream's is `rate`."""
        return rate * self.of / self.tuples


@dataclass(frozen=True)
class RatePart:
    """A part of a profile: `tuples_per_second` for `seconds`, or for ever when that is None."""

    seconds: float | None
    tuples_per_second: int

    def __post_init__(self) -> None:
        if not _is_int(self.tuples_per_second) or not 0 <= self.tuples_per_second <= MAX_RATE:
            raise ValueError(f"a rate must be a whole number from 0 to {MAX_RATE}, got {self.tuples_per_second!r}")
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if self.seconds is not None and not (is_number and 0 < self.seconds <= 10**9):
            raise ValueError(f"a part of a profile must last more than 0 seconds, or null: {self.seconds!r}")


@dataclass(frozen=True)
class RateSegment:
    """From offset `first_offset`, whose event time is `at_us`, tuples come at a constant rate; 0 is a pause."""

    first_offset: int
    at_us: int
    tuples_per_second: int

    def __post_init__(self) -> None:
        if not all(map(_is_int, (self.first_offset, self.at_us, self.tuples_per_second))):
            raise ValueError(f"a segment is three whole numbers, got {self!r}")
        if self.first_offset < 0 or not 0 <= self.tuples_per_second <= MAX_RATE:
            raise ValueError(f"a segment needs first_offset >= 0 and a rate from 0 to {MAX_RATE}, got {self!r}")

    def time_of(self, offset: int) -> int:
        """Return the event time of a tuple; the rate must not be 0."""
        return self.at_us + (offset - self.first_offset) * SECOND_US // self.tuples_per_second

    def times(self, start: int, end: int) -> Times:
        """Return the event times of the tuples in `[start, end)`, of the rate that must not be 0."""
        # what is large is divided as a Python integer, so that 64 bits are enough for the rest
        quotient, remainder = divmod((start - self.first_offset) * SECOND_US, self.tuples_per_second)
        ticks = np.arange(end - start, dtype=np.int64)
        ticks *= SECOND_US
        ticks += remainder
        ticks //= self.tuples_per_second
        ticks += self.at_us + quotient
        return ticks

    def before(self, at_us: int) -> int:
        """Return the offset of the first tuple whose event time is not before `at_us`."""
        elapsed_us = max(0, at_us - self.at_us)
        return self.first_offset - (-elapsed_us * self.tuples_per_second // SECOND_US)


@dataclass(frozen=True)
class Schedule:
    """The segments, in order of offset and of time; without any, there are no tuples."""

    segments: tuple[RateSegment, ...] = ()

    def __post_init__(self) -> None:
        for previous, segment in zip(self.segments, self.segments[1:], strict=False):
            last = segment.first_offset - 1
            last_time_us = (
                previous.time_of(last)
                if previous.tuples_per_second and last >= previous.first_offset
                else previous.at_us
            )
            paused = not previous.tuples_per_second and last >= previous.first_offset
            if paused or segment.first_offset < previous.first_offset or segment.at_us < last_time_us:
                raise ValueError(
                    f"event times must not fall, and a pause has no tuples: {segment!r} after {previous!r}"
                )

    def generated(self, now_us: int) -> int:
        """Return how many tuples have an event time up to and including `now_us`."""
        index = bisect_right(self.segments, now_us, key=lambda segment: segment.at_us) - 1
        if index < 0:
            return 0
        count = self.segments[index].before(now_us + 1)
        return count if index + 1 == len(self.segments) else min(count, self.segments[index + 1].first_offset)

    def time_of(self, offset: int) -> int | None:
        """Return the event time of a tuple in microseconds; None when it is not going to be generated."""
        index = bisect_right(self._first_offsets, offset) - 1
        if index < 0 or not self.segments[index].tuples_per_second:
            return None
        return self.segments[index].time_of(offset)

    def times(self, start: int, end: int) -> Times:
        """Return the event times of the tuples in `[start, end)`.

        Raises:
            ValueError: some of them are not going to be generated.
        """
        parts = []
        index = bisect_right(self._first_offsets, start) - 1
        offset = start
        while offset < end:
            is_last = index + 1 == len(self.segments)
            end_in_segment = end if is_last else min(end, self.segments[index + 1].first_offset)
            if end_in_segment > offset:
                if index < 0 or not self.segments[index].tuples_per_second:
                    raise ValueError(f"tuple {offset} of [{start}, {end}) is not in the schedule")
                parts.append(self.segments[index].times(offset, end_in_segment))
            offset, index = max(offset, end_in_segment), index + 1
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])

    def after(self, offset: int, at_us: int, profile: Sequence[RatePart]) -> Schedule:
        """Return the schedule that keeps the tuples before `offset`, goes through `profile`, and then pauses.

        The profile begins at `at_us`, or at the event time of the last tuple kept when that is later.

        Raises:
            ValueError: the profile is empty, a part that is not the last lasts for ever, or the tuples are not there.
        """
        if not profile or any(part.seconds is None for part in profile[:-1]):
            raise ValueError(f"a profile needs parts, and only the last may last for ever, got {list(profile)!r}")
        segments = [segment for segment in self.segments if segment.first_offset < offset]
        if offset > 0:
            last_time_us = self.time_of(offset - 1)
            if last_time_us is None:
                raise ValueError(f"only generated tuples can be kept: there is no tuple {offset - 1}")
            at_us = max(at_us, last_time_us)
        for part in profile:
            segments.append(RateSegment(offset, at_us, part.tuples_per_second))
            if part.seconds is None:
                return Schedule(tuple(segments))
            at_us += max(1, round(part.seconds * SECOND_US))
            offset = segments[-1].before(at_us)
        return Schedule((*segments, RateSegment(offset, at_us, 0)))

    def to_json(self) -> list[list[int]]:
        """Return `[first_offset, at_us, tuples_per_second]` of every segment."""
        return [[s.first_offset, s.at_us, s.tuples_per_second] for s in self.segments]

    @classmethod
    def from_json(cls, document: Sequence[Sequence[int]]) -> Schedule:
        """Return the schedule that `to_json` described."""
        return cls(tuple(RateSegment(*segment) for segment in document))

    @cached_property
    def _first_offsets(self) -> list[int]:
        return [segment.first_offset for segment in self.segments]


def parse_profile(document: Any) -> tuple[RatePart, ...]:
    """Return the parts that `[[seconds or null, tuples_per_second], …]` describes; ValueError when it does not."""
    if not isinstance(document, list) or not all(isinstance(part, list) and len(part) == 2 for part in document):
        raise ValueError(f"a profile must be [[seconds or null, tuples a second], …], got {document!r}")
    return tuple(RatePart(seconds, rate) for seconds, rate in document)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
