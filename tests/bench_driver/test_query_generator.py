"""Generated queries follow the thesis's templates, and the same seed gives the same ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from math import factorial

import pytest

from braid.bench_driver.query_generator import FIELDS, generate_queries
from braid.bench_driver.query_spec import OPERATORS, ColumnRef, QuerySpec, WindowSpec
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.workload import list_workloads, load_workload


def _generate(name: str, count: int = 300) -> list[QuerySpec]:
    return generate_queries(load_workload(name), count, seed=7)


@pytest.mark.parametrize("name", list_workloads())
def test_the_first_queries_are_the_same_however_many_follow(name: str) -> None:
    assert _generate(name, 60) == _generate(name, 200)[:60]


@pytest.mark.parametrize("name", [name for name in list_workloads() if not name.startswith(("mixed-", "nexmark"))])
def test_queries_name_columns_that_their_streams_have(name: str) -> None:
    workload = load_workload(name)
    existing = {
        ColumnRef(stream.name, column)
        for stream in workload.streams
        for column, _ in find_dataset(stream.dataset).columns
    }
    for query in _generate(name, 100):
        used = {*query.keys, *query.columns, *({query.measure} if query.measure else ())}
        used |= {ColumnRef(c.stream, c.column) for c in query.comparisons}
        used |= {side for step in query.joins for side in (step.left, step.right)}
        assert used <= existing


def test_other_seeds_give_other_queries() -> None:
    workload = load_workload("astream-sc1")
    assert generate_queries(workload, 50, 1) != generate_queries(workload, 50, 2)


def test_aggregations_have_a_random_predicate_and_window() -> None:
    queries = _generate("astream-sc1")
    assert {(q.streams, q.keys, q.measure) for q in queries} == {
        (("a",), (ColumnRef("a", "key"),), ColumnRef("a", "field0"))
    }
    comparisons = [q.comparisons[0] for q in queries if len(q.comparisons) == 1]
    assert len(comparisons) == len(queries)
    assert {c.column for c in comparisons} == set(FIELDS)
    assert {c.operator for c in comparisons} == set(OPERATORS)
    assert all(c.constant in range(1000) for c in comparisons)
    assert len({c.constant for c in comparisons}) > 200
    every_window = {(size, slide) for size in range(1, 6) for slide in range(1, size + 1)}
    assert {(q.window.size_ms / 1000, q.window.slide_ms / 1000) for q in queries} == every_window


def test_joins_select_from_both_streams_apart() -> None:
    queries = _generate("astream-sc1-join")
    assert {q.streams for q in queries} == {("a", "b")}
    assert {tuple(c.stream for c in q.comparisons) for q in queries} == {("a", "b")}
    assert any(q.comparisons[0].column != q.comparisons[1].column for q in queries)
    assert {len(q.columns) for q in queries} == {12}
    assert {q.measure for q in queries} == {None}


def test_complex_queries_select_join_one_to_five_times_and_aggregate() -> None:
    queries = _generate("astream-sc1-complex")
    assert {len(q.joins) for q in queries} == {1, 2, 3, 4, 5}
    assert all(q.measure and q.keys and len(q.comparisons) == len(q.streams) for q in queries)


def test_n_way_joins_take_turns_in_their_number_of_streams() -> None:
    queries = _generate("ajoin-sc1")
    assert [len(q.streams) for q in queries[:8]] == [2, 3, 4, 5, 2, 3, 4, 5]
    assert {q.window for q in queries} == {WindowSpec(ms, ms) for ms in (1000, 2000, 3000)}
    assert all(len(q.comparisons) == len(q.streams) and len(q.columns) == 6 * len(q.streams) for q in queries)
    # half similar to the pattern: some joins come again and again, most do not
    two_way = Counter(q.joins for q in queries if len(q.streams) == 2)
    assert 1 < len(two_way) < 75
    assert all(c.constant in range(500) for q in queries for c in q.comparisons)


@pytest.mark.parametrize("ways", [3, 4])
def test_streams_in_a_ring_are_joined_with_the_next_and_the_first(ways: int) -> None:
    queries = _generate(f"ring-join:ways={ways}")
    for query in queries:
        assert [(step.left.stream, step.right.stream) for step in query.joins] == [
            *pairwise(query.streams),
            (query.streams[-1], query.streams[0]),
        ]
        assert len({step.left.column for step in query.joins}) == ways
        assert {comparison.constant for comparison in query.comparisons} == {5, 50, 500}
    assert len({query.streams for query in queries}) == factorial(ways)


def test_rovio_queries_are_those_of_figure_3_8() -> None:
    assert (
        _generate("rovio-aggregation", 2)
        == [
            QuerySpec(
                streams=("purchases",),
                window=WindowSpec(8000, 4000),
                keys=(ColumnRef("purchases", "gem_pack"),),
                measure=ColumnRef("purchases", "price"),
            )
        ]
        * 2
    )
    (join,) = _generate("rovio-join", 1)
    assert [(step.left.column, step.right.column) for step in join.joins] == [
        ("user_id", "user_id"),
        ("gem_pack", "gem_pack"),
    ]
    assert [column.column for column in join.columns] == ["user_id", "gem_pack", "price"]
    assert not join.comparisons


@pytest.mark.parametrize("name", ["rovio-join", "astream-sc1-join", "astream-sc1-complex", "ajoin-sc1"])
def test_a_join_workload_with_too_few_streams_is_refused(name: str) -> None:
    workload = load_workload(name)
    with pytest.raises(ValueError, match=f"workload '{name}' must have the streams and options of template"):
        generate_queries(replace(workload, streams=workload.streams[:1]), 1, 0)


@pytest.mark.parametrize("name", list_workloads())
def test_a_workload_without_the_options_of_its_template_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must have the streams and options of template"):
        generate_queries(replace(load_workload(name), options={}), 1, 0)


def test_rovio_joins_may_have_predicates_of_their_own() -> None:
    queries = _generate("rovio-join:random_predicates=true", 50)
    assert [{c.stream for c in query.comparisons} for query in queries] == [{"purchases", "ads"}] * 50
    assert {c.column for query in queries for c in query.comparisons} == {"user_id", "gem_pack"}
    assert len({query.comparisons for query in queries}) > 40


def test_rovio_joins_may_ask_for_a_cohort_of_the_users() -> None:
    queries = _generate("rovio-join:cohort=100", 50)
    ranges = [[(c.stream, c.column, c.operator, c.constant) for c in query.comparisons] for query in queries]
    for (*low, first), (*high, after) in ranges:
        assert (low, high) == (["purchases", "user_id", ">="], ["purchases", "user_id", "<"])
        assert 0 <= first < after == first + 100 <= 1_000_000
    assert len({tuple(bounds) for bounds in ranges}) == 50


@pytest.mark.parametrize("percent", [5, 50])
def test_clusters_share_a_part_of_the_tuples(percent: int) -> None:
    queries = _generate(f"shared-data:shared_percent={percent}", 100)
    ranges = [tuple(c.constant for c in query.comparisons[:2]) for query in queries]
    assert [low // 20 for low, _ in ranges[:50]] == list(range(50)), "a fiftieth of 1000 values is a cluster's own"
    assert ranges[7] != ranges[57], "queries of a cluster differ"
    assert all(10 * percent < high - low <= 20 + 10 * percent for low, high in ranges)
    assert {query.comparisons[2].operator for query in queries} == {"<", ">"}


def test_clusters_share_a_part_of_each_stream_that_they_join() -> None:
    queries = _generate("shared-data-join:shared_percent=25", 100)
    assert {query.streams for query in queries} == {("a", "b", "c", "d")}
    assert all(len(query.joins) == 3 and query.measure is not None for query in queries)
    for number, query in enumerate(queries):
        for stream, comparisons in groupby(query.comparisons, key=lambda comparison: comparison.stream):
            low, high, _ = (int(comparison.constant) for comparison in comparisons)
            assert low // 20 == number % 50, f"{stream} of query {number}"
            assert 250 < high - low <= 20 + 250
