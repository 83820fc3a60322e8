"""The catalog: streams and static tables by name, and what each stream has taken in so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from braid.operators.derived import queries_behind
from braid.operators.event_times import ENDED
from braid.operators.lookup.lookups import Refreshed
from braid.operators.queries import Query, lookups_of
from braid.session.state.catalog_entries import StreamState, TableState
from braid.session.state.times import rfc3339
from braid.sources.connectors.one_row import is_one_row, one_row_stream
from braid.sources.core.derived import is_derived, lineages_of
from braid.sources.core.errors import UnknownObject
from braid.sources.core.names import did_you_mean, name_key
from braid.sources.core.replays import is_replay, origin_of, query_of
from braid.sources.core.schema import StreamDefinition


def is_hidden(stream_id: str) -> bool:
    """Whether a stream is there for queries alone: a replay, the rows of queries, or one row for static tables."""
    return is_replay(stream_id) or is_derived(stream_id) or is_one_row(stream_id)


class Catalog(Mapping[str, StreamDefinition]):
    """Definitions of streams by name, and static tables; case does not count in look-ups."""

    def __init__(self) -> None:
        self._by_name: dict[str, StreamState] = {}
        self._by_id: dict[str, StreamState] = {}
        self._tables: dict[str, TableState] = {}
        # the derived streams that have rows of a lineage
        self._derived_from: dict[str, set[str]] = {}

    def __getitem__(self, name: str) -> StreamDefinition:
        return self._by_name[name_key(name)].definition

    def __iter__(self) -> Iterator[str]:
        return iter([state.definition.name for state in self._by_name.values()])

    def __len__(self) -> int:
        return len(self._by_name)

    def copy(self) -> Catalog:
        """Return a catalog of the same streams and tables, which later changes of this one do not affect."""
        catalog = Catalog()
        catalog._by_name, catalog._by_id = dict(self._by_name), dict(self._by_id)
        catalog._derived_from = {query: set(streams) for query, streams in self._derived_from.items()}
        catalog._tables = {name: replace(table) for name, table in self._tables.items()}
        return catalog

    def add(self, state: StreamState) -> None:
        """Add a stream; those that are there for queries alone have no name."""
        stream_id = state.definition.id
        if not is_hidden(stream_id):
            self._by_name[name_key(state.definition.name)] = state
        for lineage in lineages_of(stream_id):
            self._derived_from.setdefault(lineage, set()).add(stream_id)
        self._by_id[stream_id] = state

    def remove(self, stream_id: str) -> None:
        """Remove a stream; nothing happens when there is none of this id."""
        state = self._by_id.pop(stream_id, None)
        if state is not None and not is_hidden(stream_id):
            del self._by_name[name_key(state.definition.name)]
        for lineage in lineages_of(stream_id):
            self._derived_from.get(lineage, set()).discard(stream_id)
            if not self._derived_from.get(lineage):
                self._derived_from.pop(lineage, None)

    def redefine(self, definition: StreamDefinition) -> None:
        """Have a derived stream, or a replay of one, have rows of other queries; nothing happens when it is gone."""
        if (state := self._by_id.get(definition.id)) is not None:
            numbers = {str(each.number) for each in queries_behind(definition)}
            state.definition = definition
            state.offsets = {number: place for number, place in state.offsets.items() if number in numbers}

    def derived_from(self, lineage: str) -> frozenset[str]:
        """Return the ids of the streams that have rows of a lineage."""
        return frozenset(self._derived_from.get(lineage, ()))

    def is_read(self, lineage: str) -> bool:
        """Whether a query reads the rows of a lineage."""
        return any(self._by_id[stream].users for stream in self._derived_from.get(lineage, ()))

    def state(self, name: str) -> StreamState:
        """Return the stream called ``name``; UnknownObject lists those that exist."""
        state = self._by_name.get(name_key(name))
        if state is None:
            known, hint = ", ".join(list(self)[:20]) or "none yet", did_you_mean(name, self)
            raise UnknownObject(
                f"A stream must exist to be used; got {name!r}. Streams: {known}; CREATE STREAM declares one.{hint}",
                stream=name,
            )
        return state

    def by_id(self, stream_id: str) -> StreamState | None:
        """Return the stream with this id, None when it was dropped."""
        return self._by_id.get(stream_id)

    def states(self) -> list[StreamState]:
        """Return all streams, oldest first, replays among them."""
        return list(self._by_id.values())

    def named(self) -> list[StreamState]:
        """Return all streams that were declared, oldest first."""
        return [state for state in self._by_id.values() if not is_hidden(state.definition.id)]

    def begin_hidden(self, query: Query, rows_of: Callable[[str], StreamDefinition]) -> list[StreamDefinition]:
        """Add the replays and derived streams that a new query is the first to read, and return them.

        ``rows_of`` returns the definition of a derived stream.
        """
        begun = []
        for stream in query.streams:
            # the rows of a query that are replayed are read from then on, too
            for each in dict.fromkeys((origin_of(stream), stream)):
                if not is_hidden(each) or each in self._by_id:
                    continue
                if is_replay(each):
                    definition = replace(self._by_id[origin_of(each)].definition, id=each)
                else:
                    definition = one_row_stream(each) if is_one_row(each) else rows_of(each)
                self.add(StreamState(definition))
                begun.append(definition)
        return begun

    def unused(self, streams: Iterable[str]) -> list[str]:
        """Return those of some streams, by id, that no query reads."""
        return [stream for stream in streams if (state := self.by_id(stream)) is not None and not state.users]

    def note_read(self, query: Query) -> None:
        """Take note that a changelog has a query: from then on its streams are read."""
        for stream_id in query.streams:
            if (stream := self.by_id(origin_of(stream_id))) is not None:
                stream.is_read = True

    def joins_of(self, replays: Iterable[str]) -> dict[str, Any] | None:
        """Return where replays have joined their streams, by the names of these; None where none has.

        ``query`` is the first query that the replay was for: dead letters of the replay have its id.
        """
        joined = {
            state.definition.name: {
                "query": query_of(replay),
                "offsets": state.joined["offsets"],
                "clock": rfc3339(state.joined["clock"]),
                "at": rfc3339(state.joined["at_us"]),
            }
            for replay in replays
            if (state := self.by_id(replay)) is not None and state.joined is not None
        }
        return joined or None

    def raise_watermark(self, stream_id: str, watermark: int) -> None:
        """Take note of a watermark (µs) that is set from outside."""
        if (stream := self.by_id(stream_id)) is not None:
            stream.raised = watermark if stream.raised is None else max(stream.raised, watermark)

    def has_ended(self, stream_id: str) -> bool:
        """Whether nothing comes of a stream any more, and all its windows have fired."""
        return self.fired(stream_id) == ENDED

    def has_joined(self, replay: str) -> bool:
        """Whether a replay has joined its origin; also of one that is gone."""
        state = self.by_id(replay)
        return state is None or state.joined is not None

    def absorb(self, record: Mapping[str, Any]) -> list[str]:
        """Add what the next batch took in, by its record; return the streams, by id, of which windows fired further."""
        for stream_id, counts in record["streams"].items():
            if (stream := self.by_id(stream_id)) is not None:
                stream.add(counts)
                if is_replay(stream_id) and counts["tuples"]:
                    stream.began_us, stream.moved_us = stream.began_us or record["planned_us"], record["committed_us"]
        for stream_id, offsets in record.get("joined", {}).items():
            if (stream := self.by_id(stream_id)) is not None and stream.joined is None:
                clock = record["clocks_at_start"].get(stream_id)
                stream.joined = {"offsets": offsets, "clock": clock, "at_us": record["planned_us"]}
        risen = []
        idle = record.get("idle", ())
        watermarks, fired = record["watermarks"], record["fired"]
        for stream_id, clock in record["clocks"].items():
            if (stream := self.by_id(stream_id)) is not None:
                if stream.first_seq is None and is_derived(stream_id):
                    stream.first_seq = record["seq"]
                stream.is_idle = stream_id in idle
                if stream.move(clock, watermarks.get(stream_id), fired.get(stream_id), record["committed_us"]):
                    risen.append(stream_id)
        return risen

    def has_read_all_rows(self, record: Mapping[str, Any]) -> bool:
        """Whether those that read rows of queries have read all from before a batch."""
        given = record.get("derived", {})
        return all(
            state.offsets.get(str(each.number), 0) >= given[each.id]["first"]
            for stream_id, state in self._by_id.items()
            if is_derived(stream_id)
            for each in queries_behind(state.definition)
            if each.id in given
        )

    def fired(self, stream_id: str) -> int | None:
        """Return up to where windows of a stream have fired, None before there were any or when it was dropped."""
        stream = self.by_id(stream_id)
        return None if stream is None else stream.fired

    def count_users(self, query: Query, change: int) -> None:
        """Count a query more (1) or less (-1) that keeps its streams and tables from being dropped."""
        for stream_id in {each for stream in query.streams for each in (stream, origin_of(stream))}:
            if (stream := self.by_id(stream_id)) is not None:
                stream.users += change
        for table_id in {lookup.table for lookup in lookups_of(query)}:
            if (table := self.table_by_id(table_id)) is not None:
                table.users += change

    def note_unavailable(self, problems: Mapping[str, str]) -> None:
        """Set why streams, given by id, have nothing to read just now; of the others, that all is well."""
        for stream_id, state in self._by_id.items():
            state.unavailable = problems.get(stream_id)

    def refreshed(self) -> Refreshed:
        """Return the rows that tables have after all refreshes so far."""
        return Refreshed({t.definition.id: (t.refreshes, t.file) for t in self._tables.values() if t.refreshes})

    def add_table(self, state: TableState) -> None:
        """Add a static table."""
        self._tables[name_key(state.definition.name)] = state

    def remove_table(self, table_id: str) -> None:
        """Remove a table; nothing happens when there is none of this id."""
        self._tables = {name: table for name, table in self._tables.items() if table.definition.id != table_id}

    def find_table(self, name: str) -> TableState | None:
        """Return the table called ``name``, None when there is none."""
        return self._tables.get(name_key(name))

    def table(self, name: str) -> TableState:
        """Return the table called ``name``; UnknownObject lists those that exist."""
        state = self.find_table(name)
        if state is None:
            names = [table.definition.name for table in self.tables()]
            known, hint = ", ".join(names[:20]) or "none yet", did_you_mean(name, names)
            raise UnknownObject(
                f"A table must exist to be used; got {name!r}. Tables: {known}; CREATE TABLE declares one.{hint}"
            )
        return state

    def table_by_id(self, table_id: str) -> TableState | None:
        """Return the table with this id, None when it was dropped."""
        return next((table for table in self._tables.values() if table.definition.id == table_id), None)

    def tables(self) -> list[TableState]:
        """Return all tables, oldest first."""
        return list(self._tables.values())
