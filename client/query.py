"""Handles of queries: their rows as they come, as frames, and as a table in a notebook."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from braid.client.blocking import Blocking, blocking, blocking_iterator
from braid.client.calls import Calls
from braid.client.errors import BraidError
from braid.client.frames import joined, library
from braid.client.messages import Object
from braid.client.notebook import LiveCell, in_notebook
from braid.client.table import Table, unreadable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_PAGE_ROWS = 100_000
_TABLE_SECONDS = 5.0


class AsyncQuery:
    """A query of a service; leaving its context retires it."""

    def __init__(self, calls: Calls, described: Object) -> None:
        self._calls = calls
        self.id = str(described["id"])
        self.sql = str(described["sql"])
        self._cursor: str | None = None
        self._newest: deque[Object] = deque(maxlen=_PAGE_ROWS)

    def __repr__(self) -> str:
        return f"<query {self.id}: {self.sql}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.drop(drain=False)

    def __aiter__(self) -> AsyncIterator[Object]:
        return self.rows()

    async def describe(self) -> Object:
        """Read the state of the query."""
        return await self._calls.get_query(self.id)

    async def rows(self, after: str | None = None) -> AsyncIterator[Object]:
        """Yield rows as dicts, as they come, until the query has ended and all are read."""
        async for row in self._calls.follow(self.id, after):
            yield row

    async def table(self, limit: int = 20) -> Table:
        """Return the newest rows, `limit` at most; where none is there yet, wait some seconds for the first.

        Only rows that came since the last call are read, for some seconds at most.
        """
        deadline = time.monotonic() + _TABLE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            page = await self._calls.results(self.id, self._cursor, _PAGE_ROWS, 0 if self._newest else left)
            self._newest.extend(page.rows)
            self._cursor = page.cursor
            if page.end or not page.rows:
                break
        return self._table_of(list(self._newest)[-limit:], await self.describe())

    async def tables(self, limit: int = 20) -> AsyncIterator[Table]:
        """Yield the newest rows each time that some came, or that none came for some seconds, until the query ends."""
        newest, cursor, ended = deque[Object](maxlen=limit), None, False
        while not ended:
            page = await self._calls.results(self.id, cursor, _PAGE_ROWS, _TABLE_SECONDS)
            newest.extend(page.rows)
            cursor = page.cursor
            if len(page.rows) == _PAGE_ROWS:
                continue
            described = await self.describe()
            ended = page.end or (described["state"] == "FAILED" and not page.rows)
            yield self._table_of(list(newest), described)

    def _table_of(self, rows: list[Object], described: Object) -> Table:
        waiting_for = described.get("waiting_for") or {}
        note = described.get("error") or waiting_for.get("detail") or f"{described['rows_out']} rows so far"
        return Table(f"query {self.id}", described["state"], str(note), rows)

    async def to_arrow(self, wait: float = 10.0) -> pa.Table:
        """Return the rows so far; where none is there yet, wait up to so many seconds for the first.

        Of a query that has ended these are all its rows; :meth:`wait_end` waits for that.
        """
        page = await self._calls.arrow_page(self.id, None, _PAGE_ROWS, wait)
        tables = [page.table]
        while page.table.num_rows and not page.end:
            page = await self._calls.arrow_page(self.id, page.cursor, _PAGE_ROWS)
            tables.append(page.table)
        return joined(tables)

    async def to_pandas(self, wait: float = 10.0) -> pd.DataFrame:
        """Return the rows as :meth:`to_arrow` does, in pandas."""
        library("pandas", "to_pandas()")
        return (await self.to_arrow(wait)).to_pandas()

    async def to_polars(self, wait: float = 10.0) -> pl.DataFrame:
        """Return the rows as :meth:`to_arrow` does, in Polars."""
        return library("polars", "to_polars()").from_arrow(await self.to_arrow(wait))

    async def plot(self, /, x: str | None = None, y: str | None = None, **options: Any) -> Any:
        """Plot the rows so far with pandas and its plotting backend, or, without pandas, with Polars and Altair."""
        if find_spec("pandas") is not None:
            return (await self.to_pandas()).plot(x=x, y=y, **options)
        return (await self.to_polars()).plot.line(x=x, y=y, **options)

    async def wait_end(self, seconds: float = 60.0) -> Object:
        """Wait until the query has ended, as when its streams have, and return it.

        Raises QueryFailed when it fails, and TimeoutError when it goes on after `seconds`.
        """
        return await self._calls.wait_end(self.id, seconds)

    async def drop(self, drain: bool = True) -> None:
        """Retire the query; `drain` still lets windows that are complete come out. Harmless to repeat."""
        await self._calls.delete_query(self.id, drain)


class Query(Blocking[AsyncQuery]):
    """A query of a service; leaving its context retires it. A cell of a notebook shows its newest rows, live."""

    _cell: LiveCell | None = None

    describe = blocking(AsyncQuery.describe)
    rows = blocking_iterator(AsyncQuery.rows)
    table = blocking(AsyncQuery.table)
    tables = blocking_iterator(AsyncQuery.tables)
    to_arrow = blocking(AsyncQuery.to_arrow)
    to_pandas = blocking(AsyncQuery.to_pandas)
    to_polars = blocking(AsyncQuery.to_polars)
    plot = blocking(AsyncQuery.plot)
    wait_end = blocking(AsyncQuery.wait_end)
    drop = blocking(AsyncQuery.drop)

    @property
    def id(self) -> str:
        """The id that the service gave."""
        return self._wrapped.id

    @property
    def sql(self) -> str:
        """The statement."""
        return self._wrapped.sql

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def _ipython_display_(self) -> None:
        if not in_notebook():
            print(repr(self))
            return
        if self._cell is not None:
            self._cell.stop()
        self._cell = LiveCell(f"query {self.id}", self.tables())
        self._cell.start()

    def _repr_html_(self) -> str:
        try:
            return self.table()._repr_html_()
        except BraidError as error:
            return unreadable(f"query {self.id}", error)._repr_html_()

    def __iter__(self) -> Iterator[Object]:
        return self.rows()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop(drain=False)
