"""Idempotency-Keys: one outcome and one effect, whatever is repeated, at once or after a crash."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable

import orjson
import pytest

from braid.session.commands.query_requests import QueryRequest
from braid.session.log import outcome_segments
from braid.session.state.requests import Outcome
from braid.sources.core.errors import Conflict, CorruptData, NotAllowed, Overloaded
from tests.session.driver import SELECTION, STREAM, Driver

CHEAP = SELECTION.format("purchases", 5)


class Client:
    """Posts a query as the REST layer does; counts how often it really ran."""

    def __init__(self, driver: Driver, sql: str = CHEAP, name: str | None = None) -> None:
        self.driver = driver
        self.request = QueryRequest(sql, name=name)
        self.runs = 0

    def __call__(self) -> Outcome:
        self.runs += 1
        (body,) = self.driver.session.queries.create([self.request])
        return Outcome(201, {"Location": f"/queries/{body['id']}"}, orjson.dumps(body).decode())


def test_the_first_outcome_is_answered_again_also_after_crash_and_restart(driver: Driver) -> None:
    client = Client(driver)
    first = driver.session.idempotent("key", "print", client)
    disturbances: list[Callable[[], None]] = [lambda: None, driver.crash, driver.restart, driver.crash]
    for disturb in disturbances:
        disturb()
        assert driver.session.idempotent("key", "print", client) == first
    assert client.runs == 1
    assert list(driver.state.queries) == ["q-1"]


def test_outcomes_that_are_torn_are_told_by_their_file(driver: Driver) -> None:
    driver.session.idempotent("key", "print", Client(driver))
    driver.session.write_snapshot()
    path = "outcomes/000000000001.json.zlib"
    whole = driver.storage.get(path)
    for torn in (b"", whole[:-9], zlib.compress(b"[[")):
        driver.storage.put(path, torn)
        with pytest.raises(CorruptData, match=r"file outcomes/000000000001\.json\.zlib must hold what was written"):
            driver.recovered()


def test_a_key_with_another_request_is_refused(driver: Driver) -> None:
    driver.session.idempotent("key", "print", Client(driver))
    with pytest.raises(NotAllowed, match="'key' belongs to another request"):
        driver.session.idempotent("key", "other", Client(driver))


def test_a_refusal_is_an_outcome(driver: Driver) -> None:
    client = Client(driver, name="cheap")
    driver.create(CHEAP, name="cheap")
    with pytest.raises(Conflict) as first:
        driver.session.idempotent("key", "print", client)
    driver.session.queries.delete("cheap")
    driver.crash()
    with pytest.raises(Conflict) as second:
        driver.session.idempotent("key", "print", client)
    assert (second.value.detail, second.value.query_id) == (first.value.detail, first.value.query_id)
    assert client.runs == 1


def test_a_refusal_keeps_its_position(driver: Driver) -> None:
    client = Client(driver, "SELECT nothing FROM purchases")
    with pytest.raises(NotAllowed) as first:
        driver.session.idempotent("key", "print", client)
    driver.restart()
    with pytest.raises(NotAllowed) as second:
        driver.session.idempotent("key", "print", client)
    assert first.value.position is not None
    assert second.value.position == first.value.position


def test_being_asked_to_come_again_is_no_outcome(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(max_queries=1)
    driver.stream()
    driver.create(CHEAP)
    client = Client(driver)
    with pytest.raises(Overloaded):
        driver.session.idempotent("key", "print", client)
    driver.session.queries.delete("q-1")
    assert driver.session.idempotent("key", "print", client).status == 201
    busy = Outcome(503, {}, "")
    assert driver.session.idempotent("other", "print", lambda: busy) == busy
    assert driver.session.idempotent("other", "print", lambda: Outcome(200, {}, "{}")).status == 200


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_crash_between_effect_and_outcome_does_not_repeat_the_effect(driver: Driver, snapshot: bool) -> None:
    def dies() -> Outcome:
        Client(driver)()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.session.idempotent("key", "print", dies)
    if snapshot:
        driver.session.write_snapshot()
    driver.crash()
    outcome = driver.session.idempotent("key", "print", Client(driver))
    assert orjson.loads(outcome.body)["id"] == "q-1"
    assert list(driver.state.queries) == ["q-1"]
    driver.crash()
    assert driver.session.idempotent("key", "print", Client(driver)) == outcome


def test_the_effects_of_statements_are_not_repeated_either(driver: Driver) -> None:
    for sql in (STREAM.format("ads"), "DROP STREAM ads", f"CREATE QUERY cheap AS {CHEAP}"):
        answers: list[object] = []

        def dies(statement: str = sql, answers: list[object] = answers) -> Outcome:
            answers.append(driver.execute(statement))
            raise KeyboardInterrupt

        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                driver.session.idempotent(sql, "print", dies)
            driver.crash()
        assert answers[0] == answers[1] == answers[2]


def test_a_second_at_the_same_time_waits_for_the_first(driver: Driver) -> None:
    entered, go_on, outcomes = threading.Event(), threading.Event(), []
    client = Client(driver)

    def slow() -> Outcome:
        entered.set()
        assert go_on.wait(30)
        return client()

    def post(action: Callable[[], Outcome]) -> None:
        outcomes.append(driver.session.idempotent("key", "print", action))

    first = threading.Thread(target=post, args=(slow,))
    first.start()
    assert entered.wait(30)
    second = threading.Thread(target=post, args=(client,))
    second.start()
    with pytest.raises(NotAllowed):
        driver.session.idempotent("key", "other", client)
    assert outcomes == []
    go_on.set()
    first.join(30)
    second.join(30)
    assert client.runs == 1
    assert outcomes[0] == outcomes[1]


def test_outcomes_are_forgotten_after_their_time_and_their_files_removed(
    open_driver: Callable[..., Driver],
) -> None:
    driver = open_driver(idempotency_seconds=100)
    driver.stream()
    client = Client(driver)
    driver.session.idempotent("old", "print", client)
    driver.session.write_snapshot()
    driver.clock.advance(60)
    driver.session.idempotent("new", "print", client)
    driver.restart()
    assert len(driver.storage.names("outcomes")) == 2
    driver.clock.advance(41)
    driver.session.step()
    assert len(driver.storage.names("outcomes")) == 1
    driver.session.idempotent("new", "print", client)
    assert client.runs == 2
    driver.session.idempotent("old", "other", client)
    assert client.runs == 3


def test_outcomes_on_disk_take_little_memory_and_are_answered_alike(
    open_driver: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_segments, "SEGMENT_OUTCOMES", 3)
    driver = open_driver(idempotency_seconds=100)
    driver.stream()
    clients = {f"key-{n}": Client(driver, CHEAP if n % 2 else "SELECT nothing FROM purchases") for n in range(8)}

    def answer(key: str) -> Outcome | str:
        try:
            return driver.session.idempotent(key, "print", clients[key])
        except NotAllowed as error:
            return error.detail

    first = {key: answer(key) for key in clients}
    driver.session.write_snapshot()
    assert driver.session._idempotency._newest == {}
    assert len(driver.storage.names("outcomes")) == 3
    assert {key: answer(key) for key in clients} == first
    with pytest.raises(NotAllowed, match="'key-1' belongs to another request"):
        driver.session.idempotent("key-1", "other", clients["key-1"])
    driver.clock.advance(60)
    driver.session.step()
    clients["later"] = Client(driver)
    first["later"] = answer("later")
    for disturb in (driver.session.write_snapshot, driver.crash, driver.restart):
        disturb()
        assert {key: answer(key) for key in clients} == first
    assert {client.runs for client in clients.values()} == {1}
    driver.clock.advance(50)
    driver.session.step()
    assert len(driver.storage.names("outcomes")) == 1
    assert answer("later") == first["later"]
    assert answer("key-1") != first["key-1"], "its time has passed"
