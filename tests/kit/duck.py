"""Connections to one DuckDB in memory: property tests need many, and opening a database takes thirty milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import duckdb


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def connect() -> duckdb.DuckDBPyConnection:
    """Return a new connection to close at the end; what is registered, and temporary tables, are its own."""
    return _database().cursor()


@contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a new connection. An internal error of DuckDB closes the database for all; the next one is another's."""
    try:
        with connect() as connection:
            yield connection
    except duckdb.InternalException:
        _database.cache_clear()
        raise
