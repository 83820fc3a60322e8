"""Shared selection and aggregation against a plain recomputation, query by query, without Spark.

Random tuples in random batches pass through the kernels just as in the job: predicate index, slices, buckets, lanes,
firing. Each query's rows must be those of a loop over the tuples that CONTRACT section 3 says it sees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operators import query_set
from operators.bucket_store import put_bucket
from operators.expressions import Call, Column, Expression, Literal
from operators.firing import SLOT
from operators.lane import Lane, Payload
from operators.live_queries import LiveQueries
from operators.offsets import advance_waterline
from operators.queries import COUNT_ALL, Aggregation, Measure, Output, Selection, Window
from operators.stream_operators import StreamOperators
from sources.schema import BIGINT, BOOLEAN, INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from sources.storage import Storage

LATENESS = 15
SCHEMA = StreamSchema(
    (Field("k", INT), Field("v", BIGINT), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", LATENESS
)
STREAM = StreamDefinition("s-1", "s", SCHEMA, "push", "json")
K, V, S = Column("k", INT), Column("v", BIGINT), Column("s", VARCHAR)


def compare(column: Column, operator: str, value: Any) -> Expression:
    return Call(operator, (column, Literal(value, column.type)), BOOLEAN)


def random_where(rng: random.Random, depth: int = 2) -> Expression | None:
    roll = rng.random()
    if roll < 0.15:
        return None
    if depth and roll < 0.5:
        parts = [random_where(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        kept = tuple(p for p in parts if p is not None)
        if not kept:
            return None
        if len(kept) > 1:
            return Call(rng.choice(["and", "or"]), kept, BOOLEAN)
        return Call("not", kept, BOOLEAN)
    if roll < 0.58:
        return Call("=", (K, V), BOOLEAN)
    if roll < 0.66:
        return Call("is_null", (rng.choice([K, V, S]),), BOOLEAN)
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    if roll < 0.75:
        return compare(S, operator, rng.choice("abcd"))
    return compare(rng.choice([K, V]), operator, rng.randint(-2, 8))


def holds(where: Expression | None, row: dict[str, Any]) -> bool | None:
    """Evaluate a predicate on one tuple, with three-valued logic."""
    if where is None:
        return True
    if isinstance(where, Column):
        return row[where.name]
    if isinstance(where, Literal):
        return where.value  # type: ignore[return-value]
    values = [holds(a, row) for a in where.arguments]
    match where.function:
        case "and":
            return False if False in values else None if None in values else True
        case "or":
            return True if True in values else None if None in values else False
        case "not":
            return None if values[0] is None else not values[0]
        case "is_null":
            return values[0] is None
    left, right = values
    if left is None or right is None:
        return None
    order = (left > right) - (left < right)  # type: ignore[operator]
    return {
        "=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0,
    }[where.function]


MEASURES = (COUNT_ALL, Measure("sum", V), Measure("min", V), Measure("max", S), Measure("count", S))


def random_query(rng: random.Random) -> Selection | Aggregation:
    where = random_where(rng)
    if rng.random() < 0.3:
        return Selection(STREAM.id, where, (Output("v", V), Output("t", Column("t", TIMESTAMP))))
    slide = rng.randint(3, 25)
    window = Window(rng.choice([slide, rng.randint(3, 40)]), slide, rng.randint(-5, 5))
    keys = rng.choice([(), (K,), (S, K)])
    return Aggregation(STREAM.id, window, where, keys, MEASURES, ())


@dataclass
class Clock:
    """What a batch decides at its start."""

    clock: int | None = None
    waterline: int | None = None


@dataclass
class MemoryState:
    """A lane's durable state, kept in a dictionary."""

    data: dict[str | int, bytes] = field(default_factory=dict)

    def head(self) -> bytes | None:
        return self.data.get("head")

    def set_head(self, head: bytes) -> None:
        self.data["head"] = head

    def entry(self, seq: int) -> bytes:
        return self.data[seq]

    def put_entry(self, seq: int, entry: bytes) -> None:
        self.data[seq] = entry

    def drop_entry(self, seq: int) -> None:
        del self.data[seq]


class Pipeline:
    """The data plane in one process: source operators, two lanes, and the rows that come out."""

    def __init__(self, storage: Storage, rng: random.Random) -> None:
        self.storage = storage
        self.rng = rng
        self.live = LiveQueries()
        self.lanes = [Lane(storage), Lane(storage)]
        self.states = [MemoryState(), MemoryState()]
        self.now = Clock()
        self.seq = 0
        self.rows: dict[str, list[tuple[Any, ...]]] = {}

    def run(self, tuples: list[dict[str, Any]], changelogs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run a batch; return the tuples that are not late."""
        self.seq += 1
        for changelog in changelogs:
            self.live.apply(changelog, {STREAM.id: self.now.clock})
        waterline = self.now.waterline
        seen = [r for r in tuples if waterline is None or r["t"] >= waterline]
        batch = pa.RecordBatch.from_pylist(
            [{**r, "t": r["t"]} for r in seen],
            schema=pa.schema([("k", pa.int32()), ("v", pa.int64()), ("s", pa.string()), ("t", pa.int64())]),
        )
        batch = batch.set_column(3, "t", batch.column(3).view(pa.timestamp("us")))
        payloads: list[list[Payload]] = [[], []]
        half = len(seen) // 2
        for part in (batch.slice(0, half), batch.slice(half)):
            output = StreamOperators(self.live, STREAM, 2).process(part, waterline)
            assert not output.failures
            if output.selected is not None:
                self._take_selected(output.selected.columns, output.selected.query_sets)
            for group, bucket in output.buckets:
                payloads[group].append(Payload(*put_bucket(self.storage, self.seq, bucket)))
        clock = max([r["t"] for r in tuples] + ([] if self.now.clock is None else [self.now.clock]), default=None)
        after = advance_waterline(waterline, clock, LATENESS)
        for lane in range(2):
            if self.rng.random() < 0.2:  # another worker takes over: its cache is empty
                self.lanes[lane] = Lane(self.storage)
            self.rng.shuffle(payloads[lane])
            fired = self.lanes[lane].advance(
                self.seq, payloads[lane], self.live, {STREAM.id: waterline}, {STREAM.id: after}, self.states[lane]
            )
            for _, table in fired.values():
                self._take_fired(table)
        self.now = Clock(clock, after)
        return seen

    def _take_selected(self, columns: pa.Table, query_sets: query_set.Words) -> None:
        for live in self.live.selections(STREAM.id):
            bits = query_set.unpack(query_sets, np.array([live.slot]))[:, 0]
            rows = columns.filter(pa.array(bits)).set_column(0, "t", columns["t"].filter(pa.array(bits)))
            for value, time in zip(
                columns["v"].filter(pa.array(bits)).to_pylist(),
                np.asarray(rows["t"].combine_chunks().view(pa.int64())).tolist(),
                strict=True,
            ):
                self.rows.setdefault(live.id, []).append((value, time))

    def _take_fired(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            live = self.live.by_slot[row[SLOT]]
            assert isinstance(live.query, Aggregation)
            start = int(row["window_start"].timestamp() * 1e6) if False else _us(row["window_start"])
            keys = tuple(row[f"key{i}"] for i in range(len(live.query.keys)))
            self.rows.setdefault(live.id, []).append(
                (start, _us(row["window_end"]), keys, *(row[m.name] for m in MEASURES))
            )


def _us(value: Any) -> int:
    return int(np.datetime64(value, "us").astype(np.int64))


def expected_rows(query: Any, seen: list[tuple[dict[str, Any], int]], clock: Any) -> list[tuple[Any, ...]]:
    """Recompute a query from the tuples it sees; ``clock`` has active_from, active_to and the final waterline."""
    active_from, active_to, waterline = clock
    mine = [
        r
        for r, _ in seen
        if (active_from is None or r["t"] > active_from)
        and (active_to == "running" or (active_to is not None and r["t"] <= active_to))
        and holds(query.where, r)
    ]
    if isinstance(query, Selection):
        return [(r["v"], r["t"]) for r in mine]
    rows = []
    window = query.window
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in mine:
        k = (r["t"] - window.offset_us) // window.slide_us
        while k * window.slide_us + window.offset_us + window.size_us > r["t"]:
            start = k * window.slide_us + window.offset_us
            groups.setdefault((start, tuple(r[c.name] for c in query.keys)), []).append(r)
            k -= 1
    for (start, keys), members in groups.items():
        end = start + window.size_us
        if waterline is None or end > waterline or (active_to != "running" and (active_to is None or end > active_to)):
            continue
        values = [m["v"] for m in members if m["v"] is not None]
        texts = [m["s"] for m in members if m["s"] is not None]
        rows.append(
            (
                start, end, keys, len(members), sum(values) if values else None, min(values, default=None),
                max(texts, default=None), len(texts),
            )
        )
    return rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True)
@given(seed=st.integers(0, 2**32))
def test_every_query_gets_its_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    pipeline = Pipeline(Storage(str(tmp_path_factory.mktemp("data"))), rng)
    pipeline.live.streams[STREAM.id] = STREAM
    running: dict[str, tuple[int, Any]] = {}
    windows: dict[str, list[Any]] = {}
    queries: dict[str, Any] = {}
    seen: list[tuple[dict[str, Any], int]] = []
    free: list[int] = []
    drained: set[str] = set()
    epoch = slots = time = 0
    for _ in range(rng.randint(3, 14)):
        changelogs = []
        if rng.random() < 0.7:
            epoch += 1
            created, deleted, freed = [], [], []
            waterline = pipeline.now.waterline
            for name, (slot, _) in list(running.items()):
                until = windows[name][1]
                if until != "running" and name not in drained and (until is None or (waterline or -99) > until):
                    freed.append({"id": name, "slot": slot})
                    drained.add(name)
                    free.append(slot)
                elif until == "running" and rng.random() < 0.25:
                    deleted.append({"id": name, "slot": slot, "drain": True})
                    windows[name][1] = pipeline.now.clock
            for _ in range(rng.randint(0, 6)):
                name = f"q{len(queries)}"
                queries[name] = random_query(rng)
                slot = free.pop() if free else slots
                slots += slot == slots
                operator = "x" if isinstance(queries[name], Selection) else str([str(k) for k in queries[name].keys])
                created.append(
                    {"id": name, "slot": slot, "operator": operator, "query": queries[name].to_json()}
                )
                running[name] = (slot, epoch)
                windows[name] = [pipeline.now.clock, "running"]
            changelogs.append(
                {
                    "epoch": epoch, "created": created, "deleted": deleted, "freed": freed,
                    "streams_created": [], "streams_dropped": [], "capacity": slots,
                }
            )
        tuples = []
        for _ in range(rng.choice([0, 1, 20, 60])):
            time += rng.choice([0, 0, 1, 1, 2, 30 if rng.random() < 0.05 else 1])
            tuples.append(
                {
                    "k": rng.choice([None, 0, 1, 2]),
                    "v": rng.choice([None, *range(-3, 9)]),
                    "s": rng.choice([None, "a", "b", "c", "é"]),
                    "t": time - rng.choice([0, 0, rng.randint(0, 25)]),
                }
            )
        seen += [(r, pipeline.seq) for r in pipeline.run(tuples, changelogs)]
    pipeline.run([{"k": 0, "v": 0, "s": "end", "t": time + 10_000}], [])
    seen.append(({"k": 0, "v": 0, "s": "end", "t": time + 10_000}, 0))
    for name, query in queries.items():
        expected = expected_rows(query, seen, (*windows[name], pipeline.now.waterline))
        assert sorted(map(repr, pipeline.rows.get(name, []))) == sorted(map(repr, expected)), (seed, name, query)
    assert all(len(state.data) <= 2 for state in pipeline.states), "entries outlive every window"
