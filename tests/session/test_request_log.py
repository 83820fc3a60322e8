"""Group commit: one record for all who wait, and nothing is answered before it is on disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from session.request_log import RequestLog
from session.requests import QueriesDeleted, Request, StreamDropped
from sources.errors import NotReady
from sources.record_log import RecordLog
from sources.storage import Storage


class SlowStorage(Storage):
    """A disk whose writes wait until the test lets them through; the bytes are really written."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.writing = threading.Event()
        self.go_on = threading.Event()
        self.broken = False

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        assert durable, "requests must be flushed"
        self.writing.set()
        assert self.go_on.wait(30)
        if self.broken:
            raise OSError(28, "No space left on device")
        super().put(path, data, durable=durable)


class Applied:
    """What the log applied."""

    def __init__(self, storage: Storage) -> None:
        self.records: list[tuple[int, list[Request]]] = []
        self._log = RecordLog(storage, "requests")

    def __call__(self, number: int, at_us: int, requests: Sequence[Request]) -> None:
        assert self._log.read(number)["at_us"] == at_us == 7, "a record must be on disk when it is applied"
        self.records.append((number, list(requests)))


def test_requests_that_wait_together_share_one_record_in_order(tmp_path: Path) -> None:
    storage = SlowStorage(str(tmp_path))
    applied = Applied(storage)
    log = RequestLog(storage, 0, lambda: 7, applied)
    requests = [StreamDropped(f"s-{number}") for number in range(20)]
    first = log.submit(requests[0])
    assert storage.writing.wait(30)
    rest = [log.submit(request) for request in requests[1:]]
    assert not any(logged.done.is_set() for logged in [first, *rest])
    storage.go_on.set()
    for logged in [first, *rest]:
        logged.wait()
    assert applied.records == [(1, requests[:1]), (2, requests[1:])]
    log.close()
    assert [number for number, _ in RecordLog(storage, "requests").after(0)] == [1, 2]


def test_what_cannot_be_written_is_refused_and_not_applied_and_the_log_goes_on(tmp_path: Path) -> None:
    storage = SlowStorage(str(tmp_path))
    applied = Applied(storage)
    log = RequestLog(storage, 4, lambda: 7, applied)
    storage.broken = True
    storage.go_on.set()
    with pytest.raises(NotReady, match="No space left on device"):
        log.submit(StreamDropped("s-1")).wait()
    assert applied.records == []
    storage.broken = False
    log.submit(QueriesDeleted(("q-1",), drain=True)).wait()
    assert applied.records == [(5, [QueriesDeleted(("q-1",), drain=True)])]
    log.close()


def test_a_closed_log_writes_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    storage = SlowStorage(str(tmp_path))
    applied = Applied(storage)
    log = RequestLog(storage, 0, lambda: 7, applied)
    logged = log.submit(StreamDropped("s-1"))
    storage.go_on.set()
    log.close()
    logged.wait()
    assert [number for number, _ in applied.records] == [1]
    with pytest.raises(NotReady, match="stopping"):
        log.submit(StreamDropped("s-2"))
