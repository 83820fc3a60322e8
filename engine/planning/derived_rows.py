"""Derived streams as the planner sees them: how many rows their queries have emitted, and up to which watermark.

A batch reads what the batches before it published. The offset says of each query behind a derived stream how many rows
it gave before the batch, and the watermark of these; both follow from the offset and the record of the batch before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from braid.engine.planning.offsets import QueryProgress
from braid.engine.planning.positions import Positions
from braid.engine.planning.raised_watermarks import is_above
from braid.operators.derived import QueryBehind, gives_changes, queries_behind
from braid.operators.queries import Query
from braid.sources.connectors.connector import Extent
from braid.sources.core.derived import FIRST_ROW, is_derived
from braid.sources.core.replays import is_replay
from braid.sources.core.schema import StreamDefinition


def emitted_before(
    streams: Mapping[str, StreamDefinition], former: Mapping[str, QueryProgress], record: Mapping[str, Any]
) -> dict[str, QueryProgress]:
    """Return what the queries behind derived streams have emitted in all batches up to that of a ``record``.

    ``former`` is what they had emitted before that batch.
    """
    emitted: dict[str, QueryProgress] = {}
    in_record = record.get("derived", {})
    counts = _counts_by_slot(record) if in_record else {}
    for each in _all_queries_behind(streams.values()):
        before = former.get(each.id, QueryProgress())
        noted = in_record.get(each.id)
        if noted is None or noted["slot"] is None:
            emitted[each.id] = before
        else:
            rows = noted["first"] + counts.get(noted["slot"], 0)
            emitted[each.id] = QueryProgress(rows, _watermark_of(each.query, record))
    return emitted


def first_clocks(
    streams: Mapping[str, StreamDefinition], record: Mapping[str, Any], is_new: Callable[[str], bool]
) -> dict[str, int]:
    """Return the clocks of derived streams that no batch has had: all rows that were emitted are before, and what
    windows give later is after.

    A query that ``is_new``, by its id, has emitted nothing.
    """
    clocks: dict[str, int] = {}
    for stream in streams.values():
        if not is_derived(stream.id) or is_replay(stream.id) or stream.id in record["clocks"]:
            continue
        reached = [_reached(each.query, record) for each in queries_behind(stream) if not is_new(each.id)]
        if (latest := max((us for us in reached if us is not None), default=None)) is not None:
            clocks[stream.id] = latest
    return clocks


def _reached(query: Query, record: Mapping[str, Any]) -> int | None:
    """Return the greatest event time of the rows that a query has emitted so far (µs), or one up to which all are
    emitted; where rows come before their windows are final, that is the end of the last window that has tuples.
    """
    read = [us for stream in query.streams if (us := record["clocks"].get(stream)) is not None]
    if query.window is None:
        return max(read, default=None)
    if gives_changes(query):
        return query.window.last_end(max(read)) - 1 if read else None
    watermark = _watermark_of(query, record)
    return None if watermark is None else watermark - 1


def _all_queries_behind(streams: Iterable[StreamDefinition]) -> dict[QueryBehind, None]:
    return {each: None for stream in streams if is_derived(stream.id) for each in queries_behind(stream)}


def _counts_by_slot(record: Mapping[str, Any]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for block in record["results"]:
        for slot, count in zip(block["slots"], block["counts"], strict=True):
            counts[slot] = counts.get(slot, 0) + count
    return counts


def _watermark_of(query: Query, record: Mapping[str, Any]) -> int | None:
    """Return below which event time no row of a query will come after a batch."""
    reached = record["watermarks"] if query.window is None else record["fired"]
    watermarks = [reached.get(stream) for stream in query.streams]
    return None if None in watermarks else min(watermarks)


def extents_of(stream: StreamDefinition, emitted: Mapping[str, QueryProgress], reached: Positions) -> dict[str, Extent]:
    """Return what can be read of a derived stream; one that no batch has had begins with what comes next."""
    places = reached.get(stream.id, {})
    ends = {str(each.number): emitted[each.id].rows for each in queries_behind(stream)}
    return {number: Extent(FIRST_ROW if number in places else end, end) for number, end in ends.items()}


def still_there(reached: Positions, streams: Mapping[str, StreamDefinition]) -> Positions:
    """Return up to where streams were read, without the partitions that derived ones have no more."""
    kept: dict[str, Mapping[str, int]] = {}
    for stream_id, places in reached.items():
        stream = streams.get(stream_id)
        if stream is not None and is_derived(stream_id):
            numbers = {str(each.number) for each in queries_behind(stream)}
            places = {number: place for number, place in places.items() if number in numbers}
        kept[stream_id] = places
    return kept


def raised_by_rows(
    streams: Mapping[str, StreamDefinition],
    emitted: Mapping[str, QueryProgress],
    ends: Positions,
    record: Mapping[str, Any],
    has_slot: Callable[[str], bool],
) -> dict[str, int]:
    """Return the watermarks of derived streams that rise with a batch that reads up to ``ends``: all that there is.

    A query that was replaced, and has no slot any more, gives nothing.
    """
    raised: dict[str, int] = {}
    for stream_id, places in ends.items():
        if not is_derived(stream_id) or is_replay(stream_id):
            continue
        queries = queries_behind(streams[stream_id])
        if any(places[str(each.number)] < emitted[each.id].rows for each in queries):
            continue
        reached = [emitted[each.id].watermark for each in queries if each.successor is None or has_slot(each.id)]
        watermarks = [us for us in reached if us is not None]
        if len(watermarks) == len(reached):
            watermark = min(watermarks)
            if is_above(watermark, record["watermarks"].get(stream_id)):
                raised[stream_id] = watermark
    return raised


def is_awaited(
    stream: str,
    streams: Mapping[str, StreamDefinition],
    has_end: Callable[[str], bool],
) -> bool:
    """Whether windows end, by ``has_end``, for a risen watermark of a stream, or of one that is derived from it."""
    return has_end(stream) or any(
        is_awaited(each.id, streams, has_end)
        for each in streams.values()
        if is_derived(each.id)
        and each.id != stream
        and any(b.query.window is None and stream in b.query.streams for b in queries_behind(each))
    )
