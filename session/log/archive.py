"""Finished queries on disk: known until their retention has passed, while they take next to no memory.

A query that has settled (:meth:`SessionState.settled`) never changes again. Each snapshot of the session moves those
that have settled since the last one into a segment ``finished/N-….arrow`` and names it; a segment that no snapshot
names does not count.

A segment is an Arrow file, its checksum in its name, with its rows in the order of the queries' numbers: ``number``,
``finished_us``, ``state``, ``name`` and ``record``, the record as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import orjson
import pyarrow as pa

from braid.session.log.archive_index import ArchiveIndex, IndexLevel, RecordPlace
from braid.session.state.query_record import FINAL_STATES, QueryRecord
from braid.session.state.query_table import number_of
from braid.sources.core.checksums import crc32, with_checksum
from braid.sources.core.least_recently_used import LeastRecentlyUsed
from braid.sources.core.record_log import file_number
from braid.sources.core.storage import Storage, not_read_back

FOLDER = "finished"
ROWS = 256
BATCHES_KEPT = 16
_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("finished_us", pa.int64()),
        ("state", pa.uint8()),
        ("name", pa.string()),
        ("record", pa.binary()),
    ]
)
_INDEX, _RECORD = [0, 1, 2, 3], [4]


def compact(encoded: bytes) -> bytes:
    """Return a copy that takes as much memory as it is long: what orjson returns takes 4 kB at least."""
    return bytes(memoryview(encoded))


@dataclass(frozen=True, eq=False)
class ArchiveSegment:
    """A segment that was written: when the last of its queries finished, and its part of the index."""

    id: int
    newest_us: int
    level: IndexLevel

    @classmethod
    def of(cls, segment_id: int, table: pa.Table) -> ArchiveSegment:
        """Return the segment with these columns."""
        numbers, finished_us, states, names = (table[name].to_pylist() for name in _SCHEMA.names[:4])
        level = IndexLevel.of_segment(segment_id, numbers, finished_us, states, names)
        return cls(segment_id, max(finished_us), level)


class Archive:
    """The segments that count; one thread at a time changes them, any may read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._index = ArchiveIndex()
        self._newest_us: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._next = 1
        self._batches: LeastRecentlyUsed[list[bytes]] = LeastRecentlyUsed(BATCHES_KEPT, lambda _: 1)

    # writing

    def open(self, segments: Sequence[int]) -> None:
        """Add the segments that a snapshot names; CorruptData when one is missing or damaged."""
        self._paths = {file_number(name): f"{FOLDER}/{name}" for name in self._storage.names(FOLDER)}
        self._next = max(self._paths, default=0) + 1
        for segment_id in segments:
            path = self._paths.get(segment_id)
            if path is None:
                raise not_read_back(f"{_stem(segment_id)}-….arrow", "it is missing")
            try:
                options = pa.ipc.IpcReadOptions(included_fields=_INDEX)
                self.add(
                    ArchiveSegment.of(
                        segment_id, pa.ipc.open_file(self._storage.read(path), options=options).read_all()
                    )
                )
            except pa.ArrowException as error:
                raise not_read_back(path, error) from error

    def write(self, records: Sequence[QueryRecord]) -> ArchiveSegment | None:
        """Write a segment, which does not count before :meth:`add`; None when there are no records."""
        if not records:
            return None
        records = sorted(records, key=lambda record: number_of(record.id))
        columns = [
            [number_of(record.id) for record in records],
            [record.finished_us for record in records],
            [FINAL_STATES.index(record.state) for record in records],
            [record.full_name for record in records],
            [compact(orjson.dumps(record.to_json())) for record in records],
        ]
        table = pa.table(columns, schema=_SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=ROWS)
        segment_id, self._next = self._next, self._next + 1
        data = sink.getvalue().to_pybytes()
        self._paths[segment_id] = with_checksum(_stem(segment_id), crc32(data), ".arrow")
        self._storage.put(self._paths[segment_id], data)
        return ArchiveSegment.of(segment_id, table)

    def add(self, segment: ArchiveSegment) -> None:
        """Let a segment count."""
        self._newest_us[segment.id] = segment.newest_us
        self._index.add(segment.level)

    @property
    def segments(self) -> list[int]:
        """The segments that count, for a snapshot to name."""
        return list(self._newest_us)

    def expire(self, before_us: int) -> None:
        """Forget the queries that finished at or before a time."""
        self._index.expire(before_us)
        for segment_id in [s for s, newest_us in self._newest_us.items() if newest_us <= before_us]:
            del self._newest_us[segment_id]

    def sweep(self, segments: Sequence[int]) -> None:
        """Remove the files of the segments that the snapshot on disk does not name."""
        for name in self._storage.names(FOLDER):
            if file_number(name) not in segments:
                self._paths.pop(file_number(name), None)
                self._storage.delete(f"{FOLDER}/{name}")

    # reading

    def counts(self) -> dict[str, int]:
        """Return how many queries there are by state."""
        counts = self._index.counts(len(FINAL_STATES))
        return dict(zip(FINAL_STATES, counts, strict=True))

    def find(self, number: int) -> QueryRecord | None:
        """Return the query ``q-number``, None when it is not in the archive (any more)."""
        place = self._index.find(number)
        return None if place is None else self._read(place)

    def find_name(self, name: str) -> QueryRecord | None:
        """Return the newest query of a full name, None when there is none."""
        candidates = map(self._read, self._index.find_name(name))
        return next((record for record in candidates if record is not None and record.full_name == name), None)

    def after(
        self, number: int, state: str | None = None, newest_first: bool = False
    ) -> Iterator[tuple[int, Callable[[], QueryRecord | None]]]:
        """Return the queries as of now in ``state``, or in any, whose number is above ``number``, in order.

        With ``newest_first`` those whose number is below it, the greatest first. Each is a number and a function that
        reads the query; it returns None for a query that has just expired.
        """
        if state not in (None, *FINAL_STATES):
            return iter(())
        places = self._index.after(number, None if state is None else FINAL_STATES.index(state), newest_first)
        return ((query_number, partial(self._read, place)) for query_number, place in places)

    def _read(self, place: RecordPlace) -> QueryRecord | None:
        batch, row = divmod(place.row, ROWS)
        try:
            records = self._batches.get((place.segment, batch), lambda: self._read_batch(place.segment, batch))
        except FileNotFoundError:  # swept since its place was looked up
            return None
        return QueryRecord.from_json(orjson.loads(records[row]))

    def _read_batch(self, segment_id: int, number: int) -> list[bytes]:
        """Return the records of one batch of rows."""
        path = self._paths.get(segment_id)
        if path is None:
            raise FileNotFoundError(_stem(segment_id))
        with self._storage.open(path) as file:
            options = pa.ipc.IpcReadOptions(included_fields=_RECORD)
            records: list[bytes] = pa.ipc.open_file(file, options=options).get_batch(number).column(0).to_pylist()
        return records


def _stem(segment_id: int) -> str:
    return f"{FOLDER}/{segment_id:012d}"
