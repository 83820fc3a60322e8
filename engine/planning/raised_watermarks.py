"""Watermarks that do not follow event times: set from outside, of streams that have ended, or of silent ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from braid.engine.planning.batch_pacing import ExpectedEnds
from braid.engine.planning.positions import Positions
from braid.operators.event_times import ENDED
from braid.sources.core.replays import is_replay
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.watermark_options import ADVANCE

Watermarks = Mapping[str, int | None]

# how often the watermark of an idle stream moves that follows the processing time
ADVANCE_US = 250_000


class RaisedWatermarks:
    """Watermarks to which batches raise those of streams; what was there before they were set is read first."""

    def __init__(self) -> None:
        # the watermarks that were set, with the ends of their streams when they were first looked at
        self._ends: dict[str, tuple[int, Mapping[str, int]]] = {}

    def raised(
        self,
        from_outside: Mapping[str, int],
        begins: Positions,
        ends: Positions,
        bounds: Mapping[str, Mapping[str, int] | None],
        watermarks: Watermarks,
    ) -> dict[str, int]:
        """Return the watermarks that the next batch raises, of those that were set ``from_outside``, and of bounded
        streams.

        ``ends`` are those of what is available now, ``bounds`` those of all that a stream will ever have.
        """
        raised: dict[str, int] = {}
        for stream, watermark in from_outside.items():
            if stream in begins:
                if self._ends.get(stream, (None,))[0] != watermark:
                    self._ends[stream] = watermark, ends[stream]
                if _has_reached(begins[stream], self._ends[stream][1]):
                    raised[stream] = watermark
        for stream, bounds_of in bounds.items():
            if bounds_of is not None and _has_reached(begins[stream], bounds_of):
                raised[stream] = ENDED
        return {stream: us for stream, us in raised.items() if is_above(us, watermarks.get(stream))}


def advanced(
    streams: Mapping[str, StreamDefinition],
    idle: Collection[str],
    expected: ExpectedEnds,
    record: Mapping[str, Any],
    now_us: int,
) -> dict[str, int]:
    """Return the watermarks of idle streams that follow the processing time, as long as windows end for it."""
    risen = {}
    for stream in idle:
        definition, last_end = streams.get(stream), expected.last_end(stream, record["clocks"])
        if definition is None or definition.watermark.on_idle != ADVANCE or last_end is None or is_replay(stream):
            continue
        watermark = min(now_us - definition.schema.lateness_us, last_end)
        if is_above(watermark, record["watermarks"].get(stream)):
            risen[stream] = watermark
    return risen


def is_above(watermark: int, reached: int | None) -> bool:
    """Whether a watermark (µs) is above that which a stream has reached."""
    return reached is None or watermark > reached


def _has_reached(places: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    return all(places.get(partition, 0) >= end for partition, end in ends.items())
