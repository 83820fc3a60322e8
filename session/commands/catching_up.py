"""How far queries that start in the past have got, as GET /queries/{id} shows it."""

from __future__ import annotations

from typing import Any

from braid.session.state.catalog import Catalog, StreamState
from braid.session.state.query_record import CATCHING_UP, QueryRecord
from braid.session.state.times import rfc3339
from braid.sources.core.replays import origin_of, query_of


def describe_replays(record: QueryRecord, catalog: Catalog) -> dict[str, Any]:
    """Return ``progress`` of a query while it catches up, and ``joined``: where it has joined its streams.

    Both are by the names of streams, and None where there is nothing to say. ``query`` is the first query that the
    replay was for: dead letters of the replay have its id.
    """
    replays = {replay: state for replay in record.replays if (state := catalog.by_id(replay)) is not None}
    joined = {
        state.definition.name: {
            "query": query_of(replay),
            "offsets": state.joined["offsets"],
            "clock": rfc3339(state.joined["clock"]),
            "at": rfc3339(state.joined["at_us"]),
        }
        for replay, state in replays.items()
        if state.joined is not None
    }
    progress = {
        state.definition.name: _progress(state, origin)
        for replay, state in replays.items()
        if record.state == CATCHING_UP and (origin := catalog.by_id(origin_of(replay))) is not None
    }
    return {"progress": progress or None, "joined": joined or None}


def _progress(replay: StreamState, origin: StreamState) -> dict[str, Any]:
    """Return how many tuples a replay has read, how many are left until it joins, and how long that will take.

    What is left is counted in offsets; None where it is not known.
    """
    read = replay.tuples + replay.malformed
    done = {"read": read, "clock": rfc3339(replay.clock)}
    if replay.joined is not None:
        return {**done, "left": 0, "fraction": 1.0, "seconds_left": 0.0}
    if not origin.offsets or not replay.offsets:
        return {**done, "left": None, "fraction": None, "seconds_left": None}
    left = sum(max(0, end - replay.offsets.get(partition, 0)) for partition, end in origin.offsets.items())
    taken_us = (replay.moved_us or 0) - (replay.began_us or 0)
    seconds_left = left * taken_us / read / 1e6 if read and taken_us > 0 else None
    return {**done, "left": left, "fraction": read / (read + left) if read else 0.0, "seconds_left": seconds_left}
