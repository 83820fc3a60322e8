"""Queries over rows that change: what they become, and which are refused."""

from __future__ import annotations

import pytest

from braid.operators.expressions import conjuncts_of
from braid.operators.queries import Aggregation, Selection
from braid.operators.query_parts import CHANGES
from braid.session.sql.changes import HAS_ROWS, ROWS
from braid.session.sql.select import PlannedSelect, plan_statement
from braid.sources.core.errors import ServiceError
from tests.session.sql.catalog import CATALOG

LIVE = "SELECT gem_pack, SUM(price) AS n FROM purchases [RANGE 10 SECONDS] GROUP BY gem_pack EMIT STREAM"


def plan(sql: str) -> PlannedSelect:
    return plan_statement(sql, CATALOG)


def outputs(planned: PlannedSelect) -> list[str]:
    return [output.name for output in planned.query.outputs]


def test_a_selection_of_changes_gives_changes() -> None:
    assert outputs(plan(f"SELECT n + 1 AS m FROM ({LIVE}) AS x WHERE n > 3")) == ["m", *CHANGES]
    assert outputs(plan(f"SELECT * FROM ({LIVE}) AS x"))[2:] == ["gem_pack", "n", *CHANGES]
    over_selection = f"SELECT m FROM (SELECT n AS m FROM ({LIVE}) AS x) AS y"
    assert outputs(plan(over_selection)) == ["m", *CHANGES]


@pytest.mark.parametrize("named", ["_op", "_op AS change", "x._OP AS change", "_ver, n"])
def test_a_select_that_names_the_columns_of_changes_takes_them_for_rows(named: str) -> None:
    query = plan(f"SELECT {named} FROM ({LIVE}) AS x").query
    assert isinstance(query, Selection)
    assert len(query.outputs) == len(named.split(","))


def test_changes_can_be_counted_as_rows_of_their_own() -> None:
    query = plan(f"SELECT COUNT(*) AS n FROM ({LIVE}) [RANGE 10 SECONDS] AS x WHERE _op = 'retract'").query
    assert isinstance(query, Aggregation)
    assert query.having is None


def test_sums_of_changes_are_weighted_and_a_group_without_rows_is_none() -> None:
    query = plan(f"SELECT COUNT(*) AS n, AVG(n) AS m FROM ({LIVE}) [RANGE 1 MINUTE] AS x HAVING AVG(n) > 2").query
    assert isinstance(query, Aggregation)
    assert ROWS in query.measures
    assert {measure.function for measure in query.measures} == {"sum"}
    assert next(iter(conjuncts_of(query.having))) == HAS_ROWS


@pytest.mark.parametrize("aggregate", ["MIN(n)", "MAX(n)", "COUNT(DISTINCT n)", "STDDEV_SAMP(n)", "BOOL_AND(n > 1)"])
def test_values_that_can_leave_again_are_counted(aggregate: str) -> None:
    query = plan(f"SELECT {aggregate} AS m FROM ({LIVE}) [RANGE 1 MINUTE] AS x").query
    assert isinstance(query, Aggregation)
    (counted,) = (measure for measure in query.measures if measure.by_value)
    assert len(counted.by_value) == 2


def test_unions_of_changes_are_changes() -> None:
    other = LIVE.replace("10 SECONDS", "5 SECONDS")
    assert outputs(plan(f"SELECT n FROM ({LIVE}) AS x UNION ALL SELECT n FROM ({other}) AS y")) == ["n", *CHANGES]
    of_windows = plan(f"SELECT n FROM ({LIVE} UNION ALL {other}) AS x")
    assert outputs(of_windows) == ["n", *CHANGES]


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        (f"SELECT n FROM ({LIVE} AFTER DELAY INTERVAL '1' SECOND) AS x", "AND AFTER WATERMARK after the delay"),
        (
            f"SELECT n FROM ({LIVE.replace('STREAM', '')} AFTER DELAY INTERVAL '1' SECOND) AS x",
            "write EMIT STREAM AFTER DELAY",
        ),
        (f"SELECT n FROM ({LIVE}) [RANGE 10 SECONDS] AS x", "leave the window out"),
        (
            f"SELECT x.n FROM ({LIVE}) [RANGE 9 SECONDS] x JOIN purchases [RANGE 9 SECONDS] p ON x.n = p.price",
            "write the input as a subquery without EMIT",
        ),
        (f"SELECT COUNT(*) AS n FROM ({LIVE}) [SESSION 5 SECONDS] AS x GROUP BY gem_pack", "write another window"),
        (f"SELECT n FROM ({LIVE}) AS x UNION ALL SELECT price FROM purchases", "write EMIT STREAM in all of them"),
        (f"SELECT n AS _op FROM ({LIVE}) AS x", "reserved"),
    ],
)
def test_what_is_refused_says_what_to_write(sql: str, part: str) -> None:
    with pytest.raises(ServiceError) as refused:
        plan(sql)
    assert part in refused.value.detail, refused.value.detail
