"""What holds at an epoch besides queries, and how changelogs change it: the one fold that all processes apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from braid.operators import computed_column  # noqa: F401 - definitions of streams have such columns
from braid.operators.joins.key_splits import OperatorSplits
from braid.operators.lookup.lookups import Refreshed
from braid.sources.core.schema import StreamDefinition

Clocks = Mapping[str, int | None]


@dataclass(frozen=True)
class EpochChange:
    """What a changelog changes besides queries: slots, streams, split keys, rows of static tables (as JSON), and
    watermarks that are set from outside (µs, by stream).
    """

    capacity: int
    streams_created: tuple[StreamDefinition, ...] = ()
    streams_dropped: tuple[str, ...] = ()
    splits: Sequence[Mapping[str, Any]] = ()
    refreshed: Sequence[Mapping[str, Any]] = ()
    raised: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, changelog: Mapping[str, Any]) -> EpochChange:
        """Return what a changelog in JSON changes; those of older versions split and refresh nothing."""
        created = tuple(map(StreamDefinition.from_json, changelog["streams_created"]))
        dropped = tuple(changelog["streams_dropped"])
        return cls(
            changelog["capacity"],
            created,
            dropped,
            changelog.get("split", ()),
            changelog.get("refreshed", ()),
            changelog.get("raised", {}),
        )


class EpochState:
    """Capacity, streams by id, split keys of operators, and which rows static tables have."""

    def __init__(self, value: Mapping[str, Any] | None = None) -> None:
        """Begin before the first epoch, or with what :meth:`state_json` returned; that of older versions has less."""
        value = {} if value is None else value
        definitions = map(StreamDefinition.from_json, value.get("streams", ()))
        self.capacity: int = value.get("capacity", 0)
        self.streams: dict[str, StreamDefinition] = {definition.id: definition for definition in definitions}
        self.splits = OperatorSplits.from_json(value.get("splits", {}))
        self.refreshed = Refreshed.from_json(value.get("refreshed", {}))
        self.raised: dict[str, int] = dict(value.get("raised", {}))
        """Watermarks (µs) that were set from outside, by stream."""

    def apply_change(self, change: EpochChange, clocks: Clocks) -> None:
        """Move on by a changelog; ``clocks`` are those at the start of the batch that activates it (µs)."""
        self.streams |= {stream.id: stream for stream in change.streams_created}
        for stream, watermark in change.raised.items():
            self.raised[stream] = max(watermark, self.raised.get(stream, watermark))
        for stream in change.streams_dropped:
            self.streams.pop(stream, None)
            self.raised.pop(stream, None)
        self.splits.apply(change.splits, clocks)
        self.refreshed.apply(change.refreshed)
        self.capacity = change.capacity

    def state_json(self) -> dict[str, Any]:
        """Return a JSON form for snapshots."""
        return {
            "capacity": self.capacity,
            "streams": [definition.to_json() for definition in self.streams.values()],
            "splits": self.splits.to_json(),
            "refreshed": self.refreshed,
            "raised": self.raised,
        }
