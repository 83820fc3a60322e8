"""The streams of a session: declared, looked at, dropped."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session.commands.admission import check_new_name, check_unused
from session.commands.statements import read_create_stream, to_definition
from session.commands.writer import Group, Writer
from session.log.idempotency import current_key, has_effect
from session.settings import Settings
from session.sql.statements import CreateStream
from session.state.requests import Key, StreamCreated, StreamDropped
from session.state.session_state import SessionState
from sources.core.names import name_key
from sources.core.schema import StreamDefinition
from sources.core.storage import Storage


@dataclass(frozen=True)
class DeclareStream:
    """Declare a stream; with IF NOT EXISTS nothing changes where there is one of the name."""

    statement: CreateStream
    sql: str
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The stream's name."""
        return frozenset({name_key(self.statement.name)})

    def to_request(self, group: Group, /) -> StreamCreated | None:
        """Return the request; Conflict for a name that is taken."""
        if self.statement.if_not_exists and self.statement.name in group.state.catalog:
            return None
        check_new_name(group.state.catalog, self.statement.name, "stream")
        definition = to_definition(self.statement, group.state.new_stream_id(), self.sql, group.at_us)
        return StreamCreated(definition, self.key)


@dataclass(frozen=True)
class DropStream:
    """Drop a stream."""

    name: str
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The stream's name."""
        return frozenset({name_key(self.name)})

    def to_request(self, group: Group, /) -> StreamDropped:
        """Return the request; UnknownObject where there is no such stream, Conflict while queries use it."""
        stream = group.state.catalog.state(self.name)
        check_unused(group.state, stream, self.name)
        return StreamDropped(stream.definition.id, self.key)


class Streams:
    """The streams of one session."""

    def __init__(
        self, state: SessionState, lock: threading.RLock, writer: Writer, storage: Storage, settings: Settings
    ) -> None:
        self._state = state
        self._lock = lock
        self._writer = writer
        self._storage = storage
        self._settings = settings

    def create(self, sql: str) -> dict[str, Any]:
        """Declare a stream and return its description; pushes may use it at once. Conflict for a name that is taken."""
        limits = self._settings.statement_limits
        statement = read_create_stream(sql, self._settings.confinement, self._storage, limits)
        if not has_effect():
            self._writer.submit(DeclareStream(statement, sql, current_key())).wait()
        return self.describe(statement.name)

    def drop(self, name: str) -> None:
        """Drop a stream; Conflict while a query that is not RETIRED or FAILED uses it."""
        if not has_effect():
            self._writer.submit(DropStream(name, current_key())).wait()

    def describe_all(self) -> list[dict[str, Any]]:
        """Return all streams as GET /streams shows them."""
        with self._lock:
            return [stream.describe() for stream in self._state.catalog.states()]

    def describe(self, name: str) -> dict[str, Any]:
        """Return a stream as GET /streams/{name} shows it."""
        with self._lock:
            return self._state.catalog.state(name).describe()

    def offsets(self, stream_id: str) -> Mapping[str, Any]:
        """Return up to where batches have read the partitions of a stream, nothing for an unknown stream."""
        with self._lock:
            state = self._state.catalog.by_id(stream_id)
            return {} if state is None else dict(state.offsets)

    def definition(self, name: str) -> StreamDefinition:
        """Return the definition of a stream."""
        with self._lock:
            return self._state.catalog.state(name).definition

    def definitions(self) -> list[StreamDefinition]:
        """Return the definitions of all streams."""
        with self._lock:
            return [stream.definition for stream in self._state.catalog.states()]
