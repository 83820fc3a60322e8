"""A query that takes the place of one that others read: these go on with its rows where those of the old one end."""

from __future__ import annotations

from braid.operators.derived import (
    QueryBehind,
    derived_stream,
    gives_changes,
    shown_name,
    window_behind,
    with_successor,
)
from braid.operators.windows import RowWindow
from braid.session.commands.readers import names_of_readers, they_read
from braid.session.commands.starts import NOW
from braid.session.state.query_record import QueryRecord
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import Conflict
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import StreamDefinition


def check_successor(state: SessionState, replaced: QueryRecord, successor: QueryRecord) -> None:
    """Raise Conflict, naming the readers, for a successor that cannot go on where the old query ends."""
    readers = state.readers_of(replaced)
    if not readers:
        return
    former, latter = (derived_stream(replaced.lineage, "", [QueryBehind(r.id, r.query)]) for r in (replaced, successor))
    if gives_changes(replaced.query):
        problem = "Rows that EMIT STREAM gave of open windows would never be taken back."
    elif former.schema != latter.schema:
        problem = f"The new one needs the columns {_columns(former)}; it has {_columns(latter)}."
    elif successor.start not in (None, NOW):
        problem = "The new one must begin where the old one ends: leave the start out."
    elif (windows := window_behind(former)) != window_behind(latter) and any(_takes(windows, each) for each in readers):
        problem = "The new one needs the windows of the old one, as readers take theirs from its rows."
    else:
        return
    names = names_of_readers(state, readers)
    raise Conflict(
        f"Cannot replace query {replaced.called}: {they_read(names)} its rows. {problem} To replace it as it is, delete"
        f" {names[0] if len(names) == 1 else 'these'} first.",
        query_id=replaced.id,
    )


def succeeding_streams(
    state: SessionState, replaced: QueryRecord, successor: QueryRecord
) -> tuple[StreamDefinition, ...]:
    """Return the definitions that the streams with rows of a query get with its successor, replays among them."""

    def is_needed(former: QueryBehind) -> bool:
        record = state.queries.find(former.id)
        if record is None:
            return False
        return not record.is_freed(state.active_epoch) or (record.last_seq or 0) >= state.rows_needed_from

    derived = state.catalog.derived_from(replaced.lineage)
    definitions = [each.definition for each in state.catalog.states() if origin_of(each.definition.id) in derived]
    latter = QueryBehind(successor.id, successor.query)
    return tuple(with_successor(each, replaced.id, latter, is_needed) for each in definitions)


def _columns(stream: StreamDefinition) -> str:
    schema = stream.schema
    shown = [f"{shown_name(f.name)} {f.type}" for f in schema.fields if f.name not in schema.hidden]
    return f"{', '.join(shown)}, with the event time {schema.event_time}"


def _takes(windows: RowWindow | None, reader: QueryRecord) -> bool:
    """Whether a reader of rows of some windows may have its windows from them."""
    own = reader.query.row_window
    return windows is not None and own is not None and own.window == windows.window
