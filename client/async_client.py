"""The client for an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, Unpack

from braid.client.calls import Calls
from braid.client.frames import Frame, declaration
from braid.client.http import AsyncSender, Sender, address_of
from braid.client.messages import Object, QueryFields
from braid.client.query import AsyncQuery


class AsyncClient(Calls):
    """Call a Braid service; :class:`braid.client.Client` has the same methods, which block.

    The service is at `url`, or at BRAID_URL, or on this machine. Services with access control need an `api_key`, by
    default BRAID_API_KEY. `timeout` is in seconds, on top of the time that a call waits for.

    Numbers that are not whole are floats, which may lose digits of a DECIMAL. With `parse_float=decimal.Decimal` they
    are Decimals with the digits that the service sent, DOUBLEs, too: JSON does not tell these apart.

    An example::

        async with AsyncClient() as braid:
            async with await braid.query("SELECT user_id, price FROM purchases WHERE price > 5") as query:
                async for row in query:
                    print(row["user_id"], row["price"])
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = 10.0,
        api_key: str | None = None,
        parse_float: Callable[[str], Any] = float,
        *,
        sender: Callable[..., Sender] = AsyncSender,
    ) -> None:
        address = address_of(url, api_key, timeout)
        super().__init__(address, sender(address), parse_float)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def query(self, sql: str, wait: float = 30.0, **fields: Unpack[QueryFields]) -> AsyncQuery:
        """Register a query, and return a handle of it; `wait` up to so many seconds until it runs."""
        return AsyncQuery(self, await self.create_query(sql, wait=wait, **fields))

    async def find_query(self, query_id: str) -> AsyncQuery:
        """Return a handle of a query that is registered, by its id or name."""
        return AsyncQuery(self, await self.get_query(query_id))

    async def stream_from(
        self, frame: Frame, name: str, time: str | None = None, lateness_seconds: float | None = None
    ) -> Object:
        """Declare a stream whose columns are those of a frame, and push its rows; answer as :meth:`push` does.

        `time` is the column of the event time; it may be left out where only one holds times. The lateness is by
        default how far the rows of the frame are out of order. A query reads these rows with `start="earliest"`.
        """
        await self.create_stream(declaration(frame, name, time, lateness_seconds))
        return await self.push(name, frame)
