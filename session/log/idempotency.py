"""The outcomes of POSTs with an Idempotency-Key: the first one is answered again, also after a crash.

A key is bound to its effect by the request log: the request that an action logs carries the key, so both become
durable at once. If the service dies before the outcome is recorded, a retry runs the action again, and the session
answers with the effect that the key already had instead of having it twice. See :class:`RunningAction`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from braid.session.log.outcome_segments import OutcomeSegments, Row
from braid.session.state.requests import (
    Key,
    Outcome,
    OutcomeRecorded,
    Refusal,
    Request,
    StreamCreated,
    TableCreated,
    is_final,
    new_queries,
    outcome_from_json,
    outcome_to_json,
)
from braid.sources.core.errors import NotAllowed, ServiceError
from braid.sources.core.storage import Storage

FOLDER = "outcomes"
NO_ANSWER = 429


@dataclass(slots=True)
class _Entry:
    fingerprint: str
    at_us: int
    outcome: Outcome | Refusal | None
    effect: Any = None


@dataclass(frozen=True)
class RunningAction:
    """The key that the current action runs for, and the effect that an earlier, interrupted run had, if any."""

    key: Key
    has_effect: bool
    effect: Any


_running: ContextVar[RunningAction | None] = ContextVar("running", default=None)


def current() -> RunningAction | None:
    """Return what the current action runs for, None outside of :meth:`Idempotency.run`."""
    return _running.get()


def current_key() -> Key | None:
    """Return the Idempotency-Key of the current action, None without one."""
    running = current()
    return None if running is None else running.key


def has_effect() -> bool:
    """Whether the current action already had its effect in an earlier, interrupted run."""
    running = current()
    return running is not None and running.has_effect


class Idempotency:
    """All outcomes that are kept: the newest in memory and in the request log, the others in segments on disk."""

    def __init__(self, storage: Storage) -> None:
        self._newest: dict[str, _Entry] = {}
        self._segments = OutcomeSegments(storage, FOLDER)
        self._before_us = 0
        self._running_fingerprints: dict[str, str] = {}
        self._changed = threading.Condition()

    def run(self, key: Key, action: Callable[[], Outcome], record: Callable[[Outcome | Refusal], None]) -> Outcome:
        """Return the outcome of ``key``: the first one again, else that of ``action``, recorded by ``record``.

        Waits while another thread runs the same key. NotAllowed for a key that came with another fingerprint.
        Errors of the client are outcomes too; 429 and 5xx are not: a retry tries again.
        """
        with self._changed:
            self._check(key, self._running_fingerprints.get(key.key))
            self._changed.wait_for(lambda: key.key not in self._running_fingerprints)
            self._running_fingerprints[key.key] = key.fingerprint
        try:
            entry = self._find(key.key)
            if entry is not None:
                self._check(key, entry.fingerprint)
                if isinstance(entry.outcome, Refusal):
                    raise entry.outcome.to_error()
                if entry.outcome is not None:
                    return entry.outcome
            return self._act(
                RunningAction(key, entry is not None, None if entry is None else entry.effect), action, record
            )
        finally:
            with self._changed:
                del self._running_fingerprints[key.key]
                self._changed.notify_all()

    def _act(
        self, running: RunningAction, action: Callable[[], Outcome], record: Callable[[Outcome | Refusal], None]
    ) -> Outcome:
        token = _running.set(running)
        try:
            outcome = action()
            if outcome.status < 500 and outcome.status != NO_ANSWER:
                record(outcome)
            return outcome
        except ServiceError as error:
            if is_final(error):
                record(Refusal.of(error))
            raise
        finally:
            _running.reset(token)

    def _check(self, key: Key, fingerprint: str | None) -> None:
        if fingerprint is not None and fingerprint != key.fingerprint:
            raise NotAllowed(
                f"Idempotency-Key {key.key!r} belongs to another request. Send a new key with a new request."
            )

    def _find(self, key: str) -> _Entry | None:
        with self._changed:
            entry = self._newest.get(key)
        if entry is None:
            row = self._segments.find(key)
            entry = None if row is None else _entry_of(row)
        return entry if entry is not None and entry.at_us > self._before_us else None

    def apply(self, at_us: int, requests: Sequence[Request]) -> None:
        """Note the durable requests that carry a key."""
        for request in requests:
            if request.key is None:
                continue
            if isinstance(request, OutcomeRecorded):
                entry = _Entry(request.key.fingerprint, request.at_us, request.outcome)
            else:
                entry = _Entry(request.key.fingerprint, at_us, None, _effect_of(request))
            with self._changed:
                self._newest[request.key.key] = entry

    def expire(self, before_us: int) -> None:
        """Forget the outcomes recorded at or before ``before_us``."""
        with self._changed:
            self._before_us = before_us
            while self._newest:
                key, entry = next(iter(self._newest.items()))
                if entry.at_us > before_us:
                    break
                del self._newest[key]
        self._segments.expire(before_us)

    def save(self) -> None:
        """Write the entries since the last time; afterwards the request log may be trimmed."""
        with self._changed:
            unsaved = list(self._newest.items())
        self._segments.add([_row_of(key, entry) for key, entry in unsaved])
        with self._changed:
            for key, entry in unsaved:
                if self._newest.get(key) is entry:
                    del self._newest[key]

    def load(self) -> None:
        """Learn which outcomes are in the segments."""
        self._segments.load()


def _row_of(key: str, entry: _Entry) -> Row:
    outcome = None if entry.outcome is None else outcome_to_json(entry.outcome)
    return [key, entry.fingerprint, entry.at_us, outcome, entry.effect]


def _entry_of(row: Row) -> _Entry:
    _, fingerprint, at_us, outcome, effect = row
    return _Entry(fingerprint, at_us, None if outcome is None else outcome_from_json(outcome), effect)


def _effect_of(request: Request) -> Any:
    if queries := new_queries(request):
        return [query.id for query in queries if not query.is_subquery]
    return request.definition.id if isinstance(request, (StreamCreated, TableCreated)) else None
