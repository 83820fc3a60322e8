"""The push logs of all streams: take rows in, once per Idempotency-Key, and drop what has been read.

Invariants:

- A key and its outcome are in the same frame as the rows, so both are durable or neither is. Keys are read back from
  the frames when a log is opened. Five hundred at a time, and before frames are trimmed, they go to the folder
  ``outcomes`` beside them, and of those there only digests are in memory.
- A segment goes only when the batch that read it is :data:`BATCHES_KEPT` batches old: a replay never asks for it.
- Where the folder of all logs is gone nothing is taken in, and no folder is made in its place.
- What waits to be read is bounded: beyond, pushes are refused with 429 until the job has caught up.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braid.session.log.outcome_segments import SEGMENT_OUTCOMES, OutcomeSegments, Row
from braid.sources.connectors.push import PARTITION, PushLog, folder_gone, is_file_at
from braid.sources.core.errors import NotAllowed, NotReady, Overloaded
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage
from braid.sources.formats.decoded import Decoded

CONNECTOR = "push"
BATCHES_KEPT = 16
ERRORS_SHOWN = 1000
FOLDER = "streams"
RETRY_SECONDS = 1


class PushStream:
    """The log of one stream and the outcomes of its keys."""

    def __init__(
        self,
        storage: Storage,
        definition: StreamDefinition,
        keep_us: int,
        max_waiting: int,
        now_us: int,
        read: int = 0,
        kept_bytes: int = 0,
    ) -> None:
        """Open the log, of which batches have ``read`` what lies below this offset.

        The newest ``kept_bytes`` of it stay, whether they were read or not.
        """
        self.log = PushLog(storage, definition)
        self._name = definition.name
        self._event_time = definition.schema.event_time
        self._max_future_us = definition.watermark.max_future_us
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[int, int]] = deque()
        self._waiting_bytes = 0
        self._read = read
        self._keep_us = keep_us
        self._changed = threading.Condition()
        self._running: set[str] = set()
        self._kept_bytes = kept_bytes
        self._storage = storage
        self._saved = OutcomeSegments(storage, f"{FOLDER}/{definition.id}/outcomes")
        self._saved.load()
        self._saved_path = f"{FOLDER}/{definition.id}/keys-saved.json"
        # the keys of all frames below are in that folder
        self._saved_upto: int = storage.get_json(self._saved_path)["offset"] if storage.exists(self._saved_path) else 0
        # by key, the rows that are in frames only
        self._newest: dict[str, Row] = {}
        for frame in self.log.kept_frames(self._saved_upto):
            if frame.key is not None:
                self._newest[frame.key] = [frame.key, frame.fingerprint, frame.received_us, frame.outcome]
            if frame.end > max(frame.first, read):
                self._waiting.append((frame.end, frame.bytes))
                self._waiting_bytes += frame.bytes
        self.expire(now_us)

    def push(
        self,
        decode: Callable[[], Decoded],
        size: int,
        key: str | None,
        fingerprint: str,
        watermark_us: int | None = None,
    ) -> tuple[Any, bool]:
        """Append what ``decode`` returns; return the outcome, and whether it is the first one of a key that is known.

        ``late`` of the outcome counts the tuples below the watermark, which are late for certain: it never falls.
        ``ahead`` counts those that are malformed if a batch reads them now, being further ahead than ``max_future``.
        NotAllowed for a key that came with another request, Overloaded when too much waits to be read.
        """
        if key is None:
            self._check_room()
            return self._append(decode(), size, None, None, watermark_us), False
        with self._changed:
            self._changed.wait_for(lambda: key not in self._running)
            self._running.add(key)
        try:
            row = self._find(key)
            if row is not None:
                _, first_fingerprint, _, outcome = row
                if first_fingerprint != fingerprint:
                    raise NotAllowed(
                        f"Idempotency-Key {key!r} belongs to another request. Send a new key with a new request."
                    )
                return outcome, True
            self._check_room()
            return self._append(decode(), size, key, fingerprint, watermark_us), False
        finally:
            with self._changed:
                self._running.discard(key)
                self._changed.notify_all()

    def _find(self, key: str) -> Row | None:
        with self._changed:
            row = self._newest.get(key)
        row = row or self._saved.find(key)
        return row if row is not None and row[2] >= _now_us() - self._keep_us else None

    def _append(
        self, decoded: Decoded, size: int, key: str | None, fingerprint: str | None, watermark_us: int | None
    ) -> Any:
        now_us = _now_us()
        size = max(size, decoded.tuples.nbytes)  # a packed body must not wait as if it had stayed small
        outcome = {
            "accepted": decoded.tuples.num_rows,
            "rejected": len(decoded.malformed),
            "errors": [{"line": m.line, "detail": m.detail} for m in decoded.malformed[:ERRORS_SHOWN]],
        }
        if decoded.missing:
            outcome["missing"] = list(decoded.missing)
        if decoded.unknown:
            outcome["unknown"] = list(decoded.unknown)
        outcome |= self._out_of_time(decoded.tuples, watermark_us, now_us)
        end = self.log.append(decoded.tuples, decoded.malformed, now_us, size, key, fingerprint, outcome)
        with self._changed:
            if end > self._read and (decoded.tuples.num_rows or decoded.malformed):  # else no batch will read it
                insort(self._waiting, (end, size))
                self._waiting_bytes += size
            if key is not None:
                self._newest[key] = [key, fingerprint, now_us, outcome]
        return outcome

    def _out_of_time(self, tuples: pa.RecordBatch, watermark_us: int | None, now_us: int) -> dict[str, int]:
        """Count tuples that are late, and that are too far ahead; none where their event time is that of arrival."""
        if self._event_time not in tuples.schema.names:
            return {}
        times = np.asarray(tuples.column(self._event_time).view(pa.int64()))
        late = 0 if watermark_us is None else int(np.count_nonzero(times < watermark_us))
        limit_us = None if self._max_future_us is None else now_us + self._max_future_us
        ahead = 0 if limit_us is None else int(np.count_nonzero(times > limit_us))
        return {name: count for name, count in (("late", late), ("ahead", ahead)) if count}

    def _check_room(self) -> None:
        with self._changed:
            if self._waiting_bytes >= self._max_waiting:
                raise Overloaded(
                    f"Stream {self._name!r} has {self._waiting_bytes} bytes of pushed rows that wait for the job, and"
                    f" at most {self._max_waiting} may wait (setting push_backlog_bytes). Push again later.",
                    retry_after=RETRY_SECONDS,
                )

    def note_read(self, offset: int) -> None:
        """Take note that what lies below ``offset`` was read."""
        with self._changed:
            self._read = max(self._read, offset)
            while self._waiting and self._waiting[0][0] <= offset:
                self._waiting_bytes -= self._waiting.popleft()[1]

    def expire(self, now_us: int) -> None:
        """Forget the keys whose time is over."""
        before_us = now_us - self._keep_us
        with self._changed:
            self._newest = {key: row for key, row in self._newest.items() if row[2] >= before_us}
        self._saved.expire(before_us - 1)

    def trim(self, offset: int, needed_from: int) -> None:
        """Save keys, and drop the segments below ``needed_from``; for one caller at a time.

        Batches that are never replayed have read what is below ``offset``; replays of the stream may need it still.
        """
        upto = self.log.segment_at(offset)
        with self._changed:
            rows = list(self._newest.values())
        if upto <= self._saved_upto:
            del rows[len(rows) // SEGMENT_OUTCOMES * SEGMENT_OUTCOMES :]
        self._saved.add(rows)
        with self._changed:
            for row in rows:
                if self._newest.get(row[0]) is row:
                    del self._newest[row[0]]
        if upto > self._saved_upto:
            self._storage.put_json(self._saved_path, {"offset": upto})
            self._saved_upto = upto
        self.log.trim(needed_from, self._kept_bytes)


class Pushes:
    """The push streams of one service; each log is opened when it is first pushed to."""

    def __init__(
        self,
        storage: Storage,
        keep_seconds: float,
        max_waiting: int,
        offsets: Callable[[str], Mapping[str, Any]],
        kept_bytes: int = 0,
    ) -> None:
        """Keep keys for so long; of each stream ``max_waiting`` bytes may wait to be read, and ``kept_bytes`` stay.

        ``offsets`` tells up to where batches have read the partitions of a stream, by its id.
        """
        self._storage = storage
        self._folder: Path | None = None
        if storage.local_root is not None:
            self._folder = storage.local_path(FOLDER)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open_folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._keep_us = round(keep_seconds * 1e6)
        self._max_waiting = max_waiting
        self._offsets = offsets
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._streams: dict[str, PushStream] = {}
        self._opening: dict[str, threading.Lock] = {}
        self._read: dict[str, deque[tuple[int, int]]] = {}
        self._passed: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._seq = 0
        self._closed = False

    def stream(self, definition: StreamDefinition) -> PushStream:
        """Return the push stream of a definition.

        NotAllowed when the stream takes no pushes, NotReady when the folder of all is gone.
        """
        if definition.connector != CONNECTOR:
            raise NotAllowed(
                f"Cannot push to stream {definition.name!r}: its connector is {definition.connector!r}. Create a stream"
                " WITH (connector = 'push') for pushed rows.",
                stream=definition.name,
            )
        if self._folder is not None and not self._closed and not is_file_at(self._open_folder, self._folder):
            raise folder_gone(self._folder)
        with self._lock:
            push_stream = self._opened(definition.id)
            opening = self._opening.setdefault(definition.id, threading.Lock())
        if push_stream is not None:
            return push_stream
        with opening:
            with self._lock:
                push_stream = self._opened(definition.id)
            return push_stream or self._open(definition)

    def _opened(self, stream: str) -> PushStream | None:
        if self._closed:
            raise NotReady("The service is stopping; send the request again once it has started.")
        return self._streams.get(stream)

    def _open(self, definition: StreamDefinition) -> PushStream:
        """Open the log of a stream, which may take long: nobody waits for it but who pushes to the stream."""
        push_stream = PushStream(
            self._storage,
            definition,
            self._keep_us,
            self._max_waiting,
            _now_us(),
            self._read_of(definition.id),
            self._kept_bytes,
        )
        try:
            with self._lock:
                self._opened(definition.id)
                self._streams[definition.id] = push_stream
        except NotReady:
            push_stream.log.close()
            raise
        push_stream.note_read(self._read_of(definition.id))  # batches that came meanwhile did not find it
        return push_stream

    def _read_of(self, stream: str) -> int:
        return int(self._offsets(stream).get(PARTITION, 0))

    def absorb(self, record: dict[str, Any]) -> None:
        """Note how far a batch has read."""
        with self._lock:
            self._seq = record["seq"]
            for stream, counts in record["streams"].items():
                offset = counts.get("offsets", {}).get(PARTITION)
                if offset is not None:
                    self._read.setdefault(stream, deque()).append((record["seq"], offset))
                    if stream in self._streams:
                        self._streams[stream].note_read(offset)

    def trim(self, defined: set[str]) -> None:
        """Drop what batches that are never replayed have read, and the folders of streams that are not defined.

        ``defined`` has replays, too: what one of them has not read stays.
        """
        with self._lock:
            last_final = self._seq - BATCHES_KEPT
            for stream, read_queue in self._read.items():
                self._passed[stream] = _take_passed(read_queue, last_final) or self._passed.get(stream, 0)
            for stream in self._read.keys() - defined:
                del self._read[stream], self._passed[stream]
            needed_from = dict(self._passed)
            for stream in defined:
                origin = origin_of(stream)
                needed_from[origin] = min(needed_from.get(origin, 0), needed_from.get(stream, 0))
            for stream in self._opening.keys() - defined:
                del self._opening[stream]
            dropped_streams = [self._streams.pop(stream) for stream in self._streams.keys() - defined]
            kept_streams = [
                (self._streams[stream_id], offset, needed_from[stream_id])
                for stream_id, offset in self._passed.items()
                if stream_id in self._streams
            ]
        for push_stream in dropped_streams:
            push_stream.log.close()
        for push_stream, offset, oldest_needed in kept_streams:
            push_stream.expire(_now_us())
            push_stream.trim(offset, oldest_needed)
        on_disk = set(self._storage.names(FOLDER))
        for stream in on_disk - defined:
            if self._dropped.setdefault(stream, self._seq) < last_final:
                self._storage.delete_folder(f"{FOLDER}/{stream}")
        self._dropped = {stream: seq for stream, seq in self._dropped.items() if stream in on_disk - defined}

    def close(self) -> None:
        """Close all logs; later pushes raise NotReady."""
        with self._lock:
            if self._folder is not None and not self._closed:
                os.close(self._open_folder)
            self._closed = True
            for push_stream in self._streams.values():
                push_stream.log.close()
            self._streams.clear()


def _take_passed(read_queue: deque[tuple[int, int]], last_seq: int) -> int | None:
    """Take what batches up to ``last_seq`` have read off the queue; return the offset of its end, None for nothing."""
    offset = None
    while read_queue and read_queue[0][0] <= last_seq:
        offset = read_queue.popleft()[1]
    return offset


def _now_us() -> int:
    return time.time_ns() // 1000
