"""A source task: reads its share of a batch, and sends partitions the buckets that its tuples make.

A bucket has the partial aggregates of an operator, or indexes of tuples for joins. Rows of selections are written here,
in blocks that partitions only name.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from braid.engine.data_layout import BATCHES
from braid.engine.derived_reading import DerivedRows
from braid.engine.plan_log import PlanLog
from braid.engine.planning.idleness import active_partners
from braid.engine.planning.offsets import Offset, QueryProgress, Span
from braid.engine.planning.recent_times import merged
from braid.engine.stream_intake import StreamIntake
from braid.engine.wire import BLOCK, BUCKET, CONTROL, WireRow
from braid.operators import kernels
from braid.operators.derived import queries_behind
from braid.operators.live_queries import LiveQueries
from braid.operators.lookup.lookup_join import IndexedTables, LookupFailed
from braid.operators.operator import ChunkOutput
from braid.operators.report import Work, draw_sample, is_report_due
from braid.operators.state.batch_combiner import BatchCombiner
from braid.operators.state.bucket_store import DEAD_LETTERS, StoredTuples, put_block, put_bucket
from braid.operators.state.query_runs import Partials
from braid.operators.state.tuple_bucket import IndexedTuples
from braid.operators.stream_operators import StreamOperators
from braid.sources.connectors.connector import Chunk, Connector
from braid.sources.connectors.registry import open_connector
from braid.sources.core.derived import is_derived
from braid.sources.core.record_log import RecordLog
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage

# About how many tuples are added up at once: the more, the fewer entries the buckets of a batch have. A column of that
# many numbers of 8 bytes is still small enough for Python processes to keep its memory (`KEPT_MEMORY` in
# `spark_conf.py`).
TUPLES_AT_ONCE = 63 << 16
BYTES_AT_ONCE = 1 << 28


class SourceTasks:
    """What a worker process keeps between batches: the plan, open connectors, compiled operators.

    ``partitions`` are those of the state, one for each key group, in their order.
    """

    def __init__(self, storage: Storage, plan: PlanLog, partitions: list[int]) -> None:
        self._storage = storage
        self._plan = plan
        self._partitions = partitions
        self._batches = RecordLog(storage, BATCHES)
        self._connectors: dict[str, Connector] = {}
        self._operators: dict[str, tuple[object, dict[str, StreamOperators]]] = {}
        self._tables = IndexedTables(storage)
        self._derived = DerivedRows(storage)
        self._work = Work()
        kernels.warm_up()

    def run(self, start: Offset, end: Offset, task: int, tasks: int) -> Iterator[WireRow]:
        """Yield the rows of task ``task`` of ``tasks`` of the batch from ``start`` to ``end``.

        A batch that is published already has none: it runs again only for Spark to take note of it.
        """
        if self._batches.has(end.seq):
            return
        started_us, began = time.time_ns() // 1000, time.perf_counter()
        live = self._plan.at(start, end)
        self._forget_dropped(live)
        intakes: dict[str, StreamIntake] = {}
        combiners: dict[str, BatchCombiner] = {}
        samples = _Samples(end.seq) if is_report_due(start.planned_us, end.planned_us) else None
        for intake, span in self._spans(live, end, task, tasks):
            if samples is not None:
                samples.next_span()
            readers = self._readers_of(intake, intakes, live, end)
            for tuples in _gathered(map(intake.admit, self._read(intake, span)), *_chunk_shape(readers, span)):
                for reader, of_reader in readers:
                    admitted = tuples if reader is intake else reader.admit_again(tuples)
                    for operators in of_reader:
                        combiner = combiners.setdefault(reader.stream.id, BatchCombiner())
                        yield from self._process(reader, operators, admitted, combiner, end.seq, task, samples)
            for reader, _ in readers:
                reader.unread = intake.unread
        if task == 0:
            self._pass_over(intakes, live, end)
        for stream, combiner in combiners.items():
            yield from self._buckets(intakes[stream], combiner.release(), end.seq, task)
        for intake in intakes.values():
            yield from self._dead_letters(intake, end.seq, task)
        control = {
            "task": task,
            "started_us": started_us,
            "busy_us": int((time.perf_counter() - began) * 1e6),
            **_control(live, start, end, intakes),
            "report": None if samples is None else {**self._work.tell(), "samples": samples.by_input},
        }
        body = orjson.dumps(control).decode()
        for partition in self._partitions:
            yield WireRow(partition, CONTROL, body)

    def _readers_of(
        self, intake: StreamIntake, intakes: dict[str, StreamIntake], live: LiveQueries, end: Offset
    ) -> list[_Reader]:
        """Return who reads what a stream's ``intake`` admits: itself, and the replays that have joined it; note them.

        ``intakes`` has those of the batch, by stream.
        """
        readers = [(intake, self._operators_of(intake.stream, live))]
        for replay in (live.streams[stream] for stream, origin in end.joined.items() if origin == intake.stream.id):
            replayed = intakes.get(replay.id) or self._intake_of(replay, end)
            readers.append((replayed, self._operators_of(replay, live)))
        intakes |= {reader.stream.id: reader for reader, _ in readers}
        return readers

    def _forget_dropped(self, live: LiveQueries) -> None:
        """Let go of the connectors of streams that are gone: a Kafka consumer would go on fetching."""
        for stream in self._connectors.keys() - live.streams.keys():
            del self._connectors[stream]

    def _spans(self, live: LiveQueries, end: Offset, task: int, tasks: int) -> Iterator[tuple[StreamIntake, Span]]:
        """Yield the spans that this task reads, with its intake of their stream."""
        intakes: dict[str, StreamIntake] = {}
        for whole_span in end.spans:
            stream, span = live.streams.get(whole_span.stream), whole_span.share(task, tasks)
            if stream is None or span.start == span.end:
                continue
            intake = intakes.setdefault(stream.id, self._intake_of(stream, end))
            for readable in span.without(end.passed_over):
                yield intake, readable

    def _intake_of(self, stream: StreamDefinition, end: Offset) -> StreamIntake:
        return StreamIntake(stream, end.watermarks.get(stream.id), end.planned_us)

    def _pass_over(self, intakes: dict[str, StreamIntake], live: LiveQueries, end: Offset) -> None:
        """Make dead letters of rows that were found to end each batch that reads them; one task does so for all."""
        for passed_over in end.passed_over:
            stream = live.streams.get(passed_over.stream)
            if stream is not None:
                intakes.setdefault(stream.id, self._intake_of(stream, end)).pass_over(passed_over)

    def _read(self, intake: StreamIntake, span: Span) -> Iterator[Chunk]:
        """Yield the chunks of a span; an error of the connector ends the stream's part in the batch."""
        if intake.unread is not None:
            return
        try:
            connector = self._connector_of(intake.stream)
            yield from connector.read(span.partition, span.start, span.end)
        except Exception as problem:
            intake.unread = str(problem) or type(problem).__name__
            self._connectors.pop(intake.stream.id, None)

    def _connector_of(self, stream: StreamDefinition) -> Connector:
        if is_derived(stream.id):
            return self._derived.open(stream)
        if stream.id not in self._connectors:
            self._connectors[stream.id] = open_connector(stream, self._storage)
        return self._connectors[stream.id]

    def _operators_of(self, stream: StreamDefinition, live: LiveQueries) -> Collection[StreamOperators]:
        """Return the operators of each input that queries have of a stream."""
        version, by_input = self._operators.get(stream.id, (None, {}))
        if version != live.version:
            by_input = {
                name: StreamOperators(live, stream, len(self._partitions), by_input.get(name), name, lookups)
                for name, lookups in live.inputs(stream.id).items()
            }
            existing = {stream_id: inputs for stream_id, inputs in self._operators.items() if stream_id in live.streams}
            self._operators = {**existing, stream.id: (live.version, by_input)}
            self._tables.keep(
                lookup
                for _, inputs in self._operators.values()
                for operators in inputs.values()
                for lookup in operators.lookup_join.lookups
            )
        return by_input.values()

    def _process(
        self,
        intake: StreamIntake,
        operators: StreamOperators,
        tuples: pa.Table,
        combiner: BatchCombiner,
        seq: int,
        task: int,
        samples: _Samples | None,
    ) -> Iterator[WireRow]:
        for batch in self._looked_up(intake, operators, tuples):
            if samples is not None:
                samples.take(operators, batch)
            output = operators.process(batch, intake.watermark, self._work)
            yield from self._results(intake, output, combiner, seq, task)

    def _looked_up(
        self, intake: StreamIntake, operators: StreamOperators, tuples: pa.Table
    ) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield tuples after lookups; where these cannot be carried out, the queries that have them fail."""
        dropped: set[str] = set()
        try:
            yield from operators.lookup_join.batches(tuples, self._tables, dropped)
        except (LookupFailed, pa.ArrowException, OSError, MemoryError) as problem:
            message = f"A static table or UNNEST could not be joined: {problem or type(problem).__name__}"
            intake.failures.update(dict.fromkeys(operators.queries, message))
        if dropped:
            named = ", ".join(sorted(dropped))
            message = f"UNNEST would make too many bytes of one batch: {named} beside so many elements. Leave that out."
            intake.failures.update(dict.fromkeys(operators.queries_reading(dropped), message))

    def _results(
        self, intake: StreamIntake, output: ChunkOutput, combiner: BatchCombiner, seq: int, task: int
    ) -> Iterator[WireRow]:
        intake.failures.update(output.failures)
        for block in output.blocks:
            yield self._block(block.write(self._storage, seq, {}), task)
        for key_group, bucket in output.buckets:
            yield from self._buckets(intake, combiner.take(key_group, bucket), seq, task)
        if output.indexed is not None:
            yield from self._indexed(intake, output.indexed, seq, task)

    def _indexed(self, intake: StreamIntake, indexed: IndexedTuples, seq: int, task: int) -> Iterator[WireRow]:
        """Write tuples once, and their indexes for each partition."""
        stored = StoredTuples(self._storage, seq, indexed.table, indexed.partitions)
        for key_group, path in stored.paths.items():
            yield self._bucket(intake, key_group, path, b"", task)
        for key_group, index in indexed.indexes:
            with self._work.timed(index.operator):
                path, payload = stored.put_index(key_group, index)
            yield self._bucket(intake, key_group, path, payload, task)

    def _buckets(
        self, intake: StreamIntake, buckets: Iterable[tuple[int, Partials]], seq: int, task: int
    ) -> Iterator[WireRow]:
        for key_group, bucket in buckets:
            with self._work.timed(bucket.operator):
                path, payload = put_bucket(self._storage, seq, bucket)
            yield self._bucket(intake, key_group, path, payload, task)

    def _bucket(self, intake: StreamIntake, key_group: int, path: str, payload: bytes, task: int) -> WireRow:
        origin = {"task": task, "number": intake.next_bucket()}
        body = orjson.dumps({"path": path, "stream": intake.stream.id, **origin}).decode()
        return WireRow(self._partitions[key_group], BUCKET, body, payload)

    def _dead_letters(self, intake: StreamIntake, seq: int, task: int) -> Iterator[WireRow]:
        if intake.dead_letters:
            table = pa.concat_tables(intake.dead_letters)
            path = put_block(self._storage, DEAD_LETTERS, seq, table)
            entry = {"dead_letters": True, "stream": intake.stream.id, "path": path, "rows": table.num_rows}
            yield self._block(entry, task)

    def _block(self, entry: dict[str, Any], task: int) -> WireRow:
        body = orjson.dumps({"task": task, **entry}).decode()
        return WireRow(self._partitions[task % len(self._partitions)], BLOCK, body)


_Reader = tuple[StreamIntake, Collection[StreamOperators]]


def _chunk_shape(readers: Sequence[_Reader], span: Span) -> tuple[list[str], int]:
    """Return which columns readers need of a span, and how many tuples they take at a time."""
    inputs = [operators for _, of_reader in readers for operators in of_reader]
    needed = {name for operators in inputs for name in operators.lookup_join.reads} | _read_again(readers)
    names = [name for name in readers[0][0].stream.schema.names if name in needed]
    widest = max((operators.width for operators in inputs), default=0)
    return names, even_share(span.end - span.start, min(TUPLES_AT_ONCE, BYTES_AT_ONCE // max(1, widest)))


def _control(live: LiveQueries, start: Offset, end: Offset, intakes: Mapping[str, StreamIntake]) -> dict[str, Any]:
    """Return what a task sends every partition: the offsets, and what it read; its report is added later."""
    return {
        "start": start.to_json(),
        "end": end.to_json(),
        "lateness": {s.id: None if is_derived(s.id) else s.schema.lateness_us for s in live.streams.values()},
        "derived": _derived(live, end),
        "follows": {**active_partners(live, end.idle), **{stream: [origin] for stream, origin in end.joined.items()}},
        "percentiles": {s.id: p for s in live.streams.values() if (p := s.watermark.percentile) is not None},
        "event_times": {s: merged(intake.event_times) for s, intake in intakes.items() if intake.event_times},
        "streams": {intake.stream.id: intake.counts for intake in intakes.values()},
        "unread": {intake.stream.id: intake.unread for intake in intakes.values() if intake.unread is not None},
        "failures": {query: why for intake in intakes.values() for query, why in intake.failures.items()},
    }


def _derived(live: LiveQueries, end: Offset) -> dict[str, Any]:
    """Return of each query behind a derived stream where its rows of the batch are: slot, and number of the first."""
    sources = {each.id for stream in live.streams.values() if is_derived(stream.id) for each in queries_behind(stream)}
    if not sources:
        return {}
    running = {query.id: query for query in live.by_slot.values() if query.id in sources}
    return {
        query: {
            "slot": running[query].slot if query in running else None,
            "active_from": dict(running[query].active_from) if query in running else {},
            "first": end.derived.get(query, QueryProgress()).rows,
        }
        for query in sorted(sources)
    }


class _Samples:
    """Samples of the tuples of each input, after lookups: of the first chunk of each span."""

    def __init__(self, seed: int) -> None:
        self.by_input: dict[str, list[str]] = {}
        self._seed = seed
        self._sampled: set[str] = set()

    def next_span(self) -> None:
        """Begin with another partition or stream."""
        self._sampled = set()

    def take(self, operators: StreamOperators, tuples: pa.RecordBatch | pa.Table) -> None:
        """Draw a sample of what predicates test and joins compare, unless there is one of this span."""
        if tuples.num_rows and operators.name not in self._sampled and operators.sampled:
            self._sampled.add(operators.name)
            sample = draw_sample(tuples, operators.sampled, self._seed)
            self.by_input.setdefault(operators.name, []).append(sample)


def _read_again(readers: Sequence[_Reader]) -> set[str]:
    """Return the columns by which replays decide which tuples are late, that their origin, the first reader, admitted.

    That is the event time, and all columns where tuples may be late for them alone.
    """
    (origin, _), *replays = readers
    if not replays:
        return set()
    schema = origin.stream.schema
    is_alike = all(replay.watermark == origin.watermark for replay, _ in replays)
    return {schema.event_time} if is_alike else set(schema.names)


def even_share(total: int, target: int) -> int:
    """Return how many each part has when a total is split evenly into parts of about ``target``."""
    return -(-total // max(1, round(total / target)))


def _gathered(batches: Iterable[pa.RecordBatch], names: Sequence[str], at_once: int) -> Iterator[pa.Table]:
    """Put small batches together, so that about ``at_once`` tuples are added up at once; only of the columns ``names``.

    Parts are even: queries of a small last one would have their tuples listed in buckets rather than added up.
    """
    pending: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        pending.append(batch.select(names))
        rows += batch.num_rows
        nbytes += pending[-1].nbytes
        if rows >= at_once or nbytes >= BYTES_AT_ONCE:
            yield pa.Table.from_batches(pending)
            pending, rows, nbytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(pending)
