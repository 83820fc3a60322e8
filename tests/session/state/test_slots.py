"""Slots against a brute-force model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.session.state.slots import SlotTable
from braid.sources.core.errors import CorruptData

Steps = st.lists(st.tuples(st.sampled_from(["take", "free", "compact"]), st.integers(0, 20)), max_size=60)


@given(Steps)
def test_the_lowest_free_slot_is_given_and_only_free_slots_at_the_end_are_dropped(
    steps: list[tuple[str, int]],
) -> None:
    table = SlotTable()
    model: dict[int, str] = {}
    freed_at: dict[int, int] = {}
    capacity, queries = 0, 0
    for now, (step, number) in enumerate(steps):
        if step == "take":
            (slot,) = table.next_slots(1)
            assert slot == min(set(range(capacity + 1)) - model.keys())
            queries += 1
            table.take(slot, f"q-{queries}")
            model[slot] = f"q-{queries}"
            freed_at.pop(slot, None)
            capacity = max(capacity, slot + 1)
        elif step == "free" and model:
            slot = sorted(model)[number % len(model)]
            table.free(slot, model.pop(slot), now)
            freed_at[slot] = now
        elif step == "compact":
            since = now - number
            expected = capacity
            while expected and expected - 1 in freed_at and freed_at[expected - 1] <= since:
                expected -= 1
                del freed_at[expected]
            assert table.compacted_capacity(since) == expected
            table.truncate(expected)
            capacity = expected
        assert table.capacity == capacity
        assert [table.holder(slot) for slot in range(capacity)] == [model.get(s) for s in range(capacity)]
        read_back = SlotTable.from_json(table.to_json(), model)
        assert read_back.to_json() == table.to_json()
        assert read_back.occupied() == table.occupied()
        assert table.occupied().to01() == "".join("01"[s in model] for s in range(capacity))


def test_next_slots_counts_slots_that_are_about_to_be_freed_and_changes_nothing() -> None:
    table = SlotTable()
    for slot in range(4):
        table.take(slot, f"q-{slot}")
    table.free(1, "q-1", 0)
    assert table.next_slots(4, [3, 0]) == [0, 1, 3, 4]
    assert table.next_slots(1) == [1]


def test_slots_that_are_neither_held_nor_free_are_refused() -> None:
    for holders in ({}, {0: "q-0", 1: "q-1"}):
        with pytest.raises(CorruptData, match="held or free"):
            SlotTable.from_json({"capacity": 2, "free_since": [[1, 7]]}, holders)


def test_a_slot_that_is_not_the_next_or_not_held_is_refused() -> None:
    table = SlotTable()
    with pytest.raises(CorruptData, match="lowest free slot, 0"):
        table.take(1, "q-1")
    table.take(0, "q-1")
    with pytest.raises(CorruptData, match="freed by its holder"):
        table.free(0, "q-2", 0)
    with pytest.raises(CorruptData, match="must be free"):
        table.truncate(0)
