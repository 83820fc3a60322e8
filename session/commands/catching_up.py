"""How far queries that start in the past have got, as GET /queries/{id} shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from braid.session.state.catalog import Catalog
from braid.session.state.catalog_entries import StreamState
from braid.session.state.query_record import CATCHING_UP, QueryRecord
from braid.session.state.query_table import QueryTable
from braid.session.state.times import rfc3339
from braid.sources.core.replays import origin_of


def describe_progress(record: QueryRecord, catalog: Catalog, queries: QueryTable) -> dict[str, Any] | None:
    """Return how far a query has read each stream whose past it reads, by name; None where it does not catch up.

    It may read that itself, or through other queries.
    """
    if record.state != CATCHING_UP:
        return None
    return {
        state.definition.name: _progress(state, origin)
        for replay in _replays(record, queries)
        if (state := catalog.by_id(replay)) is not None and (origin := catalog.by_id(origin_of(replay))) is not None
    }


def _replays(record: QueryRecord, queries: QueryTable) -> Iterator[str]:
    """Yield the replays that a query reads, and those that the queries do which it reads."""
    yield from record.replays
    for read in (each for stream in record.query.streams for each in queries.queries_behind(stream)):
        if read is not None:
            yield from _replays(read, queries)


def _progress(replay: StreamState, origin: StreamState) -> dict[str, Any]:
    """Return how many tuples a replay has read, how many are left until it joins, and how long that will take.

    What is left is counted in offsets; None where it is not known. ``error`` says why it cannot go on.
    """
    read = replay.tuples + replay.malformed
    done = {"read": read, "clock": rfc3339(replay.clock), "error": replay.error or origin.unavailable}
    if replay.joined is not None:
        return {**done, "left": 0, "fraction": 1.0, "seconds_left": 0.0}
    if not origin.offsets or not replay.offsets:
        return {**done, "left": None, "fraction": None, "seconds_left": None}
    left = sum(max(0, end - replay.offsets.get(partition, 0)) for partition, end in origin.offsets.items())
    taken_us = (replay.moved_us or 0) - (replay.began_us or 0)
    seconds_left = left * taken_us / read / 1e6 if read and taken_us > 0 else None
    return {**done, "left": left, "fraction": read / (read + left) if read else 0.0, "seconds_left": seconds_left}
