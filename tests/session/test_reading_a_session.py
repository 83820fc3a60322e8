"""What a session shows of its queries: lists, plans, results and batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from braid.operators.joins.query import Join
from braid.router.deployment import Deployment
from braid.session.commands.query_requests import QueryRequest
from braid.sources.core.errors import (
    CorruptData,
)
from tests.session.driver import AGGREGATION, SELECTION, Driver

CHEAP = SELECTION.format("purchases", 5)
REVENUE = AGGREGATION.format("purchases", 5)


def test_queries_are_listed_in_pages_by_state_label_and_name(driver: Driver) -> None:
    driver.run(CHEAP, CHEAP, labels={"team": "a"})
    driver.create(REVENUE, labels={"team": "b"}, name="Whales")
    driver.create(REVENUE)
    page = driver.session.lookup.page(limit=3)
    assert [q["id"] for q in page["queries"]] == ["q-1", "q-2", "q-3"]
    page = driver.session.lookup.page(limit=3, cursor=page["cursor"])
    assert ([q["id"] for q in page["queries"]], page["cursor"]) == (["q-4"], None)

    def ids(**filters: str) -> list[str]:
        return [q["id"] for q in driver.session.lookup.page(**filters)["queries"]]  # type: ignore[arg-type]

    assert ids(state="PENDING") == ["q-3", "q-4"]
    assert ids(label="team") == ["q-1", "q-2", "q-3"]
    assert ids(label="team=b") == ["q-3"]
    assert ids(label="team=b", state="RUNNING") == []
    assert ids(name="HALE") == ["q-3"]
    assert ids(name="HALE", label="team=a") == ids(name="HALE", state="RUNNING") == ids(name="hall") == []
    assert ids(name="") == ["q-1", "q-2", "q-3", "q-4"]
    assert driver.session.lookup.count_by_state()["RUNNING"] == 2


def test_joins_are_as_they_are_written_where_their_orders_are_off(open_driver: Callable[..., Driver]) -> None:
    window = "[RANGE 4 SECONDS]"
    chain = (
        f"SELECT z.user_id FROM a {window} x, c {window} z, b {window} y"
        " WHERE x.user_id = y.user_id AND y.gem_pack = z.gem_pack"
    )
    for orders, reason in (("auto", "Each input is compared"), ("off", "Inputs are joined as they are written")):
        driver = open_driver(join_orders=orders)
        for name in "abc":
            driver.stream(name)
        assert reason in driver.session.queries.validate([QueryRequest(chain)])[0]["join_order"]["why"]
        (query_id,) = driver.run(chain)
        driver.restart()
        query = driver.session.lookup.deployed(query_id).query
        assert isinstance(query, Join)
        assert query.is_reordered == (orders == "auto")


def test_queries_have_operators_of_their_own_where_sharing_is_off(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(query_sharing="off")
    driver.stream("purchases")
    first, second = driver.run(REVENUE, REVENUE)
    driver.restart()
    plans = [driver.session.plans.of_query(query_id) for query_id in (first, second)]
    assert plans[0]["operator"] != plans[1]["operator"]
    assert [plan["shares_with"]["count"] for plan in plans] == [0, 0]
    assert driver.session.queries.validate([QueryRequest(REVENUE)])[0]["shares_with"]["count"] == 0


def test_validate_says_how_a_query_would_run_and_registers_nothing(driver: Driver) -> None:
    driver.run(REVENUE, REVENUE)
    before = driver.observed()
    answer = driver.session.queries.validate([QueryRequest(REVENUE, name="revenue")])[0]
    assert answer["kind"] == "aggregation"
    assert answer["operator"] == "aggregation:s-1:gem_pack"
    assert answer["shares_with"] == {"count": 2, "ids": ["q-1", "q-2"]}
    assert answer["window"]["size_seconds"] == 8
    assert answer["predicate_columns"] == ["price"]
    assert answer["columns"] == [
        {"name": "window_start", "type": "TIMESTAMP", "role": "window_start"},
        {"name": "window_end", "type": "TIMESTAMP", "role": "window_end"},
        {"name": "gem_pack", "type": "INT", "role": "group"},
        {"name": "revenue", "type": "DOUBLE", "role": "sum"},
        {"name": "_partial", "type": "BOOLEAN", "role": None},
    ]
    changes = driver.session.queries.validate([QueryRequest(f"{REVENUE} EMIT STREAM")])[0]
    assert changes["columns"] == [
        *answer["columns"],
        {"name": "_op", "type": "VARCHAR", "role": None},
        {"name": "_ptime", "type": "TIMESTAMP", "role": None},
        {"name": "_ver", "type": "BIGINT", "role": None},
    ]
    assert driver.observed() == before


def test_listeners_hear_each_batch_once_after_it_was_applied(driver: Driver) -> None:
    heard: list[tuple[int, int]] = []
    driver.session.on_batch(lambda record: heard.append((record["seq"], driver.session.applied_seq)))
    record = driver.batch()
    driver.session.apply_batch(record)
    driver.batch()
    assert heard == [(1, 1), (2, 2)]


def test_a_batch_out_of_order_is_refused(driver: Driver) -> None:
    record = driver.batch()
    for changes in ({"seq": 3}, {"seq": 2, "epoch": 5}):
        with pytest.raises(CorruptData, match="must be next"):
            driver.session.apply_batch({**record, **changes})


def test_a_reader_learns_where_a_querys_rows_are(driver: Driver) -> None:
    driver.run(CHEAP)
    deployed = driver.session.lookup.deployed("q-1")
    assert deployed.deployments == (Deployment(slot=0, epoch=2, first_seq=1, active_from={"s-1": None}),)
    assert (deployed.state, deployed.last_seq) == ("RUNNING", None)
