"""Discovery: looks for new files every so often, looks through them, and adds them to the index, the oldest first."""

from __future__ import annotations

import time

import pyarrow as pa

from braid.sources.connectors.connector import Extent
from braid.sources.connectors.files.folder import Folder, FoundFile, changed, opened
from braid.sources.connectors.files.index import FileIndex, IndexedFile
from braid.sources.connectors.files.options import FileOptions
from braid.sources.connectors.files.reading import FileFormat
from braid.sources.connectors.files.replay import NEVER, Replay, with_times
from braid.sources.core.errors import MalformedRequest, NotReady
from braid.sources.core.schema import StreamSchema

PARTITION = "0"
LOOK_EVERY_SECONDS = 0.25
REST_PER_LOOK = 4.0  # the rest after a look takes at least so many times as long as the look
SLICE_SECONDS = 0.2  # how long one call looks through files before it tells which it knows
SETTLED_NS = 2_000_000_000  # a file that was last changed so long ago is complete


class Discovery:
    """Finds the files of a stream little by little; each call goes on where the one before ended.

    A new file waits until two looks find it the same, unless it was last changed a while ago: so a file that somebody
    is writing is left alone.
    """

    def __init__(
        self,
        index: FileIndex,
        options: FileOptions,
        format: FileFormat,
        schema: StreamSchema,
        table_folder: str,
        replay: Replay | None,
        data_folder: str = "",
    ) -> None:
        self._index = index
        self._options = options
        self._format = format
        self._schema = schema
        self._table_folder = table_folder
        self._data_folder = data_folder
        self._replay = replay
        self._folder: Folder | None = None
        self._indexed_files: dict[str, FoundFile] = {}
        self._seen: dict[str, FoundFile] = {}
        self._waiting: list[FoundFile] = []
        self._next_look = 0.0

    def extents(self) -> dict[str, Extent]:
        """Return the offsets of all files known; an error says what keeps the next from being taken."""
        self._index.hold()
        self._learn()
        if self._options.bounded and self._index.is_closed:
            return {PARTITION: Extent(0, self._index.end)}
        try:
            if not self._waiting and time.monotonic() >= self._next_look:
                self._waiting = self._look()[::-1]
                if self._options.bounded and not self._seen:
                    self._index.close()
            self._take(time.monotonic() + SLICE_SECONDS)
        except BaseException:
            self._waiting = []  # what is wrong may be mended by then: look again
            raise
        return {PARTITION: Extent(0, self._index.end)}

    def _look(self) -> list[FoundFile]:
        """Return the new files that are complete, as far as one can see."""
        began = time.monotonic()
        try:
            self._folder = Folder(self._options, self._table_folder, self._data_folder)
            files = self._folder.look()
        except OSError as problem:
            raise NotReady(
                f"The folder {self._options.path!r} must be there and readable where the service runs: {problem}"
            ) from None
        seconds = time.monotonic() - began
        self._next_look = time.monotonic() + max(LOOK_EVERY_SECONDS, REST_PER_LOOK * seconds)
        settled_ns, seen_before, new_files = time.time_ns() - SETTLED_NS, self._seen, []
        self._seen = {}
        for file in files:
            known_file = self._indexed_files.get(file.path)
            if known_file is None:
                self._seen[file.path] = file
                if file.mtime_ns < settled_ns or seen_before.get(file.path) == file:
                    new_files.append(file)
            elif known_file != file:
                raise changed(known_file, file.size)
        return new_files

    def _take(self, deadline: float) -> None:
        """Look through files that wait, until the time is up, and add them to the index."""
        indexed: list[IndexedFile] = []
        try:
            while self._waiting and (not indexed or time.monotonic() < deadline):
                file = self._scanned(self._waiting.pop(), indexed)
                if file is not None:
                    indexed.append(file)
        finally:
            if indexed:
                self._index.add(indexed)
                self._learn()

    def _scanned(self, found_file: FoundFile, indexed: list[IndexedFile]) -> IndexedFile | None:
        """Return a file with what is known after looking through it; None when it went, or grew, meanwhile."""
        assert self._folder is not None
        if not found_file.path.isprintable():
            raise NotReady(f"The name of a file must be printable Unicode, got {found_file.path!r}. Rename it")
        try:
            real_path = self._folder.real_path(found_file.path)
            with opened(self._folder.uri, found_file, real_path) as source:
                scan = self._format.scan(source, found_file.size)
                first = indexed[-1].end if indexed else self._index.end
                earlier = (indexed or self._index.files)[-1:]
                file = IndexedFile(
                    path=found_file.path,
                    real_path=real_path,
                    uri=self._folder.uri,
                    size=found_file.size,
                    mtime_ns=found_file.mtime_ns,
                    seen_us=max([time.time_ns() // 1000, *(f.seen_us + 1 for f in earlier)]),  # it may be an event time
                    first=first,
                    records=scan.records,
                    marks=scan.marks,
                )
                return self._timed(source, file, indexed)
        except (NotReady, FileNotFoundError):
            return None
        except (MalformedRequest, OSError, pa.ArrowException) as problem:
            raise NotReady(
                f"File {found_file.path!r} must be {self._options.format} with the columns of the stream: {problem} Put"
                " a right one in its place, take it away, or declare the stream anew with the columns of its files"
            ) from None

    def _timed(self, source: pa.NativeFile, file: IndexedFile, indexed: list[IndexedFile]) -> IndexedFile:
        """Return a file with its event times, where the stream is replayed."""
        if self._replay is None or self._options.replay_speed is None or not file.records:
            return file
        latest = next((earlier.times[-1][1] for earlier in reversed(indexed) if earlier.times), self._replay.latest_us)
        pieces = self._format.read(source, file, 0, file.records)
        return with_times(file, pieces, self._schema, self._options.replay_speed, max(latest, NEVER))

    def _learn(self) -> None:
        """Take note of files that were added."""
        files = self._index.files
        for file in files[len(self._indexed_files) :]:
            self._indexed_files[file.path] = file.found
        if self._replay is not None:
            self._replay.learn(files)
