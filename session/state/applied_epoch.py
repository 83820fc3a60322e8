"""What the data plane runs with, as of the epoch of the last batch applied, and what will change with later ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from braid.operators.epoch_state import EpochChange, EpochState
from braid.session.state.query_record import QueryRecord, Times
from braid.sources.core.schema import StreamDefinition

SlotChange = tuple[int, QueryRecord | None]
"""A slot, and the query that has it from now on; other threads may read of the query what never changes only."""


class AppliedEpoch(EpochState):
    """The state of the epoch, and the query in each slot."""

    def __init__(self, value: Mapping[str, Any] | None = None) -> None:
        """Begin before the first epoch, or with what ``state_json`` returned; queries know their slots."""
        super().__init__(value)
        self._holders: list[QueryRecord | None] = []

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


@dataclass
class UnappliedEpoch:
    """What the changelog of an epoch changed that no batch has applied yet."""

    change: EpochChange
    touched: set[str] = field(default_factory=set)
    """Ids of the queries that the changelog creates, deletes or frees."""
    groups: dict[str, int] = field(default_factory=dict)
    """The new query group of each query that it moves to another."""

    def to_json(self) -> list[Any]:
        """Return a JSON form for the snapshot; queries know when they are created, deleted and freed."""
        change = self.change
        streams = [stream.to_json() for stream in change.streams_created], list(change.streams_dropped)
        rest = self.groups, list(change.splits), list(change.refreshed), dict(change.raised)
        return [change.capacity, *streams, *rest]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> UnappliedEpoch:
        """Read what :meth:`to_json` wrote."""
        capacity, created, dropped, groups, splits, refreshed, raised = value
        definitions = tuple(StreamDefinition.from_json(stream) for stream in created)
        return cls(EpochChange(capacity, definitions, tuple(dropped), splits, refreshed, raised), set(), dict(groups))


class ClocksOf:
    """Returns the clocks of a query's streams, one object for all queries of the same streams."""

    def __init__(self, clocks: Mapping[str, int | None]) -> None:
        self._clocks = clocks
        self._of_streams: dict[tuple[str, ...], Times] = {}

    def __call__(self, record: QueryRecord) -> Times:
        streams = record.query.streams
        if streams not in self._of_streams:
            self._of_streams[streams] = {stream: self._clocks.get(stream) for stream in streams}
        return self._of_streams[streams]
