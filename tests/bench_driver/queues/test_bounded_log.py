"""A bounded log keeps the newest entries, and their numbers."""

from __future__ import annotations

from bench_driver.queues.bounded_log import BoundedLog


def test_entries_are_numbered_from_the_beginning() -> None:
    log: BoundedLog[str] = BoundedLog(3)
    assert log.since(0) == ([], 0)
    for entry in "abcde":
        log.append(entry)
    assert log.since(0) == (["c", "d", "e"], 5)
    assert log.since(4) == (["e"], 5)
    assert log.since(5) == ([], 5)
    assert log.since(99) == ([], 5)


def test_heavy_entries_leave_room_for_fewer() -> None:
    log: BoundedLog[str] = BoundedLog(10)
    for weight, entry in enumerate("abcdef"):
        log.append(entry, weight)
    assert log.since(0) == (["e", "f"], 6)
    log.append("g", 1000)
    assert log.since(0) == (["g"], 7)
