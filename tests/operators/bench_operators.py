"""How long the kernels of a source task and of a partition take; `make bench-kernels`, with pytest-benchmark.

The workload is astream-sc1's (thesis 4.4.2): sums by key, a random predicate on one of five fields, windows of one to
five seconds. A chunk is half a second of a million tuples a second, as a source task gets it.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.engine.source_task import TUPLES_AT_ONCE
from braid.operators.aggregation.due import WindowedQueries
from braid.operators.aggregation.firing import fire
from braid.operators.aggregation.shared_aggregation import SharedAggregation, aggregation_of, measures_of
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.joins.cost import JoinCost, join_graph
from braid.operators.joins.idp import idp
from braid.operators.joins.matches import relations
from braid.operators.joins.matches.relations import JoinResult, Relation, TooManyCombinations
from braid.operators.joins.order import block_size
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.lookup.lookup_join import IndexedTables, LookupJoin, version_path
from braid.operators.lookup.lookups import Lookup
from braid.operators.predicates.cell_space import Groups, cell_spaces
from braid.operators.predicates.index import PredicateIndex
from braid.operators.queries import Aggregation
from braid.operators.query_parts import AGGREGATION, Measure
from braid.operators.state.bucket import Bucket
from braid.operators.state.query_runs import read_bucket
from braid.operators.state.sliced_tuples import EncodedMeasures, SlicedTuples
from braid.operators.stream_operators import StreamOperators
from braid.operators.tuples import Tuples
from braid.operators.windowing.slicing import PeriodicEdges, cut_slices
from braid.operators.windows import Window
from braid.optimizer.grouping import Sampled, SampledWorkload, edges_of, group_queries, place_queries
from braid.sources.connectors.static_table import TableDefinition, TableVersion
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    INT,
    TIMESTAMP,
    VARCHAR,
    Field,
    Schema,
    StreamDefinition,
    StreamSchema,
)
from braid.sources.core.storage import Storage
from tests.operators.pipeline import live_of, predicate_of

SECOND = 1_000_000
TUPLES = 500_000
KEYS = 1000
LIMIT = 1000
FIELDS = [f"field{i}" for i in range(5)]
SCHEMA = StreamSchema((Field("key", INT), *(Field(f, INT) for f in FIELDS), Field("time", TIMESTAMP)), "time", 0)
STREAM = StreamDefinition("s-1", "a", SCHEMA, "push", "json")
COUNTS = (1, 20, 100, 1000, 10_000)


def queries(count: int, conditions: int = 1) -> LiveQueries:
    """Return random queries, each with some conditions."""
    rng = random.Random(7)

    def condition() -> Expression:
        arguments = (Column(rng.choice(FIELDS), INT), Literal(rng.randrange(LIMIT), INT))
        return Call(rng.choice(["=", "<", ">", "<=", ">="]), arguments, BOOLEAN)

    def query() -> Aggregation:
        size = rng.randint(1, 5)
        where = [condition() for _ in range(conditions)]
        return Aggregation(
            STREAM.id,
            Window(size * SECOND, rng.randint(1, size) * SECOND),
            where[0] if conditions == 1 else Call("and", tuple(where), BOOLEAN),
            (Column("key", INT),),
            (Measure("sum", Column("field0", INT)),),
            (),
        )

    return live_of(*(query() for _ in range(count)), stream=STREAM)


def chunk(second: float, tuples: int = TUPLES, rate: int = 1_000_000, limit: int = LIMIT) -> pa.RecordBatch:
    """Return so many tuples, of so many a second: half a second of them unless said otherwise; fields below a limit."""
    rng = np.random.default_rng(7)
    times = int(second * SECOND) + np.arange(tuples, dtype=np.int64) * SECOND // rate
    columns = [
        pa.array((np.arange(tuples) % KEYS).astype(np.int32)),
        *(pa.array(rng.integers(0, limit, tuples, dtype=np.int32)) for _ in FIELDS),
        pa.array(times, pa.timestamp("us")),
    ]
    return pa.record_batch(columns, schema=SCHEMA.arrow)


@pytest.mark.parametrize("count", COUNTS)
def test_source_task(benchmark: Any, count: int) -> None:
    """A chunk of tuples becomes buckets, ready to travel."""
    operators, tuples = StreamOperators(queries(count), STREAM, 2), chunk(100)

    def run() -> int:
        return sum(len(bucket.serialize()) for _, bucket in operators.process(tuples, None).buckets)

    assert benchmark(run) > 0


@pytest.mark.parametrize("count", COUNTS)
def test_source_task_under_load(benchmark: Any, count: int) -> None:
    """As many tuples as are added up at once, at 15 M a second, in the chunks that they come in."""
    operators, tuples = StreamOperators(queries(count), STREAM, 2), under_load()

    def run() -> int:
        return sum(len(bucket.serialize()) for _, bucket in operators.process(tuples, None).buckets)

    assert benchmark(run) > 0


def under_load(limit: int = LIMIT) -> pa.Table:
    """Return as many tuples as are added up at once, of a stream of 15 M a second."""
    whole = chunk(100, TUPLES_AT_ONCE, 15_000_000, limit)
    return pa.Table.from_batches([whole.slice(at, 1 << 16) for at in range(0, TUPLES_AT_ONCE, 1 << 16)])


@pytest.mark.parametrize("named", [0, 10_000])
def test_source_task_with_a_long_in(benchmark: Any, named: int) -> None:
    """200 queries over one field of a million values, and one more that names many of them."""
    rng, field, most = random.Random(7), Column("field1", INT), 1_000_000
    wheres = [Call("<", (field, Literal(rng.randrange(most), INT)), BOOLEAN) for _ in range(200)]
    if named:
        values = (Literal(value, INT) for value in rng.sample(range(most), named))
        wheres.append(Call("in", (field, *values), BOOLEAN))
    alike = aggregation_of(queries(1).by_slot[0])
    shared = [replace(alike, where=where) for where in wheres]
    operators, tuples = StreamOperators(live_of(*shared, stream=STREAM), STREAM, 2), under_load(most)

    def run() -> int:
        return sum(len(bucket.serialize()) for _, bucket in operators.process(tuples, None).buckets)

    assert benchmark(run) > 0


@pytest.mark.parametrize(("count", "asking"), [(1, 1), (1000, 4), (1000, 500)])
def test_source_task_with_extremes(benchmark: Any, count: int, asking: int) -> None:
    """The same where some queries ask for a maximum, too."""
    latest = Measure("max", Column("time", TIMESTAMP))
    shared = [aggregation_of(query) for query in queries(count).by_slot.values()]
    for number in range(0, count, count // asking):
        shared[number] = replace(shared[number], measures=(*shared[number].measures, latest))
    operators, tuples = StreamOperators(live_of(*shared, stream=STREAM), STREAM, 2), under_load()

    def run() -> int:
        return sum(len(bucket.serialize()) for _, bucket in operators.process(tuples, None).buckets)

    assert benchmark(run) > 0


@pytest.mark.parametrize("count", [100, 1000])
def test_source_task_with_conjunctions(benchmark: Any, count: int) -> None:
    """The same with predicates on two columns each."""
    operators, tuples = StreamOperators(queries(count, 2), STREAM, 2), chunk(100)
    assert benchmark(lambda: len(operators.process(tuples, None).buckets)) > 0


CLUSTERS = 50
SAMPLE = 2048


def sampled(live: LiveQueries, index: PredicateIndex) -> SampledWorkload:
    """Return what queries, all of which test the same columns, say of a sample of a chunk."""
    rows = np.random.default_rng(1).choice(TUPLES, SAMPLE, replace=False)
    cells = index.cells_of(Tuples.of(chunk(100).take(pa.array(np.sort(rows)))))
    masks = [index.masks_of(query.id) for query in live.by_slot.values()]
    tests = [np.stack([mask[name][cell] for mask in masks]) for name, cell in cells.items()]
    edges = [[edges_of(mask[name]) for mask in masks] for name in cells]
    return SampledWorkload([Sampled(tests, edges, list(cells.values()), 2.0 * TUPLES, TUPLES, KEYS, KEYS)])


@pytest.mark.parametrize("count", [300, 1000, 10_000])
def test_finding_query_groups(benchmark: Any, count: int) -> None:
    """The optimizer groups queries with predicates on two columns; beside the batches."""
    live = clustered(0.05, count)
    index = PredicateIndex()
    index.update({query.id: query.where for query in live.by_slot.values()})
    assert len(np.unique(benchmark(lambda: group_queries(sampled(live, index))))) > 1


@pytest.mark.parametrize("count", [1000])
def test_placing_new_queries_in_groups(benchmark: Any, count: int) -> None:
    """Ten new queries join the groups of the others."""
    live = clustered(0.05, count)
    index = PredicateIndex()
    index.update({query.id: query.where for query in live.by_slot.values()})
    groups, newcomers = group_queries(sampled(live, index)), np.arange(0, count, count // 10)
    assert (benchmark(lambda: place_queries(sampled(live, index), groups, newcomers)) >= 0).all()


def clustered(share: float, count: int = 1000) -> LiveQueries:
    """Return queries in clusters: a range of field1, the cluster's own but for a share, and part of field2."""
    rng, width = random.Random(3), LIMIT / CLUSTERS

    def query(cluster: int) -> Aggregation:
        low = int((cluster + 0.3 * rng.random()) * width)
        high = int((cluster + 1 - 0.3 * rng.random()) * width + share * LIMIT)
        bounds = [(">=", "field1", low), ("<", "field1", high), (rng.choice("<>"), "field2", rng.randrange(LIMIT))]
        where = tuple(Call(op, (Column(name, INT), Literal(n, INT)), BOOLEAN) for op, name, n in bounds)
        window = Window(SECOND, SECOND)
        measures = (Measure("sum", Column("field0", INT)),)
        return Aggregation(STREAM.id, window, Call("and", where, BOOLEAN), (Column("key", INT),), measures, ())

    return live_of(*(query(number % CLUSTERS) for number in range(count)), stream=STREAM)


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("groups", [1, 10, CLUSTERS, "found"])
def test_query_groups(benchmark: Any, groups: int | str, share: float) -> None:
    """A chunk is added up for query groups (thesis 5.4.1): clusters that lie together, or what the optimizer finds."""
    live, batch = clustered(share), chunk(100)
    tuples = Tuples.of(batch)
    index = PredicateIndex()
    index.update({query.id: query.where for query in live.by_slot.values()})
    if isinstance(groups, int):
        group_of = {slot: slot % CLUSTERS * groups // CLUSTERS for slot in live.by_slot}
    else:
        group_of = dict(zip(live.by_slot, group_queries(sampled(live, index)).tolist(), strict=True))
    queries = [replace(query, group=group_of[slot]) for slot, query in live.by_slot.items()]
    spaces = cell_spaces(queries, index, live.words)
    of_groups = Groups(spaces)
    keys, measures = aggregation_of(queries[0]).keys, measures_of(queries)
    times = np.asarray(tuples.columns["time"].view(pa.int64()))
    slices, slice_of = cut_slices(times, PeriodicEdges.of({Window(SECOND, SECOND)}), [])

    def run() -> int:
        cells = index.cells_of(tuples)
        numbers = EncodedMeasures.of_tuples(tuples)
        sliced = SlicedTuples.of(Tuples.of(batch), times, numbers, slices, slice_of, keys, 2, "")
        rows = of_groups.rows(cells, tuples.length)
        aggregation = SharedAggregation(sliced, cells, "", 1)
        made = (aggregation.aggregate(space, mine, measures) for space, mine in zip(spaces, rows, strict=True))
        return sum(len(list(each)) for each in made)

    assert benchmark(run) > 0


@pytest.mark.parametrize("count", COUNTS)
def test_firing(benchmark: Any, count: int) -> None:
    """A partition fires the windows that end in one second, out of the buckets of eight seconds."""
    live = queries(count)
    operators = StreamOperators(live, STREAM, 2)
    buckets = []
    for half in range(16):
        for group, bucket in operators.process(chunk(100 + half / 2), None).buckets:
            if group == 0:
                buckets.append(read_bucket(bucket.serialize()))
    ((_, members),) = live.by_operator(AGGREGATION, STREAM.id).items()
    known = {query.id: predicate_of(query) for query in members}
    windows = WindowedQueries(members, lambda query: known[query.id])
    fired = benchmark(lambda: fire(buckets, windows, 105 * SECOND, 106 * SECOND))
    assert fired is not None
    assert sum(fired.counts) > 0


@pytest.mark.parametrize("count", [500, 2000])
def test_firing_of_queries_that_have_nothing_in_common(benchmark: Any, count: int) -> None:
    """Each query has a window and a measure of its own; the windows that end in one second, few tuples."""
    rng = random.Random(5)

    def with_measure(live: LiveQuery) -> Aggregation:
        left, right = (Column(rng.choice(FIELDS), INT) for _ in range(2))
        argument = Call("+", (Call("*", (left, Literal(rng.randint(1, 50), BIGINT)), BIGINT), right), BIGINT)
        measure = Measure(rng.choice(["sum", "sum", "min", "max", "stddev_samp"]), argument)
        size = rng.randint(1000, 5000)
        return replace(
            aggregation_of(live), measures=(measure,), window=Window(size * 1000, rng.randint(500, size) * 1000)
        )

    live = live_of(*(with_measure(query) for query in queries(count).by_slot.values()), stream=STREAM)
    operators, buckets = StreamOperators(live, STREAM, 2), []
    for half in range(12):
        for group, bucket in operators.process(chunk(100 + half / 2, 2000, 4000), None).buckets:
            if group == 0:
                buckets.append(read_bucket(bucket.serialize()))
    ((_, members),) = live.by_operator(AGGREGATION, STREAM.id).items()
    known = {query.id: predicate_of(query) for query in members}
    windows = WindowedQueries(members, lambda query: known[query.id])
    assert benchmark(lambda: fire(buckets, windows, 104 * SECOND, 105 * SECOND)) is not None


def with_random_windows(count: int, slicings: int) -> LiveQueries:
    """Return queries with windows of 1 to 20 s in whole milliseconds, in so many slicings: operators of their own."""
    rng = random.Random(9)

    def with_random_window(live: LiveQuery) -> Aggregation:
        assert isinstance(live.query, Aggregation)
        size = rng.randint(1000, 20_000)
        slide = round(size / rng.uniform(1, 5))
        return replace(live.query, window=Window(size * 1000, slide * 1000, rng.randrange(size) * 1000))

    live = live_of(*(with_random_window(query) for query in queries(count).by_slot.values()), stream=STREAM)
    live.by_slot = {
        slot: replace(query, operator=f"{query.operator}/{slot % slicings}") for slot, query in live.by_slot.items()
    }
    return live


@pytest.mark.parametrize("rate", [100_000, 1_000_000])
@pytest.mark.parametrize(("count", "slicings"), [(100, 1), (500, 1), (500, 5), (500, 25)])
def test_windows_that_share_no_edge(benchmark: Any, count: int, slicings: int, rate: int) -> None:
    """A second of tuples becomes buckets, and the windows that end in it are fired, out of 20 s and 100 keys."""
    live = with_random_windows(count, slicings)
    operators = StreamOperators(live, STREAM, 1)
    generator = np.random.default_rng(9)

    def process(second: int) -> list[Bucket]:
        times = (100 + second) * SECOND + np.arange(rate, dtype=np.int64) * (SECOND // rate)
        numbers = [generator.integers(0, limit, len(times), dtype=np.int32) for limit in (100, *[LIMIT] * len(FIELDS))]
        columns = [*map(pa.array, numbers), pa.array(times, pa.timestamp("us"))]
        tuples = pa.record_batch(columns, schema=SCHEMA.arrow)
        return [Bucket.deserialize(b.serialize()) for _, b in operators.process(tuples, None).buckets]

    earlier = [bucket for second in range(19) for bucket in process(second)]
    of_operator = {
        name: WindowedQueries(members, predicate_of)
        for name, members in live.by_operator(AGGREGATION, STREAM.id).items()
    }

    def run() -> int:
        buckets, rows = [*earlier, *process(19)], 0
        for name, windows in of_operator.items():
            mine = [bucket for bucket in buckets if bucket.operator == name]
            fired = fire(mine, windows, 119 * SECOND, 120 * SECOND)
            rows += 0 if fired is None else sum(fired.counts)
        return rows

    assert benchmark(run) > 0


@pytest.mark.parametrize("count", [1000, 10_000])
def test_compiling_an_epoch_with_one_more_query(benchmark: Any, count: int) -> None:
    """What a source task does for a changelog."""
    live = queries(count)
    before = StreamOperators(live, STREAM, 2)
    assert benchmark(lambda: StreamOperators(live, STREAM, 2, before)) is not None


# rows and attributes of relations, and how many values each attribute has
SHAPES = {
    "chain of 3": ([(2000, (0,)), (100_000, (0, 1)), (300_000, (1,))], {0: 100_000, 1: 100_000}),
    "star of 4": (
        [(100_000, (0, 1, 2)), (100_000, (0,)), (1000, (1,)), (300_000, (2,))],
        {0: 100_000, 1: 10_000, 2: 100_000},
    ),
    "triangle": ([(3000, (0, 1)), (30_000, (1, 2)), (100_000, (0, 2))], {0: 3000, 1: 3000, 2: 3000}),
    "square": (
        [(2000, (0, 1)), (100_000, (1, 2)), (5000, (2, 3)), (100_000, (0, 3))],
        {0: 3000, 1: 10_000, 2: 3000, 3: 10_000},
    ),
    "square with a diagonal": (
        [(2000, (0, 1)), (50_000, (1, 2, 4)), (5000, (2, 3)), (100_000, (0, 3, 4))],
        {0: 3000, 1: 3000, 2: 3000, 3: 3000, 4: 100},
    ),
}


def relations_of(shape: str) -> list[Relation]:
    rng = np.random.default_rng(1)
    specified, values = SHAPES[shape]
    return [Relation(rows, {a: rng.integers(0, values[a], rows) for a in mine}) for rows, mine in specified]


def total_of(made: Sequence[Relation]) -> int:
    return JoinResult(made, [np.ones(each.rows, dtype=np.int64) for each in made]).total


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["given", "reversed", "ends first"])
def test_joins_in_any_order_of_from(benchmark: Any, order: str, shape: str) -> None:
    """Rows of a window are counted; what is formed in between, if anything, must not follow the order of FROM."""
    made = relations_of(shape)
    orders = {"given": made, "reversed": made[::-1], "ends first": [*made[:1], *made[2:], made[1]]}
    assert benchmark(lambda: total_of(orders[order])) > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_chosen_order_of_from_is_near_the_best(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """All orders are measured, those that would form too many combinations left out, and so is the chosen one."""
    made = relations_of(shape)
    chosen = tuple(JoinResult(made, [np.ones(each.rows, dtype=np.int64) for each in made]).order)
    total_of(made)
    seconds: dict[tuple[int, ...], float] = {}
    for _ in range(15):  # in turns, and the quickest of each counts: other work slows some down
        for order in itertools.permutations(range(len(made))):
            monkeypatch.setattr(relations, "join_order", lambda _, order=order: list(order))
            began = time.perf_counter()
            try:
                total_of(made)
            except TooManyCombinations:
                continue
            seconds[order] = min(time.perf_counter() - began, seconds.get(order, math.inf))
    monkeypatch.undo()
    best = min(seconds, key=seconds.__getitem__)
    ratio = seconds[chosen] / seconds[best]
    worst = 1e3 * max(seconds.values())
    print(f"\n{shape}: {chosen} {1e3 * seconds[chosen]:.1f} ms, best {best} {ratio:.2f} x less, worst {worst:.1f} ms")
    assert ratio <= 1.2


@pytest.mark.parametrize("block", ["all at once", "blocks"])
@pytest.mark.parametrize("count", [3, 5, 7, 8, 10])
def test_finding_the_order_of_a_join(benchmark: Any, count: int, block: str) -> None:
    """Each relation is compared with each other one by an attribute of its own, so that any order may be."""
    rng = np.random.default_rng(count)
    pairs = list(itertools.combinations(range(count), 2))
    sizes = rng.choice([100, 1000, 10_000], count).tolist()
    made = [
        Relation(rows, {a: rng.integers(0, 50, rows) for a, pair in enumerate(pairs) if number in pair})
        for number, rows in enumerate(sizes)
    ]

    def find(whole: bool) -> float:
        graph = join_graph({number: each.attributes for number, each in enumerate(made)})
        size = count if whole else block_size(graph)
        return idp(graph, JoinCost(dict(enumerate(made))).step, size)[-1].cost

    assert benchmark(find, block == "all at once") <= 1.2 * find(whole=True)


@pytest.mark.parametrize("left", [False, True])
def test_lookup_of_a_text(benchmark: Any, tmp_path: Path, left: bool) -> None:
    rows = pa.table({"key": np.arange(1000), "name": [f"name {i % 50}" for i in range(1000)]})
    schema = Schema((Field("key", BIGINT), Field("name", VARCHAR)))
    version = TableVersion(TableDefinition("t-1", "names", schema, "csv"), rows)
    storage = Storage(str(tmp_path))
    storage.put(version_path(version.id), version.data)
    lookup = Lookup("t-1", version.id, "names", ((Column("key", BIGINT), Column("key", BIGINT)),), None, left)
    join, tables = LookupJoin([lookup], frozenset({"names.name"})), IndexedTables(storage)
    tuples = pa.RecordBatch.from_pydict({"key": np.random.default_rng(1).integers(0, 1000, 2_000_000)})
    assert benchmark(lambda: sum(piece.num_rows for piece in join.batches(tuples, tables))) == tuples.num_rows
