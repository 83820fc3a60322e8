"""Firing: the rows of due windows, measure by measure, and HAVING."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.operators.aggregation import firing
from braid.operators.aggregation.due import WindowedQueries
from braid.operators.aggregation.firing import fire
from braid.operators.evaluation import evaluate
from braid.operators.event_times import EARLIEST
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.live_queries import LiveQueries
from braid.operators.queries import Aggregation
from braid.operators.query_parts import AGGREGATION, COUNT_ALL, Measure
from braid.operators.state.bucket import Bucket
from braid.operators.state.query_runs import read_bucket
from braid.operators.stream_operators import StreamOperators
from braid.operators.windowing.window_rows import SLOT
from braid.operators.windows import Window
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    StreamDefinition,
    StreamSchema,
)
from tests.kit.examples import examples
from tests.operators.pipeline import (
    STREAM,
    K,
    S,
    T,
    V,
    aggregation,
    batch_of,
    changelog,
    compare,
    live_of,
    predicate_of,
)

pytestmark = pytest.mark.usefixtures("some_alone")

MONEY = ColumnType("DECIMAL", 38, 2)
WIDE_SCHEMA = StreamSchema(
    (
        Field("k", INT), Field("d", DOUBLE), Field("m", MONEY), Field("s", VARCHAR), Field("day", DATE),
        Field("yes", BOOLEAN), Field("t", TIMESTAMP),
    ),
    "t", 0,
)  # fmt: skip
WIDE = StreamDefinition("s-1", "s", WIDE_SCHEMA, "push", "json")
COLUMN = {f.name: Column(f.name, f.type) for f in WIDE_SCHEMA.fields}


def buckets_of(live: LiveQueries, stream: StreamDefinition, *batches: list[dict[str, Any]]) -> list[Bucket]:
    operators = StreamOperators(live, stream, 1)
    buckets = []
    for rows in batches:
        output = operators.process(batch_of(rows, stream.schema), None)
        assert not output.failures
        buckets += [read_bucket(bucket.serialize()) for _, bucket in output.buckets]
    return buckets


def fired(
    live: LiveQueries, stream: StreamDefinition, *batches: list[dict[str, Any]], upto: int = 1000
) -> list[dict[str, Any]]:
    """Fire all windows of one operator over some batches."""
    (queries,) = live.by_operator(AGGREGATION, stream.id).values()
    rows = fire(buckets_of(live, stream, *batches), WindowedQueries(queries, predicate_of), EARLIEST, upto)
    return [] if rows is None else rows.table.to_pylist()


def one_measure(measure: Measure, values: list[list[Any]]) -> Any:
    """Return the measure over values that come in several batches, without keys."""
    assert isinstance(measure.argument, Column)
    query = Aggregation(WIDE.id, Window(10, 10), None, (), (measure,), ())
    name = measure.argument.name
    rows = fired(live_of(query, stream=WIDE), WIDE, *([{name: v, "t": 3} for v in batch] for batch in values))
    return rows[0][measure.name] if rows else None


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("d", [[1.5, -math.inf], [None, math.inf]]),
        ("m", [[Decimal("1.50"), Decimal("-2.00")], [Decimal("1.49"), None]]),
        ("s", [["b", "é"], ["", "a", None]]),
        ("day", [[dt.date(1970, 1, 1), dt.date(1969, 1, 1)], [dt.date(2026, 1, 1)]]),
        ("yes", [[True, None], [False]]),
        ("t", [[5], [3]]),
    ],
)
def test_min_and_max_of_every_type(column: str, values: list[list[Any]]) -> None:
    if column == "t":
        query = Aggregation(WIDE.id, Window(10, 10), None, (), (Measure("min", T), Measure("max", T)), ())
        (row,) = fired(live_of(query, stream=WIDE), WIDE, [{"t": 5}], [{"t": 3}])
        assert (row["min(t)"].microsecond, row["max(t)"].microsecond) == (3, 5)
        return
    present = [v for batch in values for v in batch if v is not None]
    assert one_measure(Measure("min", COLUMN[column]), values) == min(present)
    assert one_measure(Measure("max", COLUMN[column]), values) == max(present)


@pytest.mark.parametrize("column", ["k", "d", "m", "s", "day", "yes"])
def test_of_nulls_only_the_aggregate_is_null_and_the_count_zero(column: str) -> None:
    argument = COLUMN[column]
    functions = ["min", "max"] + (["sum"] if argument.type.is_numeric else [])
    for function in functions:
        assert one_measure(Measure(function, argument), [[None, None], [None]]) is None
    assert one_measure(Measure("count", argument), [[None, None], [None]]) == 0


def test_sums_of_decimals_are_exact_and_null_beyond_38_digits() -> None:
    large = Decimal("9" * 36 + ".99")
    total = Measure("sum", COLUMN["m"])
    assert one_measure(total, [[large, Decimal("-0.98")], [None]]) == Decimal("9" * 36 + ".01")
    assert one_measure(total, [[large], [large]]) is None
    assert one_measure(total, [[large, large], [large.copy_negate()]]) == large, "only the result must fit"


def test_integer_sums_wrap_in_64_bits_and_int_columns_do_not_in_32() -> None:
    query = aggregation(keys=(), measures=(Measure("sum", V), Measure("sum", K)))
    rows = [{"v": 2**63 - 1, "k": 2**31 - 1, "t": 1}] * 2
    (row,) = fired(live_of(query), STREAM, rows)
    assert (row["sum(v)"], row["sum(k)"]) == (-2, 2**32 - 2)


def test_infinities_stay_with_the_queries_that_select_them() -> None:
    d = COLUMN["d"]
    wheres = [compare(d, "<", 10.0), compare(d, ">", 10.0), compare(d, ">", -10.0), None]
    queries = [Aggregation(WIDE.id, Window(10, 10), w, (), (Measure("sum", d),), ()) for w in wheres]
    rows = [{"d": v, "t": 1} for v in (1.0, 20.0, math.inf, -math.inf)]
    sums = {r["_slot"]: r["sum(d)"] for r in fired(live_of(*queries, stream=WIDE), WIDE, rows)}
    assert (sums[0], sums[1], sums[2]) == (-math.inf, math.inf, math.inf)
    assert math.isnan(sums[3])


def test_nan_is_the_greatest_and_of_nothing_else_also_the_least() -> None:
    broken = Call("-", (COLUMN["d"], COLUMN["d"]), DOUBLE)
    measures = tuple(Measure(f, broken) for f in ("min", "max"))
    query = Aggregation(WIDE.id, Window(10, 10), None, (COLUMN["k"],), measures, ())
    rows = [{"k": 0, "d": math.inf, "t": 1}, {"k": 1, "d": 5.0, "t": 1}, {"k": 1, "d": -math.inf, "t": 2}]
    got = {r["key0"]: (r["min(-(d, d))"], r["max(-(d, d))"]) for r in fired(live_of(query, stream=WIDE), WIDE, rows)}
    assert all(math.isnan(v) for v in got[0])
    assert got[1][0] == 0.0
    assert math.isnan(got[1][1])


def test_avg_is_sum_over_count_of_what_is_not_null() -> None:
    query = aggregation(keys=(), measures=(Measure("sum", V), Measure("count", V)))
    (row,) = fired(live_of(query), STREAM, [{"v": 3, "t": 1}, {"v": None, "t": 2}], [{"v": 5, "t": 2}])
    assert (row["sum(v)"], row["count(v)"]) == (8, 2)


@given(
    st.lists(st.lists(st.one_of(st.none(), st.floats(-1e3, 1e3)), max_size=8), min_size=1, max_size=3),
    st.sampled_from([0.0, 1.0, 1e8, -1e12]),
)
def test_deviations_keep_their_digits_however_far_the_mean_is(chunks: list[list[float | None]], mean: float) -> None:
    values = [[None if v is None else v + mean for v in chunk] for chunk in chunks]
    exact = [Fraction(v) for chunk in values for v in chunk if v is not None]
    deviation, variance = (one_measure(Measure(f, COLUMN["d"]), values) for f in ("stddev_samp", "var_samp"))
    if len(exact) < 2:
        assert deviation is None
        assert variance is None
        return
    expected = float(sum((v - sum(exact) / len(exact)) ** 2 for v in exact) / (len(exact) - 1))
    assert variance == pytest.approx(expected, rel=1e-9, abs=1e-20 * max(1.0, mean * mean))
    assert deviation == pytest.approx(math.sqrt(variance))


@given(st.floats(-1e9, 1e9), st.integers(2, 50))
@example(8.759012313181923e-153, 2)  # its square is so small that pairs have no second half
def test_equal_values_do_not_deviate(value: float, count: int) -> None:
    assert one_measure(Measure("stddev_samp", COLUMN["d"]), [[value] * (count - 1), [value]]) == 0.0


def test_deviations_of_whole_numbers_and_decimals() -> None:
    assert one_measure(Measure("var_samp", COLUMN["k"]), [[1, 2], [None, 6]]) == 7.0
    assert one_measure(Measure("var_samp", COLUMN["m"]), [[Decimal("1.50"), Decimal("2.50")]]) == 0.5


def test_null_is_a_key_of_its_own() -> None:
    rows = [{"k": k, "s": s, "t": 1} for k, s in [(None, None), (None, "a"), (0, None), (None, None), (0, "")]]
    got = fired(live_of(aggregation(keys=(K, S), measures=(COUNT_ALL,))), STREAM, rows, rows[:1])
    counts = {(r["key0"], r["key1"]): r["count(*)"] for r in got}
    assert counts == {(None, None): 3, (None, "a"): 1, (0, None): 1, (0, ""): 1}


def test_having_is_applied_per_query_and_null_does_not_pass() -> None:
    total = Column("sum(v)", BIGINT)
    havings = [None, call(">", total, Literal(4, INT)), call("is_null", total)]
    queries = [aggregation(measures=(Measure("sum", V),), having=h) for h in havings]
    values = [(0, 2), (0, 3), (1, 4), (2, None)]
    rows: list[dict[str, Any]] = [{"k": k, "v": v, "t": 1} for k, v in values]
    got = [(r["_slot"], r["key0"]) for r in fired(live_of(*queries), STREAM, rows)]
    assert sorted(got) == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 2)]


def test_having_may_look_at_the_window() -> None:
    late = Call(">", (Column("window_start", TIMESTAMP), Literal(dt.datetime(1970, 1, 1), TIMESTAMP)), BOOLEAN)
    got = fired(live_of(aggregation(having=late)), STREAM, [{"k": 0, "t": t} for t in (1, 11)])
    assert [r["window_start"].microsecond for r in got] == [10]


def test_nothing_due_gives_none() -> None:
    live = live_of(aggregation())
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    assert fire([], WindowedQueries(queries, predicate_of), 0, 100) is None
    buckets = buckets_of(live, STREAM, [{"k": 1, "t": 5}])
    assert fire(buckets, WindowedQueries(queries, predicate_of), EARLIEST, 9) is None
    assert fire(buckets, WindowedQueries(queries, predicate_of), 10, 100) is None
    never = live_of(aggregation(having=Literal(False, BOOLEAN)))
    assert fired(never, STREAM, [{"k": 1, "t": 5}]) == []


def test_a_window_is_due_at_its_very_end_and_never_again() -> None:
    live = live_of(aggregation())
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    buckets = buckets_of(live, STREAM, [{"k": 1, "t": 5}])
    ends = [
        upto
        for upto in range(1, 30)
        if fire(buckets, WindowedQueries(queries, predicate_of), upto - 1, upto) is not None
    ]
    assert ends == [10]


def test_having_of_a_query_with_neither_keys_nor_measures() -> None:
    late = Call(">", (Column("window_start", TIMESTAMP), Literal(dt.datetime(1970, 1, 1), TIMESTAMP)), BOOLEAN)
    query = Aggregation(STREAM.id, Window(10, 10), None, (), (), (), late)
    rows = fired(live_of(query), STREAM, [{"k": 1, "t": 5}, {"k": 1, "t": 15}, {"k": 2, "t": 16}])
    assert [row["window_end"].microsecond for row in rows] == [20]


def test_a_refilled_slot_does_not_get_its_predecessors_tuples() -> None:
    live = live_of(aggregation())
    old_buckets = buckets_of(live, STREAM, [{"k": 1, "t": 5}])
    live.apply(changelog(2, [("new", 0, aggregation())], [], [("q0", 0)], capacity=1), {STREAM.id: 5})
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    assert fire(old_buckets, WindowedQueries(queries, predicate_of), EARLIEST, 10) is None
    new_buckets = StreamOperators(live, STREAM, 1).process(batch_of([{"k": 1, "t": 6}]), None).buckets
    rows = fire([*old_buckets, *(b for _, b in new_buckets)], WindowedQueries(queries, predicate_of), EARLIEST, 10)
    assert rows is not None
    table = rows.table
    assert table["count(*)"].to_pylist() == [1]


def test_query_sets_of_epochs_with_fewer_and_with_more_slots() -> None:
    live = live_of(*[aggregation(compare(V, ">", i)) for i in range(3)])
    narrow = buckets_of(live, STREAM, [{"k": 1, "v": 9, "t": 5}])
    live.apply(changelog(2, [("far", 70, aggregation())], capacity=71), {STREAM.id: None})
    wide = buckets_of(live, STREAM, [{"k": 1, "v": 9, "t": 5}])
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    rows = fire(narrow + wide, WindowedQueries(queries, predicate_of), EARLIEST, 10)
    assert rows is not None
    table = rows.table
    counts = dict(zip(table["_slot"].to_pylist(), table["count(*)"].to_pylist(), strict=True))
    assert counts == {0: 2, 1: 2, 2: 2, 70: 1}
    live.apply(changelog(3, [], [], [("far", 70)], capacity=3), {})
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    rows = fire(narrow + wide, WindowedQueries(queries, predicate_of), EARLIEST, 10)
    assert rows is not None
    table = rows.table
    assert table["count(*)"].to_pylist() == [2, 2, 2]


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_keys_in_chunks_give_the_same(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    queries = [aggregation(compare(V, ">", int(rng.integers(0, 5))), (K, S)) for _ in range(int(rng.integers(1, 6)))]
    queries += [aggregation(Call("and", (compare(V, "<", 3), compare(K, "<", 5)), BOOLEAN), (K, S))]
    rows = [
        {"k": int(rng.integers(0, 9)), "v": int(rng.integers(0, 6)), "s": "ab"[rng.integers(2)], "t": int(t)}
        for t in rng.integers(0, 20, 60)
    ]
    live = live_of(*queries)
    at_once = fired(live, STREAM, rows[:30], rows[30:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(firing, "DENSE_ENTRIES", entries)
        in_chunks = fired(live, STREAM, rows[:30], rows[30:])
    assert sorted(map(str, in_chunks)) == sorted(map(str, at_once))


def test_types_of_the_result() -> None:
    live = live_of(aggregation(keys=(K, S)))
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    rows = fire(buckets_of(live, STREAM, [{"k": 1, "t": 5}]), WindowedQueries(queries, predicate_of), EARLIEST, 10)
    assert rows is not None
    table = rows.table
    assert table.schema.field("_slot").type == pa.int32()
    assert table.schema.field("window_start").type == table.schema.field("window_end").type == pa.timestamp("us")
    assert [table.schema.field(n).type for n in ("key0", "key1", "max(s)")] == [pa.int32(), pa.string(), pa.string()]


def test_a_having_that_raises_fails_its_query_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = compare(Column(COUNT_ALL.name, BIGINT), ">", 0)

    def raising(expression: Expression, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
        if str(expression) == str(broken):
            raise pa.ArrowInvalid("no such kernel")
        return evaluate(expression, columns, length)

    monkeypatch.setattr("braid.operators.tuples.evaluate", raising)
    live = live_of(aggregation(), aggregation(having=broken))
    (queries,) = live.by_operator(AGGREGATION, STREAM.id).values()
    buckets = buckets_of(live, STREAM, [{"k": 1, "v": 2, "s": "a", "t": 3}])
    failures: dict[str, str] = {}
    rows = fire(buckets, WindowedQueries(queries, predicate_of), EARLIEST, 10, failures)
    assert rows is not None
    table = rows.table
    assert table[SLOT].to_pylist() == [0]
    assert failures == {"q1": "ArrowInvalid: no such kernel"}
