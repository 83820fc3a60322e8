"""Commands that are refused, or cannot reach the disk, change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from braid.session.commands.query_requests import QueryRequest
from braid.session.commands.writer import Submission
from braid.session.log.journal import Journal
from braid.session.shared_session import SharedSession
from braid.sources.core.errors import (
    Conflict,
    MalformedRequest,
    NotAllowed,
    NotReady,
    Overloaded,
    ServiceError,
    UnknownObject,
)
from braid.sources.core.storage import Storage
from tests.session.driver import AGGREGATION, LOOKUP, SELECTION, STREAM, TABLE, Driver

CHEAP = SELECTION.format("purchases", 5)
REVENUE = AGGREGATION.format("purchases", 5)


Refused = list[tuple[Callable[[SharedSession], Any], type[ServiceError], str]]
REFUSED: Refused = [
    (lambda s: s.queries.create([]), MalformedRequest, "At least one query"),
    (
        lambda s: s.queries.create([QueryRequest(CHEAP), QueryRequest("SELECT nothing FROM purchases")]),
        NotAllowed,
        "Query 2 of 2: .*nothing",
    ),
    (lambda s: s.queries.create([QueryRequest("SELEC")]), MalformedRequest, "SELEC"),
    (lambda s: s.queries.create([QueryRequest("DROP STREAM purchases")]), NotAllowed, "must be SELECT"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="taken")]), Conflict, "'taken'"),
    (
        lambda s: s.queries.create([QueryRequest(CHEAP, name="a"), QueryRequest(CHEAP, name="a")]),
        Conflict,
        "'a'",
    ),
    (
        lambda s: s.queries.create([QueryRequest(CHEAP, name="fresh"), QueryRequest(f"CREATE QUERY taken AS {CHEAP}")]),
        Conflict,
        "'taken'",
    ),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="q-7")]), NotAllowed, "look like an id"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="_x")]), NotAllowed, "rename the query '_x'"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="a/b")]), NotAllowed, "no '/'"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, sink="kafka")]), NotAllowed, '"log".*kafka'),
    (lambda s: s.queries.create([QueryRequest(CHEAP, ttl_seconds=0)]), NotAllowed, "ttl_seconds"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, ttl_seconds=float("nan"))]), NotAllowed, "ttl_seconds"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, labels={"a": 1})]), NotAllowed, "labels"),  # type: ignore[dict-item]
    (lambda s: s.queries.create([QueryRequest(CHEAP)] * 4), Overloaded, "max_queries"),
    (lambda s: s.streams.create(STREAM.format("Purchases")), Conflict, "Cannot create stream 'Purchases'"),
    (lambda s: s.streams.create(CHEAP), NotAllowed, "CREATE STREAM"),
    (
        lambda s: s.streams.create(
            "CREATE STREAM made (time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'generator', dataset = 'many', rate = '1')"
        ),
        NotAllowed,
        "'many'",
    ),
    (lambda s: s.streams.drop("purchases"), Conflict, "q-1"),
    (lambda s: s.streams.drop("nowhere"), UnknownObject, "Streams: purchases"),
    (lambda s: s.tables.create("SHOW STREAMS"), NotAllowed, "declared with CREATE TABLE"),
    (lambda s: s.queries.delete("nobody"), UnknownObject, "'nobody'"),
    (lambda s: s.lookup.describe("q-99"), UnknownObject, "'q-99'"),
    (lambda s: s.streams.describe("nowhere"), UnknownObject, "nowhere"),
    (lambda s: s.lookup.page(state="ASLEEP"), MalformedRequest, "PENDING, CATCHING_UP, RUNNING"),
    (lambda s: s.lookup.page(limit=0), MalformedRequest, "limit"),
    (lambda s: s.lookup.page(cursor="x"), MalformedRequest, "cursor"),
    (lambda s: s.changelogs_json(-1), MalformedRequest, "after"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_a_refused_request_changes_nothing(
    open_driver: Callable[..., Driver],
    call: Callable[[SharedSession], Any],
    kind: type[ServiceError],
    message: str,
) -> None:
    driver = open_driver(max_queries=4)
    driver.stream()
    driver.run(CHEAP, name="taken")
    before, on_disk = driver.observed(), driver.storage.size("")
    with pytest.raises(kind, match=message):
        call(driver.session)
    assert driver.observed() == before
    assert driver.storage.size("") == on_disk
    driver.create(CHEAP, name="a")  # nothing stayed reserved
    driver.stream("nowhere")


def test_a_request_that_cannot_reach_the_disk_changes_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = driver.observed()
    with monkeypatch.context() as patched:
        patched.setattr("braid.session.log.journal._sync", full)
        with pytest.raises(NotReady, match="No space left"):
            driver.create(CHEAP, name="cheap")
        with pytest.raises(NotReady, match="No space left"):
            driver.session.streams.drop("purchases")
    assert driver.observed() == {**before, "next_query": before["next_query"] + 1}
    assert driver.create(CHEAP, name="cheap") == ["q-2"], "an id is never given twice"


def test_commands_that_cannot_reach_the_disk_together_change_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    queries = driver.session.queries
    running, paused = driver.run(CHEAP, CHEAP)
    queries.begin_pause(paused).wait()
    before = driver.observed()
    begun: list[Submission] = []

    def begin_all() -> None:
        """All wait while the writer does this, so they make one group."""
        begun.append(queries.begin_create([QueryRequest(CHEAP, name="cheap"), QueryRequest(REVENUE)]))
        begun.append(queries.begin_delete([running], drain=False))
        begun.append(queries.begin_resume(paused))

    with monkeypatch.context() as patched:
        patched.setattr("braid.session.log.journal._sync", full)
        driver.session._writer.call(begin_all)
        for started in begun:
            with pytest.raises(NotReady, match="No space left"):
                started.wait()
    assert driver.observed() == {**before, "next_query": before["next_query"] + 2}
    assert driver.recovered() == before
    driver.session._writer.call(begin_all)
    for started in begun[3:]:
        started.wait()
    assert driver.observed()["requests"] == before["requests"] + 1, "one record of the log"
    assert driver.recovered() == driver.observed()


def test_no_file_is_written_while_readers_are_kept_out(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, written = driver.session._lock, set[str]()

    def watched(kind: type, name: str) -> None:
        write = getattr(kind, name)

        def checked(self: Any, *arguments: Any, **options: Any) -> Any:
            assert not lock._is_owned(), f"{name} of {arguments[0]}"  # type: ignore[attr-defined]
            written.add(f"{kind.__name__}.{name} {str(arguments[0]).partition('/')[0]}")
            return write(self, *arguments, **options)

        monkeypatch.setattr(kind, name, checked)

    watched(Storage, "_put")
    watched(Journal, "append")
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    looking, other = driver.run(LOOKUP.format("purchases"), CHEAP, sink={"connector": "file", "path": "rows"})
    driver.write_table(2)
    driver.session.tables.refresh("packs")
    driver.session.queries.delete(other, drain=False)
    driver.session.queries.begin_pause(looking).wait()
    driver.flush()
    driver.batch()
    driver.session.write_snapshot()
    assert {name.split()[1] for name in written} >= {"changelogs", "tables", "deliveries", "queries", "session.json"}
    assert any(name.startswith("Journal") for name in written)


def test_a_changelog_that_cannot_be_written_is_written_later_before_the_next(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    driver.create(CHEAP)
    with monkeypatch.context() as patched:
        patched.setattr(driver.storage, "put", full)
        with pytest.raises(OSError, match="No space left"):
            driver.flush()
    driver.create(REVENUE)
    driver.flush()
    assert [[c["id"] for c in changelog["created"]] for changelog in driver.changelogs()] == [
        [],
        ["q-1"],
        ["q-2"],
    ]
    assert driver.recovered() == driver.observed()
