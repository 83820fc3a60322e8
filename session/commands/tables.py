"""The static tables of a session: declared, looked at, refreshed, dropped."""

from __future__ import annotations

import threading
from typing import Any

from braid.operators.lookup.lookups import Lookup
from braid.operators.queries import lookups_of
from braid.session.commands.admission import check_new_name, check_unused
from braid.session.commands.statements import read_create_table, to_table_definition
from braid.session.commands.table_rows import TableRows, inputs_with_new_rows
from braid.session.commands.writer import Command, CommandGroup, Writer
from braid.session.log.idempotency import current_key, has_effect
from braid.session.settings import Settings
from braid.session.state.requests import TableCreated, TableDropped, TableRefreshed
from braid.session.state.session_state import SessionState
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.errors import UnknownObject
from braid.sources.core.names import name_key


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
        statement, key = read_create_table(sql, self._limits), current_key()

        def is_done(state: SessionState) -> bool:
            if statement.if_not_exists and state.catalog.find_table(statement.name) is not None:
                return True
            check_new_name(state, statement.name, "table")
            return False

        def check(group: CommandGroup) -> TableCreated | None:
            if is_done(group.state):
                return None
            return TableCreated(to_table_definition(statement, group.state.new_table_id(), sql, group.at_us), key)

        with self._lock:
            may_return = has_effect() or is_done(self._state)
        if not may_return:
            self._rows.check_file(to_table_definition(statement, "", sql, 0))
            self._writer.submit(Command(check, changes={name_key(statement.name)})).wait()
        return self.describe(statement.name)

    def drop(self, name: str) -> None:
        """Drop a static table; Conflict while a query that is not RETIRED or FAILED uses it."""
        key = current_key()

        def check(group: CommandGroup) -> TableDropped:
            table = group.state.catalog.table(name)
            check_unused(group.state, table, name)
            return TableDropped(table.definition.id, key)

        if not has_effect():
            dropped = self._writer.submit(Command(check, changes={name_key(name)}))
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
        version, key = self._rows.read(definition), current_key()
        release = self._rows.hold([version])

        def check(group: CommandGroup) -> TableRefreshed:
            inputs = inputs_after_refresh(group.state, version)  # most of them were checked before
            self._rows.check_matches({lookups: user for lookups, user in inputs.items() if lookups not in checked})
            return TableRefreshed(definition.id, version.id, key)

        try:
            with self._lock:
                checked = inputs_after_refresh(self._state, version)
            self._rows.check_matches(checked)
            self._writer.submit(Command(check, changes={name_key(definition.name)})).wait()
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


def inputs_after_refresh(state: SessionState, version: TableVersion) -> dict[tuple[Lookup, ...], str | None]:
    """Return the inputs of running queries that a version of a table changes; UnknownObject where it was dropped."""
    definition = version.definition
    table = state.catalog.table_by_id(definition.id)
    if table is None:
        raise UnknownObject(f"A table must exist to be refreshed; {definition.name!r} was just dropped.")
    refreshed = state.catalog.refreshed()
    refreshed[definition.id] = table.refreshes + 1, version.id
    users = ((r.query, r.id) for r in state.queries.values() if not r.has_ended and lookups_of(r.query))
    return inputs_with_new_rows(users, refreshed, lambda lookup: lookup.table == definition.id)
