"""Static tables: files of rows that streams are joined with, read as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from braid.sources.core.errors import MalformedRequest, NotAllowed, TooLarge
from braid.sources.core.locations import locate
from braid.sources.core.names import did_you_mean
from braid.sources.core.schema import Schema, fields_from_json, fields_to_json
from braid.sources.core.watermark_options import TIMESTAMP_FORMAT
from braid.sources.formats.csv_document import check_delimiter, decode_csv
from braid.sources.formats.decoded import MalformedLine
from braid.sources.formats.json_document import decode_json
from braid.sources.formats.limits import TEXT_PIECE
from braid.sources.formats.ndjson import decode_ndjson
from braid.sources.formats.parquet_rows import ParquetRows
from braid.sources.formats.record_batches import match_columns

CONNECTOR = "file"
MAX_BYTES = 1 << 30
ROWS_AT_ONCE = 1 << 16
SHOWN_FAULTS = 3
_OPTIONS = {"csv": ("path", "delimiter"), "json": ("path",), "parquet": ("path",)}
FORMATS = tuple(_OPTIONS)
INLINE = "values"
"""The format, and the name, of tables whose rows stand in a statement (VALUES); no catalog has them."""


@dataclass(frozen=True)
class TableDefinition:
    """A static table in the catalog; ``options`` are those besides ``connector`` and ``format``.

    ``id`` differs between two tables that bear the same name one after the other.
    """

    id: str
    name: str
    schema: Schema
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    sql: str = ""
    created_us: int = 0

    @property
    def path(self) -> str:
        """The file, as given: a path, or a pyarrow filesystem URI."""
        return self.options["path"]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the session's logs."""
        return {
            "id": self.id,
            "name": self.name,
            "fields": fields_to_json(self.schema.fields),
            "format": self.format,
            "options": dict(self.options),
            "sql": self.sql,
            "created_us": self.created_us,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableDefinition:
        """Read what :meth:`to_json` wrote."""
        attributes = {name: attribute for name, attribute in value.items() if name != "fields"}
        return cls(schema=Schema(fields_from_json(value["fields"])), **attributes)


def format_of(path: str) -> str:
    """Return the format that the ending of a path says; CSV for others."""
    endings = {".json": "json", ".ndjson": "json", ".jsonl": "json", ".parquet": "parquet"}
    return endings.get(Path(path.lower().removesuffix(".gz")).suffix, "csv")


def validate_table(connector: str, format: str, options: Mapping[str, str]) -> None:
    """Check the options of a CREATE TABLE; NotAllowed says what is supported instead."""
    if connector != CONNECTOR:
        raise NotAllowed(
            f"The connector of a table must be {CONNECTOR!r}; got {connector!r}. A table is a file whose rows streams"
            " are joined with; write CREATE STREAM for rows that come."
        )
    if format not in _OPTIONS:
        raise NotAllowed(f"The format of a table must be one of {', '.join(map(repr, FORMATS))}; got {format!r}.")
    if not options.get("path"):
        raise NotAllowed("WITH must name the file of the table: path = 'packs.csv'.")
    unknown = sorted(set(options) - set(_OPTIONS[format]))
    if unknown:
        known = ", ".join(map(repr, _OPTIONS[format]))
        meant = did_you_mean(unknown[0], (*_OPTIONS[format], TIMESTAMP_FORMAT))
        raise NotAllowed(
            f"A table with format {format!r} has no option {', '.join(map(repr, unknown))}. It has {known}.{meant}"
        )
    check_delimiter(options.get("delimiter", ","))


@dataclass(frozen=True)
class TableVersion:
    """The rows that a table had when it was read, in the columns of its schema."""

    definition: TableDefinition
    rows: pa.Table

    @property
    def data(self) -> bytes:
        """The rows as an Arrow IPC file, made anew."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self.rows.schema) as writer:
            writer.write_table(self.rows)
        return sink.getvalue().to_pybytes()

    @cached_property
    def id(self) -> str:
        """What tells the rows from others: equal for equal rows."""
        return hashlib.sha256(self.data).hexdigest()[:16]


class TableReader:
    """Reads the files of tables; one that has not changed since is not read again.

    ``folder``, a path or a pyarrow filesystem URI, is what they must lie below, ``data_folder`` what they must lie
    neither in nor above; see :mod:`braid.sources.core.locations`.
    """

    def __init__(self, folder: str = "", data_folder: str = "") -> None:
        self._folder = folder
        self._data_folder = data_folder
        self._versions: dict[str, tuple[tuple[Any, ...], TableVersion]] = {}

    def read(self, definition: TableDefinition) -> TableVersion:
        """Return the rows as they are now; NotAllowed says what is wrong with the file."""
        filesystem, path = locate(definition.path, self._folder, "table", "file", data_folder=self._data_folder)
        try:
            info = filesystem.get_file_info(path)
            if info.type != fs.FileType.File:
                raise NotAllowed(
                    f"The file of table {definition.name!r} must exist where the service runs; {path!r} does not."
                )
            stamp = _stamp(filesystem, info)
            cached = self._versions.get(definition.id)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            if info.size > MAX_BYTES:
                raise NotAllowed(
                    f"The file of table {definition.name!r} must have at most {MAX_BYTES} bytes; got {info.size}."
                )
            rows = _rows(definition, filesystem, path)
        except OSError as problem:
            raise NotAllowed(f"The file of table {definition.name!r} must be readable: {problem}.") from None
        except (MalformedRequest, TooLarge) as problem:
            raise NotAllowed(f"{path!r} does not fit table {definition.name!r}: {problem.detail}") from None
        version = TableVersion(definition, rows)
        self._versions[definition.id] = stamp, version
        return version

    def forget(self, table_id: str) -> None:
        """Let go of what is kept of a table."""
        self._versions.pop(table_id, None)


def _stamp(filesystem: fs.FileSystem, info: fs.FileInfo) -> tuple[Any, ...]:
    """Return what differs when a file has changed, or another of the same time and size has taken its place."""
    if isinstance(filesystem, fs.LocalFileSystem):
        status = Path(info.path).stat()
        return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
    return info.mtime_ns, info.size


def _rows(definition: TableDefinition, filesystem: fs.FileSystem, path: str) -> pa.Table:
    schema = definition.schema
    if definition.format == "parquet":
        return _parquet_rows(schema, filesystem, path)
    with filesystem.open_input_stream(path) as source:  # compressed ones by their ending
        body = source.read(MAX_BYTES + 1)
    if len(body) > MAX_BYTES:
        raise MalformedRequest(f"It must unpack to at most {MAX_BYTES} bytes.")
    try:
        body.decode()
    except UnicodeDecodeError as problem:
        raise MalformedRequest(f"It must be UTF-8; byte {problem.start + 1} is not.") from None
    body = body.removeprefix(b"\xef\xbb\xbf")
    decoded = _DECODERS[definition.format](definition, body)
    _check_malformed(decoded.malformed)
    return pa.Table.from_batches([decoded.tuples])


def _decode_json_text(definition: TableDefinition, body: bytes) -> Any:
    decode = decode_json if body.lstrip()[:1] == b"[" else decode_ndjson
    return decode(body, definition.schema, TEXT_PIECE)


_DECODERS: Mapping[str, Callable[[TableDefinition, bytes], Any]] = {
    "csv": lambda definition, body: decode_csv(body, definition.schema, definition.options.get("delimiter", ",")),
    "json": _decode_json_text,
}


def _parquet_rows(schema: Schema, filesystem: fs.FileSystem, path: str) -> pa.Table:
    with filesystem.open_input_file(path) as source:
        parquet = ParquetRows(source)
        names = match_columns(parquet.schema, schema).names
        if parquet.unpacked_bytes > MAX_BYTES:
            raise MalformedRequest(f"It must unpack to at most {MAX_BYTES} bytes; got {parquet.unpacked_bytes}.")
        decoded = [
            match_columns(batch.schema, schema).decode(batch)
            for group in range(len(parquet.groups))
            for batch in parquet.batches(group, names, ROWS_AT_ONCE)
        ]
    _check_malformed([line for part in decoded for line in part.malformed])
    return pa.Table.from_batches([part.tuples for part in decoded], schema=schema.arrow)


def _check_malformed(malformed: tuple[MalformedLine, ...] | list[MalformedLine]) -> None:
    if malformed:
        shown = "; ".join(line.detail for line in malformed[:SHOWN_FAULTS])
        more = len(malformed) - SHOWN_FAULTS
        raise MalformedRequest(shown + (f"; and {more} more." if more > 0 else "."))
