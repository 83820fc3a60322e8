"""Queries that come and go, for systems whose driver makes and retires them itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bench_driver.systems.system import SystemFailedError, UnsupportedError
from bench_driver.workload import Churn

POLL_SECONDS = 0.02


class ChurnThread(threading.Thread):
    """Replaces queries every so often; a round is asked for when the one before is acknowledged (thesis 4.4.1).

    `replace` makes the query of a number and retires the oldest, and returns both; `acknowledged` tells whether both
    are done. `replacements` are (when it was due, query created, query retired): waiting for the round before is
    latency, too.
    """

    def __init__(
        self,
        churn: Churn,
        replace: Callable[[int], tuple[int, int]],
        acknowledged: Callable[[int, int], bool],
    ) -> None:
        super().__init__(name="churn", daemon=True)
        self._churn = churn
        self._replace = replace
        self._acknowledged = acknowledged
        self._ending = threading.Event()
        self._given_up = threading.Event()
        self.replacements: list[tuple[float, int, int]] = []
        self.error: SystemFailedError | UnsupportedError | None = None
        self.began = time.time()

    def run(self) -> None:
        """Make rounds until told to end, or until one fails."""
        due = self.began
        try:
            while not self._ending.wait(max(0.0, due - time.time())):
                first = len(self.replacements)
                latest = [(due, *self._replace(first + i)) for i in range(self._churn.queries)]
                self.replacements += latest
                while not all(self._acknowledged(created, retired) for _, created, retired in latest):
                    if self._given_up.is_set():
                        return
                    time.sleep(POLL_SECONDS)
                due += self._churn.every_seconds
        except (SystemFailedError, UnsupportedError) as error:
            self.error = error

    def end(self, seconds: float) -> None:
        """Ask for no more, and wait that long for what was asked for."""
        self._ending.set()
        self.join(seconds)
        self._given_up.set()
        self.join()
