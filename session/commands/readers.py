"""Who reads the rows of queries, itself or through subqueries and other queries."""

from __future__ import annotations

from collections.abc import Sequence

from braid.session.state.query_record import QueryRecord
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import Conflict


def check_unread(state: SessionState, records: Sequence[QueryRecord]) -> None:
    """Raise Conflict for queries to delete that others read, which are not among them."""
    ids = {record.id for record in records}
    for record in records:
        readers = names_of_readers(state, [each for each in state.readers_of(record) if each.id not in ids])
        if readers:
            first = f"Delete {readers[0]} first, or both" if len(readers) == 1 else "Delete these first, or all"
            raise Conflict(
                f"Cannot delete query {record.called}: {they_read(readers)} its rows. {first}: ?cascade=true"
                " (braid drop --cascade, DROP QUERY … CASCADE).",
                query_id=record.id,
            )


def names_of_readers(state: SessionState, readers: Sequence[QueryRecord]) -> list[str]:
    """Return the names of readers: in place of subqueries, of the queries that read these."""
    shown: dict[str, QueryRecord] = {}
    waiting = list(readers)
    while waiting:
        record = waiting.pop(0)
        if record.is_subquery:
            waiting += state.readers_of(record)
        else:
            shown[record.id] = record
    return [each.called for each in shown.values()]


def they_read(names: Sequence[str]) -> str:
    """Return the beginning of a sentence on readers."""
    return f"{', '.join(names[:20])} read{'s' * (len(names) == 1)}"


def with_readers(state: SessionState, records: Sequence[QueryRecord]) -> list[QueryRecord]:
    """Return queries and all that read them, itself or through others, readers first."""
    found: dict[str, QueryRecord] = {}
    waiting = list(records)
    while waiting:
        record = waiting.pop(0)
        found.pop(record.id, None)
        found[record.id] = record
        waiting += state.readers_of(record)
    return list(found.values())[::-1]
