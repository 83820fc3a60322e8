"""Changelogs and changelog-sets (thesis 4.2.1.2, figures 4.4 and 4.5)."""

from __future__ import annotations

import pytest
from bitarray import bitarray, frozenbitarray
from hypothesis import given
from hypothesis import strategies as st

from braid.session.state.changelog import Changelog, Created, Deleted, Freed
from braid.session.state.slots import SlotTable
from braid.sources.core.errors import CorruptData
from tests.session.changelog_sets import changelog_set_between
from tests.session.queries import selection


def of(epoch: int, bits: str) -> Changelog:
    return Changelog(epoch, 0, "test", frozenbitarray(bits), len(bits), epoch)


def test_figure_4_4_joining_across_a_change_keeps_only_queries_that_stayed() -> None:
    # T1: Q1 and Q2 are created; T2: Q2 is deleted and Q3 takes its position
    changelogs = {1: of(1, "00"), 2: of(2, "10")}
    between = changelog_set_between(changelogs, 1, 2)
    assert between == bitarray("10")
    assert not (bitarray("01") & between).any(), "t5, which only Q2 selected, meets no tuple after T2"
    assert bitarray("11") & bitarray("10") & between == bitarray("10"), "t4 with t7 is a result of Q1"


def test_figure_4_5_sets_between_distant_times_are_the_and_of_all_between() -> None:
    # T1 +Q1; T2 +Q2 +Q3; T3 -Q2 +Q4; T4 +Q5; T5 -Q3 +Q6 (in its place) +Q7; T6 -Q4 -Q7
    changelogs = {
        epoch: of(epoch, bits) for epoch, bits in enumerate(["0", "100", "101", "1110", "11010", "10110"], start=1)
    }
    assert changelog_set_between(changelogs, 1, 2).to01() == "100"
    assert changelog_set_between(changelogs, 2, 4).to01() == "1010"
    assert changelog_set_between(changelogs, 1, 5).to01() == "10000"
    assert changelog_set_between(changelogs, 3, 5).to01() == "11000"
    assert changelog_set_between(changelogs, 4, 6).to01() == "10010"
    assert changelog_set_between(changelogs, 5, 5).to01() == "11111", "nothing changes between a time and itself"


def test_a_slot_that_was_dropped_and_came_again_is_another_query() -> None:
    changelogs = {1: of(1, "000"), 2: of(2, "1"), 3: of(3, "100")}
    assert changelog_set_between(changelogs, 1, 2).to01() == "1"
    assert changelog_set_between(changelogs, 1, 3).to01() == "100"


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="i <= j"):
        changelog_set_between({1: of(1, "")}, 2, 1)


Steps = st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 7)), st.booleans()), max_size=12)


@given(Steps)
def test_changelog_sets_say_which_slots_hold_the_same_query(steps: list[tuple[int, set[int], bool]]) -> None:
    table, number = SlotTable(), 0
    holders: list[list[str | None]] = [[]]
    changelogs: dict[int, Changelog] = {}
    for epoch, (creations, deletions, compact) in enumerate(steps, start=1):
        freed = sorted(slot for slot in deletions if table.holder(slot) is not None)
        for slot in freed:
            table.free(slot, str(table.holder(slot)), epoch)
        new_slots = table.next_slots(creations)
        for slot in new_slots:
            number += 1
            table.take(slot, f"q-{number}")
        if compact:
            table.truncate(table.compacted_capacity(epoch - 1))
        bits = table.occupied()
        for slot in new_slots:
            bits[slot] = 0
        changelogs[epoch] = Changelog(epoch, 0, "test", frozenbitarray(bits), table.capacity, epoch)
        holders.append([table.holder(slot) for slot in range(table.capacity)])
    for j in range(1, len(holders)):
        for i in range(j):
            expected = [
                holder is not None and slot < len(holders[i]) and holders[i][slot] == holder
                for slot, holder in enumerate(holders[j])
            ]
            assert list(changelog_set_between(changelogs, i, j)) == expected


def test_a_changelog_reads_back_from_json() -> None:
    changelog = Changelog(
        3,
        5,
        "2 requests",
        frozenbitarray("100"),
        3,
        2,
        created=(Created("q-4", 1, "selection:s-1", selection()),),
        deleted=(Deleted("q-2", 1, drain=False),),
        freed=(Freed("q-2", 1), Freed("q-3", 2)),
        streams_dropped=("s-9",),
        requests=7,
        batches=8,
    )
    assert Changelog.from_json(changelog.to_json()) == changelog


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 0}, "epoch must be 1"),
        ({"capacity": 2}, "a bit for each of 2 slots"),
        ({"freed": (Freed("q-1", 0),)}, "must be 0 at the slots"),
        ({"created": (Created("q-1", 5, "selection:s-1", selection()),)}, "must be 0 at the slots"),
        ({"deleted": (Deleted("q-1", 1, drain=False),)}, "freed at once"),
    ],
)
def test_a_changelog_that_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    fields = {
        "epoch": 1,
        "created_us": 0,
        "why": "",
        "changelog_set": frozenbitarray("100"),
        "capacity": 3,
        "plan_version": 1,
    }
    with pytest.raises(CorruptData, match=message):
        Changelog(**{**fields, **changes})  # type: ignore[arg-type]
