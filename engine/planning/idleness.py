"""Idle streams: those that have been silent for their ``idle_timeout`` do not hold joins with other streams.

The planner decides which streams are idle, and the offset carries it, so a batch that runs again decides the same.
While a stream is idle its watermark follows the least watermark of the streams it is joined with that are not; it never
falls, so what the stream brings later below it is late. Streams that nobody joins with one that is not idle stay where
they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from braid.operators.live_queries import LiveQueries
from braid.sources.core.schema import StreamDefinition


class Idleness:
    """Since when streams have been silent, by a clock that nobody sets; a new planner counts from its start."""

    def __init__(self) -> None:
        self._heard_us: dict[str, int] = {}

    def idle(
        self, definitions: Mapping[str, StreamDefinition], silent: Collection[str], now_us: int
    ) -> tuple[str, ...]:
        """Return the streams that are idle at ``now_us``; ``silent`` are those that have nothing new just now.

        Calls must come with rising times.
        """
        self._heard_us = {
            stream: self._heard_us.get(stream, now_us) if stream in silent else now_us for stream in definitions
        }
        return tuple(
            stream
            for stream, heard_us in sorted(self._heard_us.items())
            if (timeout_us := definitions[stream].watermark.idle_timeout_us) is not None
            and now_us - heard_us >= timeout_us
        )


def active_partners(live: LiveQueries, idle: Collection[str]) -> dict[str, list[str]]:
    """Return, for each idle stream that joins wait for, the streams that these join it with and that are not idle."""
    active_streams: dict[str, set[str]] = {}
    if idle:
        for streams in {query.query.streams for query in live.by_slot.values() if len(query.query.streams) > 1}:
            active = set(streams).difference(idle)
            for stream in set(streams).intersection(idle) if active else ():
                active_streams.setdefault(stream, set()).update(active)
    return {stream: sorted(active) for stream, active in sorted(active_streams.items())}


def raise_followers(
    watermarks: Mapping[str, int | None], follows: Mapping[str, Sequence[str]]
) -> dict[str, int | None]:
    """Return watermarks (µs) with those of idle streams, and of replays that have joined their origin, risen to the
    least of the streams that each follows.
    """
    risen = dict(watermarks)
    for stream, active in follows.items():
        reached = [us for name in active if (us := watermarks.get(name)) is not None]
        if len(reached) == len(active):
            watermark, least = watermarks.get(stream), min(reached)
            risen[stream] = least if watermark is None else max(watermark, least)
    return risen
