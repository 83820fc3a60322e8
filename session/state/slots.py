"""Slots: which bit of every query-set belongs to which query (thesis 4.2.1.2, 4.3.2.4).

Invariants: a slot has at most one holder; the lowest free slot is given first; a slot is given again only after it
was freed; the capacity grows by one when no slot is free and shrinks only at its end. The cost of an operation depends
on how many slots it changes, not on how many there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

from bitarray import bitarray

from braid.sources.core.errors import CorruptData


class SlotTable:
    """The holder of each slot below ``capacity``."""

    def __init__(self) -> None:
        self._holders: list[str | None] = []
        self._held = bitarray()
        self._free: list[int] = []
        self._free_since: dict[int, int] = {}

    @property
    def capacity(self) -> int:
        """How many slots there are, held or free."""
        return len(self._holders)

    def holder(self, slot: int) -> str | None:
        """Return the id of the query that holds ``slot``."""
        return self._holders[slot] if 0 <= slot < len(self._holders) else None

    def occupied(self) -> bitarray:
        """Return a bit for each slot: whether it has a holder."""
        return self._held.copy()

    def next_slots(self, count: int, also_free: Iterable[int] = ()) -> list[int]:
        """Return the slots that the next ``count`` queries get once ``also_free`` are freed; changes nothing."""
        lowest = [heapq.heappop(self._free) for _ in range(min(count, len(self._free)))]
        for slot in lowest:
            heapq.heappush(self._free, slot)
        slots = heapq.nsmallest(count, [*lowest, *also_free])
        return [*slots, *range(self.capacity, self.capacity + count - len(slots))]

    def take(self, slot: int, query_id: str) -> None:
        """Give ``slot``, which must be the next one, to a query; CorruptData when it is another."""
        expected = self._free[0] if self._free else self.capacity
        if slot != expected:
            raise CorruptData(
                f"A query must get the lowest free slot, {expected}; got {slot} for {query_id!r}.",
                query_id=query_id,
            )
        if slot == self.capacity:
            self._holders.append(query_id)
            self._held.append(True)
            return
        heapq.heappop(self._free)
        del self._free_since[slot]
        self._holders[slot] = query_id
        self._held[slot] = True

    def free(self, slot: int, query_id: str, at_us: int) -> None:
        """Take ``slot`` back from its holder; CorruptData when that is not ``query_id``."""
        if self.holder(slot) != query_id:
            raise CorruptData(
                f"Slot {slot} must be freed by its holder, {self.holder(slot)!r}; got {query_id!r}.",
                query_id=query_id,
            )
        self._holders[slot] = None
        self._held[slot] = False
        self._free_since[slot] = at_us
        heapq.heappush(self._free, slot)

    def compacted_capacity(self, free_since_us: int) -> int:
        """Return the capacity without the slots at the end that have been free since ``free_since_us`` or longer."""
        capacity = self.capacity
        while capacity and self._free_since.get(capacity - 1, free_since_us + 1) <= free_since_us:
            capacity -= 1
        return capacity

    def truncate(self, capacity: int) -> None:
        """Drop the free slots from ``capacity`` on; CorruptData when one of them is held."""
        if capacity >= self.capacity:
            return
        if any(self._holders[capacity:]):
            raise CorruptData(f"Slots from {capacity} on must be free to be dropped; got {self._holders[capacity:]!r}.")
        for slot in range(capacity, self.capacity):
            del self._free_since[slot]
        del self._holders[capacity:], self._held[capacity:]
        self._free = sorted(self._free_since)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the snapshot: the free slots and since when; records of queries have the others."""
        return {"capacity": self.capacity, "free_since": list(self._free_since.items())}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], holders: Mapping[int, str]) -> SlotTable:
        """Read what :meth:`to_json` wrote; CorruptData when a slot is neither free nor held by one of ``holders``."""
        table = cls()
        table._holders = [holders.get(slot) for slot in range(value["capacity"])]
        table._held = bitarray(holder is not None for holder in table._holders)
        table._free_since = dict(value["free_since"])
        table._free = sorted(table._free_since)
        if table._held.count() + len(table._free) != table.capacity or any(table._held[s] for s in table._free):
            raise CorruptData(f"Each of {table.capacity} slots must be held or free; got {len(table._free)} free ones.")
        return table
