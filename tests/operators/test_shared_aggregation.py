"""Shared selection and aggregation against a plain recomputation, query by query, without Spark.

Random tuples in random batches pass through the kernels just as in the job: predicate index, slices, buckets,
partitions, firing. Each query's rows must be those of a loop over the tuples that it sees.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators import partition
from braid.operators import tuples as tuples_module
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.predicates import space_key
from braid.operators.queries import Aggregation, Query, Selection
from braid.operators.query_parts import Measure, Output
from braid.operators.state import dense_totals, entries, merging
from braid.operators.windows import SessionWindow, Window
from braid.sources.core.schema import BIGINT, BOOLEAN, DOUBLE, ColumnType
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.operators.pipeline import MEASURES, STREAM, K, Pipeline, Row, S, T, V, aggregation, changelog, compare

TENTHS = ColumnType("DECIMAL", 2, 1)


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


def random_query(rng: random.Random) -> Query:
    return random_shared_query(rng).set_apart(rng.choice(["", "", "", "one", "other"]))


def random_shared_query(rng: random.Random) -> Query:
    where = random_where(rng)
    if rng.random() < 0.3:
        return Selection(STREAM.id, where, (Output("v", V), Output("t", T)))
    keys = rng.choice([(), (K,), (S, K)])
    distinct = tuple(Measure("count_distinct", column) for column in rng.sample([K, V, S], rng.choice([0, 0, 1, 2])))
    slide = rng.randint(3, 25)
    window = Window(rng.choice([slide, rng.randint(3, 40)]), slide, rng.randint(-5, 5))
    measures = [m for m in MEASURES if m.function not in ("min", "max")] if rng.random() < 0.5 else MEASURES
    query = aggregation(where, keys, window, (*measures, *distinct))
    return replace(query, window=SessionWindow(rng.randint(1, 20))) if rng.random() < 0.3 else query


def random_tuples(rng: random.Random, time: int) -> tuple[list[Row], int]:
    """Return a batch of tuples from ``time`` on, and the time that was reached."""
    tuples: list[Row] = []
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
    return tuples, time


def holds(where: Expression | None, row: Row) -> Any:
    """Evaluate a predicate on one tuple, with three-valued logic."""
    if where is None:
        return True
    if isinstance(where, Column):
        return row[where.name]
    if isinstance(where, Literal):
        return where.value
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
    order = (left > right) - (left < right)
    return order in {"=": (0,), "<>": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[where.function]


@dataclass
class Lifetime:
    """What the contract needs to know of a query; times None mean that the stream had no tuple yet.

    ``last_batch`` and ``last_watermark`` are of the batch before the one in which a query left without draining.
    """

    query: Query
    slot: int
    active_from: int | None
    deleted: bool = False
    active_to: int | None = None
    freed: bool = False
    last_batch: int | None = None
    last_watermark: int | None = None

    def sees(self, time: int, batch: int) -> bool:
        """Whether the query sees a tuple with this event time that was read in this batch."""
        if self.last_batch is not None and batch > self.last_batch:
            return False
        if self.deleted and (self.active_to is None or time > self.active_to):
            return False
        return self.active_from is None or time > self.active_from

    def emits(self, end: int, watermark: int | None) -> bool:
        """Whether a window that ends at ``end`` was due while the query ran."""
        reached = watermark if self.last_batch is None else self.last_watermark
        if reached is None or end > reached:
            return False
        return not self.deleted or (self.active_to is not None and end <= self.active_to)


class Session:
    """Creates, deletes and frees queries at random, and gives freed slots again."""

    def __init__(self, rng: random.Random, pipeline: Pipeline) -> None:
        self.rng = rng
        self.pipeline = pipeline
        self.epoch = 0
        self.slots = 0
        self.free: list[int] = []
        self.lifetimes: dict[str, Lifetime] = {}

    def changelogs(self) -> list[dict[str, Any]]:
        """Return the changelogs that become active in the next batch."""
        drained = [name for name, life in self.lifetimes.items() if self._has_drained(life)]
        return [self._cut(drained if i == 0 else []) for i in range(self.rng.choice([0, 1, 1, 1, 2, 3]))]

    def _has_drained(self, life: Lifetime) -> bool:
        if not life.deleted or life.freed:
            return False
        if life.active_to is None or life.active_to == life.active_from:
            return True
        reached = self.pipeline.watermark
        if reached is None:
            return False
        return reached > life.active_to if isinstance(life.query, Selection) else reached >= life.active_to

    def _cut(self, drained: list[str]) -> dict[str, Any]:
        self.epoch += 1
        created, deleted = [], []
        freed = [(name, self.lifetimes[name].slot) for name in drained]
        for name, life in self.lifetimes.items():
            if life.freed or name in drained or self.rng.random() > 0.25:
                continue
            undrained = self.rng.random() < 0.3
            if not life.deleted:
                deleted.append((name, life.slot))
                life.deleted, life.active_to = True, self.pipeline.clock
            elif not undrained:
                continue
            if undrained:
                freed.append((name, life.slot))
                life.last_batch, life.last_watermark = self.pipeline.seq, self.pipeline.watermark
        for name, slot in freed:
            self.lifetimes[name].freed = True
            self.free.append(slot)
        for _ in range(self.rng.randint(0, 5)):
            slot = self.free.pop() if self.free else self.slots
            self.slots += slot == self.slots
            name = f"q{len(self.lifetimes)}"
            self.lifetimes[name] = Lifetime(random_query(self.rng), slot, self.pipeline.clock)
            created.append((name, slot, self.lifetimes[name].query))
        running = [(name, life.slot) for name, life in self.lifetimes.items() if not life.freed]
        groups = [(*query, self.rng.randrange(3)) for query in running if self.rng.random() < 0.3]
        return changelog(self.epoch, created, deleted, freed, capacity=self.slots, regrouped=groups)


def expected_rows(life: Lifetime, seen: list[tuple[Row, int]], watermark: int | None) -> list[tuple[Any, ...]]:
    """Recompute a query from the tuples and the batches in which they were read."""
    query = life.query
    mine = [r for r, batch in seen if life.sees(r["t"], batch) and holds(query.where, r)]
    if isinstance(query, Selection):
        return [(r["t"], r["v"]) for r in mine]
    window = query.window
    if isinstance(window, SessionWindow):
        return [row for row in sessions(query, window.gap_us, mine) if life.emits(row[1], watermark)]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for r in mine:
        number = (r["t"] - window.offset_us) // window.slide_us
        while (start := number * window.slide_us + window.offset_us) + window.size_us > r["t"]:
            groups.setdefault((start, tuple(r[str(key)] for key in query.keys)), []).append(r)
            number -= 1
    return [
        (start, start + window.size_us, keys, *aggregates(members, query.measures))
        for (start, keys), members in groups.items()
        if life.emits(start + window.size_us, watermark)
    ]


def sessions(query: Aggregation, gap: int, mine: list[Row]) -> list[tuple[Any, ...]]:
    """Return the rows of all sessions of some tuples."""
    rows = []
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for r in mine:
        by_key.setdefault(tuple(r[str(key)] for key in query.keys), []).append(r)
    for keys, members in by_key.items():
        members.sort(key=lambda r: int(r["t"]))
        begin = 0
        for i, r in enumerate(members):
            if i + 1 == len(members) or members[i + 1]["t"] - r["t"] >= gap:
                inside = members[begin : i + 1]
                rows.append((inside[0]["t"], r["t"] + gap, keys, *aggregates(inside, query.measures)))
                begin = i + 1
    return rows


def aggregates(members: list[Row], measures: Sequence[Measure]) -> tuple[Any, ...]:
    """Return what measures are of some tuples."""
    found: list[Any] = []
    for measure in measures:
        values = [m[str(measure.argument)] for m in members] if measure.argument is not None else members
        known = [value for value in values if value is not None]
        match measure.function:
            case "count":
                found.append(len(known))
            case "sum":
                found.append(sum(known) if known else None)
            case "min":
                found.append(min(known, default=None))
            case "max":
                found.append(max(known, default=None))
            case "count_distinct":
                found.append(len(set(known)))
    return tuple(found)


def test_constants_that_read_alike_are_told_apart_by_their_types(tmp_path: Path) -> None:
    def chosen(kind: ColumnType, *values: Any) -> Expression:
        return Call("case", (compare(K, "=", 0), *(Literal(value, kind) for value in values)), kind)

    arguments = [chosen(TENTHS, Decimal("1.5"), Decimal("2.5")), chosen(DOUBLE, 1.5, 2.5), Literal(2.5, DOUBLE)]
    arguments += [Literal(Decimal("2.5"), TENTHS), chosen(BIGINT, 1, 2), chosen(TENTHS, Decimal(1), Decimal(2))]
    for digits in (9, 18, 38):  # sums have so many limbs, and extremes are ranks or not
        arguments.append(
            Call("-", (Call("cast", (K,), TENTHS), Literal(Decimal(3), TENTHS)), ColumnType("DECIMAL", digits, 1))
        )
    measures = [(Measure("sum", each), Measure("max", each)) for each in arguments]
    pipeline = Pipeline(Storage(str(tmp_path)))
    created = [(f"q{n}", n, aggregation(keys=(), measures=mine)) for n, mine in enumerate(measures)]
    tuples = [{"k": k, "v": 0, "s": "a", "t": k} for k in range(2)]
    pipeline.run(tuples, [changelog(1, created, streams=[STREAM])])
    pipeline.run([{"k": 0, "v": 0, "s": "end", "t": 1000}])
    rows = [pipeline.rows[name][0][-2:] for name, _, _ in created]
    assert rows == [(4, 2.5), (4, 2.5), (5, 2.5), (5, 2.5), (3, 2), (3, 2), *[(-5, -2)] * 3]


@settings(max_examples=examples(10), deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32))
def test_every_query_gets_its_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    pipeline = Pipeline(Storage(str(tmp_path_factory.mktemp("data"))), rng=rng)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(tuples_module, "_MIN_CHUNK", rng.choice([0, 1 << 13]))
    for module in (dense_totals, merging):
        monkeypatch.setattr(module, "FULL", rng.choice([-1.0, 0.5, 2.0]))
    monkeypatch.setattr(partition, "MAX_ENTRIES", rng.choice([0, 2, 64]))
    monkeypatch.setattr(space_key, "MAX_BOUNDARIES", rng.choice([1, 64]))
    if rng.random() < 0.3:  # a list of the tuples, however few addresses there are
        monkeypatch.setattr(entries, "_ALWAYS_DENSE", 0)
        monkeypatch.setattr(entries, "_MIN_GROUP", math.inf)
    session = Session(rng, pipeline)
    seen: list[tuple[Row, int]] = []
    time = 0
    for _ in range(rng.randint(3, 14)):
        changelogs = session.changelogs()
        tuples, time = random_tuples(rng, time)
        seen += [(r, pipeline.seq) for r in pipeline.run(tuples, changelogs)]
    last: list[Row] = [{"k": 0, "v": 0, "s": "end", "t": time + 10_000}]
    seen += [(r, pipeline.seq) for r in pipeline.run(last)]
    for name, life in session.lifetimes.items():
        expected = expected_rows(life, seen, pipeline.watermark)
        assert sorted(map(repr, pipeline.rows.get(name, []))) == sorted(map(repr, expected)), (seed, name, life)
    assert all(len(state.data) <= 2 for state in pipeline.states), "entries outlive every window"
    monkeypatch.undo()
