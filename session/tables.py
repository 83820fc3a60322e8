"""The static tables of a session: read when a query asks for one, and kept as the query was deployed with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from operators.joins.lookup_join import FOLDER, version_path
from session.catalog import Catalog
from sources.errors import NotReady
from sources.static_table import TableDefinition, TableReader, TableVersion
from sources.storage import Storage


class Tables:
    """Reads tables, and keeps the versions of them that queries need below the data directory."""

    def __init__(self, storage: Storage, folder: str = "") -> None:
        self._storage = storage
        self._reader = TableReader(folder)
        self._lock = threading.Lock()

    def read(self, definition: TableDefinition) -> TableVersion:
        """Return a table as its file is now; NotAllowed says what is wrong with the file."""
        with self._lock:
            return self._reader.read(definition)

    def forget(self, table_id: str) -> None:
        """Let go of what is kept in memory of a table that was dropped."""
        with self._lock:
            self._reader.forget(table_id)

    def keep(self, versions: Iterable[TableVersion]) -> None:
        """Write the rows of tables, durably, for queries that are reserved already; NotReady when that cannot be."""
        with self._lock:
            for version in versions:
                if not self._storage.exists(version_path(version.id)):
                    try:
                        self._storage.put(version_path(version.id), version.data)
                    except OSError as error:
                        raise NotReady(
                            "The rows of a table must be on disk before a query is answered; writing them failed:"
                            f" {error}. Nothing changed; make room or repair the disk, then send it again."
                        ) from error

    def sweep(self, needed: Callable[[], set[str]]) -> None:
        """Remove the versions that are not ``needed``; that is asked while none is written."""
        with self._lock:
            names = self._storage.names(FOLDER)
            kept = {version_path(version) for version in needed()} if names else set()
            for path in (f"{FOLDER}/{name}" for name in names):
                if path not in kept:
                    self._storage.delete(path)


class NamedTables:
    """The tables of a catalog as SELECTs name them; ``read`` has those that some did, by their id."""

    def __init__(self, catalog: Catalog, tables: Tables) -> None:
        self._catalog = catalog
        self._tables = tables
        self.read: dict[str, TableVersion] = {}

    @property
    def names(self) -> Sequence[str]:
        """The names of all tables."""
        return [table.definition.name for table in self._catalog.tables()]

    def find(self, name: str) -> TableVersion | None:
        """Return a table as its file is now, the same for all who ask here; None when there is none of that name."""
        table = self._catalog.find_table(name)
        if table is None:
            return None
        known = self.read.get(table.definition.id)
        if known is None:
            known = self.read[table.definition.id] = self._tables.read(table.definition)
        return known
