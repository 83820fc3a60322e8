"""What the routes share: the session, the readers of results, the push logs, and whether the service is up."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from braid.api.batch_notifier import BatchNotifier
from braid.api.http.planning import Turns
from braid.api.metrics.metrics import Metrics
from braid.api.metrics.stream_series import Lag
from braid.api.pushes import Pushes
from braid.engine.data_layout import BATCHES
from braid.router.dead_letter_reader import DeadLetterReader
from braid.router.delivery.refused_rows import RefusedRows
from braid.router.page import Page
from braid.router.result_reader import ResultReader
from braid.router.retention import Retention
from braid.session.access.access import Access
from braid.session.commands.query_lookup import RunningQuery
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.sources.core.errors import NotReady
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

# more threads than cores get in each other's way: forty formed a quarter of the rows that two did
READERS = max(2, os.cpu_count() or 1)

T = TypeVar("T")


@dataclass
class Service:
    """One running service. ``why_not_ready`` returns None once queries run at full speed, else the reason."""

    session: SharedSession
    storage: Storage
    settings: Settings
    results: ResultReader
    dead_letters: DeadLetterReader
    refused: RefusedRows
    retention: Retention
    pushes: Pushes
    metrics: Metrics
    access: Access
    why_not_ready: Callable[[], str | None]
    notifier: BatchNotifier = field(default_factory=BatchNotifier)
    turns: Turns = field(init=False)
    readers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(READERS))
    decoders: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(READERS))
    """For large bodies, each of which takes several times its bytes while it is decoded."""

    def __post_init__(self) -> None:
        self.turns = Turns(self.settings, self.notifier)

    async def on_reader(self, work: Callable[[], T]) -> T:
        """Do work that forms rows or writes them out on a thread, no more at once than there are cores."""
        return await to_thread.run_sync(work, limiter=self.readers)

    async def read_page(
        self, deployed: RunningQuery, after: str | None, limit: int, page_bytes: int | None = None
    ) -> Page:
        """Return the next rows of a query; who hands them on to a reader calls :meth:`note_page`."""
        return await self.on_reader(lambda: self.results.read(deployed, after, limit, page_bytes=page_bytes))

    def note_page(self, deployed: RunningQuery, page: Page) -> None:
        """Count a page that a reader is about to have."""
        self.metrics.absorb_page(deployed, page, self.results.index.latest)

    @classmethod
    def assemble(
        cls,
        session: SharedSession,
        storage: Storage,
        settings: Settings,
        why_not_ready: Callable[[], str | None],
        job_counts: Callable[[], Mapping[str, int]] = dict,
    ) -> Service:
        """Put the parts together and have the session feed them; nothing is started.

        ``job_counts`` says how often the job was started anew, and the like: a counter each.
        """
        results = ResultReader(storage, page_bytes=settings.max_page_bytes)
        dead_letters = DeadLetterReader(storage, results.index)

        def forget(path: str) -> None:
            results.materializer.forget(path)
            dead_letters.forget(path)

        retention = Retention(
            storage,
            RecordLog(storage, BATCHES),
            results.index,
            seconds=settings.result_retention_seconds,
            size=settings.result_retention_bytes,
            on_removed=forget,
        )
        lag = Lag(session, storage)
        service = cls(
            session=session,
            storage=storage,
            settings=settings,
            results=results,
            dead_letters=dead_letters,
            refused=RefusedRows(storage),
            retention=retention,
            pushes=Pushes(
                storage,
                settings.idempotency_seconds,
                settings.push_backlog_bytes,
                session.streams.offsets,
                settings.push_retention_bytes,
            ),
            metrics=Metrics(
                session, storage, settings, lambda: why_not_ready() is None, lag.read, retention.count, job_counts
            ),
            access=Access(session, storage, settings),
            why_not_ready=why_not_ready,
        )
        session.on_slots(service.metrics.absorb_slots)
        past_rows = session.past_rows(results)
        session.while_applied(results.absorb)  # rows of a query are there when its state says that they are
        for listener in (service.metrics.absorb, service.pushes.absorb, past_rows.absorb):
            session.on_batch(listener)
        session.on_batch(lambda _: service.notifier.publish())
        session.on_deployment(service.notifier.publish)
        return service

    def start(self) -> None:
        """Recover the session, let the readers catch up with it, and follow it."""
        self.session.start()
        self.results.index.advance(self.session.applied_seq)

    def close(self) -> None:
        """Let the readers go, then close the push logs and the session."""
        self.notifier.stop()
        self.pushes.close()
        self.session.close()

    def check_running(self) -> None:
        """Raise NotReady while the service stops."""
        if self.notifier.stopping:
            raise NotReady("The service is stopping; send the request again once it has started.")


async def service_of(request: Request) -> Service:  # not async, it would be run in a thread
    """Return the service that answers a request."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]
