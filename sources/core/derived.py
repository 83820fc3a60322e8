"""Derived streams: the rows of queries, as other queries read them.

A derived stream is a hidden stream, with a clock and a watermark, as long as some query reads it. Its id is that of its
query, ``q-17``; where UNION ALL puts rows of several together, their ids with ``+`` between them. It has a partition
for each of them, by number, which counts that query's rows.
"""

from __future__ import annotations

from braid.sources.core.replays import is_replay, origin_of

CONNECTOR = "query"
FIRST = 1 << 40
"""The number of the first row that a derived stream has; rows that were there before it have lower ones."""

_PREFIX, _BETWEEN = "q-", "+"


def is_derived(stream_id: str) -> bool:
    """Whether a stream is a derived one."""
    return stream_id.startswith(_PREFIX)


def derived_id(query_ids: list[str]) -> str:
    """Return the id of the stream that has the rows of some queries."""
    return _BETWEEN.join(query_ids)


def all_behind(stream_id: str) -> list[str]:
    """Return the ids of the queries whose rows a derived stream has, by partition: one may be there several times.

    A replay of one has the same.
    """
    return origin_of(stream_id).split(_BETWEEN) if is_derived(stream_id) else []


def is_replay_of_rows(stream_id: str) -> bool:
    """Whether a stream is a replay of a derived one."""
    return is_derived(stream_id) and is_replay(stream_id)


def queries_behind(stream_id: str) -> list[str]:
    """Return the ids of the queries whose rows a stream has, each once; none where it is no derived one."""
    return list(dict.fromkeys(all_behind(stream_id)))
