"""Snapshots of the session's state: they bound what a restart replays and how long the request log gets.

The part of a query that never changes, its head, is written once, to a segment ``queries/N.jsonl`` (checksum, id and
JSON a line) with the other new heads. The snapshot itself (``session.json``) has the progress of the queries as
columns, and names the segments; queries that have settled go to the archive. When half of a segment's heads or more are
of queries that have settled, the rest is written to the next segment: how many heads all snapshots write together
depends on how many queries came, not on how many run.

A snapshot is taken in steps, so that the session's writer goes on meanwhile: it calls :meth:`Snapshots.take` and, once
another thread has done :meth:`Snapshots.write`, :meth:`Snapshots.finish`. Files that the new snapshot does not name are
removed last (:meth:`Snapshots.sweep`), so a crash in between leaves the old one whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from braid.operators.joins.key_splits import KeySplit
from braid.optimizer.plan import Plan
from braid.session.log.archive import Archive, ArchiveSegment
from braid.session.state.applied_epoch import AppliedEpoch, UnappliedEpoch
from braid.session.state.catalog_entries import StreamState, TableState
from braid.session.state.query_record import PROGRESS, QueryRecord
from braid.session.state.session_state import SessionState
from braid.session.state.slots import SlotTable
from braid.sources.core.checksums import crc32
from braid.sources.core.errors import CorruptData
from braid.sources.core.names import composed
from braid.sources.core.record_log import file_number
from braid.sources.core.storage import Storage, not_read_back

PATH = "session.json"
HEADS = "queries"
_NUMBERS = (
    "requests",
    "epoch",
    "active_epoch",
    "applied_seq",
    "next_query",
    "next_stream",
    "next_table",
    "queries_created",
    "queries_deleted",
)


@dataclass
class PendingSnapshot:
    """What a snapshot has to write, as it was at one moment."""

    document: dict[str, Any]
    heads: list[QueryRecord]
    """The queries whose heads are to be written."""
    settled: list[QueryRecord]
    """The queries that go to the archive."""
    archived: ArchiveSegment | None = None
    """The archive's segment with them, once it is written."""
    segment: int | None = None
    """The segment with the heads, once it is written."""

    @property
    def applied_seq(self) -> int:
        """The last batch record that it covers."""
        return int(self.document["applied_seq"])

    @property
    def epoch(self) -> int:
        """The last changelog that it covers."""
        return int(self.document["epoch"])

    @property
    def requests(self) -> int:
        """The last request record that it covers."""
        return int(self.document["requests"])


class Snapshots:
    """Writes the snapshots of one session, one at a time, and reads the last one."""

    def __init__(self, storage: Storage, archive: Archive) -> None:
        self._storage = storage
        self._archive = archive
        self._next_segment = 1
        self._heads_written: dict[int, int] = {}
        """How many heads were written to each segment that the last snapshot names."""

    # reading

    def load(self, state: SessionState) -> None:
        """Fill an empty state with the snapshot, if there is one; CorruptData where it is damaged."""
        self._next_segment = max(map(file_number, self._storage.names(HEADS)), default=0) + 1
        try:
            value = self._storage.get_json(PATH)
        except FileNotFoundError:
            return
        self._archive.open(value["archive"])
        _fill(state, value, {segment: self._read_heads(segment) for segment in value["segments"]})

    def _read_heads(self, segment: int) -> dict[str, bytes]:
        """Return the heads of a segment as JSON, by query."""
        try:
            lines = self._storage.get(_path(segment)).splitlines()
        except FileNotFoundError:
            raise CorruptData(
                f"Queries must be in {_path(segment)}; it is missing. Restore the data directory from a backup."
            ) from None
        self._heads_written[segment] = len(lines)
        heads = {}
        for line in map(_text_of, lines):
            query_id, space, head = (line or b"").partition(b" ")
            if not space:
                raise not_read_back(_path(segment), "a line of it is another")
            heads[query_id.decode()] = head
        return heads

    # writing

    def take(self, state: SessionState) -> PendingSnapshot:
        """Return what a snapshot of the state as it is now has to write."""
        settled = state.queries.settled(state.active_epoch)
        settled_ids = {record.id for record in settled}
        records = [record for record in state.queries.values() if record.id not in settled_ids]
        needed_heads = Counter(record.head_segment for record in records)
        sparse = {s for s, count in needed_heads.items() if s is None or 2 * count <= self._heads_written[s]}
        heads = [record for record in records if record.head_segment in sparse]
        segments = [segment for segment in needed_heads if segment is not None and segment not in sparse]
        document = {
            **{name: getattr(state, name) for name in _NUMBERS},
            "streams": [stream.to_json() for stream in state.catalog.states()],
            "tables": [table.to_json() for table in state.catalog.tables()],
            "slots": state.slots.to_json(),
            "pending": state.pending.to_json(),
            "plan": {
                "version": state.plan.version,
                "streams": dict(state.plan.streams),
                "groups": state.plan.groups,
                "splits": {name: split.to_json() for name, split in state.plan.splits.items()},
            },
            "active": state.active.state_json(),
            "inactive": [[epoch, inactive.to_json()] for epoch, inactive in state.inactive.items()],
            "names": {name: query_id for name, query_id in state.names.items() if query_id not in settled_ids},
            "archive": self._archive.segments,
            "segments": segments + [self._next_segment] * bool(heads),
            "ids": [record.id for record in records],
            "progress": {name: [getattr(record, name) for record in records] for name in PROGRESS},
        }
        return PendingSnapshot(document, heads, settled)

    def write(self, pending: PendingSnapshot) -> None:
        """Write the snapshot; it is durable when the call returns."""
        pending.archived = self._archive.write(pending.settled)
        if pending.archived is not None:
            pending.document["archive"].append(pending.archived.id)
        if pending.heads:
            pending.segment, self._next_segment = self._next_segment, self._next_segment + 1
            lines = [_line(b"%b %b" % (r.id.encode(), orjson.dumps(r.head_json()))) for r in pending.heads]
            self._storage.put(_path(pending.segment), b"".join(lines))
            self._heads_written[pending.segment] = len(lines)
        self._storage.put_json(PATH, pending.document)

    def finish(self, state: SessionState, pending: PendingSnapshot) -> None:
        """Remove the queries that the snapshot moved to the archive from the state."""
        if pending.archived is not None:
            self._archive.add(pending.archived)
        state.remove(pending.settled)
        for record in pending.heads:
            record.head_segment = pending.segment

    def sweep(self, pending: PendingSnapshot) -> None:
        """Remove the files that the snapshot does not name."""
        self._heads_written = {segment: self._heads_written[segment] for segment in pending.document["segments"]}
        for name in self._storage.names(HEADS):
            if file_number(name) not in self._heads_written:
                self._storage.delete(f"{HEADS}/{name}")
        self._archive.sweep(pending.document["archive"])


def _fill(state: SessionState, value: Mapping[str, Any], heads: Mapping[int, Mapping[str, bytes]]) -> None:
    for name in _NUMBERS:
        setattr(state, name, value[name])
    for stream in value["streams"]:
        state.catalog.add(StreamState.from_json(stream))
    for table in value["tables"]:
        state.catalog.add_table(TableState.from_json(table))
    state.pending.fill(value["pending"])
    state.plan = Plan(value["plan"]["version"], value["plan"]["streams"])
    state.active = AppliedEpoch(value["active"])
    state.inactive = {epoch: UnappliedEpoch.from_json(inactive) for epoch, inactive in value["inactive"]}
    state.names = {composed(name): query_id for name, query_id in value["names"].items()}
    segments = {query_id: segment for segment, segment_heads in heads.items() for query_id in segment_heads}
    known = [name for name in PROGRESS if name in value["progress"]]  # an earlier version knew less of its queries
    for query_id, *progress in zip(value["ids"], *(value["progress"][name] for name in known), strict=True):
        if query_id not in segments:
            raise CorruptData(
                f"The head of query {query_id!r} must be in {HEADS!r}; it is missing."
                " Restore the data directory from a backup."
            )
        head = orjson.loads(heads[segments[query_id]][query_id])
        record = QueryRecord.from_json(head | dict(zip(known, progress, strict=True)))
        record.head_segment = segments[query_id]
        state.queries.add(record)
    placed = (q for q in state.queries.values() if q.slot is not None and q.freed_epoch is None)
    state.slots = SlotTable.from_json(value["slots"], {q.slot: q.id for q in placed if q.slot is not None})
    splits = {name: KeySplit.from_json(split) for name, split in value["plan"]["splits"].items()}
    state.index(value["plan"]["groups"], splits)


def _line(text: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(text), text)


def _text_of(line: bytes) -> bytes | None:
    """Return what :func:`_line` was given, None where it was not that."""
    text = line[9:]
    return text if line[:9] == b"%08x " % crc32(text) else None


def _path(segment: int) -> str:
    return f"{HEADS}/{segment:012d}.jsonl"
