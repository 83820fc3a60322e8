"""Snapshots of the session's state: they bound what a restart replays and how long the request log gets.

A snapshot is taken in two steps, so that the lock is held for a shallow copy only: :func:`take` under the lock,
:func:`to_bytes` without it.
"""

from __future__ import annotations

import copy
from typing import Any

import orjson

from optimizer.plan import Plan
from session.catalog import StreamState
from session.query_record import QueryRecord
from session.session_state import SessionState
from session.slots import SlotTable
from session.waiting import Waiting
from sources.errors import CorruptData

PATH = "session.json"
VERSION = 1
_NUMBERS = (
    "requests",
    "epoch",
    "active_epoch",
    "applied_seq",
    "next_query",
    "next_stream",
    "queries_created",
    "queries_deleted",
)


def take(state: SessionState) -> dict[str, Any]:
    """Return what a snapshot needs, as it is now."""
    return {
        "version": VERSION,
        **{name: getattr(state, name) for name in _NUMBERS},
        "streams": [stream.to_json() for stream in state.catalog.states()],
        "slots": state.slots.to_json(),
        "waiting": state.waiting.to_json(),
        "plan": {"version": state.plan.version, "streams": dict(state.plan.streams)},
        "queries": [copy.copy(record) for record in state.queries.values()],
    }


def to_bytes(taken: dict[str, Any]) -> bytes:
    """Return the file of a snapshot."""
    return orjson.dumps(taken | {"queries": [record.to_json() for record in taken["queries"]]})


def from_bytes(data: bytes) -> SessionState:
    """Read what :func:`to_bytes` wrote; CorruptData for another version."""
    value = orjson.loads(data)
    if value.get("version") != VERSION:
        raise CorruptData(
            f"The session's snapshot must have version {VERSION}; got {value.get('version')!r}."
            " Start the version that wrote this data directory."
        )
    state = SessionState()
    for name in _NUMBERS:
        setattr(state, name, value[name])
    for stream in value["streams"]:
        state.catalog.add(StreamState.from_json(stream))
    state.slots = SlotTable.from_json(value["slots"])
    state.waiting = Waiting.from_json(value["waiting"])
    state.plan = Plan(value["plan"]["version"], {}, value["plan"]["streams"])
    records = [QueryRecord.from_json(query) for query in value["queries"]]
    state.queries = {record.id: record for record in records}
    state.index()
    return state
