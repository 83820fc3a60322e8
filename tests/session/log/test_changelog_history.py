"""Pages of changelogs: the same from memory and from the log, and bounded."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest

from braid.session.log import changelog_history
from braid.session.log.changelog_history import ChangelogHistory
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage


def changelog(epoch: int) -> dict[str, Any]:
    """Return the record of a changelog."""
    query = {"kind": "selection", "where": ["much"] * 100}
    return {
        "epoch": epoch,
        "created_us": epoch,
        "why": "1 request",
        "created": [{"id": f"q-{epoch}", "slot": epoch, "operator": "o", "query": query}],
        "deleted": [],
        "freed": [],
        "streams_created": [{"id": "s-1", "name": "purchases"}],
        "streams_dropped": [],
        "changelog_set": "0" * epoch,
        "capacity": epoch,
        "plan_version": epoch,
        "requests": 1,
        "batches": 1,
    }


@pytest.fixture
def log(tmp_path: Path) -> RecordLog:
    log = RecordLog(Storage(str(tmp_path)), "changelogs")
    for epoch in range(1, 31):
        log.append(epoch, changelog(epoch))
    return log


def epochs(history: ChangelogHistory, after: int) -> list[int]:
    """Return the epochs of a page."""
    return [orjson.loads(encoded)["epoch"] for encoded in history.after(after)]


def test_memory_and_log_show_the_same_and_leave_the_queries_out(log: RecordLog) -> None:
    from_log, from_memory = ChangelogHistory(log), ChangelogHistory(log)
    for epoch in range(1, 31):
        from_memory.append(epoch, changelog(epoch))
    assert from_log.after(0) == from_memory.after(0)
    shown = orjson.loads(from_log.after(29)[0])
    assert shown["created"] == [{"id": "q-30", "slot": 30, "operator": "o"}]
    assert shown["streams_created"] == ["purchases"]
    assert epochs(from_log, 30) == []


def test_what_is_in_memory_is_not_read_again(log: RecordLog, monkeypatch: pytest.MonkeyPatch) -> None:
    history = ChangelogHistory(log)
    for epoch in range(20, 31):
        history.append(epoch, changelog(epoch))
    assert epochs(history, 15) == list(range(16, 31))
    monkeypatch.setattr(log, "read", lambda number: pytest.fail(f"{number} is in memory"))
    assert epochs(history, 19) == list(range(20, 31))


def test_memory_is_bounded_by_bytes(log: RecordLog) -> None:
    history = ChangelogHistory(log, kept_bytes=1000)
    for epoch in range(1, 31):
        history.append(epoch, changelog(epoch))
    assert sum(map(len, history._newest.values())) <= 1000
    assert max(history._newest) == 30
    assert epochs(history, 0) == list(range(1, 31))


def test_a_page_is_bounded_and_never_empty_before_the_end(log: RecordLog, monkeypatch: pytest.MonkeyPatch) -> None:
    history = ChangelogHistory(log)
    monkeypatch.setattr(changelog_history, "MAX_CHANGELOGS", 7)
    assert epochs(history, 0) == list(range(1, 8))
    monkeypatch.setattr(changelog_history, "MAX_BYTES", 1)
    assert epochs(history, 3) == [4]


def test_trimmed_changelogs_are_skipped(log: RecordLog) -> None:
    log.trim(25)
    assert epochs(ChangelogHistory(log), 3) == [26, 27, 28, 29, 30]


def test_memory_stays_below_the_bound_however_many_changelogs_come(log: RecordLog) -> None:
    """Counted is what Python allocates: JSON just encoded takes more memory than it is long."""
    kept_bytes = 1 << 20
    history = ChangelogHistory(log, kept_bytes)
    record = changelog(40)
    tracemalloc.start()
    try:
        for epoch in range(1, 10_000):
            history.append(epoch, record)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 * kept_bytes < size < 1.1 * kept_bytes
