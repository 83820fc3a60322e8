"""What a batch reads of replays: a share of its time that live streams do not feel, the rearmost replay first.

A replay (:mod:`braid.sources.core.replays`) reads until it begins a batch where its origin does. It has then *joined*:
from this batch on it gets the tuples that its origin reads, and costs no reading. It leaves out what is before its
queries' start, as far as the records of batches say where that is.

A batch that reads a replay takes longer, however little it reads: there is one more stream, with operators of its own.
So batches that fire live windows leave replays out, and batches between them read them, of a size with which they are
over when the next live windows end. Where no such batch has room, all batches read replays again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from braid.engine.planning.positions import Positions
from braid.sources.connectors.connector import Extent, GappedExtent
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.replays import is_replay, origin_of

# while live tuples come, replays may cost this part of what these cost, or of what a batch takes anyway
DEFAULT_SHARE = 0.2
# live tuples still count as coming so long after the last one (µs)
LIVE_US = 2_000_000
# so many batches after one another leave replays out, and no more
MAX_LEFT_OUT = 8


class ReplayStarts:
    """Where replays begin to read: nothing before has an event time that one of their queries sees."""

    def __init__(self, batches: RecordLog) -> None:
        self._batches = batches
        # the event time after which the queries of a replay see tuples (µs)
        self._sees_after: dict[str, float] = {}
        self._found: dict[str, Mapping[str, int]] = {}

    def add(self, streams: Iterable[str], sees_after: Mapping[str, int]) -> None:
        """Take note of a new query over ``streams``."""
        for replay in filter(is_replay, streams):
            after = sees_after.get(replay, -math.inf)
            self._sees_after[replay] = min(after, self._sees_after.get(replay, after))

    def remove(self, replay: str) -> None:
        """Take note that a replay was dropped."""
        self._sees_after.pop(replay, None)
        self._found.pop(replay, None)

    def of(self, replay: str) -> Mapping[str, int]:
        """Return the offset at which to begin each partition; the others begin with the oldest.

        The origin must have been read from its oldest offset on.
        """
        sees_after = self._sees_after.get(replay, -math.inf)
        if sees_after == -math.inf:
            return {}
        if replay not in self._found:
            self._found[replay] = passed_at(self._batches, origin_of(replay), sees_after)
        return self._found[replay]


def passed_at(batches: RecordLog, stream: str, us: float) -> Mapping[str, int]:
    """Return the offsets up to which a stream had been read while its clock was an event time or less (µs).

    They are as far as records of batches are kept and say it; empty where none does.
    """

    def is_later(number: int) -> bool:
        clock = batches.read(number)["clocks"].get(stream)
        return clock is not None and clock > us

    with suppress(FileNotFoundError, CorruptData):  # trimmed a moment ago; readers of results report damage
        kept = batches.numbers_after(0)
        count = bisect_left(kept, True, key=is_later)
        if count:
            offsets: Mapping[str, int] = batches.read(kept[count - 1])["streams"].get(stream, {}).get("offsets", {})
            return offsets
    return {}


def replayed_extents(extents: Mapping[str, Extent], oldest: Mapping[str, int]) -> dict[str, Extent]:
    """Return what a replay can read of what its origin's connector has: also what is before the origin's beginning."""
    return {
        partition: GappedExtent(oldest.get(partition, extent.start), extent.end, extent.skip_to)
        if extent.skip_to
        else Extent(oldest.get(partition, extent.start), extent.end)
        for partition, extent in extents.items()
    }


def joined_replays(begins: Positions) -> dict[str, str]:
    """Return the replays that begin where their origin begins, each with its origin."""
    return {
        stream: origin_of(stream)
        for stream, places in begins.items()
        if places and is_replay(stream) and places == begins.get(origin_of(stream))
    }


def held_back(
    replays: Collection[str], together: Iterable[tuple[str, ...]], watermarks: Mapping[str, int | None]
) -> set[str]:
    """Return the replays that wait for another one, which is further back and is joined with them.

    ``together`` has the streams of each query. Else tuples of the one that is ahead would pile up in the join.
    """
    waiting: set[str] = set()
    for streams in together:
        behind = [stream for stream in streams if stream in replays]
        if len(behind) > 1:
            reached = {stream: watermarks.get(stream) for stream in behind}
            rearmost = min((us for us in reached.values() if us is not None), default=None)
            without = [stream for stream in behind if reached[stream] is None]
            waiting.update(
                stream
                for stream in behind
                if (without and stream not in without) or (not without and reached[stream] != rearmost)
            )
    return waiting


def reads_replays(record: Mapping[str, Any]) -> bool:
    """Return whether the batch of a record read replays that have not joined."""
    joined = record.get("joined", ())
    return any(counts["tuples"] for s, counts in record["streams"].items() if is_replay(s) and s not in joined)


class ReplayBudget:
    """How much of a batch replays may cost; ``share`` is that of live streams' own cost. All times are monotonic."""

    def __init__(self, share: float = DEFAULT_SHARE) -> None:
        self._share = share
        self._live_us: int | None = None
        self._read_us = 0
        self._left_out = 0
        self._has_room = False

    def most(
        self,
        live_cost: float,
        cost_per_us: float,
        usual_us: float,
        budget: float,
        monotonic_us: int,
        room: float | None,
    ) -> float:
        """Return what replays may cost in a batch that has a ``budget`` and reads live tuples that cost so much.

        While live tuples come that is little, as rows for them come later by what the batch takes longer: a share of
        the time of a usual batch (``usual_us``), or where there is room, since a batch read replays; ``cost_per_us`` is
        read in a microsecond. Otherwise a batch may be as long as any.

        ``room`` is what the whole batch may cost to be over before the next live windows end, None where nobody can
        tell: then, and after too many batches without any room, it is no matter.
        """
        if live_cost > 0:
            self._live_us = monotonic_us
        if not self.is_live(monotonic_us):
            self._has_room = True
            return budget
        self._has_room = room is not None and room > live_cost
        since_us = monotonic_us - self._read_us if self._has_room and self._left_out else 0
        most = self._share * min(budget, max(live_cost, cost_per_us * max(usual_us, since_us)))
        if room is None or (self._left_out >= MAX_LEFT_OUT and not self._has_room):
            return most
        return min(most, max(0.0, room - live_cost))

    def take_note(self, is_behind: bool, is_read: bool, monotonic_us: int) -> None:
        """Take note of the batch that was planned: whether replays are behind their origins, and whether it reads any.

        Once too many have left replays out, all batches read them until one has room for them.
        """
        if is_read or not is_behind:
            self._read_us = monotonic_us
        if not is_behind or (is_read and self._has_room):
            self._left_out = 0
        elif not is_read:
            self._left_out += 1

    def is_live(self, monotonic_us: int) -> bool:
        """Whether live tuples come: then batches begin when these ask for it, whatever replays have left to read."""
        return self._live_us is not None and monotonic_us - self._live_us <= LIVE_US
