"""The queries of thesis 5.2 and 5.4 over videos (V), views (W), comments (C) and reactions (R), as they come and go."""

from __future__ import annotations

import pytest

from braid.operators.joins.query import Join
from braid.operators.kinds import operator_of, source_operators
from braid.optimizer.join_costs import Sharing
from braid.optimizer.plan import Plan
from braid.sources.core.schema import BIGINT, INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from tests.kit.plans import plan_select

COLUMNS = {
    "V": {"vID": BIGINT, "length": INT, "geo": VARCHAR, "lang": VARCHAR},
    "W": {"usrID": BIGINT, "vID": BIGINT, "duration": INT, "geo": VARCHAR},
    "C": {"usrID": BIGINT, "comment": VARCHAR, "length": INT, "photo": VARCHAR, "emojis": INT},
    "R": {"usrID": BIGINT, "reaction": VARCHAR},
}


def stream(name: str) -> StreamDefinition:
    fields = (*(Field(column.lower(), kind) for column, kind in COLUMNS[name].items()), Field("time", TIMESTAMP))
    return StreamDefinition(f"s-{name}", name, StreamSchema(fields, "time", 0), "push", "json")


CATALOG = {name.lower(): stream(name) for name in COLUMNS}
V_W = "V [RANGE 5 SECONDS] JOIN W [RANGE 5 SECONDS] ON V.vID = W.vID"
W_C = "W [RANGE 5 SECONDS] JOIN C [RANGE 5 SECONDS] ON W.usrID = C.usrID"
QUERIES = {
    "Q1": f"{V_W} WHERE V.lang = 'ENG' AND W.geo = 'GER'",
    "Q2": f"{V_W} JOIN C [RANGE 5 SECONDS] ON W.usrID = C.usrID"
    " WHERE V.geo = 'US' AND W.duration < 10 AND C.length > 5",
    "Q3": f"{W_C} JOIN R [RANGE 5 SECONDS] ON C.usrID = R.usrID"
    " WHERE W.geo = 'EU' AND R.reaction = 'angry' AND C.emojis > 0",
    "Q4": f"{W_C} WHERE W.geo = 'GER'",
    "Q5": f"{V_W} WHERE V.length > 60",
    "Q6": f"{V_W} JOIN C [RANGE 5 SECONDS] ON W.usrID = C.usrID WHERE V.geo = 'GER'",
    "Q7": f"{W_C} WHERE W.duration > 100 AND C.photo = 'yes'",
}


def planned(name: str) -> Join:
    query = plan_select(f"SELECT 1 AS one FROM {QUERIES[name]}", CATALOG)
    assert isinstance(query, Join)
    return query


def created(*names: str) -> Plan:
    plan = Plan()
    for name in names:  # one by one, as they come
        plan.change([(name, planned(name))])
    return plan


def shared_by(plan: Plan, name: str, *inputs: int) -> int:
    return Sharing(plan, planned(name), name)(frozenset(inputs))


@pytest.mark.parametrize(("first", "second"), [("Q1", "Q5"), ("Q2", "Q6"), ("Q4", "Q7")])
def test_queries_of_the_same_join_share_an_operator_at_once(first: str, second: str) -> None:
    """Whatever their predicates and costs: no deployment waits for the optimizer."""
    assert operator_of(planned(first)) == operator_of(planned(second))
    assert created(first).sharing(planned(second)) == (1, [first])


def test_queries_that_compare_a_stream_by_the_same_attribute_share_its_index() -> None:
    """W and C are indexed by usrID once for Q3, Q4 and Q7 (figure 5.5). Those of Q2, which compares W by two, go apart:
    what it joins must meet in one partition.
    """
    sources = created(*QUERIES).operators[operator_of(planned("Q3"))].sources
    assert set(source_operators(planned("Q4"))) == set(source_operators(planned("Q7"))) < set(sources)
    assert not set(source_operators(planned("Q2"))) & (set(sources) | set(source_operators(planned("Q1"))))


def test_sub_joins_may_be_shared_between_queries_of_different_joins() -> None:
    """V ⋈ W between Q1 and Q2, W ⋈ C between Q2 and Q3; and all that have them once Q4 to Q6 run, too."""
    plan = created("Q1", "Q2", "Q3")
    assert [shared_by(plan, "Q2", 0, 1), shared_by(plan, "Q2", 1, 2), shared_by(plan, "Q2", 0, 1, 2)] == [2, 2, 1]
    assert [shared_by(plan, "Q1", 0, 1), shared_by(plan, "Q3", 0, 1), shared_by(plan, "Q3", 1, 2)] == [2, 2, 1]
    plan = created("Q1", "Q2", "Q3", "Q4", "Q5", "Q6")
    assert [shared_by(plan, "Q2", 0, 1), shared_by(plan, "Q2", 1, 2), shared_by(plan, "Q2", 0, 1, 2)] == [4, 4, 2]


def test_when_q4_goes_and_q7_comes_nothing_else_changes() -> None:
    """At once Q7 shares W ⋈ C with those that have it; only the operator that both have or had is another one."""
    plan = created("Q1", "Q2", "Q3", "Q4", "Q5", "Q6")
    before = {name: operator.to_json({}) for name, operator in plan.operators.items()}
    plan.change(created=[("Q7", planned("Q7"))], removed=[("Q4", planned("Q4"))])
    after = {name: operator.to_json({}) for name, operator in plan.operators.items()}
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {operator_of(planned("Q4"))}
    assert plan.operators[operator_of(planned("Q7"))].queries == {"Q7": 0}
    assert shared_by(plan, "Q7", 0, 1) == 4
