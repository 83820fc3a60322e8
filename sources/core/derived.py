"""Derived streams: the rows of queries, as other queries read them.

A derived stream is a hidden stream, with a clock and a watermark, as long as some query reads it. A query and those
that take its place one after the other are a *lineage*, which has the id of the first: who reads one of them goes on
with the rows of the next. The id of a derived stream is that of its lineage, ``q-17``; where UNION ALL puts rows of
several together, their ids with ``+`` between them. It has a partition for each query, by number, which counts that
query's rows.
"""

from __future__ import annotations

from braid.sources.core.replays import is_replay, origin_of

CONNECTOR = "query"
FIRST_ROW = 1 << 40
"""The number of the first row that a derived stream has; rows that were there before it have lower ones."""

_PREFIX, _BETWEEN = "q-", "+"


def is_derived(stream_id: str) -> bool:
    """Whether a stream is a derived one."""
    return stream_id.startswith(_PREFIX)


def derived_id(lineages: list[str]) -> str:
    """Return the id of the stream that has the rows of some lineages."""
    return _BETWEEN.join(lineages)


def all_lineages(stream_id: str) -> list[str]:
    """Return the lineages whose rows a derived stream has: one may be there several times.

    A replay of one has the same.
    """
    return origin_of(stream_id).split(_BETWEEN) if is_derived(stream_id) else []


def is_replay_of_rows(stream_id: str) -> bool:
    """Whether a stream is a replay of a derived one."""
    return is_derived(stream_id) and is_replay(stream_id)


def lineages_of(stream_id: str) -> list[str]:
    """Return the lineages whose rows a stream has, each once; none where it is no derived one."""
    return list(dict.fromkeys(all_lineages(stream_id)))
