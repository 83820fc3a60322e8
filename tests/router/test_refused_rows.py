"""Rows that a place will never take: they become dead letters, the others arrive, whatever crashes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from braid.router.cursor import CursorPosition
from braid.router.delivery import deliverer, delivery, refused_rows
from braid.router.delivery.progress import DONE, RETRYING, part_of
from braid.router.delivery.refused_rows import RefusedRow, RefusedRows, Suspects
from braid.router.sinks.connectors import read_sink
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from tests.kit.servers import Postgres
from tests.kit.waiting import wait_until
from tests.kit.webhook import receiving
from tests.router.test_deliverer import QUERY, SECONDS, World, running, sink_of, trim


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "SAVE_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "FIRST_REST_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "LONGEST_REST_SECONDS", 0.2)


def letters(world: World, query_id: str) -> list[int]:
    """Return the numbers of the rows that were set aside."""
    page = RefusedRows(world.storage).read(query_id, CursorPosition(0), 2**40, 2**40, 2**40)
    return [json.loads(refused.row)["n"] for refused in page.rows]


def write(suspects: Suspects, rows: list[int], bad: set[int], most: int) -> tuple[list[int], list[int], int]:
    """Deliver rows to a place that refuses some; return those taken, those set aside and how many writes it took."""
    taken: list[int] = []
    aside: list[int] = []
    writes = 0
    while rows:
        page = rows[: suspects.at_most(most)]
        writes += 1
        if bad.isdisjoint(page):
            taken += page
            suspects.take(len(page))
            rows = rows[len(page) :]
        elif suspects.refuse(len(page), 0.0) and len(page) == 1:
            aside += page
            suspects.set_aside()
            rows = rows[1:]
    return taken, aside, writes


@pytest.mark.parametrize("bad", [set(), {0}, {999}, {500, 501, 502}, {7, 70, 700}, set(range(1000))])
@pytest.mark.parametrize("most", [1, 1000, 300])
def test_only_rows_that_are_refused_are_set_aside_in_few_writes(bad: set[int], most: int) -> None:
    taken, aside, writes = write(Suspects(2), list(range(1000)), bad, most)
    assert taken == [n for n in range(1000) if n not in bad]
    assert aside == sorted(bad)
    assert writes <= -(-1000 // most) + 2 + 24 * len(bad)


def test_a_page_is_refused_as_often_as_the_option_says_before_it_is_taken_apart() -> None:
    suspects = Suspects(3)
    assert [suspects.refuse(10, 0.0) for _ in range(4)] == [False, False, False, True]
    assert suspects.at_most(10) == 5
    assert Suspects(0).refuse(10, 0.0)


def test_options_are_checked_and_a_sink_sets_aside_unless_it_is_to_stop() -> None:
    sink = {"connector": "webhook", "url": "http://127.0.0.1:1/rows"}
    assert (sink_of(sink).max_retries, sink_of(sink).sets_aside) == (5, True)
    chosen = sink_of({**sink, "sink.max_retries": 0, "on_error": "stop"})
    chosen.validate(QUERY, OPEN)
    assert (chosen.max_retries, chosen.sets_aside) == (0, False)
    for option, value in {"sink.max_retries": "-1", "on_error": "skip"}.items():
        wrong = read_sink({**sink, option: value})
        assert wrong is not None
        with pytest.raises(NotAllowed, match=option):
            wrong.validate(QUERY, OPEN)


def test_a_row_that_is_refused_becomes_a_dead_letter_and_the_rest_goes_on(world: World) -> None:
    with receiving() as receiver:
        receiver.refuses = lambda row: row["n"] in (3, 9)
        world.change({"q-1": (0, {"connector": "webhook", "url": receiver.url, "sink.max_retries": 1})})
        numbers = world.batch(*[{0}] * 8) + world.batch(*[{0}] * 8)
        with running(world):
            taken = [n for n in numbers if n not in (3, 9)]
            wait_until(lambda: [row["n"] for _, row in receiver.rows] == taken, SECONDS, lambda: str(receiver.rows))
            wait_until(lambda: world.progress("q-1").refused == 2, SECONDS, lambda: str(world.progress("q-1")))
            world.change(freed=("q-1",))
            world.batch({1})
            progress = world.wait_state("q-1", DONE)
        assert (progress.rows, progress.refused, progress.errors) == (14, 2, 1)
        assert "answered 422" in (progress.refusal or "")
    assert letters(world, "q-1") == [3, 9]
    (first, second) = RefusedRows(world.storage).read("q-1", CursorPosition(0), 2**40, 10, 2**20).rows
    assert "answered 422" in first.detail
    rest = RefusedRows(world.storage).read("q-1", CursorPosition(first.position.seq, 4), 2**40, 10, 2**20)
    assert rest.rows == [second]


def test_a_sink_that_is_to_stop_waits_and_others_go_on(world: World) -> None:
    with receiving() as receiver:
        receiver.refuses = lambda row: row["n"] == 1
        stopping = {"connector": "webhook", "url": receiver.url, "sink.max_retries": 0, "on_error": "stop"}
        world.change({"q-1": (0, stopping), "q-2": (1, {**stopping, "on_error": "dead_letter"})})
        world.batch({0, 1}, {0, 1}, {0, 1})
        with running(world):
            wait_until(lambda: world.progress("q-1").errors > 3, SECONDS, lambda: str(world.progress("q-1")))
            wait_until(lambda: world.progress("q-2").rows == 2, SECONDS, lambda: str(world.progress("q-2")))
            assert world.progress("q-1").state == RETRYING
            assert letters(world, "q-1") == []
            assert letters(world, "q-2") == [1]
            receiver.refuses = lambda _: False
            wait_until(lambda: world.progress("q-1").rows == 3, SECONDS, lambda: str(world.progress("q-1")))


@pytest.mark.parametrize("status", [401, 404, 408, 429, 500, 503])
def test_an_answer_that_may_pass_is_never_a_refusal(world: World, status: int) -> None:
    with receiving() as receiver:
        receiver.answer = status, {}
        world.change({"q-1": (0, {"connector": "webhook", "url": receiver.url, "sink.max_retries": 0})})
        numbers = world.batch({0}, {0})
        with running(world):
            wait_until(lambda: world.progress("q-1").errors > 2, SECONDS, lambda: str(world.progress("q-1")))
            receiver.answer = 204, {}
            wait_until(lambda: [row["n"] for _, row in receiver.rows] == numbers, SECONDS, lambda: str(receiver.rows))
    assert letters(world, "q-1") == []


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("crash", ["before", "after", "unsaved"])
def test_postgres_has_each_other_row_once_and_each_refused_one_is_a_letter_once(
    world: World, postgres: Postgres, crash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliverers end before a letter is on disk, after it, or with nothing saved of how far they were."""
    table = f"refusing_{crash}.rows"  # cursors are beside it
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"CREATE SCHEMA refusing_{crash}")  # type: ignore[arg-type]
        connection.execute(f"CREATE TABLE {table} (_query text, n bigint CHECK (n % 5 <> 2))")  # type: ignore[arg-type]
    sink = {"connector": "postgres", "url": postgres.url, "table": table, "sink.max_retries": 0, "flush_rows": 7}
    world.change({"q-1": (0, sink)})
    numbers = world.batch(*[{0}] * 12) + world.batch(*[{0}] * 12)
    keep = RefusedRows.keep
    crashed: list[int] = []

    def crashing(rows: RefusedRows, query_id: str, refused: RefusedRow) -> None:
        is_to_crash = len(crashed) < 3
        if is_to_crash and crash == "before":
            crashed.append(1)
            raise CrashError
        keep(rows, query_id, refused)
        if is_to_crash and crash == "after":
            crashed.append(1)
            raise CrashError

    def delivered() -> list[int]:
        with psycopg.connect(postgres.url) as connection:
            return [n for (n,) in connection.execute(f"SELECT n FROM {table} ORDER BY n")]  # type: ignore[arg-type]

    monkeypatch.setattr(RefusedRows, "keep", crashing)
    taken = [n for n in numbers if n % 5 != 2]
    with monkeypatch.context() as patched:
        if crash == "unsaved":
            patched.setattr(deliverer, "write_progress", lambda *_: None)
        with running(world):
            wait_until(lambda: delivered() == taken, SECONDS, lambda: f"{delivered()} == {taken}")
            wait_until(lambda: letters(world, "q-1")[-1:] == [22], SECONDS, lambda: str(letters(world, "q-1")))
    world.change(freed=("q-1",))
    world.batch({1})
    with running(world):
        world.wait_state("q-1", DONE)
    assert delivered() == taken
    assert letters(world, "q-1") == [2, 7, 12, 17, 22]


def test_letters_go_with_the_batches_of_their_rows(world: World) -> None:
    with receiving() as receiver:
        receiver.refuses = lambda _: True
        hook = {"connector": "webhook", "url": receiver.url, "sink.max_retries": 0}
        world.change({"q-1": (0, hook)})
        world.batch({0})
        for _ in range(30):
            world.batch({2})
        world.batch({0})
        with running(world):
            wait_until(lambda: world.progress("q-1").refused == 2, SECONDS, lambda: str(world.progress("q-1")))
    assert letters(world, "q-1") == [0, 31]
    trim(world)
    with running(world):  # the first thing that a deliverer does
        wait_until(lambda: letters(world, "q-1") == [31], SECONDS, partial(str, letters(world, "q-1")))


def test_letters_above_the_bounds_go_the_oldest_of_the_query_that_has_most_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"q-{n}" for n in range(1, 200) if part_of(f"q-{n}") == part_of("q-1")][:2]
    rows = RefusedRows(world.storage)

    def keep(query_id: str, seq: int) -> None:
        rows.keep(query_id, RefusedRow(CursorPosition(seq), "no", 0, json.dumps({"n": seq}).encode()))

    for seq in range(1, 11):
        keep(ids[0], seq)
    keep(ids[1], 1)
    monkeypatch.setattr(refused_rows, "MAX_ROWS", 4)
    rows.trim([part_of("q-1")], lambda: 1)
    assert [letters(world, query_id) for query_id in ids] == [[8, 9, 10], [1]]
    sizes: Any = dict(world.storage.sizes(f"{refused_rows.FOLDER}/{part_of('q-1'):02d}"))
    monkeypatch.setattr(refused_rows, "MAX_BYTES", sum(sizes.values()) - 1)
    rows.trim([part_of("q-1")], lambda: 1)
    assert [letters(world, query_id) for query_id in ids] == [[9, 10], [1]]
    assert rows.end(ids[0]) == CursorPosition(10, 1)
    assert rows.end("q-999") == CursorPosition(0)
