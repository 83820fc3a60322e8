"""Files that grow in number: each write adds one, or one for each partition, as NDJSON, CSV or Parquet.

Files appear whole, and the rows of a query exactly once: what is written lies aside first; then the *note* of the query
names it with the cursor after it, which is the moment from which it counts; then it is moved to its place. A sink that
is opened again moves what its note names and drops what lies aside besides. Everything aside is in ``_braid``.

Partitioned files lie in folders ``column=value``, as Hive and all that read its layout know them, and lack those
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from operators.queries import Query
from router.materialize import schema_of
from router.row_text import values
from router.sinks.encoding import encode
from router.sinks.options import check_options, choice, columns
from router.sinks.sink import Deliverer, Rows, SinkDown, Subject
from sources import locations
from sources.errors import NotAllowed
from sources.storage import Storage

NAME = "file"
FLUSH_ROWS, FLUSH_SECONDS = 100_000, 10.0
ENDINGS = {"json": ".ndjson", "csv": ".csv", "parquet": ".parquet"}
ASIDE = "_braid"
_NULL = "__HIVE_DEFAULT_PARTITION__"


def validate(options: Mapping[str, str], query: Query, folder: str) -> None:
    """Check what a query says of its files."""
    check_options(NAME, options, ("path",), ("format", "partition_by"))
    choice(NAME, options, "format", tuple(ENDINGS))
    names = tuple(schema_of(query).names)
    if len(columns(NAME, options, "partition_by", names)) == len(names):
        raise NotAllowed("Option 'partition_by' of sink 'file' must leave a column for the files.")
    locate(options["path"], folder)


def destination(options: Mapping[str, str]) -> str:
    """Return the folder."""
    return options["path"]


def connect(options: Mapping[str, str], deliverer: Deliverer) -> Folder:
    """Return the folder, made if it is new."""
    try:
        storage = Storage(locate(options["path"], deliverer.folder))
        if storage.local_root is not None:
            storage.local_root.mkdir(parents=True, exist_ok=True)
        return Folder(storage)
    except (OSError, ValueError, ImportError) as problem:
        raise SinkDown(f"The folder {options['path']!r} must be one that can be written: {problem}.") from problem


def locate(path: str, folder: str) -> str:
    """Return where ``path`` is, a local path or a URI; NotAllowed when it must be below ``folder`` and is not."""
    filesystem, found = locations.locate(path, folder, "sink", "folder", "sink_folder")
    if isinstance(filesystem, fs.LocalFileSystem):
        return found
    return path if "://" in path else f"{folder.rstrip('/')}/{path}"


class Folder:
    """A folder, local or of a pyarrow filesystem."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def open(self, subject: Subject, options: Mapping[str, str]) -> FileSink:
        """Return the sink of a query."""
        return FileSink(self._storage, subject, options)

    def close(self) -> None:
        """Nothing is kept open."""


class FileSink:
    """The files of one query."""

    keeps_cursor = True

    def __init__(self, storage: Storage, subject: Subject, options: Mapping[str, str]) -> None:
        self._storage = storage
        self._delivery = subject.delivery
        self._format = choice(NAME, options, "format", tuple(ENDINGS))
        self._partition_by = columns(NAME, options, "partition_by", tuple(subject.schema.names))
        self._number = 0

    def resume(self) -> str | None:
        """Move to their places the files that count, drop the others, and return the cursor after them."""
        try:
            note = self._read_note()
            if note is not None:
                self._move(note)
            for name in self._storage.names(self._aside):
                self._storage.delete(f"{self._aside}/{name}")
        except OSError as problem:
            raise _down(problem) from problem
        self._number = 0 if note is None else note["number"]
        return None if note is None else note["cursor"]

    def write(self, rows: Rows) -> None:
        """Add files with rows."""
        number = self._number + 1
        files = {}
        try:
            for position, (folder, table) in enumerate(self._partitions(rows.table)):
                # a name of its own: one that an earlier note names would be moved in its place
                name = f"{number:08d}-{position}"
                self._storage.put(f"{self._aside}/{name}", encode(table, self._format))
                files[name] = f"{folder}{self._delivery}-{number:08d}{ENDINGS[self._format]}"
            note = {"number": number, "cursor": rows.cursor, "files": files}
            self._storage.put(self._note, orjson.dumps(note))
            self._number = number
            self._move(note)
        except OSError as problem:
            raise _down(problem) from problem

    @property
    def _aside(self) -> str:
        return f"{ASIDE}/{self._delivery}"

    @property
    def _note(self) -> str:
        return f"{ASIDE}/{self._delivery}.json"

    def _read_note(self) -> dict[str, Any] | None:
        try:
            note: dict[str, Any] = orjson.loads(self._storage.get(self._note))
        except FileNotFoundError:
            return None
        return note

    def _move(self, note: Mapping[str, Any]) -> None:
        for name, path in note["files"].items():
            if self._storage.exists(f"{self._aside}/{name}"):  # else it is there
                self._storage.move(f"{self._aside}/{name}", path)

    def _partitions(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of each folder, in order, without the columns that its name tells."""
        names = list(self._partition_by)
        if not names:
            yield "", table
            return
        by_value = [(name, text) for name in names for text in [_texts(table[name])]]
        folders = pa.chunked_array([pa.array([""] * len(table), pa.string())])
        for name, text in by_value:
            folders = pc.binary_join_element_wise(folders, pa.scalar(f"{quote(name)}="), text, pa.scalar("/"), "")
        rest = table.drop_columns(names)
        for folder in pc.unique(folders).to_pylist():
            yield folder, rest.filter(pc.equal(folders, folder))


def _texts(column: pa.ChunkedArray) -> pa.Array:
    """Return values as names of folders."""
    found = [orjson.loads(orjson.dumps(value)) for value in values(column)]
    return pa.array(
        [_NULL if value is None else quote(_plain(value), safe="") or _NULL for value in found], pa.string()
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _down(problem: OSError) -> SinkDown:
    return SinkDown(f"Files must be written, but: {problem}.")
