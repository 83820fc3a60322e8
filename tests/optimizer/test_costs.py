"""What queries cost: the time of all operators is handed out to those that share them, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from operators.queries import Query
from operators.report import index_of
from optimizer.costs import NEW_OPERATOR_SECONDS_A_TUPLE, Costs, cost_shares, operator_statistics, query_statistics
from optimizer.optimizer import operator_of
from optimizer.plan import Plan, source_operators
from optimizer.statistics import Statistics
from session.sql.select import plan_select
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


def running(mine: dict[str, Query]) -> tuple[Plan, Statistics]:
    """Return the plan of queries, and statistics in which every operator takes some time."""
    plan, statistics = Plan(), Statistics()
    plan.change(mine.items())
    names = {name for query in mine.values() for name in source_operators(query)}
    names |= {index_of(each) for operator in plan.operators.values() for each in operator.inputs}
    sources = {name: 1000 * (1 + number) for number, name in enumerate(sorted(names))}
    lanes = {name: 500 * (1 + number) for number, name in enumerate(plan.operators)}
    report: dict[str, Any] = {
        "sources": {"busy_us": sources, "chunks": {name: [100, 2, 3] for name in sources}},
        "lanes": {"busy_us": lanes, "chunks": {}},
        "samples": {},
    }
    for second in range(3):
        statistics.observe({"committed_us": second * 1_000_000, "streams": {}, "report": report})
    return plan, statistics


def test_queries_together_cost_what_the_operators_take() -> None:
    mine = queries()
    plan, statistics = running(mine)
    found = {name: query_statistics(plan, statistics, query, STREAMS, name) for name, query in mine.items()}
    assert sum(each["cores"] for each in found.values()) == pytest.approx(statistics.all_cores(), rel=0.01)
    assert sum(each["cost_share"] for each in found.values()) == pytest.approx(1, rel=0.01)
    shares = cost_shares(plan, statistics, {**mine, "q-99": mine["q-0"]})
    assert shares == pytest.approx({name: each["cost_share"] for name, each in found.items()}, rel=0.01)
    assert cost_shares(plan, Statistics(), mine) == {}
    assert found["q-3"]["cores"] == found["q-4"]["cores"] < found["q-5"]["cores"] + found["q-6"]["cores"]


def test_a_query_that_does_not_run_costs_nothing_known() -> None:
    mine = queries()
    plan, statistics = running(mine)
    found = query_statistics(plan, statistics, mine["q-4"], STREAMS, None)
    assert (found["cores"], found["cost_share"]) == (None, None)
    assert found["selectivity"] == {"x": None, "y": 1.0}
    assert found["tuples_per_second"] == {"a": 0.0, "b": 0.0}


def test_a_new_query_adds_what_another_of_its_operator_takes_in_lanes() -> None:
    mine = queries()
    plan, statistics = running(mine)
    costs = Costs(plan, statistics)
    operator = plan.operators[operator_of(mine["q-4"])]
    lane = statistics.lane_cores([operator.id]) / len(operator.queries)
    assert costs.added_cores(mine["q-4"]) == pytest.approx(lane)
    assert costs.added_cores(mine["q-4"]) < costs.cores(mine["q-4"])


def test_a_new_operator_adds_its_tuples() -> None:
    mine = queries()
    plan, statistics = running({"q-0": mine["q-0"]})
    new = mine["q-1"]
    assert Costs(plan, statistics).added_cores(new) == 0.0  # nothing comes
    for second in range(3, 6):
        counted = {new.streams[0]: {"tuples": 1_000_000}}
        statistics.observe({"committed_us": second * 1_000_000, "streams": counted, "report": None})
    rate = statistics.tuples_per_second(new.streams[0])
    assert rate > 100_000
    assert Costs(plan, statistics).added_cores(new) == pytest.approx(rate * NEW_OPERATOR_SECONDS_A_TUPLE)


def test_an_operator_has_the_time_of_its_inputs() -> None:
    mine = queries()
    plan, statistics = running(mine)
    shown = operator_statistics(statistics, plan.operators[operator_of(mine["q-3"])])
    parts = source_operators(mine["q-3"])
    assert shown["source_cores"] == pytest.approx(statistics.source_cores(parts), rel=0.01)
    assert shown["distinct_keys"] == 3
    assert shown["lane_cores"] > 0
