"""Work that nobody waits for, on a thread of its own: snapshots.

A job that is asked for while it waits or runs is not queued again. After a failure all jobs pause for a moment;
:attr:`Maintenance.problem` says what went wrong until a job succeeds. Before :meth:`start`, a job runs at once, in the
thread that asks for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

RETRY_SECONDS = 1.0

log = logging.getLogger("braid.session")


class Maintenance:
    """Runs jobs one after the other."""

    def __init__(self) -> None:
        self._jobs: dict[str, Callable[[], None]] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.problem: str | None = None

    def start(self) -> None:
        """Run jobs on a thread from now on."""
        self._thread = threading.Thread(target=self._run_all, name="session-maintenance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the job that runs; what waits is dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def run(self, name: str, job: Callable[[], None]) -> None:
        """Run ``job`` soon, unless one of this name waits or runs."""
        if self._thread is None:
            job()
            return
        with self._changed:
            self._jobs.setdefault(name, job)
            self._changed.notify()

    def _run_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._stopping)
                if self._stopping:
                    return
                name, job = next(iter(self._jobs.items()))
            try:
                job()
                self.problem = None
            except Exception as error:  # the session goes on; the job will be asked for again
                log.exception(
                    "a task of maintenance failed; it runs again when it is asked for", extra={"fields": {"task": name}}
                )
                self.problem = str(error) or type(error).__name__
            with self._changed:
                del self._jobs[name]
                if self.problem is not None:
                    self._changed.wait_for(lambda: self._stopping, RETRY_SECONDS)
