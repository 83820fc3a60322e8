"""Files that grow in number: each write adds one, or one for each partition, as NDJSON, CSV or Parquet.

Files appear whole, and the rows of a query exactly once: what is written lies aside first; then the *note* of the query
names it with the cursor after it, which is the moment from which it counts; then it is moved to its place. A sink that
is opened again moves what its note names and drops what lies aside besides. Everything aside is in ``_braid``.

Partitioned files lie in folders ``column=value``, as Hive and all that read its layout know them, and lack those
columns. All folders are made before the note is written: what cannot be placed does not count.
"""

from __future__ import annotations

import errno
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from braid.operators.queries import Query
from braid.operators.result_rows import schema_of
from braid.router.sinks.encoding import encode
from braid.router.sinks.options import check_options, choice, columns
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, SinkDown, SinkRefused, SinkRows, Subject
from braid.sources.core import locations
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.storage import Storage
from braid.sources.formats.json_values import json_values

NAME = "file"
FLUSH_ROWS, FLUSH_SECONDS = 100_000, 10.0
ENDINGS = {"json": ".ndjson", "csv": ".csv", "parquet": ".parquet"}
ASIDE = "_braid"
LOCAL_DESTINATIONS = 4
LONGEST_FOLDER, LONGEST_COLUMN = 200, 100
"""Bytes in the name of a folder, which file systems limit to 255, and in that of a column in it."""
LONGEST_PATH = 1000
"""Bytes in the path of a file below the sink's folder; object stores limit it to 1024, file systems to 4096."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTDIR, errno.EEXIST)


def validate(options: Mapping[str, str], query: Query, confinement: Confinement) -> None:
    """Check what a query says of its files."""
    check_options(NAME, options, ("path",), ("format", "partition_by"))
    choice(NAME, options, "format", tuple(ENDINGS))
    names = tuple(schema_of(query).names)
    partition_by = columns(NAME, options, "partition_by", names)
    if len(partition_by) == len(names):
        raise NotAllowed(
            "Option 'partition_by' of sink 'file' must not name all columns of the result. Leave out one, for the"
            " files."
        )
    kinds = schema_of(query)
    for name in partition_by:
        if pa.types.is_nested(kinds.field(name).type) or isinstance(kinds.field(name).type, pa.JsonType):
            raise NotAllowed(
                f"Option 'partition_by' of sink 'file' must name columns without parts; {name!r} is a"
                f" {next(o.expression.type.kind for o in query.outputs if o.name == name)}. Select a member of it."
            )
        if len(_quoted(name)) > LONGEST_COLUMN:
            raise NotAllowed(
                f"A column of option 'partition_by' must have a name of at most {LONGEST_COLUMN} bytes; got {name!r}."
            )
    locate(options["path"], confinement.sink_folder, confinement.data_folder)


def destination(options: Mapping[str, str]) -> str:
    """Return one of a few numbers for a local folder, the server of any other: many folders share few threads."""
    path = options["path"]
    if "://" in path:
        return "://".join(urlsplit(path)[:2])
    return str(zlib.crc32(path.encode()) % LOCAL_DESTINATIONS)


def connect(options: Mapping[str, str], deliverer: DelivererIdentity) -> Folders:  # noqa: ARG001
    """Return the folders; nothing is opened yet."""
    return Folders(deliverer.confinement.sink_folder, deliverer.confinement.data_folder)


def locate(path: str, folder: str, data_folder: str = "") -> str:
    """Return where ``path`` is, a local path or a URI; NotAllowed when it must be below ``folder`` and is not."""
    filesystem, located_path = locations.locate(path, folder, "sink", "folder", "sink_folder", data_folder)
    if isinstance(filesystem, fs.LocalFileSystem):
        return located_path
    return path if "://" in path else f"{folder.rstrip('/')}/{path}"


class Folders:
    """Folders of sinks, local or of a pyarrow filesystem, each made when it is new."""

    def __init__(self, below: str, data_folder: str = "") -> None:
        self._below = below
        self._data_folder = data_folder

    def open(self, subject: Subject, options: Mapping[str, str]) -> FileSink:
        """Return the sink of a query."""
        path = options["path"]
        try:
            storage = Storage(locate(path, self._below, self._data_folder))
            if storage.local_root is not None:
                storage.local_root.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError, ImportError) as problem:
            raise SinkRefused(f"The folder {path!r} must be one that can be written: {problem}.") from problem
        return FileSink(storage, subject, options)

    def close(self) -> None:
        """Nothing is kept open."""


class FileSink:
    """The files of one query."""

    keeps_cursor = True

    def __init__(self, storage: Storage, subject: Subject, options: Mapping[str, str]) -> None:
        self._storage = storage
        self._delivery = subject.delivery_id
        self._format = choice(NAME, options, "format", tuple(ENDINGS))
        self._partition_by = columns(NAME, options, "partition_by", tuple(subject.schema.names))
        self._number = 0

    def resume(self) -> str | None:
        """Move the files that count to their places, delete the others, and return the cursor after them."""
        try:
            note = self._read_note()
            if note is not None:
                self._move(note)
            for name in self._storage.names(self._aside):
                self._storage.delete(f"{self._aside}/{name}")
        except OSError as problem:
            raise failure(problem) from problem
        self._number = 0 if note is None else note["number"]
        return None if note is None else note["cursor"]

    def write(self, rows: SinkRows) -> None:
        """Add files with rows."""
        number = self._number + 1
        tables, files = {}, {}
        for position, (folder, table) in enumerate(self._partitions(rows.table)):
            # a name of its own: one that an earlier note names would be moved in its place
            name = f"{number:08d}-{position}"
            tables[name] = table
            files[name] = f"{folder}{self._delivery}-{number:08d}{ENDINGS[self._format]}"
        note = {"number": number, "cursor": rows.cursor, "files": files}
        try:
            for path in files.values():
                self._make_place(path)
            for name, table in tables.items():
                self._storage.put(f"{self._aside}/{name}", encode(table, self._format))
        except OSError as problem:
            raise failure(problem, RowsRefused) from problem
        try:
            self._storage.put(self._note, orjson.dumps(note))
            self._number = number
            self._move(note)
        except OSError as problem:
            raise failure(problem) from problem

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
            if self._storage.exists(f"{self._aside}/{name}"):  # else it has been moved already
                self._storage.move(f"{self._aside}/{name}", path)

    def _make_place(self, path: str) -> None:
        """Make the folder of a file, where there are folders."""
        if len(path) > LONGEST_PATH:
            raise RowsRefused(f"The path of a file must have at most {LONGEST_PATH} bytes; got {path!r}.")
        if self._storage.local_root is not None:
            self._storage.local_path(path).parent.mkdir(parents=True, exist_ok=True)

    def _partitions(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of each folder, in order, without the columns that its name tells."""
        names = list(self._partition_by)
        if not names:
            yield "", table
            return
        folders = pc.binary_join_element_wise(*(_folders(name, table[name]) for name in names), "", "/")
        grouped = folders.dictionary_encode()
        numbers = grouped.indices.to_numpy()
        sorted_rows = table.drop_columns(names).take(pa.array(np.argsort(numbers, kind="stable")))
        ends = np.cumsum(np.bincount(numbers)).tolist()
        for folder, first, end in zip(grouped.dictionary.to_pylist(), [0, *ends], ends, strict=False):
            yield folder, sorted_rows.slice(first, end - first)


def folder_of(column: str, value: Any) -> str:
    """Return the name of the folder for a value; of a long one its beginning and a hash.

    The name has one ``=`` at least, and no ``/``: it is never the folder itself, nor the one above.

    >>> folder_of("../a", "b/c"), folder_of("n", 7), folder_of("n", None)
    ('..%2Fa=b%2Fc', 'n=7', 'n=__HIVE_DEFAULT_PARTITION__')
    """
    text = "" if value is None else value if isinstance(value, str) else orjson.dumps(value).decode()
    name = f"{_quoted(column)}={_quoted(text) or _NULL}"
    if len(name) <= LONGEST_FOLDER:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    prefix = f"{_quoted(column)}="
    room = LONGEST_FOLDER - len(prefix) - len(digest) - 1
    lengths = accumulate(len(_quoted(character)) for character in text[:room])
    characters = sum(length <= room for length in lengths)
    return f"{prefix}{_quoted(text[:characters])}~{digest}"


def failure(problem: OSError, refusal: type[SinkRefused] = SinkRefused) -> SinkDown | SinkRefused:
    """Return what an error of files means: a name that cannot be is a ``refusal``, all else may pass."""
    text = f"Files must be written, but: {problem}."
    return refusal(text) if problem.errno in _NAME_ERRORS else SinkDown(text)


def _folders(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Return the folder of each value of a column."""
    distinct = column.combine_chunks().dictionary_encode(null_encoding="encode")
    plain = [orjson.loads(orjson.dumps(value)) for value in json_values(distinct.dictionary)]
    return pa.array([folder_of(name, value) for value in plain], pa.string()).take(distinct.indices)


def _quoted(text: str) -> str:
    return quote(text, safe="")
