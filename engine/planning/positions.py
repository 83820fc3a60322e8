"""Positions of streams: where a batch begins to read each partition, and where it ends."""

from __future__ import annotations

from collections.abc import Mapping

from braid.sources.connectors.connector import Extent

Positions = Mapping[str, Mapping[str, int]]
"""Offsets by stream and partition."""

NOTHING = Extent(0, 0)


def begins_of(reached: Positions, available: Mapping[str, Mapping[str, Extent]]) -> dict[str, dict[str, int]]:
    """Return where to go on: where each partition got to, and where a new one starts.

    A partition that is out of sight keeps its place; one that no longer has it raises when it is read, unless the
    stream does without what is gone.
    """
    return {
        stream: {
            **reached.get(stream, {}),
            **{p: max(place, extents[p].skip_to) for p, place in _places(reached, stream, extents).items()},
        }
        for stream, extents in available.items()
    }


def skipped_of(reached: Positions, available: Mapping[str, Mapping[str, Extent]]) -> dict[str, int]:
    """Return how many offsets are gone of streams that do without; only where there are some."""
    counts = {
        stream: sum(max(extents[p].skip_to - place, 0) for p, place in _places(reached, stream, extents).items())
        for stream, extents in available.items()
    }
    return {stream: count for stream, count in counts.items() if count}


def _places(reached: Positions, stream: str, extents: Mapping[str, Extent]) -> dict[str, int]:
    """Return where each partition that is in sight got to, or starts."""
    places = reached.get(stream, {})
    return {p: places.get(p, extent.start) for p, extent in extents.items()}


def ends_of(begins: Positions, available: Mapping[str, Mapping[str, Extent]]) -> dict[str, dict[str, int]]:
    """Return where what is available ends."""
    return {
        stream: {p: max(begin, available[stream].get(p, NOTHING).end) for p, begin in partitions.items()}
        for stream, partitions in begins.items()
    }


def no_further(begins: Mapping[str, int], ends: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    """Return ``ends`` of a stream, or its ``limits`` where these come first; nothing of what is not limited."""
    return {p: max(begins[p], min(end, limits.get(p, 0))) for p, end in ends.items()}


def advanced_by(begins: Mapping[str, int], ends: Mapping[str, int], tuples: int) -> dict[str, int]:
    """Return up to where so many tuples of a stream are read, or a few more: of each partition the same part."""
    part = tuples / max(1, tuples_of(begins, ends))
    return {p: begin - int(-(ends[p] - begin) * part // 1) for p, begin in begins.items()}


def tuples_of(begins: Mapping[str, int], ends: Mapping[str, int]) -> int:
    return sum(end - begins[p] for p, end in ends.items())


def tuples_between(begins: Positions, ends: Positions) -> int:
    return sum(tuples_of(begins[stream], partitions) for stream, partitions in ends.items())
