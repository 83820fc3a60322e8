"""What the data plane runs with: as of the epoch of the last batch that was applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from operators.epoch_state import EpochState
from session.state.query_record import QueryRecord

SlotChange = tuple[int, QueryRecord | None]
"""A slot, and the query that has it now, of which only what never changes may be read."""


class Active(EpochState):
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
