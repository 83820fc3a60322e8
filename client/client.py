"""The client that blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, Unpack

from braid.client.async_client import AsyncClient
from braid.client.blocking import Blocking, blocking, blocking_iterator
from braid.client.http import BlockingSender
from braid.client.messages import QueryFields
from braid.client.query import Query


class Client(Blocking[AsyncClient]):
    """Call a Braid service; the arguments and methods are those of :class:`braid.client.AsyncClient`.

    An example::

        with Client() as braid, braid.query("SELECT user_id, price FROM purchases WHERE price > 5") as query:
            for row in query:
                print(row["user_id"], row["price"])
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = 10.0,
        api_key: str | None = None,
        parse_float: Callable[[str], Any] = float,
    ) -> None:
        super().__init__(AsyncClient(url, timeout, api_key, parse_float, sender=BlockingSender))
        self.url = self._wrapped.url
        self.api_key = self._wrapped.api_key
        self.timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def query(self, sql: str, wait: float = 30.0, **fields: Unpack[QueryFields]) -> Query:
        """Register a query, and return a handle of it; `wait` up to so many seconds until it runs."""
        return Query(self._wrapped_query(sql, wait, **fields))

    def find_query(self, query_id: str) -> Query:
        """Return a handle of a query that is registered, by its id or name."""
        return Query(self._wrapped_find(query_id))

    _wrapped_query = blocking(AsyncClient.query)
    _wrapped_find = blocking(AsyncClient.find_query)
    close = blocking(AsyncClient.close)
    stream_from = blocking(AsyncClient.stream_from)
    create_stream = blocking(AsyncClient.create_stream)
    infer = blocking(AsyncClient.infer)
    infer_from = blocking(AsyncClient.infer_from)
    streams = blocking(AsyncClient.streams)
    stream = blocking(AsyncClient.stream)
    drop_stream = blocking(AsyncClient.drop_stream)
    push = blocking(AsyncClient.push)
    raise_watermark = blocking(AsyncClient.raise_watermark)
    end_stream = blocking(AsyncClient.end_stream)
    dead_letters = blocking(AsyncClient.dead_letters)
    refused_rows = blocking(AsyncClient.refused_rows)
    create_table = blocking(AsyncClient.create_table)
    tables = blocking(AsyncClient.tables)
    table = blocking(AsyncClient.table)
    refresh_table = blocking(AsyncClient.refresh_table)
    drop_table = blocking(AsyncClient.drop_table)
    create_query = blocking(AsyncClient.create_query)
    create_queries = blocking(AsyncClient.create_queries)
    validate = blocking(AsyncClient.validate)
    get_query = blocking(AsyncClient.get_query)
    queries = blocking_iterator(AsyncClient.queries)
    replace_query = blocking(AsyncClient.replace_query)
    pause_query = blocking(AsyncClient.pause_query)
    resume_query = blocking(AsyncClient.resume_query)
    delete_query = blocking(AsyncClient.delete_query)
    retire_queries = blocking(AsyncClient.retire_queries)
    plan = blocking(AsyncClient.plan)
    plan_dot = blocking(AsyncClient.plan_dot)
    changelogs = blocking(AsyncClient.changelogs)
    sql = blocking(AsyncClient.sql)
    results = blocking(AsyncClient.results)
    arrow_page = blocking(AsyncClient.arrow_page)
    follow = blocking_iterator(AsyncClient.follow)
    follow_pages = blocking_iterator(AsyncClient.follow_pages)
    wait_end = blocking(AsyncClient.wait_end)
    whoami = blocking(AsyncClient.whoami)
    tenants = blocking(AsyncClient.tenants)
    put_tenant = blocking(AsyncClient.put_tenant)
    drop_tenant = blocking(AsyncClient.drop_tenant)
    keys = blocking(AsyncClient.keys)
    create_key = blocking(AsyncClient.create_key)
    revoke_key = blocking(AsyncClient.revoke_key)
