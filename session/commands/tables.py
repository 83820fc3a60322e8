"""The static tables of a session: declared, looked at, refreshed, dropped."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from operators.lookup.lookups import Lookup
from operators.queries import lookups_of
from session.commands.admission import check_new_name, check_unused
from session.commands.statements import read_create_table, to_table_definition
from session.commands.table_rows import TableRows, inputs_with_new_rows
from session.commands.writer import Group, Writer
from session.log.idempotency import current_key, has_effect
from session.settings import Settings
from session.sql.statements import CreateTable
from session.state.requests import Key, TableCreated, TableDropped, TableRefreshed
from session.state.session_state import SessionState
from sources.connectors.static_table import TableVersion
from sources.core.errors import UnknownObject
from sources.core.names import name_key

Inputs = dict[tuple[Lookup, ...], str | None]


@dataclass(frozen=True)
class DeclareTable:
    """Declare a table, whose file was checked; with IF NOT EXISTS nothing changes where there is one of the name."""

    statement: CreateTable
    sql: str
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The table's name."""
        return frozenset({name_key(self.statement.name)})

    def is_done(self, state: SessionState) -> bool:
        """Whether there is nothing to do; Conflict for a name that is taken."""
        if self.statement.if_not_exists and state.catalog.find_table(self.statement.name) is not None:
            return True
        check_new_name(state.catalog, self.statement.name, "table")
        return False

    def to_request(self, group: Group, /) -> TableCreated | None:
        """Return the request; Conflict for a name that is taken."""
        if self.is_done(group.state):
            return None
        definition = to_table_definition(self.statement, group.state.new_table_id(), self.sql, group.at_us)
        return TableCreated(definition, self.key)


@dataclass(frozen=True)
class DropTable:
    """Drop a table."""

    name: str
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The table's name."""
        return frozenset({name_key(self.name)})

    def to_request(self, group: Group, /) -> TableDropped:
        """Return the request; UnknownObject where there is no such table, Conflict while queries use it."""
        table = group.state.catalog.table(self.name)
        check_unused(group.state, table, self.name)
        return TableDropped(table.definition.id, self.key)


@dataclass(frozen=True)
class RefreshTable:
    """Give a table the rows of a version; they are known to do for the inputs ``checked``."""

    version: TableVersion
    checked: frozenset[tuple[Lookup, ...]]
    rows: TableRows
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The table's name."""
        return frozenset({name_key(self.version.definition.name)})

    def to_request(self, group: Group, /) -> TableRefreshed:
        """Return the request; UnknownObject where the table is gone, NotAllowed where its rows do not do for a query.

        Only inputs that came after most were checked take time.
        """
        table_id = self.version.definition.id
        inputs = inputs_after_refresh(group.state, self.version)
        self.rows.check_matches({lookups: user for lookups, user in inputs.items() if lookups not in self.checked})
        return TableRefreshed(table_id, self.version.id, self.key)


def inputs_after_refresh(state: SessionState, version: TableVersion) -> Inputs:
    """Return the inputs of running queries that a version of a table changes; UnknownObject where it was dropped."""
    definition = version.definition
    table = state.catalog.table_by_id(definition.id)
    if table is None:
        raise UnknownObject(f"A table must exist to be refreshed; {definition.name!r} was just dropped.")
    refreshed = state.catalog.refreshed()
    refreshed[definition.id] = table.refreshes + 1, version.id
    users = ((r.query, r.id) for r in state.queries.values() if not r.is_finished and lookups_of(r.query))
    return inputs_with_new_rows(users, refreshed, lambda lookup: lookup.table == definition.id)


class Tables:
    """The static tables of one session."""

    def __init__(
        self, state: SessionState, lock: threading.RLock, writer: Writer, rows: TableRows, settings: Settings
    ) -> None:
        self._state = state
        self._lock = lock
        self._writer = writer
        self._rows = rows
        self._limits = settings.statement_limits

    def create(self, sql: str) -> dict[str, Any]:
        """Declare a static table, whose file must be there, and return its description.

        Conflict for a name that is taken.
        """
        command = DeclareTable(read_create_table(sql, self._limits), sql, current_key())
        name = command.statement.name
        if not has_effect():
            with self._lock:
                is_done = command.is_done(self._state)
            if not is_done:
                self._rows.check_file(to_table_definition(command.statement, "", sql, 0))
                self._writer.submit(command).wait()
        return self.describe(name)

    def drop(self, name: str) -> None:
        """Drop a static table; Conflict while a query that is not RETIRED or FAILED uses it."""
        if has_effect():
            return
        dropped = self._writer.submit(DropTable(name, current_key()))
        dropped.wait()
        assert isinstance(dropped.request, TableDropped)
        self._rows.forget(dropped.request.id)

    def refresh(self, name: str) -> dict[str, Any]:
        """Read the file of a static table anew, and return the table's description.

        All queries that use it get these rows for the tuples of the batch that begins with the next changelog, and of
        later ones. NotAllowed for a file that does not fit the table, or rows with which a query cannot go on.
        """
        if has_effect():
            return self.describe(name)
        with self._lock:
            definition = self._state.catalog.table(name).definition
        self._rows.forget(definition.id)
        version = self._rows.read(definition)
        release = self._rows.hold([version])
        try:
            with self._lock:
                inputs = inputs_after_refresh(self._state, version)
            self._rows.check_matches(inputs)
            self._writer.submit(RefreshTable(version, frozenset(inputs), self._rows, current_key())).wait()
        except UnknownObject:
            self._rows.forget(definition.id)
            raise
        finally:
            release()
        return self.describe(name)

    def describe_all(self) -> list[dict[str, Any]]:
        """Return all static tables as GET /tables shows them."""
        with self._lock:
            return [table.describe() for table in self._state.catalog.tables()]

    def describe(self, name: str) -> dict[str, Any]:
        """Return a static table as GET /tables/{name} shows it."""
        with self._lock:
            return self._state.catalog.table(name).describe()

    def is_named_in(self, text: bytes) -> bool:
        """Return whether the name of a static table is anywhere in a text in UTF-8."""
        with self._lock:
            names = [table.definition.name for table in self._state.catalog.tables()]
        return bool(names) and any(name.lower() in text.decode(errors="replace").lower() for name in names)
