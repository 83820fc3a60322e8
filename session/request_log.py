"""The durable log of requests, with group commit.

One writer thread takes all requests that wait, writes them as one record, flushes it to disk, applies it, and wakes the
threads that wait: however many clients write at once, the disk is flushed once per round. Requests are applied in the
order of the log, by the writer thread only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from session.journal import Journal, ObjectJournal
from session.requests import Request, request_to_json
from sources.core.errors import NotReady

FOLDER = "requests"
Apply = Callable[[int, int, Sequence[Request]], None]


@dataclass(slots=True)
class Logged:
    """A request on its way to the disk; the writer thread calls ``on_done`` before it wakes the threads that wait."""

    request: Request
    on_done: Sequence[Callable[[], None]] = ()
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def wait(self) -> None:
        """Return when the request is durable and applied; NotReady when it cannot be written."""
        self.done.wait()
        self.check()

    def finish(self, error: BaseException | None) -> None:
        """Wake the threads that wait."""
        self.error = error
        for callback in self.on_done:
            callback()
        self.done.set()

    def check(self) -> None:
        """Raise what went wrong with a request that is done: NotReady when it cannot be written."""
        if isinstance(self.error, OSError):
            raise NotReady(
                f"A request must be on disk before it is answered; writing it failed: {self.error}."
                " Nothing changed; make room or repair the disk, then send it again."
            ) from self.error
        if self.error is not None:
            raise self.error


class RequestLog:
    """Appends to the log; ``apply(number, at_us, requests)`` is called for each record once it is durable."""

    def __init__(self, journal: Journal | ObjectJournal, number: int, now_us: Callable[[], int], apply: Apply) -> None:
        """Go on after record ``number`` and start the writer thread."""
        self._journal = journal
        self._number = number
        self._now_us = now_us
        self._apply = apply
        self._queue: list[Logged] = []
        self._changed = threading.Condition()
        self._closed = False
        self._writer = threading.Thread(target=self._write_all, name="request-log", daemon=True)
        self._writer.start()

    def submit(self, request: Request, *on_done: Callable[[], None]) -> Logged:
        """Queue a request after those already queued, without waiting; NotReady when the log is closed."""
        logged = Logged(request, on_done)
        with self._changed:
            if self._closed:
                raise NotReady("The service is stopping; send the request again once it has started.")
            self._queue.append(logged)
            self._changed.notify()
        return logged

    def trim(self, upto: int) -> None:
        """Remove the records up to and including ``upto``."""
        self._journal.trim(upto)

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._writer.join()
        self._journal.close()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                group, self._queue = self._queue, []
            if not group:
                return
            error: BaseException | None = None
            try:
                self._write([waiting.request for waiting in group])
            except Exception as raised:  # whatever it is, the threads that wait must get it
                error = raised
            for waiting in group:
                waiting.finish(error)

    def _write(self, requests: list[Request]) -> None:
        number, at_us = self._number + 1, self._now_us()
        record = {"at_us": at_us, "requests": [request_to_json(request) for request in requests]}
        self._journal.append(number, record)
        self._number = number
        self._apply(number, at_us, requests)
