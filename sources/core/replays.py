"""Replays: a stream that is read once more, from its past on, for the queries that start there.

A replay is a stream of its own, with a clock and a watermark, of what another stream reads, its *origin*. Its id is
that of its origin and that of the first query that it is for: ``s-3.q-17``.
"""

from __future__ import annotations

from dataclasses import replace

from braid.sources.core.schema import StreamDefinition

_MARK = "."


def replay_id(origin: str, query_id: str) -> str:
    """Return the id of a replay of a stream that begins for a query."""
    return f"{origin}{_MARK}{query_id}"


def replay_of(origin: StreamDefinition, query_id: str) -> StreamDefinition:
    """Return the definition of a replay that begins for a query."""
    return replace(origin, id=replay_id(origin.id, query_id))


def is_replay(stream_id: str) -> bool:
    """Whether a stream is a replay."""
    return _MARK in stream_id


def origin_of(stream_id: str) -> str:
    """Return the id of the stream that a replay reads; that of any other stream itself."""
    return stream_id.partition(_MARK)[0]


def query_of(stream_id: str) -> str | None:
    """Return the id of the first query that a replay is for; None for a stream that is none."""
    return stream_id.partition(_MARK)[2] or None
