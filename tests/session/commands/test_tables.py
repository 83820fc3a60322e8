"""Static tables that are refreshed: who gets their rows, since when, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from braid.operators.lookup.lookups import Lookup
from braid.operators.queries import Selection, lookups_of
from braid.session.commands.query_requests import QueryRequest
from braid.sources.connectors.static_table import TableDefinition, TableVersion
from braid.sources.core.errors import Conflict, NotAllowed, UnknownObject
from tests.session.driver import LOOKUP, SELECTION, TABLE, Driver

QUERY = LOOKUP.format("purchases")


@pytest.fixture
def packs(driver: Driver) -> Driver:
    """A session with a table of one row."""
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    return driver


def lookup(driver: Driver, query: str) -> Lookup:
    """Return the only lookup of a query."""
    (only_lookup,) = lookups_of(driver.state.queries[query].query)
    return only_lookup


def rows(driver: Driver, query: str) -> int:
    """Return how many rows the data plane has of the table that a query looks up."""
    return driver.rows_in(driver.state.active.refreshed.current(lookup(driver, query)).version)


def refresh(driver: Driver, rows: int) -> None:
    """Refresh the table with so many rows; the next batch has them."""
    driver.write_table(rows)
    assert driver.session.tables.refresh("packs")["refreshing"]


def test_all_queries_get_the_rows_with_the_next_batch(packs: Driver) -> None:
    running, paused = packs.run(QUERY, QUERY)
    packs.session.queries.begin_pause(paused).wait()
    packs.flush()
    packs.batch()
    (pending,) = packs.create(QUERY)
    refresh(packs, 2)
    assert packs.changelogs()[-1]["why"] == "1 request, table packs refreshed, 1 slot freed"
    assert rows(packs, running) == 1, "a batch may still begin that does not know"
    packs.crash()
    packs.session.write_snapshot()
    packs.restart()
    assert rows(packs, running) == 1
    packs.flush()
    packs.batch()
    packs.session.queries.begin_resume(paused).wait()
    packs.flush()
    packs.batch()
    described = packs.session.tables.describe("packs")
    assert (described["refreshing"], described["queries"]) == (False, 3)
    assert described["refreshed_at"] is not None
    for _ in range(2):
        assert [rows(packs, query) for query in (running, paused, pending)] == [2, 2, 2]
        packs.restart()
    assert packs.recovered() == packs.observed()


def test_a_table_is_found_beside_a_query_of_its_name_that_is_over(packs: Driver) -> None:
    packs.session.tables.drop("packs")
    (over,) = packs.run("SELECT user_id FROM purchases", name="packs")
    with pytest.raises(Conflict, match="a query has this name"):
        packs.session.tables.create(TABLE.format(packs.write_table(1)))
    packs.session.queries.delete(over, drain=False)
    packs.flush()
    packs.batch()
    packs.session.tables.create(TABLE.format(packs.write_table(1)))
    with pytest.raises(Conflict, match="Cannot name a query 'PACKS': a table has this name"):
        packs.session.queries.create([QueryRequest("SELECT user_id FROM purchases", name="PACKS")])
    for _ in range(2):
        assert rows(packs, *packs.create(QUERY)) == 1
        packs.session.write_snapshot()  # moves the query to the archive


def test_queries_with_the_same_rows_share_their_input(packs: Driver) -> None:
    (older,) = packs.run(QUERY)
    refresh(packs, 2)
    (newer,) = packs.run(QUERY)
    packs.write_table(1)
    (old_rows,) = packs.run(QUERY)  # has the rows that the first one had
    assert [rows(packs, query) for query in (older, newer, old_rows)] == [2, 2, 1]
    inputs = [packs.state.queries[query].query for query in (older, newer, old_rows)]
    assert all(isinstance(query, Selection) for query in inputs)
    assert lookup(packs, older) == lookup(packs, newer) != lookup(packs, old_rows)
    refresh(packs, 1)
    packs.flush()
    packs.batch()
    assert [rows(packs, query) for query in (older, newer, old_rows)] == [1, 1, 1]
    assert packs.recovered() == packs.observed()


def test_rows_stay_until_no_batch_can_need_them(packs: Driver) -> None:
    packs.run(QUERY)
    refresh(packs, 2)
    refresh(packs, 3)
    packs.session.write_snapshot()
    assert len(packs.storage.names("tables")) == 3
    packs.batch()
    packs.session.write_snapshot()
    assert len(packs.storage.names("tables")) == 1
    assert rows(packs, "q-1") == 3


def test_a_refresh_that_cannot_be_changes_nothing(packs: Driver) -> None:
    (query,) = packs.run(QUERY)
    before = packs.observed()
    path = packs.write_table(0)
    path.write_text("gem_pack,name\n" + "7,x\n" * 1001)
    with pytest.raises(NotAllowed, match=rf"at most 1000 rows.*{query} could have 1001\. Delete that query") as refused:
        packs.session.tables.refresh("packs")
    assert refused.value.query_id == query
    path.write_text("gem_pack,name\nx,y\n")
    with pytest.raises(NotAllowed, match="must be a BIGINT, got 'x'"):
        packs.session.tables.refresh("packs")
    path.unlink()
    with pytest.raises(NotAllowed, match="must exist where the service runs"):
        packs.session.tables.refresh("packs")
    with pytest.raises(UnknownObject, match=r"got 'boxes'\. Tables: packs"):
        packs.session.tables.refresh("boxes")
    assert packs.observed() == before
    packs.batch()
    assert rows(packs, query) == 1
    packs.session.queries.delete(query, drain=False)
    packs.flush()
    packs.batch()
    path.write_text("gem_pack,name\n" + "7,x\n" * 1001)
    assert packs.execute("REFRESH TABLE Packs")["refreshing"]


def test_a_table_that_no_query_uses_is_refreshed_and_dropped(packs: Driver) -> None:
    refresh(packs, 2)
    packs.session.tables.drop("packs")
    with pytest.raises(UnknownObject):
        packs.session.tables.refresh("packs")
    packs.session.tables.create(TABLE.format(packs.write_table(4)))
    refresh(packs, 5)
    packs.session.tables.drop("packs")
    packs.run(SELECTION.format("purchases", 1))
    assert packs.recovered() == packs.observed()


def hold_after(packs: Driver, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something done before the next command, whose table was read, comes to the writer."""
    hold = packs.session._rows.hold

    def act_first(versions: Sequence[TableVersion]) -> Callable[[], None]:
        monkeypatch.undo()
        release = hold(versions)
        act()
        return release

    monkeypatch.setattr(packs.session._rows, "hold", act_first)


def test_a_table_that_is_dropped_while_its_file_is_read_is_not_refreshed(
    packs: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packs.observed()
    hold_after(packs, monkeypatch, lambda: packs.session.tables.drop("packs"))
    with pytest.raises(UnknownObject, match="'packs' was just dropped"):
        refresh(packs, 2)
    assert packs.observed()["tables"] == []
    assert packs.observed()["pending"] == before["pending"]


def test_rows_stay_while_a_command_with_them_is_on_its_way(packs: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (lambda: packs.run(QUERY), lambda: refresh(packs, 2)):
        kept: list[list[str]] = []

        def look(kept: list[list[str]] = kept) -> None:
            packs.session.write_snapshot()
            kept.append(packs.storage.names("tables"))

        hold_after(packs, monkeypatch, look)
        command()
        assert kept[0]
        assert set(kept[0]) <= set(packs.storage.names("tables"))
    assert not packs.session._rows._held


def test_a_query_that_is_planned_while_its_table_is_refreshed_gets_the_rows(
    packs: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = packs.session._rows.read

    def refresh_after(definition: TableDefinition) -> TableVersion:
        version = read(definition)
        monkeypatch.undo()
        refresh(packs, 2)
        return version

    monkeypatch.setattr(packs.session._rows, "read", refresh_after)
    (query,) = packs.run(QUERY)
    packs.session.write_snapshot()
    assert rows(packs, query) == 2


def too_many(driver: Driver) -> None:
    """Write rows of which each tuple would be joined with more than are allowed."""
    driver.write_table(0).write_text("gem_pack,name\n" + "7,x\n" * 1001)


def test_a_query_is_refused_where_rows_that_came_after_it_was_planned_do_not_do_for_it(
    packs: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh_first() -> None:
        too_many(packs)
        packs.session.tables.refresh("packs")

    hold_after(packs, monkeypatch, refresh_first)
    with pytest.raises(NotAllowed, match=r"at most 1000 rows.* just being accepted could have 1001"):
        packs.create(QUERY)
    assert not packs.state.queries.unfinished
    assert not packs.session._rows._held


def test_a_table_is_not_refreshed_with_rows_that_do_not_do_for_a_query_that_came_after_they_were_read(
    packs: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packs.write_table(0)
    check, created = packs.session._rows.check_matches, []

    def create_first(inputs: Any) -> None:
        check(inputs)
        monkeypatch.undo()
        rows_read = path.read_text()
        packs.write_table(1)
        created.extend(packs.create(QUERY))
        path.write_text(rows_read)

    too_many(packs)
    before = packs.observed()["tables"][0]["refreshing"]
    monkeypatch.setattr(packs.session._rows, "check_matches", create_first)
    with pytest.raises(NotAllowed, match=r"at most 1000 rows.* row of q-1 could have 1001") as refused:
        packs.session.tables.refresh("packs")
    assert created == [refused.value.query_id] == ["q-1"]
    assert packs.observed()["tables"][0]["refreshing"] == before
    packs.flush()
    packs.batch()
    assert rows(packs, "q-1") == 1
