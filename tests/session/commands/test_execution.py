"""Any statement through POST /sql."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from braid.sources.core.errors import Conflict, SqlSyntaxError, UnknownObject
from tests.session.driver import AGGREGATION, SELECTION, STREAM, TABLE, Driver

CHEAP = SELECTION.format("purchases", 5)


def test_statements_do_what_their_calls_do(driver: Driver) -> None:
    execute = driver.execute
    assert execute(STREAM.format("ads"))["name"] == "ads"
    assert [stream["name"] for stream in execute("SHOW STREAMS")["streams"]] == ["purchases", "ads"]
    assert execute(f"CREATE QUERY cheap AS {CHEAP}")["name"] == "cheap"
    assert execute(CHEAP)["id"] == "q-2"
    assert [query["id"] for query in execute("SHOW QUERIES")["queries"]] == ["q-1", "q-2"]
    assert execute("SHOW TABLES") == {"tables": []}
    assert execute("DROP QUERY cheap")["state"] == "RETIRED"
    assert execute("DROP STREAM ads") == {"dropped": "ads"}


def test_explain_gives_the_graph_and_registers_nothing(driver: Driver) -> None:
    before = driver.observed()
    answer = driver.execute("EXPLAIN " + AGGREGATION.format("purchases", 5))
    assert answer["operator"] == "aggregation:s-1:gem_pack"
    assert [node["kind"] for node in answer["nodes"]] == ["stream", "aggregation", "router", "query"]
    assert driver.observed() == before


def test_if_exists_and_if_not_exists(driver: Driver) -> None:
    execute = driver.execute
    for kind in ("STREAM", "QUERY", "TABLE"):
        assert execute(f"DROP {kind} IF EXISTS nothing") == {"dropped": None}
        with pytest.raises(UnknownObject, match="nothing"):
            execute(f"DROP {kind} nothing")
    if_not_exists = STREAM.format("purchases").replace("STREAM", "STREAM IF NOT EXISTS", 1)
    assert execute(if_not_exists)["id"] == "s-1"
    with pytest.raises(Conflict):
        execute(STREAM.format("purchases"))


def test_if_not_exists_waits_for_who_declares_the_same(driver: Driver) -> None:
    path = driver.write_table(1)
    for number in range(10):
        stream = STREAM.format(f"s{number}").replace("STREAM", "STREAM IF NOT EXISTS", 1)
        table = TABLE.format(path).replace("packs", f"t{number}", 1).replace("TABLE", "TABLE IF NOT EXISTS", 1)
        for sql in (stream, table):
            with ThreadPoolExecutor(8) as threads:
                declared = list(threads.map(driver.execute, [sql] * 8))
            assert len({body["id"] for body in declared}) == 1
        with ThreadPoolExecutor(2) as threads:
            same_name_table = table.replace(f"t{number}", f"x{number}", 1)
            same_name = [stream.replace(f"s{number}", f"x{number}", 1), same_name_table]
            declarations = [threads.submit(driver.execute, sql) for sql in same_name]
        refused = [declaration.exception() for declaration in declarations if declaration.exception() is not None]
        assert len(refused) == 1
        assert isinstance(refused[0], Conflict)


def test_what_does_not_parse_is_refused_with_its_place(driver: Driver) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        driver.execute("SHOW\n  EVERYTHING")
    assert refused.value.position is not None
    assert refused.value.position.line == 2
