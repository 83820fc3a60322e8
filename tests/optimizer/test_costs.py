"""What queries cost: the time of all operators is handed out to those that share them, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from braid.operators.kinds import operator_of, source_operators
from braid.operators.queries import Query
from braid.operators.report import index_of
from braid.optimizer.costs import (
    NEW_OPERATOR_SECONDS_A_TUPLE,
    Costs,
    cost_shares,
    operator_statistics,
    query_statistics,
)
from braid.optimizer.plan import Plan
from braid.optimizer.statistics import Statistics
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG

W = "[RANGE 4 SECONDS]"
STREAMS = {stream.id: name for name, stream in CATALOG.items()}
TEXTS = [
    "SELECT v FROM a WHERE v > 1",
    f"SELECT k, COUNT(*) AS n FROM a {W} GROUP BY k",
    f"SELECT k, COUNT(DISTINCT v) AS n FROM a {W} WHERE v > 3 GROUP BY k",
    f"SELECT x.v FROM a {W} x, b {W} y WHERE x.k = y.k",
    f"SELECT x.v FROM a {W} x, b {W} y WHERE x.k = y.k AND x.v > 2",
    f"SELECT x.v FROM a {W} x, c {W} y WHERE x.k = y.k",
    f"SELECT x.v FROM a {W} x, a {W} y, b {W} z WHERE x.k = y.k AND y.m = z.m",
]


def queries() -> dict[str, Query]:
    return {f"q-{number}": plan_select(text, CATALOG) for number, text in enumerate(TEXTS)}


def running(queries_by_id: dict[str, Query]) -> tuple[Plan, Statistics]:
    """Return the plan of queries, and statistics in which every operator takes some time."""
    plan, statistics = Plan(), Statistics()
    plan.change(queries_by_id.items())
    names = {name for query in queries_by_id.values() for name in source_operators(query)}
    names |= {index_of(name_of_input) for operator in plan.operators.values() for name_of_input in operator.inputs}
    sources = {name: 1000 * (1 + number) for number, name in enumerate(sorted(names))}
    partitions = {name: 500 * (1 + number) for number, name in enumerate(plan.operators)}
    report: dict[str, Any] = {
        "sources": {"busy_us": sources, "chunks": {name: [100, 2, 3] for name in sources}},
        "partitions": {"busy_us": partitions, "chunks": {}},
        "samples": {},
    }
    for second in range(3):
        statistics.observe({"committed_us": second * 1_000_000, "streams": {}, "report": report})
    return plan, statistics


def test_queries_together_cost_what_the_operators_take() -> None:
    by_id = queries()
    plan, statistics = running(by_id)
    statistics_of = {name: query_statistics(plan, statistics, query, STREAMS, name) for name, query in by_id.items()}
    assert sum(figures["cores"] for figures in statistics_of.values()) == pytest.approx(
        statistics.all_cores(), rel=0.01
    )
    assert sum(figures["cost_share"] for figures in statistics_of.values()) == pytest.approx(1, rel=0.01)
    shares = cost_shares(plan, statistics, {**by_id, "q-99": by_id["q-0"]})
    assert shares == pytest.approx({name: figures["cost_share"] for name, figures in statistics_of.items()}, rel=0.01)
    assert cost_shares(plan, Statistics(), by_id) == {}
    assert (
        statistics_of["q-3"]["cores"]
        == statistics_of["q-4"]["cores"]
        < statistics_of["q-5"]["cores"] + statistics_of["q-6"]["cores"]
    )


def test_a_query_that_does_not_run_costs_nothing_known() -> None:
    by_id = queries()
    plan, statistics = running(by_id)
    figures = query_statistics(plan, statistics, by_id["q-4"], STREAMS, None)
    assert (figures["cores"], figures["cost_share"]) == (None, None)
    assert figures["selectivity"] == {"x": None, "y": 1.0}
    assert figures["tuples_per_second"] == {"a": 0.0, "b": 0.0}


def test_a_new_query_adds_what_another_of_its_operator_takes_in_partitions() -> None:
    by_id = queries()
    plan, statistics = running(by_id)
    costs = Costs(plan, statistics)
    operator = plan.operators[operator_of(by_id["q-4"])]
    partition = statistics.partition_cores([operator.id]) / len(operator.queries)
    assert costs.added_cores(by_id["q-4"]) == pytest.approx(partition)
    assert costs.added_cores(by_id["q-4"]) < costs.cores(by_id["q-4"])


def test_a_new_operator_adds_its_tuples() -> None:
    by_id = queries()
    plan, statistics = running({"q-0": by_id["q-0"]})
    new_query = by_id["q-1"]
    assert Costs(plan, statistics).added_cores(new_query) == 0.0  # nothing comes
    for second in range(3, 6):
        counted = {new_query.streams[0]: {"tuples": 1_000_000}}
        statistics.observe({"committed_us": second * 1_000_000, "streams": counted, "report": None})
    rate = statistics.tuples_per_second(new_query.streams[0])
    assert rate > 100_000
    assert Costs(plan, statistics).added_cores(new_query) == pytest.approx(rate * NEW_OPERATOR_SECONDS_A_TUPLE)


def test_an_operator_has_the_time_of_its_inputs() -> None:
    by_id = queries()
    plan, statistics = running(by_id)
    figures = operator_statistics(statistics, plan.operators[operator_of(by_id["q-3"])])
    parts = source_operators(by_id["q-3"])
    assert figures["source_cores"] == pytest.approx(statistics.source_cores(parts), rel=0.01)
    assert figures["distinct_keys"] == 3
    assert figures["partition_cores"] > 0
