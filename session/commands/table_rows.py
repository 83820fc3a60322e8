"""The static tables of a session: read when a query names them, and kept as long as queries need their rows."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from braid.operators.lookup.lookup_join import FOLDER, MAX_MATCHES, IndexedTables, LookupFailed, version_path
from braid.operators.lookup.lookups import Lookup, Refreshed, rows_at_first
from braid.operators.queries import Query, joins_by_input, lookups_among, lookups_of
from braid.session.state.catalog import Catalog
from braid.session.state.session_state import SessionState
from braid.sources.connectors.one_row import is_one_row
from braid.sources.connectors.static_table import TableDefinition, TableReader, TableVersion
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.storage import Storage


class TableRows:
    """Reads tables, and keeps the versions of them that queries need below the data directory."""

    def __init__(self, storage: Storage, folder: str = "") -> None:
        self._storage = storage
        self._folder = folder
        self._reader = TableReader(folder, storage.location)
        self._lock = threading.Lock()
        # versions that commands which are not applied yet need, apart: whoever lets go of one must not wait for files
        self._held: Counter[str] = Counter()
        self._held_lock = threading.Lock()

    def read(self, definition: TableDefinition) -> TableVersion:
        """Return a table as its file is now; NotAllowed says what is wrong with the file."""
        with self._lock:
            return self._reader.read(definition)

    def check_file(self, definition: TableDefinition) -> None:
        """Raise NotAllowed for what is wrong with the file of a table that does not exist yet."""
        TableReader(self._folder, self._storage.location).read(definition)

    def forget(self, table_id: str) -> None:
        """Forget what is in memory of a table, which was dropped or is to be read anew."""
        with self._lock:
            self._reader.forget(table_id)

    def hold(self, versions: Sequence[TableVersion]) -> Callable[[], None]:
        """Write the rows of tables, durably, and keep them until the returned function is called.

        NotReady when they cannot be written.
        """
        ids = [version.id for version in versions]
        with self._held_lock:
            self._held.update(ids)
        try:
            with self._lock:
                for version in versions:
                    self._write(version)
        except BaseException:
            self._release(ids)
            raise
        return lambda: self._release(ids)

    def _write(self, version: TableVersion) -> None:
        if self._storage.exists(version_path(version.id)):
            return
        try:
            self._storage.put(version_path(version.id), version.data)
        except OSError as error:
            raise NotReady(
                "The rows of a table must be on disk before a query is answered; writing them failed:"
                f" {error}. Nothing changed; make room or repair the disk, then send it again."
            ) from error

    def _release(self, ids: Sequence[str]) -> None:
        with self._held_lock:
            self._held.subtract(ids)
            self._held = +self._held

    def check_matches(self, inputs: Mapping[tuple[Lookup, ...], str | None]) -> None:
        """Raise NotAllowed when a row of a stream could have too many; ``inputs`` map lookups to a query's id."""
        indexed = IndexedTables(self._storage)
        for lookups, query_id in inputs.items():
            query = query_id or "a query that is just being accepted"
            try:
                matches_of = {e: max(1, indexed.index(e).max_matches) for e in lookups if not e.only_finds}
                kept = [matches for lookup, matches in matches_of.items() if lookup.keeps]
                matches = max(math.prod(m for e, m in matches_of.items() if not e.keeps), *kept, 1)
            except LookupFailed as problem:
                raise NotAllowed(
                    f"The tables of {query} cannot be joined: {problem}.",
                    query_id=query_id,
                ) from None
            if matches > MAX_MATCHES:
                names = " and ".join(lookup.name for lookup in lookups)
                raise NotAllowed(
                    f"A row of a stream may be joined with at most {MAX_MATCHES} rows of tables; with these rows of"
                    f" {names} a row of {query} could have {matches}. Delete that query, or correct the file.",
                    query_id=query_id,
                )

    def check_refreshed(self, state: SessionState, queries: Iterable[Query]) -> None:
        """Raise NotAllowed where new queries cannot use the rows that tables got after the queries were planned."""
        refreshed = state.catalog.refreshed()

        def is_new(lookup: Lookup) -> bool:
            return refreshed.current(lookup).version != rows_at_first(lookup.version)

        self.check_matches(inputs_with_new_rows(((query, None) for query in queries), refreshed, is_new))

    def sweep(self, needed: Callable[[], set[str]]) -> None:
        """Remove the versions that nobody holds and that are not ``needed``, which is called after that."""
        with self._lock:
            names = self._storage.names(FOLDER)
            if not names:
                return
            with self._held_lock:
                held = set(self._held)
            needed_paths = {version_path(version) for version in held | needed()}
            for path in (f"{FOLDER}/{name}" for name in names):
                if path not in needed_paths:
                    self._storage.delete(path)


def files_needed(state: SessionState) -> set[str]:
    """Return the files of static tables' rows that a batch to come may read, those of finished queries included."""
    files = {refreshed["file"] for inactive in state.inactive.values() for refreshed in inactive.change.refreshed}
    newest = state.catalog.refreshed()
    files |= {file for _, file in newest.values()}  # for queries that are on their way
    for record in state.queries.values():
        for lookup in lookups_of(record.query):
            files |= {state.active.refreshed.current(lookup).version, newest.current(lookup).version}
    return files


def inputs_with_new_rows(
    queries: Iterable[tuple[Query, str | None]], refreshed: Refreshed, is_new: Callable[[Lookup], bool]
) -> dict[tuple[Lookup, ...], str | None]:
    """Return the lookups, of the ``refreshed`` rows, of each input with a new one, and the id of one of its queries.

    A query that is on its way has no id yet.
    """
    return {
        tuple(map(refreshed.current, lookups)): query_id
        for query, query_id in queries
        if not any(map(is_one_row, query.streams))  # all rows of a table are joined with one
        for lookups in map(lookups_among, joins_by_input(query))
        if any(map(is_new, lookups))
    }


class NamedTables:
    """The tables of a catalog as SELECTs name them; ``read`` has those that were named so far, by id."""

    def __init__(self, catalog: Catalog, rows: TableRows) -> None:
        self._catalog = catalog
        self._rows = rows
        self.read: dict[str, TableVersion] = {}

    @property
    def names(self) -> Sequence[str]:
        """The names of all tables."""
        return [table.definition.name for table in self._catalog.tables()]

    def find(self, name: str) -> TableVersion | None:
        """Return a table as its file was at the first call for it; None when there is none of that name."""
        table = self._catalog.find_table(name)
        if table is None:
            return None
        version = self.read.get(table.definition.id)
        if version is None:
            version = self.read[table.definition.id] = self._rows.read(table.definition)
        return version

    def add(self, table: TableVersion) -> None:
        """Keep a table that stands in a statement."""
        self.read[table.definition.id] = table

    def version_of(self, table: TableVersion) -> str:
        """Return what lookups call the rows of a table that was found."""
        state = self._catalog.table_by_id(table.definition.id)
        return table.id if state is None else state.version_of(table.id)
