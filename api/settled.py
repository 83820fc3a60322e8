"""Wait on the event loop until a command of the session is on disk: thousands of clients hold no thread each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool

from session.commands.writer import Started, Wake


async def settled(begin: Callable[[Wake], Started], reads_files: bool = False) -> list[dict[str, Any]]:
    """Begin a command, and return its answer once it is durable and applied; one that ``reads_files`` on a thread."""
    loop = asyncio.get_running_loop()
    on_disk: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, on_disk)

    begun = await run_in_threadpool(begin, wake) if reads_files else begin(wake)
    if begun.command is not None:
        await on_disk
    return await run_in_threadpool(begun.finished) if reads_files else begun.finished()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # the client may have left
        future.set_result(None)
