"""Wait on the event loop for the next batch, or until a command is on disk: thousands of clients hold no thread each.

Batches are applied on a thread of the session; readers wait on the event loop. One event serves all readers: a batch
sets it and puts a new one in its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool

from braid.session.commands.writer import Submission, Wake

POLL_SECONDS = 1.0


class BatchNotifier:
    """Tells waiting coroutines that a batch was applied, or that the service is stopping."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self.stopping = False

    def bind(self) -> None:
        """Take the running event loop as the one that readers wait on."""
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def publish(self) -> None:
        """Wake all readers; may be called on any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._wake)

    def stop(self) -> None:
        """Wake all readers for the last time: they must answer now."""
        self.stopping = True
        self.publish()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()
        self._event = asyncio.Event()

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Return when ``condition`` holds, after ``seconds``, or when the service is stopping; it is asked often."""
        deadline = time.monotonic() + seconds
        while not (condition() or self.stopping) and (remaining := deadline - time.monotonic()) > 0:
            await self.wait(min(remaining, POLL_SECONDS))

    async def wait(self, seconds: float) -> None:
        """Return when something is published, or after ``seconds``."""
        if self.stopping or seconds <= 0:
            return
        assert self._event is not None, "bind() must come before wait()"
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)


async def durable_answer(begin: Callable[[Wake], Submission], reads_files: bool = False) -> list[dict[str, Any]]:
    """Begin a command, and return its answer once it is durable and applied; one that ``reads_files`` on a thread."""
    loop = asyncio.get_running_loop()
    on_disk: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, on_disk)

    begun = await run_in_threadpool(begin, wake) if reads_files else begin(wake)
    if begun.command is not None:
        await on_disk
    return await run_in_threadpool(begun.result) if reads_files else begun.result()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # the client may have left
        future.set_result(None)
