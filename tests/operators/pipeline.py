"""The data plane in one process, without Spark: what the tests of operators share.

Tuples pass through source operators, partitions and firing just as in the job; a dictionary stands for the files of
partitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from braid.engine.planning.offsets import advance_watermark
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.joins.query import Join
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.partition import Partition
from braid.operators.predicates import query_set
from braid.operators.predicates.analysis import Predicate, analyse
from braid.operators.queries import Aggregation, Query, Selection
from braid.operators.query_parts import AGGREGATION, COUNT_ALL, OP, PTIME, SELECTION, VER, Measure, Output
from braid.operators.selection.source import Selected
from braid.operators.state.batch_combiner import BatchCombiner
from braid.operators.state.bucket_store import put_bucket
from braid.operators.state.partition_state import Payload
from braid.operators.state.query_runs import Partials
from braid.operators.stream_operators import StreamOperators
from braid.operators.windowing.fired_block import FiredBlock
from braid.operators.windowing.window_rows import SLOT
from braid.operators.windows import EMIT_AFTER_WATERMARK, Emit, SessionWindow, Window
from braid.sources.core.schema import BIGINT, BOOLEAN, INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage

SCHEMA = StreamSchema((Field("k", INT), Field("v", BIGINT), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", 15)
STREAM = StreamDefinition("s-1", "s", SCHEMA, "push", "json")
K, V, S, T = Column("k", INT), Column("v", BIGINT), Column("s", VARCHAR), Column("t", TIMESTAMP)
MEASURES = (COUNT_ALL, Measure("sum", V), Measure("min", V), Measure("max", S), Measure("count", S))

Row = Mapping[str, Any]


def compare(column: Column, operator: str, value: Any) -> Expression:
    """Return ``column operator literal``."""
    return Call(operator, (column, Literal(value, column.type)), BOOLEAN)


def aggregation(
    where: Expression | None = None,
    keys: Sequence[Expression] = (K,),
    window: Window | None = None,
    measures: Sequence[Measure] = MEASURES,
    having: Expression | None = None,
    emit: Emit = EMIT_AFTER_WATERMARK,
    shown: Sequence[Measure] = (),
) -> Aggregation:
    """Return an aggregation of ``STREAM``; tumbling windows of 10 µs when none are given.

    The rows are compared by all measures, or by those that are ``shown``.
    """
    outputs = tuple(Output(measure.name, Column(measure.name, measure.type)) for measure in shown)
    window = window or Window(10, 10)
    return Aggregation(STREAM.id, window, where, tuple(keys), tuple(measures), outputs, having, emit)


def operator_of(query: Query) -> str:
    """Return the operator that shares the query, by a short name."""
    assert not isinstance(query, Join)
    apart = f" of {query.apart}" if query.apart else ""
    if isinstance(query, Selection):
        return f"selection{apart}"
    kind = "sessions" if isinstance(query.window, SessionWindow) else ""
    return kind + ",".join(str(k) for k in query.keys) + apart


def is_alone(_slot: int) -> bool:
    """Return whether the aggregation in a slot shares no cells; the fixture ``some_alone`` says others."""
    return False


def changelog(
    epoch: int,
    created: Iterable[tuple[str, int, Query]] = (),
    deleted: Iterable[tuple[str, int]] = (),
    freed: Iterable[tuple[str, int]] = (),
    capacity: int = 64,
    streams: Sequence[StreamDefinition] = (),
    dropped: Sequence[str] = (),
    regrouped: Iterable[tuple[str, int, int]] = (),
) -> dict[str, Any]:
    """Return the record of a changelog; queries are (id, slot, query), regrouped ones (id, slot, group)."""
    gone = list(freed)
    ids = {name for name, _ in gone}
    return {
        "epoch": epoch,
        "created": [
            {
                "id": name,
                "slot": slot,
                "operator": operator_of(query),
                "query": query.to_json(),
                "is_alone": query.kind == AGGREGATION and is_alone(slot),
            }
            for name, slot, query in created
        ],
        "deleted": [{"id": name, "slot": slot, "drain": name not in ids} for name, slot in deleted],
        "freed": [{"id": name, "slot": slot} for name, slot in gone],
        "regrouped": [{"id": name, "slot": slot, "group": group} for name, slot, group in regrouped],
        "streams_created": [s.to_json() for s in streams],
        "streams_dropped": list(dropped),
        "capacity": capacity,
    }


def live_of(*queries: Query, stream: StreamDefinition = STREAM, clock: int | None = None) -> LiveQueries:
    """Return live queries q0, q1, … in slots 0, 1, … created in epoch 1 when the clock stood at ``clock``."""
    live = LiveQueries()
    created = [(f"q{i}", i, query) for i, query in enumerate(queries)]
    live.apply(changelog(1, created, capacity=len(queries), streams=[stream]), {stream.id: clock})
    return live


def predicate_of(query: LiveQuery) -> Predicate:
    """Return the predicate of a query, analysed."""
    return analyse(query.query.where)


def batch_of(rows: Sequence[Row], schema: StreamSchema = SCHEMA) -> pa.RecordBatch:
    """Return rows as a batch of the stream; event times may be whole microseconds."""
    arrays = []
    for f in schema.fields:
        values = [row.get(f.name) for row in rows]
        if f.type == TIMESTAMP and all(isinstance(v, int) for v in values):
            arrays.append(pa.array(values, pa.int64()).view(f.type.arrow))
        else:
            arrays.append(pa.array(values, f.type.arrow))
    return pa.record_batch(arrays, schema=schema.arrow)


def microseconds(value: Any) -> int:
    """Return a naive UTC datetime as microseconds since 1970."""
    return int(np.datetime64(value, "us").astype(np.int64))


@dataclass
class MemoryState:
    """A partition's durable state, kept in a dictionary."""

    data: dict[str | int, bytes] = field(default_factory=dict)

    def head(self) -> bytes | None:
        """Return the head, None for a new partition."""
        return self.data.get("head")

    def set_head(self, head: bytes) -> None:
        """Replace the head."""
        self.data["head"] = head

    def entry(self, seq: int) -> bytes:
        """Return an entry; KeyError when it was dropped."""
        return self.data[seq]

    def put_entry(self, seq: int, entry: bytes) -> None:
        """Store an entry."""
        self.data[seq] = entry

    def drop_entry(self, seq: int) -> None:
        """Remove an entry; KeyError when there is none."""
        del self.data[seq]

    def copy(self) -> MemoryState:
        """Return the state as a failed attempt found it."""
        return MemoryState(dict(self.data))


class Pipeline:
    """Source operators, two partitions, and the rows that come out.

    ``clock`` and ``watermark`` are those at the start of the next batch, ``rows`` what each query got so far. Rows of a
    changelog end with operation, processing time and version.
    With ``rng``, partitions move to other workers and batches are run twice from the same state, as after a failed
    attempt.
    """

    def __init__(self, storage: Storage, stream: StreamDefinition = STREAM, rng: random.Random | None = None) -> None:
        self.storage = storage
        self.stream = stream
        self.rng = rng
        self.live = LiveQueries()
        self.live.streams[stream.id] = stream
        self.partitions = [Partition(storage), Partition(storage)]
        self.states = [MemoryState(), MemoryState()]
        self.clock: int | None = None
        self.watermark: int | None = None
        self.seq = 0
        self.now_us = 0
        self.rows: dict[str, list[tuple[Any, ...]]] = {}

    def run(self, tuples: Sequence[Row], changelogs: Sequence[dict[str, Any]] = (), now_us: int = 0) -> list[Row]:
        """Run a batch at a processing time; return the tuples that are not late."""
        self.seq += 1
        self.now_us = now_us
        for record in changelogs:
            self.live.apply(record, {self.stream.id: self.clock})
        time = self.stream.schema.event_time
        seen = [r for r in tuples if self.watermark is None or r[time] >= self.watermark]
        payloads: list[list[Payload]] = [[], []]
        half = len(seen) // 2
        for part in (seen[:half], seen[half:]):
            held = BatchCombiner()
            for name in self.live.inputs(self.stream.id):
                operators = StreamOperators(self.live, self.stream, 2, name=name)
                output = operators.process(self._in_chunks(batch_of(part, self.stream.schema)), self.watermark)
                assert not output.failures
                for selected in output.blocks:
                    assert isinstance(selected, Selected)
                    self._take_selected(name, selected.columns, selected.query_sets)
                for group, bucket in output.buckets:
                    self._send(payloads, held.take(group, bucket))
            self._send(payloads, held.release())
        latest = [r[time] for r in tuples] + ([] if self.clock is None else [self.clock])
        self.clock = max(latest, default=None)
        before, self.watermark = (
            self.watermark,
            advance_watermark(self.watermark, self.clock, self.stream.schema.lateness_us),
        )
        for partition in range(2):
            self._advance(partition, payloads[partition], before)
        return seen

    def _in_chunks(self, tuples: pa.RecordBatch) -> pa.Table:
        middle = 0 if self.rng is None else self.rng.randint(0, tuples.num_rows)
        return pa.Table.from_batches([tuples.slice(0, middle), tuples.slice(middle)])

    def _send(self, payloads: list[list[Payload]], buckets: Iterable[tuple[int, Partials]]) -> None:
        for group, bucket in buckets:
            payloads[group].append(Payload(*put_bucket(self.storage, self.seq, bucket)))

    def _advance(self, partition: int, payloads: list[Payload], before: int | None) -> None:
        around = {self.stream.id: before}, {self.stream.id: self.watermark}
        if self.rng is not None:
            self.rng.shuffle(payloads)
            if self.rng.random() < 0.2:  # another worker takes over: its cache is empty
                self.partitions[partition] = Partition(self.storage)
            if self.rng.random() < 0.2:  # an attempt fails at its end: the state is as before, the cache is not
                failed = self.states[partition].copy()
                self.partitions[partition].advance(self.seq, payloads, self.live, *around, failed, self.now_us)
        state = self.states[partition]
        for block in self.partitions[partition].advance(self.seq, payloads, self.live, *around, state, self.now_us):
            assert isinstance(block, FiredBlock)
            self._take_fired(block.fired.table)

    def _take_selected(self, wanted: str, columns: pa.Table, query_sets: query_set.QuerySets) -> None:
        names = columns.column_names
        for live in self.live.over(wanted, SELECTION):
            mine = columns.filter(pa.array(query_set.unpack(query_sets, np.array([live.slot]))[:, 0])).to_pylist()
            self.rows.setdefault(live.id, []).extend(
                tuple(microseconds(r[n]) if n == self.stream.schema.event_time else r[n] for n in names) for r in mine
            )

    def _take_fired(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            live: LiveQuery = self.live.by_slot[row[SLOT]]
            assert isinstance(live.query, Aggregation)
            times = microseconds(row["window_start"]), microseconds(row["window_end"])
            keys = tuple(row[f"key{i}"] for i in range(len(live.query.keys)))
            names = [m.name for m in live.query.outputs or live.query.measures]
            values = [*times, keys, *(row[name] for name in names)]
            if live.query.emit.stream:
                values += [row[OP], microseconds(row[PTIME]), row[VER]]
            self.rows.setdefault(live.id, []).append(tuple(values))
