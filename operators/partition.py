"""A partition: one key group of every aggregation operator, with its buckets, across batches.

Invariants:

- The state holds an *entry* per batch that brought buckets (the rows as they came, small payloads
  inline, large ones as paths), and a *head*: which entries are alive, and files to delete. Nothing else is durable.
- The partition in memory is a cache of that. It is brought up to the head before each batch, and the head has the
digests of
  entries. So it does not matter which worker ran the batch before, nor what is left here of an attempt at a batch that
  was made again elsewhere.
- An entry lives until no window can need any of its slices. When many entries are alive they are merged into one.
- Beside them are entries of the rows that were emitted early (:mod:`braid.operators.windowing.emission_log`); the head
names those,
  too.
- Files dropped in batch n are deleted in batch n + 2, when batch n cannot be replayed any more.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from braid.operators.live_queries import LiveQueries
from braid.operators.operator import FiringBatch, Held, Mask, ResultBlock
from braid.operators.partition_operators import PartitionOperators
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.report import Work
from braid.operators.state.bucket_store import batch_of, get_payload, is_path_of_tuples, put_payload, read_state
from braid.operators.state.partition_state import Head, PartitionState, Payload, digest_of, pack, unpack
from braid.operators.state.query_runs import Partials, read_bucket
from braid.operators.state.tuple_bucket import TupleBucket, is_tuple_bucket
from braid.operators.state.tuple_files import TupleFiles
from braid.operators.windowing.emission_log import EmissionLog
from braid.operators.windowing.firing_limit import FiringLimit
from braid.sources.core.storage import Storage

MAX_ENTRIES = 64
TUPLE_BYTES = 64 << 20

_Needed = dict[int, Mask]


@dataclass(frozen=True)
class _Entry:
    """What a batch brought: buckets, and tuples of inputs of joins, each with the payload that it was read from.

    ``files`` hold these tuples. ``digest`` tells it from what other attempts at the batch brought.
    """

    digest: int
    buckets: tuple[tuple[Payload, Partials], ...]
    tuples: tuple[tuple[Payload, TupleBucket], ...]
    files: tuple[Payload, ...]

    @property
    def parts(self) -> list[Partials | TupleBucket]:
        return [*(bucket for _, bucket in self.buckets), *(tuples for _, tuples in self.tuples)]

    @property
    def payloads(self) -> list[Payload]:
        return [*self.files, *(payload for payload, _ in (*self.buckets, *self.tuples))]


class Partition:
    """Takes in the buckets of each batch and fires the windows that are due, kind by kind of operator.

    Of a window of a join it keeps ``join_row_limit`` rows. Between batches it keeps so many ``tuple_bytes`` of tuples
    of joins in memory.
    """

    def __init__(self, storage: Storage, join_row_limit: int = 1_000_000, tuple_bytes: int = TUPLE_BYTES) -> None:
        self._storage = storage
        self._files = TupleFiles(partial(read_state, storage))
        self._tuple_bytes = tuple_bytes
        self._join_row_limit = join_row_limit
        self._entries: dict[int, _Entry] = {}
        self._emitted = EmissionLog(storage)
        self._operators = PartitionOperators()
        self.work = Work()
        """What it did since this was last told."""
        self.failures: dict[str, str] = {}
        """Queries whose evaluation raised in the last batch, with the message."""
        self.oldest: int | None = None
        """The number of the batch that made the oldest file which the state of the last batch names, None for none."""
        self.due_us: int | None = None
        """When a delay of EMIT runs out (processing time), for which it needs a batch even if no tuples come."""

    def follow(self, live: LiveQueries) -> FiringLimit:
        """Take note of the queries of an epoch; return what knows how far their windows fire in a batch."""
        self._operators.follow(live)
        return self._operators.limit

    def affordable(
        self, fired: Mapping[str, int | None], watermarks: Mapping[str, int | None], budget_us: float
    ) -> dict[str, int]:
        """Return up to where windows can fire in the next batch, of each stream that has more to fire."""
        return self._operators.limit.affordable(lambda: self._held().buckets, fired, watermarks, budget_us)

    def advance(
        self,
        seq: int,
        payloads: Sequence[Payload],
        live: LiveQueries,
        before: dict[str, int | None],
        after: dict[str, int | None],
        state: PartitionState,
        now_us: int = 0,
    ) -> list[ResultBlock]:
        """Run batch ``seq``: keep its buckets, fire, forget what is no longer needed; return the rows to emit.

        ``before`` and ``after`` are up to where the windows of each stream have fired around the batch: its watermarks,
        unless there is more to fire than fits a batch. ``now_us`` is the processing time of the batch.
        """
        stored_head = state.head()
        head = Head.from_bytes(stored_head)
        self._catch_up(head, state)
        if payloads:
            head.entries[seq] = _put(seq, payloads, state)
            self._entries[seq] = self._read(payloads, head.entries[seq])
        self._operators.follow(live)
        self.failures = {}
        new_buckets = [bucket for _, bucket in self._entries[seq].buckets] if payloads else []
        held = self._held()
        blocks = self._fire(held, new_buckets, before, after, now_us)
        self.oldest = self._oldest()
        self._store_early_rows(seq, head, state)
        needed = self._needed(held, after)
        for expired in self._expired(needed):
            self._drop(expired, seq, head, state)
        if len(head.entries) > MAX_ENTRIES:
            self._merge(seq, needed, after, head, state)
        self._sweep(seq, head)
        new_head = head.to_bytes()
        if new_head != stored_head and (stored_head is not None or head.entries or head.garbage or head.emitted):
            state.set_head(new_head)
        return blocks

    def release_tuples(self) -> None:
        """Free the memory of joins' tuples beyond its limit, once the batch's rows are stored."""
        self._files.release_beyond(self._tuple_bytes)

    def _oldest(self) -> int | None:
        paths = (payload.path for entry in self._entries.values() for payload in entry.payloads)
        return min((batch_of(path) for path in (*paths, *self._emitted.paths) if path), default=None)

    @property
    def bytes(self) -> int:
        """The size of the buckets in memory, and of what was emitted early."""
        entries = self._entries.values()
        buckets = sum(bucket.nbytes for entry in entries for _, bucket in entry.buckets)
        return self._emitted.bytes + buckets + sum(tuples.nbytes for entry in entries for _, tuples in entry.tuples)

    def _catch_up(self, head: Head, state: PartitionState) -> None:
        self._entries = {s: entry for s, entry in self._entries.items() if head.entries.get(s) == entry.digest}
        for seq, digest in head.entries.items():
            if seq not in self._entries:
                self._entries[seq] = self._read(unpack(state.entry(seq)), digest)
        for name, number in self._emitted.missing(head.emitted).items():
            (payload,) = unpack(state.entry(number))
            self._emitted.load(name, number, payload.path, payload.data)

    def _read(self, payloads: Iterable[Payload], digest: int) -> _Entry:
        buckets: list[tuple[Payload, Partials]] = []
        tuples: list[tuple[Payload, TupleBucket]] = []
        files = []
        for payload in payloads:
            if is_path_of_tuples(payload.path):
                files.append(payload)
                continue
            data = get_payload(self._storage, payload.path, payload.data)
            if is_tuple_bucket(data):
                tuples.append((payload, TupleBucket.deserialize(data, self._files)))
            else:
                buckets.append((payload, read_bucket(data)))
        return _Entry(digest, tuple(buckets), tuple(tuples), tuple(files))

    def _fire(
        self,
        held: Held,
        new_buckets: Sequence[Partials],
        before: Mapping[str, int | None],
        after: Mapping[str, int | None],
        now_us: int,
    ) -> list[ResultBlock]:
        """Return the rows to emit: those of windows that are final now, and early ones."""
        batch = FiringBatch(
            held, new_buckets, before, after, now_us, self._join_row_limit, self._emitted, self.work, self.failures
        )
        blocks = [block for side in self._operators.sides for block in side.fire(batch)]
        for name in self._emitted.operators:
            if name not in self._operators.side_of:  # nobody asks for it any more
                self._emitted.revise(name, None, (), None, None, now_us)
        return blocks

    def _store_early_rows(self, seq: int, head: Head, state: PartitionState) -> None:
        """Make durable what was emitted early."""
        change = self._emitted.take_revisions(seq)
        self.due_us = self._emitted.due_us
        for number in change.dropped:
            state.drop_entry(number)
        for number, (path, data) in change.stored.items():
            state.put_entry(number, pack([Payload(path, data)]))
        head.garbage += [(seq, path) for path in change.files]
        head.emitted = dict(change.names)

    def _held(self) -> Held:
        """Return all buckets and tuples by operator, in the order of batches."""
        held = Held({}, {})
        for seq in sorted(self._entries):
            for _, bucket in self._entries[seq].buckets:
                held.buckets.setdefault(bucket.operator, []).append(bucket)
            for _, tuples in self._entries[seq].tuples:
                held.tuples.setdefault(tuples.operator, []).append(tuples)
        return held

    def _needed(self, held: Held, reached: Mapping[str, int | None]) -> _Needed:
        """Return, by the id of each bucket, which of it a window can still need; nothing of operators that are gone."""
        needed: _Needed = {}
        for side in self._operators.sides:
            needed |= side.needed(held, reached)
        return needed

    def _expired(self, needed: _Needed) -> list[int]:
        """Return the entries of which no query needs anything again."""
        return [
            seq for seq, entry in self._entries.items() if not any(_is_needed(part, needed) for part in entry.parts)
        ]

    def _drop(self, entry: int, seq: int, head: Head, state: PartitionState, kept_paths: Container[str] = ()) -> None:
        """Forget an entry, by its number, in batch ``seq``; its files become garbage but for those that are kept."""
        for payload in self._entries.pop(entry).payloads:
            if payload.path and payload.path not in kept_paths:
                head.garbage.append((seq, payload.path))
        del head.entries[entry]
        state.drop_entry(entry)

    def _merge(
        self,
        seq: int,
        needed: _Needed,
        reached: Mapping[str, int | None],
        head: Head,
        state: PartitionState,
    ) -> None:
        """Replace all entries by one: slices that are no longer needed go, equal groups are added up.

        A bucket of tuples stays as it is as long as some of them are needed.
        """
        merged = [
            (Payload(*put_payload(self._storage, seq, bucket.serialize())), bucket)
            for bucket in self._merged(needed, reached)
        ]
        tuples = [
            (payload, bucket)
            for number in sorted(self._entries)
            for payload, bucket in self._entries[number].tuples
            if _is_needed(bucket, needed)
        ]
        kept_paths = {payload.path for payload, _ in tuples} | {bucket.file.path for _, bucket in tuples}
        files = [file for entry in self._entries.values() for file in entry.files if file.path in kept_paths]
        for number in list(self._entries):
            self._drop(number, seq, head, state, kept_paths)
        entry = _Entry(0, tuple(merged), tuple(tuples), tuple(files))
        head.entries[seq] = _put(seq, entry.payloads, state)
        self._entries[seq] = replace(entry, digest=head.entries[seq])

    def _merged(self, needed: _Needed, reached: Mapping[str, int | None]) -> Iterator[Partials]:
        """Yield one bucket for all that share operator and space."""
        by_space: dict[tuple[str, SpaceKey], list[Partials]] = {}
        for seq in sorted(self._entries):
            for _, bucket in self._entries[seq].buckets:
                if _is_needed(bucket, needed):
                    by_space.setdefault((bucket.operator, bucket.space), []).append(bucket)
        for (name, _), members in by_space.items():
            with self.work.timed(name):
                bucket = self._operators.side_of[name].merged(members, [needed[id(b)] for b in members], reached)
            yield bucket

    def _sweep(self, seq: int, head: Head) -> None:
        """Delete files that even a replay of the batch before cannot need."""
        for dropped_in, path in head.garbage:
            if dropped_in <= seq - 2:
                self._storage.delete(path)
        head.garbage = [(dropped_in, path) for dropped_in, path in head.garbage if dropped_in > seq - 2]


def _put(seq: int, payloads: Sequence[Payload], state: PartitionState) -> int:
    """Store an entry and return its digest."""
    packed = pack(payloads)
    state.put_entry(seq, packed)
    return digest_of(packed)


def _is_needed(part: Partials | TupleBucket, needed: _Needed) -> bool:
    mask = needed.get(id(part))
    return mask is not None and bool(mask.any())
