"""One service for several measurements after each other: starting one takes longer than a quick look at a workload.

For runs that are not to be compared: what one measurement leaves in the caches of the JVM and the workers helps the
next, and the log of state goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Self

import httpx

from api.client import BraidClient, BraidError
from bench_driver.service_process import ServiceFailedError, ServiceProcess
from bench_driver.standalone import scrape, wait_until

EMPTY_SECONDS = 60.0
LIVE = ("PENDING", "RUNNING", "DRAINING")


class ReusedServices:
    """Gives the same service again as long as it is empty after use; leaving the context ends it."""

    def __init__(self) -> None:
        self._service: _ReusedService | None = None

    def make(self, name: str, environment: Mapping[str, str]) -> ServiceProcess:
        """Return the service at hand, or a new one when there is none or its environment is another."""
        service = self._service
        if service is None or not service.fits(environment):
            if service is not None:
                service.end()
            service = self._service = _ReusedService(name, environment)
        return service

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._service is not None:
            self._service.end()


class _ReusedService(ServiceProcess):
    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        super().__init__(name, environment)
        self._started_with = dict(environment)
        self._ended = False

    def fits(self, environment: Mapping[str, str]) -> bool:
        return not self._ended and self._started_with == dict(environment)

    def start(self) -> Self:
        if self._process is None:
            return super().start()
        self.started_at = time.monotonic()  # from now on it has its time to be ready
        return self

    def stop(self, keep_logs: bool = False) -> None:
        """Take everything from the service, or end it when that cannot be done or it failed."""
        if not self._ended and (keep_logs or not self._emptied()):
            self.end(keep_logs)

    def end(self, keep_logs: bool = False) -> None:
        """End the process; harmless to repeat: what was kept of it stays."""
        if not self._ended:
            self._ended = True
            super().stop(keep_logs)

    def _emptied(self) -> bool:
        try:
            self.check_alive()
            with BraidClient(self.url, timeout=60) as client:
                _empty(client)
        except (BraidError, ServiceFailedError, TimeoutError, httpx.HTTPError):
            return False
        return True


def _empty(client: BraidClient) -> None:
    """Retire all queries and drop all streams and tables; TimeoutError when they do not go.

    The job reads a stream until it runs with the epoch of its drop, and would wait for a queue that is gone by then.
    """
    live = [query["id"] for query in client.queries() if query["state"] in LIVE]
    for query_id in live:
        client.delete_query(query_id, drain=False)
    wait_until(
        lambda: not any(next(client.queries(state=state, limit=1), None) for state in LIVE),
        EMPTY_SECONDS,
        lambda: f"no query may be left after {EMPTY_SECONDS:g} s",
    )
    for stream in client.streams():
        client.drop_stream(stream["name"])
    for table in client.tables():
        client.drop_table(table["name"])
    wait_until(
        lambda: not client.changelogs(after=_active_epoch(client.url)),
        EMPTY_SECONDS,
        lambda: f"the job must run without the streams after {EMPTY_SECONDS:g} s",
    )


def _active_epoch(url: str) -> int:
    """Return the epoch of the job's last batch."""
    match = re.search(r"^braid_epoch (\S+)$", scrape(url), re.MULTILINE)
    if match is None:
        raise BraidError(f"{url}/metrics must have braid_epoch, and has not")
    return int(float(match[1]))
