"""What a batch reads of replays: a share of its time that live streams do not feel, the rearmost replay first.

A replay (:mod:`braid.sources.core.replays`) reads until it begins a batch where its origin does. It has then *joined*:
from this batch on it gets the tuples that its origin reads, and costs no reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from braid.engine.planning.positions import Positions
from braid.sources.connectors.connector import Extent, GappedExtent
from braid.sources.core.replays import is_replay, origin_of

# while live tuples come, replays may cost this part of what these cost, or of what a batch takes anyway
DEFAULT_SHARE = 0.2
# live tuples still count as coming so long after the last one (µs)
LIVE_US = 2_000_000


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


class ReplayBudget:
    """How much of a batch replays may cost; ``share`` is that of live streams' own cost."""

    def __init__(self, share: float = DEFAULT_SHARE) -> None:
        self._share = share
        self._live_us: int | None = None

    def most(self, live_cost: float, usual_cost: float, budget: float, now_us: int) -> float:
        """Return what replays may cost in a batch that has a ``budget`` and reads live tuples that cost so much.

        While live tuples come (``now_us`` is a monotonic clock) that is little, as rows for them come later by what the
        batch takes longer: ``usual_cost`` is what could be read in the time of a usual batch. Otherwise a batch may be
        as long as any.
        """
        if live_cost > 0:
            self._live_us = now_us
        return self._share * min(budget, max(live_cost, usual_cost)) if self.is_live(now_us) else budget

    def is_live(self, now_us: int) -> bool:
        """Whether live tuples come: then batches begin when these ask for it, whatever replays have left to read."""
        return self._live_us is not None and now_us - self._live_us <= LIVE_US
