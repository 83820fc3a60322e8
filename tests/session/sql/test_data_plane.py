"""What the data plane does not run yet is planned by the front end, and refused wherever a query comes in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from operators.expressions import Column
from operators.queries import Measure
from session.admission import QueryRequest
from session.sql.data_plane import NOT_RUN_YET
from session.sql.select import plan_select
from sources.errors import NotAllowed, SqlNotAllowed
from sources.schema import DOUBLE, VARCHAR
from tests.session.driver import Driver
from tests.session.sql.catalog import CATALOG, plan

W = "FROM purchases [RANGE 8 SECONDS]"
EMIT = f"SELECT COUNT(*) AS n {W} ^EMIT"
# every feature that can be missing, in a statement with ^ before it
FEATURES = [
    ("STDDEV_SAMP", f"SELECT gem_pack, MAX(price) + ^STDDEV(price) AS s {W} GROUP BY gem_pack"),
    ("STDDEV_SAMP", f"SELECT COUNT(*) AS n {W} HAVING ^STDDEV_SAMP(price) > 1"),
    ("VAR_SAMP", f"SELECT ^VARIANCE(price) AS v {W}"),
    ("COUNT(DISTINCT …)", f"SELECT COUNT(price) AS n, ^COUNT(DISTINCT price) AS d {W}"),
    ("SESSION", "SELECT COUNT(*) AS n FROM purchases ^[SESSION 5 SECONDS]"),
    ("SESSION", "SELECT COUNT(*) AS n FROM ^SESSION(TABLE purchases, DESCRIPTOR(time), INTERVAL '5' SECOND)"),
    ("COUNT(DISTINCT …) over sessions", "SELECT COUNT(DISTINCT price) AS n FROM purchases ^[SESSION 5 SECONDS]"),
    ("EMIT STREAM", f"{EMIT} STREAM"),
    ("EMIT STREAM AFTER WATERMARK", f"{EMIT} STREAM AFTER WATERMARK"),
    ("EMIT AFTER DELAY", f"{EMIT} AFTER DELAY INTERVAL '6' MINUTES"),
    ("EMIT STREAM AFTER DELAY", f"{EMIT} STREAM AFTER DELAY INTERVAL '6' MINUTES"),
    ("EMIT AFTER DELAY AND AFTER WATERMARK", f"{EMIT} AFTER WATERMARK AND AFTER DELAY INTERVAL '6' MINUTES"),
    (
        "EMIT STREAM AFTER DELAY AND AFTER WATERMARK",
        f"{EMIT} STREAM AFTER DELAY INTERVAL '6' MINUTES AND AFTER WATERMARK",
    ),
]


@pytest.mark.parametrize(("feature", "marked"), FEATURES)
def test_a_feature_is_refused_at_its_place_only_while_it_is_not_run(feature: str, marked: str) -> None:
    before, _, after = marked.partition("^")
    sql = before + after
    without = {name: hint for name, hint in NOT_RUN_YET.items() if name != feature}
    assert plan_select(sql, CATALOG, without) == plan(sql)
    with pytest.raises(SqlNotAllowed) as caught:
        plan_select(f"EXPLAIN {sql}", CATALOG, {feature: "Write something else."})
    assert caught.value.detail == f"{feature} is not supported yet. Write something else."
    assert caught.value.position is not None
    assert caught.value.position.column == len("EXPLAIN ") + len(before) + 1


def test_what_is_not_run_is_among_the_features() -> None:
    assert set(NOT_RUN_YET) <= {feature for feature, _ in FEATURES}


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT MIN(DISTINCT price) AS a, AVG(price) AS b {W} EMIT AFTER WATERMARK",
        "SELECT price FROM purchases EMIT STREAM",
        "SELECT price FROM purchases EMIT STREAM AFTER WATERMARK",
    ],
)
def test_what_the_data_plane_always_ran_is_no_feature(sql: str) -> None:
    everything = dict.fromkeys((feature for feature, _ in FEATURES), "")
    assert plan_select(sql, CATALOG, everything) == plan(sql)


@pytest.mark.parametrize(("feature", "marked"), FEATURES)
def test_the_session_refuses_it_and_changes_nothing(
    driver: Driver, feature: str, marked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NOT_RUN_YET, feature, "Write something else.")
    before, _, after = marked.partition("^")
    request, observed = QueryRequest(before + after), driver.observed()
    attempts: list[Callable[[], object]] = [
        lambda: driver.session.create_queries([request]),
        lambda: driver.session.validate(request),
        lambda: driver.session.execute(f"EXPLAIN {request.sql}"),
        lambda: driver.session.execute(f"CREATE QUERY q AS {request.sql}"),
    ]
    for attempt in attempts:
        with pytest.raises(SqlNotAllowed, match="is not supported yet") as caught:
            attempt()
        assert caught.value.position is not None
    assert driver.observed() == observed


@pytest.mark.parametrize("function", ["stddev_samp", "var_samp"])
def test_a_deviation_is_of_numbers(function: str) -> None:
    assert Measure(function, Column("price", DOUBLE)).type == DOUBLE
    with pytest.raises(NotAllowed, match=r"needs a number; got name \(VARCHAR\)"):
        Measure(function, Column("name", VARCHAR))


@pytest.mark.parametrize("function", ["stddev_samp", "var_samp", "count_distinct"])
def test_a_measure_has_an_argument(function: str) -> None:
    with pytest.raises(NotAllowed, match=f"{function.upper()} needs an argument"):
        Measure(function)
