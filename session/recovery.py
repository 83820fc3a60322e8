"""Bring the session's state back: the snapshot, then the three logs in the order in which they were applied.

A changelog says how many requests and batches the session had applied when it cut it, which fixes that order.
"""

from __future__ import annotations

from typing import Any

from session import request_log, snapshot
from session.changelog import Changelog
from session.idempotency import Idempotency
from session.requests import request_from_json
from session.session_state import SessionState
from sources.errors import CorruptData
from sources.record_log import RecordLog
from sources.storage import Storage

CHANGELOGS = "changelogs"
BATCHES = "batches"


def recover(storage: Storage, idempotency: Idempotency) -> SessionState:
    """Return the state as it was; ``idempotency`` gets the outcomes. CorruptData when a record is missing."""
    state = load_snapshot(storage)
    replay_logs(storage, state, idempotency)
    return state


def load_snapshot(storage: Storage) -> SessionState:
    """Return the state of the snapshot, an empty one when there is none."""
    try:
        return snapshot.from_bytes(storage.get(snapshot.PATH))
    except FileNotFoundError:
        return SessionState()


def replay_logs(storage: Storage, state: SessionState, idempotency: Idempotency) -> None:
    """Apply to ``state`` and ``idempotency`` what has come since the snapshot."""
    idempotency.load()
    replay = _Replay(storage, state, idempotency)
    for _, record in _following(replay.changelogs, state.epoch):
        changelog = Changelog.from_json(record)
        replay.requests_upto(changelog.requests)
        replay.batches_upto(changelog.batches)
        state.apply_changelog(changelog)
    replay.requests_upto(None)
    replay.batches_upto(None)


class _Replay:
    def __init__(self, storage: Storage, state: SessionState, idempotency: Idempotency) -> None:
        self.changelogs = RecordLog(storage, CHANGELOGS)
        self._requests = RecordLog(storage, request_log.FOLDER)
        self._batches = RecordLog(storage, BATCHES)
        self._state = state
        self._idempotency = idempotency

    def requests_upto(self, number: int | None) -> None:
        """Apply the request records up to ``number``, all for None."""
        for n, record in _following(self._requests, self._state.requests, number):
            requests = [request_from_json(request) for request in record["requests"]]
            self._state.apply_requests(n, record["at_us"], requests)
            self._idempotency.apply(record["at_us"], requests)

    def batches_upto(self, seq: int | None) -> None:
        """Apply the batch records up to ``seq``; for None all whose changelogs are applied, which is all."""
        for _, record in _following(self._batches, self._state.applied_seq, seq):
            self._state.apply_batch(record)


def _following(log: RecordLog, number: int, upto: int | None = None) -> list[tuple[int, dict[str, Any]]]:
    """Return the records in ``(number, upto]``; CorruptData when one is missing."""
    last = max(log.numbers(), default=0) if upto is None else upto
    wanted = range(number + 1, last + 1)
    try:
        return [(n, log.read(n)) for n in wanted]
    except FileNotFoundError as error:
        raise CorruptData(
            f"Records {number + 1} to {wanted[-1]} must be there to go on; one is missing: {error}."
            " Restore the data directory from a backup."
        ) from error
