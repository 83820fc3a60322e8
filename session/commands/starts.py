"""Where a query starts to read its streams: ``now``, ``earliest``, at a time, or an interval before now.

A stream has a default (:func:`default_start`). What ``now`` is, for a stream, its clock says: the greatest event time
of its tuples so far.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from braid.operators.functions.coercion import parse_timestamp
from braid.operators.kinds import operator_of
from braid.operators.queries import Query
from braid.session.state.catalog import Catalog
from braid.session.state.catalog_entries import StreamState
from braid.session.state.query_record import QueryRecord
from braid.session.state.query_table import QueryTable
from braid.session.state.sharing import shared_dict
from braid.sources.connectors.one_row import is_one_row, one_row_id
from braid.sources.connectors.registry import begins_at_the_earliest
from braid.sources.core.derived import is_derived
from braid.sources.core.errors import NotAllowed
from braid.sources.core.replays import origin_of, replay_id
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.watermark_options import parse_duration

NOW, EARLIEST = "now", "earliest"
_1970 = datetime(1970, 1, 1)
_INTERVAL = re.compile(r"-\s*(?:interval\s*)?(.+)", re.IGNORECASE)


@dataclass(frozen=True)
class Start:
    """``text`` is as it was written. In µs: ``before`` is how long before now, ``at`` is an event time; both None for
    ``now`` and ``earliest``.
    """

    text: str
    before: int | None = None
    at: int | None = None

    @property
    def is_now(self) -> bool:
        """Whether only what is still to come is read."""
        return self.text == NOW

    def after(self, clock: int | None) -> int | None:
        """Return the event time after which tuples are seen of a stream with this clock (µs); None: all are."""
        if self.at is not None:
            return self.at - 1
        return None if self.before is None or clock is None else clock - self.before


def read_start(text: object) -> Start:
    """Return what a text says; NotAllowed for one that says nothing."""
    if isinstance(text, str):
        word = text.strip()
        if word.lower() in (NOW, EARLIEST):
            return Start(word.lower())
        if (interval := _INTERVAL.fullmatch(word)) is not None:
            before = parse_duration(interval[1].replace("'", ""))
            if before is not None:
                return Start(word, before=before)
        elif (moment := parse_timestamp(word)) is not None:
            return Start(word, at=(moment - _1970) // timedelta(microseconds=1))
    raise NotAllowed(
        "The start of a query must be 'now', 'earliest', a time such as '2026-01-31T12:00:00Z' (UTC, unless it has"
        f" another offset), or an interval before the stream's clock such as '-1 hour' or '-90 s'; got {text!r}."
    )


def default_start(stream: StreamDefinition) -> Start:
    """Return where queries start that do not say it."""
    return Start(EARLIEST if begins_at_the_earliest(stream) else NOW)


def place_after(record: QueryRecord, replaced: QueryRecord) -> None:
    """Have a new query read what the one that it replaces reads, from where that one ends: replays, where that does."""
    _read(record, {origin_of(replay): replay for replay in replaced.replays})


def place(
    record: QueryRecord,
    start: Start | None,
    catalog: Catalog,
    pending: dict[str, str],
    queries: QueryTable,
) -> None:
    """Have a new query, which has its id, read its streams from its start on: by replays where these have a past.

    A stream that no query has read yet is at its own beginning; subqueries start where the query does. ``pending`` has
    the ids of replays that wait for the next changelog, by the streams that they replay; what is added to it waits for
    the same one.
    """
    replays: dict[str, str] = {}
    sees_after: dict[str, int] = {}
    record.complete = tuple(each for each in record.query.streams if _is_complete(each, queries))
    for stream_id in record.query.streams:
        if is_one_row(stream_id):
            replays[stream_id] = one_row_id(record.id)
            continue
        if is_derived(stream_id):
            from_row = start or Start(EARLIEST if stream_id in record.complete else NOW)
            if not from_row.is_now and not _is_of_subqueries(stream_id, queries):
                reads = pending.setdefault(stream_id, replay_id(stream_id, record.id))
                replays[stream_id] = reads
                if (after := from_row.after(_last_row_us(stream_id, catalog, queries))) is not None:
                    sees_after[reads] = after
            continue
        stream = catalog.by_id(stream_id)
        asked = start if start is not None or stream is None else default_start(stream.definition)
        if stream is None or asked is None or asked.is_now:
            continue
        reads = stream_id
        if not _is_at_its_beginning(stream):
            reads = pending.setdefault(stream_id, replay_id(stream_id, record.id))
            replays[stream_id] = reads
        if (after := asked.after(stream.clock)) is not None:
            sees_after[reads] = after
    record.sees_after = shared_dict(sees_after)
    _read(record, replays)


def _is_complete(stream_id: str, queries: QueryTable) -> bool:
    """Whether a derived stream has rows of FINISHED queries, so that none will come."""
    found = queries.queries_behind(stream_id)
    return bool(found) and all(record is not None and record.has_ended for record in found)


def _is_of_subqueries(stream_id: str, queries: QueryTable) -> bool:
    """Whether a derived stream has rows of subqueries, of which the new ones are in no table yet."""
    return any(record is None or record.is_subquery for record in queries.queries_behind(stream_id))


def _last_row_us(stream_id: str, catalog: Catalog, queries: QueryTable) -> int | None:
    """Return the event time up to which there are rows of queries (µs), None before there are any."""
    stream = catalog.by_id(stream_id)
    if stream is not None and stream.clock is not None:
        return stream.clock
    times: list[int | None] = []
    for query in (record.query for record in queries.queries_behind(stream_id) if record is not None):
        states = [state for each in query.streams if (state := catalog.by_id(each)) is not None]
        if query.window is None:
            times += [state.clock for state in states]
        else:
            fired = [state.fired for state in states if state.fired is not None]
            times.append(min(fired) - 1 if len(fired) == len(query.streams) else None)
    return max((us for us in times if us is not None), default=None)


def starts_now(query: Query, start: Start | None, catalog: Catalog) -> bool:
    """Whether a query that starts so sees only what comes next of all its streams."""
    for stream_id in query.streams:
        stream = catalog.by_id(stream_id)
        if is_one_row(stream_id):
            return False
        if is_derived(stream_id) or stream is None:
            continue
        if not (default_start(stream.definition) if start is None else start).is_now:
            return False
    return True


def _read(record: QueryRecord, replays: dict[str, str]) -> None:
    """Have a query read replays instead of the streams that they replay."""
    if replays:
        record.query = record.query.reading(replays)
        record.operator = operator_of(record.query)
        names = {replays.get(stream, stream): name for stream, name in record.stream_names.items()}
        record.stream_names = shared_dict(names)


def _is_at_its_beginning(stream: StreamState) -> bool:
    """Whether all that a stream can be asked for is still to be read."""
    return not stream.is_read and begins_at_the_earliest(stream.definition)
