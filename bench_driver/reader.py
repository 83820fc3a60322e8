"""Read the rows of a query as an outsider does, by long poll, and note how late each row comes."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from api.client import BraidClient, BraidError

PAGE = 20_000
WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class Arrival:
    """`rows` rows of the window that ended at `window_end` came at `at`; both are seconds since 1970."""

    at: float
    window_end: float
    rows: int

    @property
    def latency(self) -> float:
        """Seconds from the end of the window to the arrival of its rows."""
        return self.at - self.window_end


class LongPollReader:
    """Follows one query in a thread of its own until it is stopped; `error` says why it ended early."""

    def __init__(self, url: str, query_id: str) -> None:
        self.arrivals: list[Arrival] = []
        self.error: BraidError | None = None
        self._client = BraidClient(url, timeout=30)
        self._query_id = query_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"reader-{query_id}", daemon=True)

    def start(self) -> LongPollReader:
        """Begin to read, from the first row."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the reading; the poll under way may still add rows."""
        self._stopping.set()
        self._thread.join(timeout=WAIT_SECONDS + 30)
        self._client.close()

    def _read(self) -> None:
        cursor: str | None = None
        try:
            while not self._stopping.is_set():
                page = self._client.results(self._query_id, cursor, PAGE, WAIT_SECONDS)
                at, cursor = time.time(), page.cursor
                self.arrivals += arrivals_of(at, (row["window_end"] for row in page.rows))
        except BraidError as error:
            self.error = error


def arrivals_of(at: float, window_ends: Iterable[str]) -> list[Arrival]:
    """Group rows that came at `at` by their window's end, given as the service writes it."""
    return [Arrival(at, dt.datetime.fromisoformat(end).timestamp(), rows) for end, rows in Counter(window_ends).items()]
