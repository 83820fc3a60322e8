"""Several streams through source operators, partitions, firing and the reader in one process, without Spark."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from braid.engine.planning.offsets import advance_watermark
from braid.operators.block_files import BlockPart
from braid.operators.kinds import operator_of
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.lookup.lookup_join import IndexedTables
from braid.operators.operator import ChunkOutput
from braid.operators.partition import Partition
from braid.operators.queries import Query
from braid.operators.query_parts import WINDOW_END, WINDOW_START
from braid.operators.state.bucket_store import StoredTuples, put_bucket
from braid.operators.state.partition_state import Payload
from braid.operators.stream_operators import StreamOperators
from braid.optimizer.plan import Plan
from braid.router.deployment import Deployment
from braid.router.materialize import Materializer
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage
from tests.operators.pipeline import MemoryState, Row, batch_of


@dataclass(frozen=True)
class Deployed:
    """A query as the reader wants to know it."""

    live: LiveQuery

    id = property(lambda self: self.live.id)
    query = property(lambda self: self.live.query)

    @property
    def deployment(self) -> Deployment:
        """The one that it has."""
        return Deployment(self.live.slot, self.live.epoch, 1, self.live.active_from)

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """What the reader asks for."""
        return (self.deployment,)


def changelog(
    epoch: int,
    created: Sequence[tuple[str, int, Query]],
    deleted: Sequence[tuple[str, int]] = (),
    freed: Sequence[tuple[str, int]] = (),
    regrouped: Sequence[tuple[str, int, int]] = (),
    split: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the record of a changelog; queries are (id, slot, query), regrouped ones (id, slot, group)."""
    alone = Plan().alone_among((name, query) for name, _, query in created)
    return {
        "epoch": epoch,
        "created": [
            {
                "id": name,
                "slot": slot,
                "operator": operator_of(query),
                "query": query.to_json(),
                "is_alone": name in alone,
            }
            for name, slot, query in created
        ],
        "deleted": [{"id": name, "slot": slot, "drain": True} for name, slot in deleted],
        "freed": [{"id": name, "slot": slot} for name, slot in freed],
        "regrouped": [{"id": name, "slot": slot, "group": group} for name, slot, group in regrouped],
        "split": list(split),
        "streams_created": [],
        "streams_dropped": [],
        "capacity": 64,
    }


@dataclass
class JoinPipeline:
    """``clocks`` and ``watermarks`` are those at the start of the next batch, ``rows`` what each query got so far.

    ``rng`` says how many partitions there are, when they move to other workers or run a batch twice from the same
    state, and how long pages are.
    """

    storage: Storage
    streams: Sequence[StreamDefinition]
    rng: random.Random
    join_row_limit: int = 1_000_000
    live: LiveQueries = field(default_factory=LiveQueries)
    clocks: dict[str, int | None] = field(default_factory=dict)
    watermarks: dict[str, int | None] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seq: int = 0

    def __post_init__(self) -> None:
        self.live.streams.update({stream.id: stream for stream in self.streams})
        count = self.rng.choice([1, 2, 2, 3])
        self.partitions = [Partition(self.storage, self.join_row_limit) for _ in range(count)]
        self.states = [MemoryState() for _ in range(count)]
        self.reader = Materializer(self.storage)
        self.tables = IndexedTables(self.storage)

    def run(
        self, tuples: Mapping[str, Sequence[Row]], changelogs: Sequence[dict[str, Any]] = ()
    ) -> dict[str, list[Row]]:
        """Run a batch of tuples by the id of their stream; return those that are not late."""
        self.seq += 1
        for record in changelogs:
            self.live.apply(record, self.clocks)
        seen: dict[str, list[Row]] = {}
        payloads: list[list[Payload]] = [[] for _ in self.partitions]
        before = dict(self.watermarks)
        for stream in self.streams:
            time = stream.schema.event_time
            watermark, mine = self.watermarks.get(stream.id), tuples.get(stream.id, ())
            seen[stream.id] = [row for row in mine if watermark is None or row[time] >= watermark]
            half = len(seen[stream.id]) // 2
            for part in (seen[stream.id][:half], seen[stream.id][half:]):
                for name, lookups in self.live.inputs(stream.id).items():
                    operators = StreamOperators(self.live, stream, len(self.partitions), None, name, lookups)
                    for joined in operators.lookup_join.batches(batch_of(part, stream.schema), self.tables):
                        output = operators.process(joined, watermark)
                        assert not output.failures
                        self._store(output, payloads)
            clock = max(
                [row[time] for row in mine] + [t for t in [self.clocks.get(stream.id)] if t is not None], default=None
            )
            self.clocks[stream.id] = clock
            self.watermarks[stream.id] = advance_watermark(watermark, clock, stream.schema.lateness_us)
        blocks: dict[int, list[BlockPart]] = {}
        for partition in range(len(self.partitions)):
            self._advance(partition, payloads[partition], before, blocks)
        for slot, parts in blocks.items():
            self._read(self.live.by_slot[slot], parts)
        return seen

    def _store(self, output: ChunkOutput, payloads: list[list[Payload]]) -> None:
        for group, bucket in output.buckets:
            payloads[group].append(Payload(*put_bucket(self.storage, self.seq, bucket)))
        if output.indexed is not None:
            stored = StoredTuples(self.storage, self.seq, output.indexed.table, output.indexed.partitions)
            for partition, path in stored.paths.items():
                payloads[partition].append(Payload(path, b""))
            for partition, index in output.indexed.indexes:
                payloads[partition].append(Payload(*stored.put_index(partition, index)))

    def _advance(
        self, number: int, payloads: list[Payload], before: dict[str, int | None], blocks: dict[int, list[BlockPart]]
    ) -> None:
        if self.rng.random() < 0.2:  # another worker takes over: its cache is empty
            self.partitions[number] = Partition(self.storage, self.join_row_limit)
        if self.rng.random() < 0.2:  # an attempt fails at its end: the state is as before, the cache is not
            failed = self.states[number].copy()
            self.partitions[number].advance(self.seq, payloads, self.live, before, dict(self.watermarks), failed)
        partition = self.partitions[number]
        fired = partition.advance(self.seq, payloads, self.live, before, dict(self.watermarks), self.states[number])
        self.failures |= partition.failures
        links: dict[str, str] = {}
        for block in fired:
            entry = block.write(self.storage, self.seq, links)
            path = entry["path"]
            self._add(blocks, path, entry["slots"], entry["counts"])
            for slot, count, windows in zip(entry["slots"], entry["counts"], entry["windows"], strict=True):
                live = self.live.by_slot[slot]
                page = self.reader.rows(Deployed(live), Deployed(live).deployment, [BlockPart(path, count)], 0, count)
                assert len({(row[WINDOW_START], row[WINDOW_END]) for row in page.to_pylist()}) == windows

    @staticmethod
    def _add(blocks: dict[int, list[BlockPart]], path: str, slots: Sequence[int], counts: Sequence[int]) -> None:
        for slot, count in zip(slots, counts, strict=True):
            blocks.setdefault(slot, []).append(BlockPart(path, count))

    def _read(self, live: LiveQuery, parts: list[BlockPart]) -> None:
        total, start, pages = sum(part.count for part in parts), 0, []
        while start < total:
            count = min(total - start, self.rng.choice([1, 2, 7, 1000]))
            page = self.reader.rows(Deployed(live), Deployed(live).deployment, parts, start, count)
            assert len(page) == count
            pages.append(page)
            start += count
        rows: pa.Table = pa.concat_tables(pages)
        self.rows.setdefault(live.id, []).extend(rows.to_pylist())
