"""The plan, built step by step, equals the plan built at once; its graph names what exists."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.expressions import Column, Literal
from operators.functions import call
from operators.queries import Query, SessionWindow, Window
from optimizer.optimizer import operator_of
from optimizer.plan import Operator, Plan, evaluation, window_json
from sources.errors import BraidError
from sources.schema import BIGINT
from tests.session.queries import PRICE, aggregation, selection

QUERIES: list[Query] = [
    selection("s-1"),
    selection("s-2"),
    aggregation("s-1"),
    aggregation("s-1", window=Window(60, 60)),
    aggregation("s-2", (PRICE,)),
]


@given(st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=4), st.integers(0, 10)), max_size=12))
def test_changes_give_the_plan_of_the_queries_that_are_left(changes: list[tuple[list[int], int]]) -> None:
    plan, number = Plan(), 0
    model: dict[str, Query] = {}
    for created, removals in changes:
        leaving = dict(list(model.items())[:removals])
        coming = {f"q-{number + i}": QUERIES[kind] for i, kind in enumerate(created)}
        number += len(created)
        before, json = plan, plan.to_json()
        plan = plan.changed(coming.items(), leaving.items())
        assert before.to_json() == json, "a plan never changes"
        assert plan.version == before.version + bool(coming or leaving)
        model = {q: query for q, query in [*model.items(), *coming.items()] if q not in leaving}
        operators: dict[str, set[str]] = {}
        for query_id, query in model.items():
            operators.setdefault(operator_of(query), set()).add(query_id)
        assert {o.id: set(o.queries) for o in plan.operators.values()} == operators


def test_the_graph_leads_from_streams_over_operators_to_the_router() -> None:
    plan = Plan().changed(
        [("q-1", QUERIES[0]), ("q-2", QUERIES[2]), ("q-3", QUERIES[3])], streams_created={"s-1": 'pur"chases'}
    )
    graph = plan.to_json()
    assert graph["version"] == 1
    assert [node["id"] for node in graph["nodes"]] == [
        "stream:s-1",
        "aggregation:s-1:gem_pack",
        "selection:s-1",
        "router",
    ]
    node = graph["nodes"][1]
    assert (node["stream"], node["partitioned_by"], node["queries"]) == ('pur"chases', ["gem_pack"], 2)
    assert [window["kind"] for window in node["windows"]] == ["tumbling", "hopping"]
    known = {node["id"] for node in graph["nodes"]}
    assert all({edge["source"], edge["target"]} <= known for edge in graph["edges"])
    dot = plan.to_dot()
    assert dot.startswith("digraph plan {")
    assert '"aggregation:s-1:gem_pack" -> "router";' in dot
    assert 'label="pur\\"chases"' in dot
    assert "2 queries" in dot


def test_explain_tells_with_whom_a_query_shares_and_shows_twenty_of_them() -> None:
    plan = Plan().changed([(f"q-{n}", QUERIES[0]) for n in range(30)])
    answer = plan.explain(QUERIES[0], {"s-1": "purchases"}, "q-3")
    assert answer["shares_with"]["count"] == 29
    assert answer["shares_with"]["ids"] == [f"q-{n}" for n in range(21) if n != 3]
    assert answer["window"] is None
    assert answer["why"] == ("Shared with 29 other queries: all selections over purchases share one operator.")
    alone = plan.explain(QUERIES[2], {"s-1": "purchases"})
    assert alone["shares_with"] == {"count": 0, "ids": []}
    assert alone["why"].startswith("Shared with no other query yet: all aggregations over purchases")


def test_dropped_streams_leave_and_nothing_changed_is_the_same_plan() -> None:
    plan = Plan().changed(streams_created={"s-1": "a", "s-2": "b"})
    assert plan.changed() is plan
    assert plan.changed(streams_dropped=["s-1"]).streams == {"s-2": "b"}


def test_a_plan_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(BraidError, match="'q-1'"):
        Plan().changed(removed=[("q-1", QUERIES[0])])
    with pytest.raises(BraidError, match="runs none"):
        Plan(1, {"o": Operator("o", "selection", "s-1", ())})


@pytest.mark.parametrize(
    ("tested", "form", "why"),
    [
        ([], "one cell", "nothing is tested"),
        (["a"], "cells", "only a is tested"),
        (["a", "a"], "cells", "only a is tested"),
        (["a", "b"], "query-set groups", "a, b are tested"),
    ],
)
def test_the_form_of_evaluation_follows_what_is_tested(tested: list[str], form: str, why: str) -> None:
    conjuncts = tuple(call(">", Column(name, BIGINT), Literal(1, BIGINT)) for name in tested)
    where = call("and", *conjuncts) if len(conjuncts) > 1 else next(iter(conjuncts), None)
    found = evaluation(replace(aggregation("s-1"), where=where))
    assert found["form"] == form
    assert why in found["why"]
    sessions = replace(aggregation("s-1"), where=where, window=SessionWindow(5))
    assert evaluation(sessions)["form"] == "fragments"
    assert window_json(sessions.window) == {"kind": "session", "gap_seconds": 5e-6}
