"""Static tables that are refreshed: who gets their rows, since when, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from operators.lookup.lookups import Lookup
from operators.queries import Selection, lookups_of
from session.execution import execute_statement
from sources.connectors.static_table import TableDefinition, TableVersion
from sources.core.errors import Conflict, NotAllowed, UnknownObject
from tests.session.driver import LOOKUP, SELECTION, TABLE, Driver

QUERY = LOOKUP.format("purchases")


@pytest.fixture
def packs(driver: Driver) -> Driver:
    """A session with a table of one row."""
    driver.session.create_table(TABLE.format(driver.write_table(1)))
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
    assert driver.session.refresh_table("packs")["refreshing"]


def test_all_queries_get_the_rows_with_the_next_batch(packs: Driver) -> None:
    running, paused = packs.run(QUERY, QUERY)
    packs.session.begin_pause(paused).wait()
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
    packs.session.begin_resume(paused).wait()
    packs.flush()
    packs.batch()
    described = packs.session.table("packs")
    assert (described["refreshing"], described["queries"]) == (False, 3)
    assert described["refreshed_at"] is not None
    for _ in range(2):
        assert [rows(packs, query) for query in (running, paused, pending)] == [2, 2, 2]
        packs.restart()
    assert packs.recovered() == packs.observed()


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
        packs.session.refresh_table("packs")
    assert refused.value.query_id == query
    path.write_text("gem_pack,name\nx,y\n")
    with pytest.raises(NotAllowed, match="must be a BIGINT, got 'x'"):
        packs.session.refresh_table("packs")
    path.unlink()
    with pytest.raises(NotAllowed, match="must exist where the service runs"):
        packs.session.refresh_table("packs")
    with pytest.raises(UnknownObject, match=r"got 'boxes'\. Tables: packs"):
        packs.session.refresh_table("boxes")
    assert packs.observed() == before
    packs.batch()
    assert rows(packs, query) == 1
    packs.session.delete_query(query, drain=False)
    packs.flush()
    packs.batch()
    path.write_text("gem_pack,name\n" + "7,x\n" * 1001)
    assert execute_statement(packs.session, "REFRESH TABLE Packs")["refreshing"]


def test_a_table_that_no_query_uses_is_refreshed_and_dropped(packs: Driver) -> None:
    refresh(packs, 2)
    packs.session.drop_table("packs")
    with pytest.raises(UnknownObject):
        packs.session.refresh_table("packs")
    packs.session.create_table(TABLE.format(packs.write_table(4)))
    refresh(packs, 5)
    packs.session.drop_table("packs")
    packs.run(SELECTION.format("purchases", 1))
    assert packs.recovered() == packs.observed()


def test_a_table_is_not_dropped_while_it_is_refreshed(packs: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = packs.session._submit

    def drop_first(*arguments: object) -> object:
        with pytest.raises(Conflict, match="just being accepted, or the table refreshed"):
            packs.session.drop_table("packs")
        return submit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(packs.session, "_submit", drop_first)
    refresh(packs, 2)
    monkeypatch.undo()
    packs.session.drop_table("packs")


def test_a_query_that_is_planned_while_its_table_is_refreshed_gets_the_rows(
    packs: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = packs.session._tables.read

    def refresh_after(definition: TableDefinition) -> TableVersion:
        version = read(definition)
        monkeypatch.undo()
        refresh(packs, 2)
        return version

    monkeypatch.setattr(packs.session._tables, "read", refresh_after)
    (query,) = packs.run(QUERY)
    packs.session.write_snapshot()
    assert rows(packs, query) == 2


def too_many(driver: Driver) -> None:
    """Write rows of which each tuple would be joined with more than are allowed."""
    driver.write_table(0).write_text("gem_pack,name\n" + "7,x\n" * 1001)


def test_a_table_is_not_refreshed_with_rows_that_do_not_do_for_a_query_on_its_way(
    packs: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = packs.session._tables.keep

    def refresh_first(versions: Iterable[TableVersion]) -> None:
        monkeypatch.undo()
        too_many(packs)
        with pytest.raises(NotAllowed, match=r"at most 1000 rows.* just being accepted could have 1001") as refused:
            packs.session.refresh_table("packs")
        assert refused.value.query_id is None
        keep(versions)

    monkeypatch.setattr(packs.session._tables, "keep", refresh_first)
    (query,) = packs.run(QUERY)
    assert rows(packs, query) == 1
    refresh(packs, 2)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_query_is_refused_where_rows_that_came_after_it_was_planned_do_not_do_for_it(
    packs: Driver, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    read = packs.session._tables.read

    def refresh_after(definition: TableDefinition) -> TableVersion:
        version = read(definition)
        monkeypatch.undo()
        too_many(packs)
        if is_done:
            packs.session.refresh_table("packs")
        else:
            packs.session._reservations.hold_refresh(packs.state, read(definition))
        return version

    monkeypatch.setattr(packs.session._tables, "read", refresh_after)
    with pytest.raises(NotAllowed, match=r"at most 1000 rows.* just being accepted could have 1001"):
        packs.create(QUERY)
    assert not packs.state.queries.unfinished
