"""What the data plane runs with: as of the epoch of the last batch that was applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from operators.joins.key_splits import OperatorSplits
from operators.lookup.lookups import Refreshed
from session.inactive import Inactive
from session.query_record import QueryRecord
from sources.core.schema import StreamDefinition

SlotChange = tuple[int, QueryRecord | None]
"""A slot, and the query that has it now, of which only what never changes may be read."""


class Active:
    """Capacity, streams, split keys, rows of static tables, and the query in each slot."""

    def __init__(self) -> None:
        self.capacity = 0
        self.streams: dict[str, StreamDefinition] = {}
        self.splits = OperatorSplits()
        self.refreshed = Refreshed()
        self._holders: list[QueryRecord | None] = []

    def apply(self, inactive: Inactive, clocks: Mapping[str, int | None]) -> None:
        """Apply what a changelog changed, except for queries; ``clocks`` are those at the start of its batch."""
        self.splits.apply(inactive.splits, clocks)
        self.refreshed.apply(inactive.refreshed)
        self.capacity = inactive.capacity
        self.streams |= {stream.id: stream for stream in inactive.streams_created}
        for stream_id in inactive.streams_dropped:
            self.streams.pop(stream_id, None)

    def take(self, record: QueryRecord) -> SlotChange:
        """Give a query its slot."""
        assert record.slot is not None
        if record.slot >= len(self._holders):
            self._holders += [None] * (record.slot + 1 - len(self._holders))
        self._holders[record.slot] = record
        return record.slot, record

    def free(self, record: QueryRecord) -> SlotChange:
        """Take a query's slot back."""
        assert record.slot is not None
        assert self._holders[record.slot] is record, "a slot is freed before it is given again"
        self._holders[record.slot] = None
        return record.slot, None

    def holder(self, slot: int) -> QueryRecord | None:
        """Return the query in a slot."""
        return self._holders[slot] if slot < len(self._holders) else None

    @property
    def slots(self) -> list[SlotChange]:
        """The slots that are taken, each with its query."""
        return [(slot, record) for slot, record in enumerate(self._holders) if record is not None]

    @property
    def queries(self) -> Iterator[QueryRecord]:
        """All queries with a slot, by slot."""
        return (record for record in self._holders if record is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of all but the queries, which know their slots."""
        return {
            "capacity": self.capacity,
            "streams": [stream.to_json() for stream in self.streams.values()],
            "splits": self.splits.to_json(),
            "refreshed": self.refreshed,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Active:
        """Read what :meth:`to_json` wrote."""
        active = cls()
        active.capacity = value["capacity"]
        streams = [StreamDefinition.from_json(stream) for stream in value["streams"]]
        active.streams = {stream.id: stream for stream in streams}
        active.splits = OperatorSplits.from_json(value.get("splits", {}))  # older snapshots have none
        active.refreshed = Refreshed.from_json(value.get("refreshed", {}))
        return active
