"""What is told of a join's order: estimates from rates and samples, costs alone and shared, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.joins.query import Join
from braid.operators.kinds import operator_of
from braid.operators.queries import Query
from braid.operators.report import draw_sample
from braid.optimizer.join_costs import estimate_input, explain_join_order
from braid.optimizer.plan import Plan
from braid.optimizer.statistics import Statistics
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG

RATES = {"s-a": 1000, "s-b": 500, "s-c": 100}
TUPLES = 64
PAIR = "SELECT x.v FROM a W x, b W y WHERE x.k = y.k AND x.v < 5"
TRIANGLE = "SELECT x.v FROM a W x, b W y, c W z WHERE x.k = y.k AND y.m = z.m AND z.v = x.v"


def planned(text: str) -> Query:
    return plan_select(text.replace(" W ", " [RANGE 4 SECONDS] "), CATALOG)


def observed(*streams: str) -> Statistics:
    """Return statistics of streams: of their sampled tuples k has 4 values, m has 8, v is 0 to 9."""
    numbers = np.arange(TUPLES)
    batch = pa.RecordBatch.from_pydict({"k": numbers % 4, "m": numbers % 8, "v": numbers % 10})
    report: dict[str, Any] = {
        "sources": {"busy_us": {}, "chunks": {}},
        "partitions": {"busy_us": {operator_of(planned(PAIR)): 50_000}, "chunks": {}},
        "samples": {stream: [draw_sample(batch, batch.schema.names, 1)] for stream in streams},
    }
    statistics = Statistics()
    for second in range(3):
        counted = {stream: {"tuples": RATES[stream]} for stream in streams}
        statistics.observe({"committed_us": second * 1_000_000, "streams": counted, "report": report})
    return statistics


def plan_of(*texts: str) -> Plan:
    plan = Plan()
    plan.change((f"q-{number}", planned(text)) for number, text in enumerate(texts))
    return plan


def test_an_input_has_what_comes_in_a_window_and_is_selected() -> None:
    query, statistics = planned(PAIR), observed(*RATES)
    first, second = (estimate_input(statistics, query, number) for number in range(2))  # type: ignore[arg-type]
    assert first is not None
    assert second is not None
    selectivity = sum(value % 10 < 5 for value in range(TUPLES)) / TUPLES
    assert first.tuples == first.indexed == pytest.approx(1000 * 4 * selectivity)
    assert second.tuples == pytest.approx(500 * 4)
    assert first.distinct == second.distinct == {0: 4.0}
    assert first.rows == 4


def test_the_cost_of_a_join_is_that_of_the_equation() -> None:
    explained = explain_join_order(plan_of(PAIR), observed(*RATES), planned(PAIR), "q-0")
    assert explained is not None
    tuples = {join_input["input"]: join_input["tuples"] for join_input in explained["inputs"]}
    assert explained["combinations"] == "counted"
    assert [join_input["distinct_keys"] for join_input in explained["inputs"]] == [{"k": 4.0}, {"k": 4.0}]
    # all tuples are counted by key, and 4 keys meet 4 keys; nothing is formed
    assert explained["cost"] == pytest.approx(sum(tuples.values()) + 4, rel=0.01)
    assert explained["steps"] == [
        {
            "joined": explained["order"],
            "rows": 4.0,
            "cost": explained["cost"],
            "shared_by": 1,
            "shared_cost": explained["cost"],
        }
    ]
    assert explained["partition_cores"] == pytest.approx(0.05)
    assert "Partitions decide for each window" in explained["why"]
    tested = explain_join_order(plan_of(), observed(*RATES), planned(PAIR + " AND x.v + y.v > 3"))
    assert tested is not None
    assert tested["cost"] == pytest.approx(explained["cost"] + 4, rel=0.01), "rows are formed to be tested"


def test_queries_with_the_same_sub_join_share_its_cost() -> None:
    reversed_pair = "SELECT y.v FROM b W y, a W x WHERE x.k = y.k"
    sessions = "SELECT x.v FROM a [SESSION 4 SECONDS] x, b [SESSION 4 SECONDS] y WHERE x.k = y.k"
    plan = plan_of(TRIANGLE, PAIR, PAIR, reversed_pair, sessions, "SELECT x.v FROM a W x, c W z WHERE x.k = z.k")
    explained = explain_join_order(plan, observed(*RATES), planned(TRIANGLE), "q-0")
    assert explained is not None
    assert explained["combinations"] == "formed"
    shared_by = {frozenset(step["joined"]): step["shared_by"] for step in explained["steps"]}
    assert shared_by.pop(frozenset("xyz")) == 1
    assert shared_by in ({frozenset("xy"): 4}, {frozenset("yz"): 1}, {frozenset("xz"): 1})
    assert set(explained["max_shared"]["order"][:2]) == {"x", "y"}, "three others have x and y joined by k"
    assert explained["max_shared"]["cost"] < explained["cost"]
    before = explain_join_order(plan, observed(*RATES), planned(PAIR))
    assert before is not None
    assert before["steps"][0]["shared_by"] == 5, "this one counts as if it ran"


def test_an_order_as_written_is_told() -> None:
    query = planned(TRIANGLE)
    assert isinstance(query, Join)
    orders = [
        explain_join_order(Plan(), observed(*RATES), join) for join in (query, replace(query, is_reordered=False))
    ]
    assert [explained["order"] for explained in orders if explained] == [["x", "z", "y"], ["x", "y", "z"]]
    min_cost, cost_as_written = (explained["cost"] for explained in orders if explained)
    assert cost_as_written > min_cost
    assert orders[1] is not None
    assert "as they are written" in orders[1]["why"]


def test_what_is_not_known_is_told() -> None:
    nothing = explain_join_order(plan_of(), Statistics(), planned(TRIANGLE))
    assert nothing is not None
    assert nothing["cost"] is nothing["max_shared"]["cost"] is nothing["partition_cores"] is None
    assert sorted(nothing["order"]) == ["x", "y", "z"]
    assert nothing["steps"][0]["shared_by"] == 1
    assert "Costs are not known: too few rows of x and y and z" in nothing["why"]
    partly = explain_join_order(plan_of(), observed("s-a", "s-b"), planned(TRIANGLE))
    assert partly is not None
    assert partly["cost"] is None
    assert "of z have come" in partly["why"]
    assert {join_input["input"]: join_input["tuples"] for join_input in partly["inputs"]} == {
        "x": 4000.0,
        "y": 2000.0,
        "z": None,
    }
    sessions = planned("SELECT x.v FROM a [SESSION 4 SECONDS] x, b [SESSION 4 SECONDS] y WHERE x.k = y.k")
    of_sessions = explain_join_order(plan_of(), observed(*RATES), sessions)
    assert of_sessions is not None
    assert of_sessions["why"].endswith("it is not known beforehand how long sessions are.")


@pytest.mark.parametrize(("apart", "reason"), [(1, "the order that costs least of all"), (3, "in blocks of 5 inputs")])
def test_many_inputs_are_ordered_in_blocks_where_most_are_compared(apart: int, reason: str) -> None:
    """Each of eight in a circle is compared with those that are at most so far from it."""
    inputs = ", ".join(f"{'abc'[n % 3]} W i{n}" for n in range(8))
    pairs = [(n, (n + step) % 8) for n in range(8) for step in range(1, apart + 1)]
    where = " AND ".join(f"i{left}.k + {right} = i{right}.k + {left}" for left, right in pairs)
    explained = explain_join_order(plan_of(), observed(*RATES), planned(f"SELECT i0.v FROM {inputs} WHERE {where}"))
    assert explained is not None
    assert sorted(explained["order"]) == [f"i{n}" for n in range(8)]
    assert explained["combinations"] == "formed"
    assert reason in explained["why"]


def test_what_is_no_join_of_several_inputs_has_no_order() -> None:
    assert explain_join_order(plan_of(), Statistics(), planned("SELECT v FROM a")) is None
    assert explain_join_order(plan_of(), Statistics(), planned("SELECT x.v FROM a W x")) is None
