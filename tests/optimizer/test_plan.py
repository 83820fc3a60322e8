"""The plan, built step by step, equals the plan built at once; its graph names what exists."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Column, Literal, all_of
from braid.operators.functions import call
from braid.operators.kinds import kind_of, operator_of
from braid.operators.queries import Aggregation, Query
from braid.operators.windows import SessionWindow, Window
from braid.optimizer.graph import to_dot
from braid.optimizer.plan import MAX_SIMPLE, MIN_ALIKE, Plan
from braid.sources.core.errors import ServiceError
from braid.sources.core.schema import BIGINT
from tests.session.queries import PRICE, aggregation, selection

QUERIES: list[Query] = [
    selection("s-1"),
    selection("s-2"),
    aggregation("s-1"),
    aggregation("s-1", window=Window(60, 60)),
    aggregation("s-2", (PRICE,)),
]


def evaluation_of(query: Query) -> dict[str, str]:
    return kind_of(query).evaluation(query)


@given(st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=4), st.integers(0, 10)), max_size=12))
def test_changes_give_the_plan_of_the_queries_that_are_left(changes: list[tuple[list[int], int]]) -> None:
    plan, number = Plan(), 0
    model: dict[str, Query] = {}
    for created, removals in changes:
        leaving = dict(list(model.items())[:removals])
        coming = {f"q-{number + i}": QUERIES[kind] for i, kind in enumerate(created)}
        number += len(created)
        version = plan.version
        assert plan.version_after(bool(coming or leaving)) == version + bool(coming or leaving)
        plan.change(coming.items(), leaving.items())
        assert plan.version == version + bool(coming or leaving)
        model = {q: query for q, query in [*model.items(), *coming.items()] if q not in leaving}
        operators: dict[str, set[str]] = {}
        windows: dict[str, set[Window]] = {}
        for query_id, query in model.items():
            operators.setdefault(operator_of(query), set()).add(query_id)
            windows_of_operator = windows.setdefault(operator_of(query), set())
            if isinstance(query, Aggregation):
                windows_of_operator.add(query.window)
        assert {o.id: set(o.queries) for o in plan.operators.values()} == operators
        assert {o.id: set(o.windows) for o in plan.operators.values()} == windows


def test_the_graph_leads_from_streams_over_operators_to_the_router() -> None:
    plan = Plan()
    plan.change([("q-1", QUERIES[0]), ("q-2", QUERIES[2]), ("q-3", QUERIES[3])], streams_created={"s-1": 'pur"chases'})
    graph = plan.to_json()
    assert graph["version"] == 1
    assert [node["id"] for node in graph["nodes"]] == [
        "stream:s-1",
        "aggregation:s-1:gem_pack",
        "selection:s-1",
        "router",
    ]
    node = graph["nodes"][1]
    assert (node["streams"], node["partitioned_by"], node["queries"]) == (['pur"chases'], ["gem_pack"], 2)
    assert [window["kind"] for window in node["windows"]] == ["tumbling", "hopping"]
    node_ids = {node["id"] for node in graph["nodes"]}
    assert all({edge["source"], edge["target"]} <= node_ids for edge in graph["edges"])
    dot = to_dot(graph)
    assert dot.startswith("digraph plan {")
    assert '"aggregation:s-1:gem_pack" -> "router";' in dot
    assert 'label="pur\\"chases"' in dot
    assert "2 queries" in dot
    plan.change(groups={"q-2": 4})
    assert plan.to_json()["nodes"][1]["groups"] == {"0": 1, "4": 1}
    assert "2 query groups" in to_dot(plan.to_json())


def test_explain_tells_with_whom_a_query_shares_and_shows_twenty_of_them() -> None:
    plan = Plan()
    plan.change([(f"q-{n}", QUERIES[0]) for n in range(30)])
    answer = plan.explain(QUERIES[0], {"s-1": "purchases"}, "q-3")
    assert answer["shares_with"]["count"] == 29
    assert answer["shares_with"]["ids"] == [f"q-{n}" for n in range(21) if n != 3]
    assert plan.explain(QUERIES[0], {"s-1": "purchases"}, "q-25")["shares_with"]["count"] == 29
    assert plan.explain(QUERIES[0], {"s-1": "purchases"})["shares_with"]["count"] == 30
    assert answer["window"] is None
    assert answer["why"] == ("Shared with 29 other queries: all selections over purchases share one operator.")
    alone = plan.explain(QUERIES[2], {"s-1": "purchases"})
    assert alone["shares_with"] == {"count": 0, "ids": []}
    assert alone["why"].startswith("Shared with no other query yet: all aggregations over purchases")


def test_dropped_streams_leave_and_nothing_changed_is_the_same_version() -> None:
    plan = Plan()
    plan.change(streams_created={"s-1": "a", "s-2": "b"})
    assert plan.version == 1
    plan.change()
    assert plan.version == plan.version_after(False, {"s-1": "a"}, ["s-3"]) == 1
    assert plan.version_after(False, {"s-3": "c"}) == plan.version_after(False, streams_dropped=["s-2"]) == 2
    plan.change(streams_dropped=["s-1"])
    assert (plan.version, plan.streams) == (2, {"s-2": "b"})


def test_a_change_that_makes_no_sense_is_refused_and_changes_nothing() -> None:
    plan = Plan()
    plan.change([("q-1", QUERIES[0])])
    before = plan.to_json()
    with pytest.raises(ServiceError, match="'q-2'"):
        plan.change([("q-3", QUERIES[1])], removed=[("q-1", QUERIES[0]), ("q-2", QUERIES[0])])
    assert plan.to_json() == before


@pytest.mark.parametrize(
    ("tested", "form", "why"),
    [
        ([], "one total", "no column is tested"),
        (["a"], "cells", "only a is tested"),
        (["a", "a"], "cells", "only a is tested"),
        (["a", "b"], "query-set groups", "a, b are tested"),
    ],
)
def test_the_form_of_evaluation_follows_what_is_tested(tested: list[str], form: str, why: str) -> None:
    conjuncts = tuple(call(">", Column(name, BIGINT), Literal(1, BIGINT)) for name in tested)
    where = call("and", *conjuncts) if len(conjuncts) > 1 else next(iter(conjuncts), None)
    answer = evaluation_of(replace(aggregation("s-1"), where=where))
    assert answer["form"] == form
    assert why in answer["why"]
    many_values = call("in", Column("a", BIGINT), *(Literal(value, BIGINT) for value in range(0, 100, 3)))
    assert evaluation_of(replace(aggregation("s-1"), where=many_values))["form"] == "query-set groups"
    sessions = replace(aggregation("s-1"), where=where, window=SessionWindow(5))
    assert evaluation_of(sessions)["form"] == "fragments"
    assert sessions.window.described() == {"kind": "session", "gap_seconds": 5e-6}


def test_queries_share_cells_where_enough_test_the_same_columns() -> None:
    def on(*columns: str, value: int = 1) -> Query:
        tests = [call(">", Column(column, BIGINT), Literal(value, BIGINT)) for column in columns]
        return replace(aggregation("s-1"), where=all_of(tests))

    plan = Plan()
    first = {f"q-{n}": on("price", "weight", value=n) for n in range(3)}
    assert plan.alone_among(first.items()) == set(), "an operator's first cells are shared, however few have them"
    plan.change(first.items())
    others = {f"r-{n}": on("size", "weight", value=n) for n in range(MIN_ALIKE)}
    few = dict(list(others.items())[:-1])
    assert plan.alone_among(few.items()) == set(few)
    assert plan.alone_among(others.items()) == set()
    plan.change(few.items(), alone=set(few))
    last = {f"r-{MIN_ALIKE - 1}": on("size", "weight", value=99)}
    assert plan.alone_among(last.items()) == set(), "queries that are alone count among those that are alike"
    assert plan.explain(others["r-0"], {"s-1": "s"}, "r-0")["evaluation"]["form"] == "alone"
    assert plan.explain(first["q-0"], {"s-1": "s"}, "q-0")["evaluation"]["form"] == "query-set groups"
    assert plan.explain(on("weight", "price", "size"), {"s-1": "s"})["evaluation"]["form"] == "alone", "it would be"
    (operator,) = plan.operators.values()
    assert operator.summary({})["alone"] == len(few)
    plan.change(removed=few.items())
    assert plan.alone_among(few.items()) == set(few)


def test_queries_share_cells_while_all_of_their_operator_test_one_of_few_columns() -> None:
    def on(column: int) -> Query:
        return replace(aggregation("s-1"), where=call(">", Column(f"c{column}", BIGINT), Literal(1, BIGINT)))

    plan = Plan()
    for number in range(MAX_SIMPLE):
        created = {f"q-{number}": on(number)}
        assert plan.alone_among(created.items()) == set()
        plan.change(created.items())
    assert plan.alone_among([("q-more", on(MAX_SIMPLE))]) == {"q-more"}
    residual = replace(aggregation("s-1"), where=call("=", call("mod", PRICE, Literal(7, BIGINT)), Literal(1, BIGINT)))
    assert Plan().alone_among([("a", on(0)), ("b", on(1))]) == set()
    assert Plan().alone_among([("a", on(0)), ("b", on(1)), ("other", residual)]) == {"a", "b", "other"}
