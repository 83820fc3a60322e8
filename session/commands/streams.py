"""The streams of a session: declared, looked at, dropped."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from braid.operators.event_times import ENDED
from braid.session.commands.admission import check_new_name, check_unused, uses
from braid.session.commands.readers import with_readers
from braid.session.commands.statements import read_create_stream, to_definition
from braid.session.commands.writer import Command, CommandGroup, Writer
from braid.session.log.idempotency import current_key, has_effect
from braid.session.settings import Settings
from braid.session.state.requests import QueriesDeleted, StreamCreated, StreamDropped, WatermarkRaised
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import Conflict
from braid.sources.core.names import name_key
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage


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
        limits, key = self._settings.statement_limits, current_key()
        statement = read_create_stream(sql, self._settings.confinement, self._storage, limits)

        def check(group: CommandGroup) -> StreamCreated | None:
            if statement.if_not_exists and statement.name in group.state.catalog:
                return None
            check_new_name(group.state, statement.name, "stream")
            return StreamCreated(to_definition(statement, group.state.new_stream_id(), sql, group.at_us), key)

        if not has_effect():
            self._writer.submit(Command(check, changes={name_key(statement.name)})).wait()
        return self.describe(statement.name)

    def drop(self, name: str, cascade: bool = False) -> None:
        """Drop a stream; Conflict while a query that is not RETIRED or FAILED uses it, unless it goes, too."""
        key = current_key()
        if cascade and not has_effect():
            self._writer.submit(self._without_users(name)).wait()

        def check(group: CommandGroup) -> StreamDropped:
            stream = group.state.catalog.state(name)
            check_unused(group.state, stream, name)
            return StreamDropped(stream.definition.id, key)

        if not has_effect():
            self._writer.submit(Command(check, changes={name_key(name)})).wait()

    def _without_users(self, name: str) -> Command:
        """Return the command to retire at once all queries that use a stream, or read these."""

        def check(group: CommandGroup) -> QueriesDeleted | None:
            stream_id = group.state.catalog.state(name).definition.id
            users = [q for q in group.state.queries.values() if not q.has_ended and uses(q, stream_id)]
            doomed = tuple(record.id for record in with_readers(group.state, users))
            return QueriesDeleted(doomed, False, "cascade") if doomed else None

        return Command(check, changes={name_key(name)})

    def raise_watermark(self, name: str, watermark_us: int) -> dict[str, Any]:
        """Have nothing earlier come of a stream any more, and return its description; ENDED: nothing at all.

        It counts once all is read that is there now; durable when this returns. A watermark never falls.
        """
        key = current_key()

        def check(group: CommandGroup) -> WatermarkRaised:
            return WatermarkRaised(group.state.catalog.state(name).definition.id, watermark_us, key)

        if not has_effect():
            self._writer.submit(Command(check, uses={name_key(name)})).wait()
        return self.describe(name)

    def check_open(self, name: str) -> None:
        """Raise Conflict for a stream that was ended from outside: it takes no more tuples."""
        with self._lock:
            raised = self._state.catalog.state(name).raised
        if raised == ENDED:
            raise Conflict(
                f"Stream {name!r} has ended (POST /streams/{name}/watermark, or braid push --end), so it takes no more"
                " rows. Create another stream for them.",
                stream=name,
            )

    def describe_all(self) -> list[dict[str, Any]]:
        """Return all streams as GET /streams shows them."""
        with self._lock:
            return [stream.describe() for stream in self._state.catalog.named()]

    def describe(self, name: str) -> dict[str, Any]:
        """Return a stream as GET /streams/{name} shows it."""
        with self._lock:
            return self._state.catalog.state(name).describe()

    def offsets(self, stream_id: str) -> Mapping[str, Any]:
        """Return up to where batches have read the partitions of a stream, nothing for an unknown stream."""
        with self._lock:
            state = self._state.catalog.by_id(stream_id)
            return {} if state is None else dict(state.offsets)

    def watermark(self, name: str) -> int | None:
        """Return the watermark of a stream (µs) after the last batch, None before the first row."""
        with self._lock:
            return self._state.catalog.state(name).watermark

    def definition(self, name: str) -> StreamDefinition:
        """Return the definition of a stream."""
        with self._lock:
            return self._state.catalog.state(name).definition

    def definitions(self) -> list[StreamDefinition]:
        """Return the definitions of all streams."""
        with self._lock:
            return [stream.definition for stream in self._state.catalog.named()]

    def ids(self) -> set[str]:
        """Return the ids of all streams, and of the replays of streams."""
        with self._lock:
            return {stream.definition.id for stream in self._state.catalog.states()}
