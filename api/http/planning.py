"""Turns at planning: parsing statements takes all of a core, so few requests with large bodies do so at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import Request

from braid.api.batch_notifier import BatchNotifier
from braid.session.commands import planning
from braid.session.commands.planning import Planning
from braid.session.settings import Settings
from braid.sources.core.errors import NotReady, Overloaded

QUICK_BYTES = 2000
"""Bodies up to this size wait for no turn: there is little to plan in them."""
LOOK_SECONDS = 0.2


class Turns:
    """Who plans, and who waits for that; used on the event loop."""

    def __init__(self, settings: Settings, notifier: BatchNotifier) -> None:
        self._max_waiting = settings.max_planning_waiting
        self._limit = settings.max_planning
        self._seconds = settings.planning_seconds
        self._notifier = notifier
        self._free = asyncio.Semaphore(self._limit)
        self.waiting = 0
        """How many requests wait for their turn."""
        self.under_way = 0
        """How many have it."""

    @asynccontextmanager
    async def turn(self, request: Request, body: bytes) -> AsyncIterator[None]:
        """Hold a turn for a request whose body is read, and have its planning end once its client is gone.

        Overloaded when too many wait already, or it takes too long until it is its turn.
        """
        if len(body) <= QUICK_BYTES:
            yield
            return
        if self.waiting >= self._max_waiting:
            raise Overloaded(
                f"At most {self._limit} requests with large statements are planned at a time (setting max_planning),"
                f" and {self._max_waiting} may wait for that (setting max_planning_waiting). Try again later.",
                retry_after=2,
            )
        current = Planning(self._seconds)
        watch = asyncio.create_task(self._watch(request, current))
        try:
            await self._wait(current)
            self.under_way += 1
            try:
                planning.begin(current)
                yield
            finally:
                self.under_way -= 1
                self._free.release()
        finally:
            watch.cancel()

    async def _wait(self, current: Planning) -> None:
        self.waiting += 1
        try:
            while True:
                current.check()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._free.acquire(), LOOK_SECONDS)
                    return
        finally:
            self.waiting -= 1

    async def _watch(self, request: Request, current: Planning) -> None:
        """End the planning as soon as nobody waits for it."""
        while not self._notifier.stopping:
            if await request.is_disconnected():
                current.end(NotReady("The client left before its statements were planned; send the request again."))
                return
            await asyncio.sleep(LOOK_SECONDS)
        current.end(NotReady("The service is stopping; send the request again once it has started."))
