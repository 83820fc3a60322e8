"""Queries as SQL names them beside streams: by name or id, as derived streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from braid.operators.derived import QueryBehind, derived_stream
from braid.session.commands.query_lookup import QueryLookup
from braid.session.state.catalog import Catalog
from braid.session.state.query_record import QueryRecord
from braid.session.state.query_table import READABLE
from braid.session.state.session_state import SessionState
from braid.sources.connectors.one_row import is_one_row, one_row_stream
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import StreamDefinition

_MAX_NAMED = 100


class NamedRelations(Mapping[str, StreamDefinition]):
    """Streams by name, and the queries of a tenant by name or id, as derived streams.

    It is iterated over the names of streams, and of the last queries with a name that can be read. A query that cannot
    be read is not there where a table has its name.
    """

    def __init__(self, catalog: Catalog, state: SessionState, lookup: QueryLookup, tenant: str | None) -> None:
        self._catalog = catalog
        self._state = state
        self._lookup = lookup
        self._tenant = tenant

    def __getitem__(self, name: str) -> StreamDefinition:
        stream = self._catalog.get(name)
        if stream is not None:
            return stream
        record = self._query(name)
        why_not = None if record is None else self._why_not(record)
        if record is None or (why_not is not None and self._catalog.find_table(name) is not None):
            raise KeyError(name)
        if why_not is not None:
            raise NotAllowed(why_not)
        return derived_stream(record.lineage, record.called, [QueryBehind(record.id, record.query)])

    def _why_not(self, record: QueryRecord) -> str | None:
        """Return why others cannot read the rows of a query, None where they can."""
        called = record.called
        if not record.is_readable or self._state.queries.find(record.id) is None:
            since = f", and {READABLE} others have finished since" if record.is_readable else ""
            return (
                f"Query {called} is {record.state}{since}, so no query can read its rows. Create it again, or write its"
                " SELECT as a subquery."
            )
        if (reason := record.query.emit.unreadable) is not None:
            return f"Query {called} cannot be read. {reason}"
        if record.query.window is None and not record.query.event_time:
            return f"Query {called} was created by an earlier version; replace it by itself to read its rows."
        return None

    def _query(self, name: str) -> QueryRecord | None:
        record = self._lookup.find(name, self._tenant)
        is_seen = record is not None and self._tenant in (None, record.tenant)
        return record if is_seen else None

    def __iter__(self) -> Iterator[str]:
        yield from self._catalog
        yield from filter(self._is_readable, self._lookup.names_of(self._tenant)[-_MAX_NAMED:])

    def _is_readable(self, name: str) -> bool:
        record = self._query(name)
        return record is not None and self._why_not(record) is None and name not in self._catalog

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def name_of(self, stream_id: str) -> str:
        """Return what people call a derived stream, or that of one row."""
        if is_one_row(stream_id):
            return one_row_stream(stream_id).name
        records = self._state.queries.queries_behind(stream_id)
        return " and ".join("a subquery" if record is None else record.called for record in records)
