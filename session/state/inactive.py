"""What changelogs changed that no batch has applied yet, and the clocks that queries get from the batch that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operators.epoch_state import EpochChange
from session.state.query_record import QueryRecord, Times
from sources.core.schema import StreamDefinition


@dataclass
class Inactive:
    """What the changelog of an epoch changed that no batch has applied yet."""

    change: EpochChange
    touched: set[str] = field(default_factory=set)
    """Ids of the queries that the changelog creates, deletes or frees."""
    groups: dict[str, int] = field(default_factory=dict)
    """The new query groups of the queries that it moves."""

    def to_json(self) -> list[Any]:
        """Return a JSON form for the snapshot; queries know when they are created, deleted and freed."""
        change = self.change
        streams = [stream.to_json() for stream in change.streams_created], list(change.streams_dropped)
        return [change.capacity, *streams, self.groups, list(change.splits), list(change.refreshed)]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Inactive:
        """Read what :meth:`to_json` wrote."""
        capacity, created, dropped, *more = value
        all_changes: list[Any] = [*more, *({}, [], [])[len(more) :]]  # older snapshots have fewer
        groups, splits, refreshed = all_changes
        definitions = tuple(StreamDefinition.from_json(stream) for stream in created)
        return cls(EpochChange(capacity, definitions, tuple(dropped), splits, refreshed), set(), dict(groups))


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
