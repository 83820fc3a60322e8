"""Group commit: one record for all who wait, and nothing is answered before it is on disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from session.journal import Journal
from session.request_log import RequestLog
from session.requests import QueriesDeleted, Request, StreamDropped
from sources.core.errors import NotReady


class SlowJournal(Journal):
    """A journal whose writes wait until the test lets them through; the bytes are really written."""

    def __init__(self, folder: Path, latest: int = 0) -> None:
        super().__init__(folder, latest)
        self.writing = threading.Event()
        self.go_on = threading.Event()
        self.broken = False

    def append(self, number: int, record: dict[str, Any]) -> None:
        self.writing.set()
        assert self.go_on.wait(30)
        if self.broken:
            raise OSError(28, "No space left on device")
        super().append(number, record)


class Applied:
    """What the log applied."""

    def __init__(self, folder: Path) -> None:
        self.records: list[tuple[int, list[Request]]] = []
        self._journal = Journal(folder)

    def __call__(self, number: int, at_us: int, requests: Sequence[Request]) -> None:
        (logged,) = self._journal.after(number - 1)
        assert logged[0] == number
        assert logged[1]["at_us"] == at_us == 7, "a record must be on disk when it is applied"
        self.records.append((number, list(requests)))


def test_requests_that_wait_together_share_one_record_in_order(tmp_path: Path) -> None:
    journal = SlowJournal(tmp_path)
    applied = Applied(tmp_path)
    log = RequestLog(journal, 0, lambda: 7, applied)
    requests = [StreamDropped(f"s-{number}") for number in range(20)]
    first = log.submit(requests[0])
    assert journal.writing.wait(30)
    rest = [log.submit(request) for request in requests[1:]]
    assert not any(logged.done.is_set() for logged in [first, *rest])
    journal.go_on.set()
    for logged in [first, *rest]:
        logged.wait()
    assert applied.records == [(1, requests[:1]), (2, requests[1:])]
    log.close()
    assert [number for number, _ in Journal(tmp_path).after(0)] == [1, 2]


def test_what_cannot_be_written_is_refused_and_not_applied_and_the_log_goes_on(tmp_path: Path) -> None:
    journal = SlowJournal(tmp_path, latest=4)
    applied = Applied(tmp_path)
    log = RequestLog(journal, 4, lambda: 7, applied)
    journal.broken = True
    journal.go_on.set()
    with pytest.raises(NotReady, match="No space left on device"):
        log.submit(StreamDropped("s-1")).wait()
    assert applied.records == []
    journal.broken = False
    log.submit(QueriesDeleted(("q-1",), drain=True)).wait()
    assert applied.records == [(5, [QueriesDeleted(("q-1",), drain=True)])]
    log.close()


def test_a_closed_log_writes_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    journal = SlowJournal(tmp_path)
    applied = Applied(tmp_path)
    log = RequestLog(journal, 0, lambda: 7, applied)
    logged = log.submit(StreamDropped("s-1"))
    journal.go_on.set()
    log.close()
    logged.wait()
    assert [number for number, _ in applied.records] == [1]
    with pytest.raises(NotReady, match="stopping"):
        log.submit(StreamDropped("s-2"))
