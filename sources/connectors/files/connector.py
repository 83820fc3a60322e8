"""The ``file`` connector: reads the files of a folder that grows, each once, in the order of discovery.

The planner discovers files, in a thread, and keeps an index of them; everybody else reads that. The offsets of the one
partition are the records of all files, one file after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from braid.sources.connectors.connector import Chunk, Extent, Malformed, with_arrival
from braid.sources.connectors.files.discovery import PARTITION, Discovery
from braid.sources.connectors.files.folder import check_folder, opened
from braid.sources.connectors.files.index import FileIndex, IndexedFile
from braid.sources.connectors.files.options import FileOptions, read_options
from braid.sources.connectors.files.parquet import ParquetFormat
from braid.sources.connectors.files.reading import FileFormat, FilePiece
from braid.sources.connectors.files.replay import Replay
from braid.sources.connectors.files.text import CsvFormat, JsonFormat
from braid.sources.connectors.offset_watch import OffsetWatch
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed, NotReady, ServiceError
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import Schema, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage

ASK_EVERY_SECONDS = 0.05


def validate_options(
    schema: StreamSchema, format: str, options: Mapping[str, str], confinement: Confinement
) -> FileOptions:
    """Return the options; NotAllowed says what is supported instead. The folder need not be there yet."""
    parsed = read_options(format, options)
    if parsed.replay_speed is not None and schema.field(schema.event_time).arrival:
        raise NotAllowed(
            f"Option 'replay_speed' needs event times of the data; column {schema.event_time!r} is the time of ARRIVAL."
        )
    check_folder(parsed, confinement.table_folder, confinement.data_folder)
    if os.path.isfile(parsed.path):
        raise NotAllowed(
            f"Option 'path' of a stream must be a folder, whose files are read as they come; {parsed.path!r} is a file."
            f" Write path = {os.path.dirname(parsed.path)!r} if all files there are of the stream."
        )
    return parsed


class FileConnector:
    """The reading end of a stream of files; it knows the files that are in the index."""

    problem: str | None = None

    def __init__(self, definition: StreamDefinition, storage: Storage) -> None:
        self._name = definition.name
        self._options = read_options(definition.format, definition.options)
        self._schema = definition.schema
        self._format = _format_of(self._options, definition.schema.stored)
        self._index = FileIndex(storage, f"streams/{origin_of(definition.id)}/files")

    def available(self, now_us: int) -> dict[str, Extent]:  # noqa: ARG002
        """Return the records of all files in the index, those that a replay holds back included."""
        self._index.follow()
        return {PARTITION: Extent(0, self._index.end)}

    def bounds(self) -> dict[str, int] | None:
        """Return the end of the last file, once the stream is bounded and all its files are in the index."""
        return {PARTITION: self._index.end} if self._options.bounded and self._index.is_closed else None

    def oldest(self) -> dict[str, int]:
        """Return the first record of the first file."""
        return {PARTITION: 0}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield the records with offsets in ``[start, end)``.

        Raises NotReady when a file is not there any more, or is not what it was when it was discovered.
        """
        if partition != PARTITION:
            raise ValueError(f"A stream of files has partition {PARTITION!r} only, got {partition!r}.")
        with self._naming_the_stream():
            for file in self._index.between(start, end):
                with opened(file.uri, file.found, file.real_path) as source:
                    low, high = max(start - file.first, 0), min(end - file.first, file.records)
                    for piece in self._format.read(source, file, low, high):
                        yield self._chunk(file, piece)

    @contextmanager
    def _naming_the_stream(self) -> Iterator[None]:
        """Turn what goes wrong into NotReady with the name of the stream."""
        try:
            yield
        except (ServiceError, OSError, pa.ArrowException) as problem:
            raise NotReady(
                f"Stream {self._name!r} gets nothing until this is settled: {str(problem).rstrip('.')}.",
                stream=self._name,
            ) from None

    def _chunk(self, file: IndexedFile, piece: FilePiece) -> Chunk:
        unit = self._format.unit
        malformed = tuple(
            Malformed(f"{file.path}, {unit} {piece.first + line}{detail.removeprefix(f'{unit} {line}')}", raw)
            for line, detail, raw in piece.decoded.malformed
        )
        tuples = with_arrival(piece.decoded.tuples, self._schema, file.seen_us)
        return Chunk(tuples, malformed, file.seen_us, piece.bytes)


class DiscoveringFileConnector(FileConnector):
    """The end of the planner, which discovers files; one process at a time has it."""

    def __init__(self, definition: StreamDefinition, storage: Storage) -> None:
        super().__init__(definition, storage)
        options, speed = self._options, self._options.replay_speed
        self._replay = None if speed is None else Replay(speed, definition.created_us)
        folder = Confinement.of(storage).table_folder
        discovery = Discovery(
            self._index, options, self._format, definition.schema, folder, self._replay, storage.location
        )
        subject = f"Stream {self._name!r} from folder {options.path!r}"
        # whatever a file makes a library raise is shown, and tried again
        self._watch = OffsetWatch(discovery.extents, subject, (Exception,), every_seconds=ASK_EVERY_SECONDS)

    @property
    def problem(self) -> str | None:  # type: ignore[override]
        """Why nothing is available, None while all is well."""
        return self._watch.problem

    def available(self, now_us: int) -> dict[str, Extent]:
        """Return the records of all files discovered, as far as a replay has come; nothing while something is wrong."""
        extents = self._watch.extents()
        if self._replay is None:
            return extents
        end = self._replay.end(now_us)
        return {partition: Extent(0, min(extent.end, end)) for partition, extent in extents.items()}


def _format_of(options: FileOptions, schema: Schema) -> FileFormat:
    if options.format == "parquet":
        return ParquetFormat(schema)
    return CsvFormat(schema, options) if options.format == "csv" else JsonFormat(schema)
