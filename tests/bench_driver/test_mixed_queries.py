"""Mixed queries differ in all that they can differ in, and shares of other kinds come as they are asked for.

That Braid runs them, and gives DuckDB's rows, is in `tests/operators/test_mixed_rows.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from braid.bench_driver.mixed_queries import BIDS, SHARES, TRIPS
from braid.bench_driver.mixed_query import Aggregate, Having, MixedQuery, SessionSpec
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_load.probes import choose_probes
from braid.bench_driver.query_spec import WindowSpec
from braid.bench_driver.systems.flink_system import FlinkSystem
from braid.bench_driver.systems.spark_system import SparkSystem
from braid.bench_driver.systems.system import UnsupportedError
from braid.bench_driver.workload import load_workload

COUNT = 400


def generate(name: str, seed: int = 7) -> list[MixedQuery]:
    queries = generate_queries(load_workload(name), COUNT, seed)
    assert all(isinstance(query, MixedQuery) for query in queries)
    return [query for query in queries if isinstance(query, MixedQuery)]


@pytest.mark.parametrize(("name", "vocabulary"), [("mixed-bids", BIDS), ("mixed-trips", TRIPS)])
def test_by_default_they_are_aggregations_over_windows_with_all_keys_aggregates_and_windows(
    name: str, vocabulary: Any
) -> None:
    queries = generate(name)
    assert {query.keys for query in queries} == set(vocabulary.keys)
    assert {query.window for query in queries} == set(vocabulary.windows)
    assert {aggregate for query in queries for aggregate in query.aggregates} == set(vocabulary.aggregates)
    assert len({query.where for query in queries}) > COUNT / 2
    assert not any(query.columns or query.having or query.join for query in queries)


def test_the_seed_decides_the_queries() -> None:
    assert generate("mixed-bids") == generate("mixed-bids")
    assert generate("mixed-bids") != generate("mixed-bids", seed=8)


@pytest.mark.parametrize("name", ["mixed-bids", "mixed-trips"])
@pytest.mark.parametrize("option", SHARES)
def test_a_share_is_of_as_many_queries_and_leaves_the_others_as_they_were(name: str, option: str) -> None:
    def has(query: MixedQuery) -> bool:
        return {
            "selections": bool(query.columns),
            "sessions": isinstance(query.window, SessionSpec),
            "table_joins": query.join is not None,
            "distinct": any(aggregate.function == "count_distinct" for aggregate in query.aggregates),
            "having": query.having is not None,
        }[option]

    plain, with_share = generate(name), generate(f"{name}:{option}=0.25")
    assert sum(map(has, with_share)) / COUNT == pytest.approx(0.25, abs=0.07)
    assert all(before == after for before, after in zip(plain, with_share, strict=True) if not has(after))
    assert all(map(has, generate(f"{name}:{option}=1")))


@pytest.mark.parametrize("shares", ["having=1.5", "sessions=-0.1", "selections=0.5:sessions=0.6"])
def test_shares_that_cannot_be_are_refused(shares: str) -> None:
    with pytest.raises(ValueError, match="shares must be from 0 to 1, and selections, sessions, table_joins together"):
        generate(f"mixed-bids:{shares}")


def test_a_query_goes_through_json_unchanged() -> None:
    for query in generate("mixed-trips:selections=0.2:sessions=0.2:table_joins=0.2:distinct=0.2:having=0.2"):
        assert MixedQuery.from_json(json.loads(json.dumps(query.to_json()))) == query


def test_what_is_no_query_is_refused() -> None:
    count, window = Aggregate("count", "*"), WindowSpec(1000, 1000)
    for fields in ({}, {"aggregates": (count,)}, {"window": window}, {"window": window, "columns": ("price",)}):
        with pytest.raises(ValueError, match="has a window and aggregates, or selects columns"):
            MixedQuery("bids", **fields)
    with pytest.raises(ValueError, match="names one of the query's aggregates"):
        MixedQuery("bids", aggregates=(count,), window=window, having=Having(1, 5))
    with pytest.raises(ValueError, match="function must be one of"):
        Aggregate("median", "price")


def test_probes_are_spread_over_them() -> None:
    queries = generate("mixed-bids")
    probes = choose_probes(queries, load_workload("mixed-bids").streams)
    assert [place // (COUNT // 4) for place in probes] == [0, 1, 2, 3]
    assert all(queries[place].slide_ms <= 4000 for place in probes)


@pytest.mark.parametrize("system", [SparkSystem("spark-queries"), FlinkSystem("flink-jobs")])
def test_peers_of_the_thesis_refuse_them_before_they_start_any(system: SparkSystem | FlinkSystem) -> None:
    with pytest.raises(UnsupportedError, match="is not asked mixed queries; their peer is duckdb-batches"):
        system.deploy(generate("mixed-bids"), 100)


@pytest.mark.parametrize("queries", [1, 7, 1000, 5000])
def test_a_search_begins_with_less_where_more_queries_run(queries: int) -> None:
    rates = {1: 4_000_000, 7: 1_000_000, 1000: 50_000, 5000: 20_000}
    assert load_workload("mixed-bids").first_rate(queries) == rates[queries]
    assert load_workload("astream-sc1").first_rate(queries) == load_workload("astream-sc1").start_rate
