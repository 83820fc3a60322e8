"""Rows inserted into a table of ClickHouse by its HTTP interface.

A table that has the columns ``_query`` and ``_row`` gets what tells rows apart that come again after a crash; a
``ReplacingMergeTree`` ordered by them keeps one of each. Every insert also has a deduplication token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx
import orjson

from operators.queries import Query
from router.row_text import objects
from router.sinks.http import post
from router.sinks.options import check_options
from router.sinks.sink import Deliverer, Rows, Subject
from router.sinks.webhook import check_url
from sources.errors import NotAllowed
from sources.secret import check_secrets, reveal

NAME = "clickhouse"
FLUSH_ROWS, FLUSH_SECONDS = 100_000, 1.0
TIMEOUT_SECONDS = 30.0
_NAME = re.compile(r"[A-Za-z_]\w*")
_SETTINGS = {
    "input_format_skip_unknown_fields": "1",
    "date_time_input_format": "best_effort",
}


def validate(options: Mapping[str, str], query: Query, folder: str) -> None:  # noqa: ARG001
    """Check what a query says of its table."""
    check_options(NAME, options, ("url", "table"), ("database", "username", "password"))
    check_url(NAME, options["url"])
    check_secrets(options, ("password",))
    for option in ("table", "database"):
        if option in options and not _NAME.fullmatch(options[option]):
            raise NotAllowed(
                f"Option {option!r} of sink {NAME!r} must be a name of letters, digits and _; got {options[option]!r}."
            )


def destination(options: Mapping[str, str]) -> str:
    """Return the server, the user and what proves it."""
    return "\n".join(options.get(name, "") for name in ("url", "username", "password"))


def connect(options: Mapping[str, str], deliverer: Deliverer) -> Server:  # noqa: ARG001
    """Return the server; nothing is sent yet."""
    headers = {}
    if "username" in options:
        headers["x-clickhouse-user"] = options["username"]
    if "password" in options:
        headers["x-clickhouse-key"] = reveal(options["password"])
    return Server(options["url"], headers)


class Server:
    """A ClickHouse server."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS, headers=dict(headers))

    def open(self, subject: Subject, options: Mapping[str, str]) -> ClickHouseSink:
        """Return the sink of a query."""
        return ClickHouseSink(self._client, self._url, options, subject)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class ClickHouseSink:
    """The rows of one query in a table."""

    keeps_cursor = False

    def __init__(self, client: httpx.Client, url: str, options: Mapping[str, str], subject: Subject) -> None:
        self._client = client
        self._url = url
        database = options.get("database")
        self._table = f"`{options['table']}`" if database is None else f"`{database}`.`{options['table']}`"
        self._delivery = subject.delivery

    def resume(self) -> str | None:
        """What has been inserted is not asked."""
        return None

    def write(self, rows: Rows) -> None:
        """Insert rows."""
        lines = [
            orjson.dumps({**row, "_query": self._delivery, "_row": row_id})
            for row, row_id in zip(objects(rows.table), rows.ids, strict=True)
        ]
        params = {"query": f"INSERT INTO {self._table} FORMAT JSONEachRow", **_SETTINGS}
        post(self._client, self._url, b"\n".join(lines), {}, params)
