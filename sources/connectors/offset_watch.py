"""What a server last said that it has, asked in a thread, so that one that does not answer holds up no other stream."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from braid.sources.connectors.connector import Extent
from braid.sources.core.errors import ServiceError

STALL_SECONDS = 0.05  # how long a caller waits for the server's answer
ASK_EVERY_SECONDS = 0.01
QUIET_SECONDS = 0.1  # between questions, at most, while the answers are all the same
FIRST_REST, LONGEST_REST = 0.25, 5.0  # between questions that were not answered, seconds

log = logging.getLogger("braid.sources")

Ask = Callable[[], dict[str, Extent]]


class OffsetWatch:
    """Asks ``ask`` which offsets there are; ``subject`` is the stream, in words, for the log.

    A caller of ``extents`` waits for an answer for STALL_SECONDS at most, and only while the server answers that fast.
    There are ``every_seconds`` between questions, and up to QUIET_SECONDS while the server has nothing new: a service
    that runs without tuples looks for the next batch all the time. ``errors`` are those that say that it did not
    answer; ``brief`` puts one in few words.
    """

    def __init__(
        self,
        ask: Ask,
        subject: str,
        errors: tuple[type[Exception], ...],
        brief: Callable[[BaseException], str] = str,
        every_seconds: float = ASK_EVERY_SECONDS,
    ) -> None:
        self._ask = ask
        self._subject = subject
        self._errors: tuple[type[Exception], ...] = (ServiceError, *errors)
        self._brief = brief
        self._every = every_seconds
        self._interval = every_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offsets")
        self._extents: dict[str, Extent] = {}
        self._answer: Future[tuple[dict[str, Extent], float]] | None = None
        self._asked_at = self._ask_at = 0.0
        self._rest = 0.0  # 0 while the server answers
        self._is_prompt = True
        self.problem: str | None = None
        """Why there was no answer the last time, None while there are."""

    def extents(self) -> dict[str, Extent]:
        """Return the extent of each partition as last known, nothing after an answer that failed."""
        now = time.monotonic()
        if self._answer is None and now >= self._ask_at:
            self._answer = self._thread.submit(_timed, self._ask)
            self._asked_at, self._ask_at = now, now + self._every
            if self._is_prompt:
                wait([self._answer], STALL_SECONDS)
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            self._learn(answer)
        return dict(self._extents)

    def _learn(self, answer: Future[tuple[dict[str, Extent], float]]) -> None:
        try:
            extents, seconds = answer.result()
        except self._errors as problem:
            self.problem = f"{self._subject} gets nothing until this is settled: {self._brief(problem)}"
            if not self._rest:
                log.warning("%s", self.problem)
            self._extents, self._is_prompt = {}, False
            self._rest = min(max(2 * self._rest, FIRST_REST), LONGEST_REST)
            self._ask_at = time.monotonic() + self._rest
        else:
            if self._rest:
                log.warning("%s is served again", self._subject)
            longest = max(self._every, QUIET_SECONDS)
            self._interval = min(2 * self._interval, longest) if extents == self._extents else self._every
            self._ask_at = self._asked_at + self._interval
            self._extents, self._is_prompt = extents, seconds < STALL_SECONDS
            self._rest, self.problem = 0.0, None


class WatchedConnector:
    """What connectors share that learn by an :class:`OffsetWatch` what is available."""

    _watch: OffsetWatch

    @property
    def problem(self) -> str | None:
        """Why nothing is available, None while all is well."""
        return self._watch.problem

    def available(self, now_us: int) -> dict[str, Extent]:  # noqa: ARG002
        """Return which offsets of each partition there are; nothing while nobody answers."""
        return self._watch.extents()


def _timed(ask: Ask) -> tuple[dict[str, Extent], float]:
    began = time.monotonic()
    return ask(), time.monotonic() - began
