"""The outcomes of POSTs with an Idempotency-Key: the first one is answered again, also after a crash.

A key is bound to its effect by the request log: the request that an action logs carries the key, so both become
durable at once. If the service dies before the outcome is recorded, a retry runs the action again, and the session
answers the effect that the key already had instead of having it twice. See :meth:`Idempotency.effect`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from session.requests import (
    Key,
    Outcome,
    OutcomeRecorded,
    QueriesAccepted,
    Refusal,
    Request,
    StreamCreated,
    is_final,
    outcome_from_json,
    outcome_to_json,
)
from sources.errors import BraidError, NotAllowed
from sources.record_log import RecordLog
from sources.storage import Storage

FOLDER = "outcomes"
NO_ANSWER = 429


@dataclass
class _Kept:
    fingerprint: str
    at_us: int
    outcome: Outcome | Refusal | None
    effect: Any = None


@dataclass(frozen=True)
class Running:
    """The key that the current action runs for, and the effect that an earlier, interrupted run of it had."""

    key: Key
    has_effect: bool
    effect: Any


_running: ContextVar[Running | None] = ContextVar("running", default=None)


def current() -> Running | None:
    """Return what the current action runs for, None outside of :meth:`Idempotency.run`."""
    return _running.get()


class Idempotency:
    """All outcomes kept; segments of them lie in ``outcomes/``, what is newer in the request log."""

    def __init__(self, storage: Storage) -> None:
        self._log = RecordLog(storage, FOLDER)
        self._kept: dict[str, _Kept] = {}
        self._unsaved: dict[str, None] = {}
        self._segments: list[tuple[int, int]] = []
        self._fingerprints: dict[str, str] = {}
        self._changed = threading.Condition()

    def run(self, key: Key, action: Callable[[], Outcome], record: Callable[[Outcome | Refusal], None]) -> Outcome:
        """Return the outcome of ``key``: the first one again, else that of ``action``, recorded by ``record``.

        Waits while another thread runs the same key. NotAllowed for a key that came with another fingerprint.
        Errors of the client are outcomes too; 429 and 5xx are not: a retry tries again.
        """
        with self._changed:
            self._check(key, self._fingerprints.get(key.key))
            self._changed.wait_for(lambda: key.key not in self._fingerprints)
            kept = self._kept.get(key.key)
            if kept is not None:
                self._check(key, kept.fingerprint)
                if isinstance(kept.outcome, Refusal):
                    raise kept.outcome.to_error()
                if kept.outcome is not None:
                    return kept.outcome
            self._fingerprints[key.key] = key.fingerprint
        token = _running.set(Running(key, kept is not None, None if kept is None else kept.effect))
        try:
            outcome = action()
            if outcome.status < 500 and outcome.status != NO_ANSWER:
                record(outcome)
            return outcome
        except BraidError as error:
            if is_final(error):
                record(Refusal.of(error))
            raise
        finally:
            _running.reset(token)
            with self._changed:
                del self._fingerprints[key.key]
                self._changed.notify_all()

    def _check(self, key: Key, known: str | None) -> None:
        if known is not None and known != key.fingerprint:
            raise NotAllowed(
                f"An Idempotency-Key must come with the same request each time; {key.key!r} came with another one"
                " before. Take a new key for a new request."
            )

    def apply(self, at_us: int, requests: Sequence[Request]) -> None:
        """Take note of the durable requests that carry a key."""
        for request in requests:
            if request.key is None:
                continue
            if isinstance(request, OutcomeRecorded):
                kept = _Kept(request.key.fingerprint, request.at_us, request.outcome)
            else:
                kept = _Kept(request.key.fingerprint, at_us, None, _effect_of(request))
            with self._changed:
                self._kept[request.key.key] = kept
                self._unsaved[request.key.key] = None

    def expire(self, before_us: int) -> None:
        """Forget the outcomes recorded at or before ``before_us``."""
        with self._changed:
            while self._kept:
                key, kept = next(iter(self._kept.items()))
                if kept.at_us > before_us:
                    break
                del self._kept[key]
                self._unsaved.pop(key, None)
        while self._segments and self._segments[0][1] <= before_us:
            self._log.trim(self._segments.pop(0)[0])

    def save(self) -> None:
        """Write what has come since the last segment; the request log may be trimmed then."""
        with self._changed:
            unsaved = [(key, self._kept[key]) for key in self._unsaved]
            self._unsaved = {}
        if not unsaved:
            return
        number = (self._segments[-1][0] if self._segments else self._log.latest()) + 1
        rows = [
            [key, k.fingerprint, k.at_us, None if k.outcome is None else outcome_to_json(k.outcome), k.effect]
            for key, k in unsaved
        ]
        self._log.append(number, {"outcomes": rows})
        self._segments.append((number, max(k.at_us for _, k in unsaved)))

    def load(self) -> None:
        """Read the segments."""
        for number in self._log.numbers():
            rows = self._log.read(number)["outcomes"]
            for key, fingerprint, at_us, outcome, effect in rows:
                read = None if outcome is None else outcome_from_json(outcome)
                self._kept[key] = _Kept(fingerprint, at_us, read, effect)
            self._segments.append((number, max(row[2] for row in rows)))


def _effect_of(request: Request) -> Any:
    if isinstance(request, QueriesAccepted):
        return [query.id for query in request.queries]
    return request.definition.id if isinstance(request, StreamCreated) else None
