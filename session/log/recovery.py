"""Bring the session's state back: the snapshot, then the three logs in the order in which they were applied.

A changelog says how many requests and batches the session had applied when it cut it, which fixes that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from braid.engine.data_layout import BATCHES, CHANGELOGS
from braid.session.log.idempotency import Idempotency
from braid.session.log.journal import open_journal
from braid.session.log.snapshot import PATH
from braid.session.state.changelog import Changelog
from braid.session.state.requests import FOLDER, request_from_json
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage, not_read_back


def replay_logs(storage: Storage, state: SessionState, idempotency: Idempotency) -> None:
    """Apply what the logs have since a snapshot to its ``state`` and to ``idempotency``; CorruptData for a gap."""
    idempotency.load()
    changelogs = RecordLog(storage, CHANGELOGS)
    replay = _Replay(storage, state, idempotency, changelogs)
    if changelogs.latest() < state.epoch:  # the newest ones are always kept
        changelogs.needed(state.epoch)
    for _, record in _following(changelogs, state.epoch):
        changelog = Changelog.from_json(record)
        replay.requests_upto(changelog.requests)
        replay.batches_upto(changelog.batches)
        state.apply_changelog(changelog)
    replay.requests_upto(None)
    replay.batches_upto(None)


class _Replay:
    def __init__(self, storage: Storage, state: SessionState, idempotency: Idempotency, changelogs: RecordLog) -> None:
        self._requests = open_journal(storage, FOLDER).after(state.requests)
        self._storage = storage
        self._batches = RecordLog(storage, BATCHES)
        self._changelogs = changelogs
        self._state = state
        self._idempotency = idempotency

    def requests_upto(self, number: int | None) -> None:
        """Apply the request records up to ``number``, or all when it is None."""
        while number is None or self._state.requests < number:
            next_number = self._state.requests + 1
            logged_number, record = next(self._requests, (None, {}))
            if logged_number is None and number is None:
                return
            if logged_number != next_number and not self._storage.exists(PATH):
                raise not_read_back(PATH, "it is missing")
            if logged_number != next_number:
                raise _missing(f"Request {next_number}", "it is missing")
            requests = [request_from_json(request) for request in record["requests"]]
            self._state.apply_requests(next_number, record["at_us"], requests)
            self._idempotency.apply(record["at_us"], requests)

    def batches_upto(self, seq: int | None) -> None:
        """Apply the batch records up to ``seq``, or all when it is None: by then their changelogs are applied."""
        for _, record in _following(self._batches, self._state.applied_seq, seq):
            if record["epoch"] > self._state.epoch:  # a batch is of an epoch whose changelog is there
                self._changelogs.needed(self._state.epoch + 1)
            self._state.apply_batch(record)


def _following(log: RecordLog, number: int, upto: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records in ``(number, upto]``; CorruptData when one is missing."""
    last = max(log.numbers(), default=0) if upto is None else upto
    for current in range(number + 1, last + 1):
        yield current, log.needed(current)


def _missing(subject: str, problem: str) -> CorruptData:
    return CorruptData(f"{subject} must be there to go on; {problem}. Restore the data directory from a backup.")
