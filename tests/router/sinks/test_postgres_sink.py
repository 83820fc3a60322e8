"""Tables of PostgreSQL: a real server, read by SQL."""

from __future__ import annotations

import datetime as dt
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from operators.windows import Emit
from router.sinks import postgres as connector
from router.sinks.sink import Deliverer, Destination, Sink, SinkDown, SinkRefused, Subject
from sources.errors import NotAllowed
from tests.kit.servers import Postgres
from tests.router.sinks.subjects import SELECTION, aggregation, rows_of, selected, subject

EMIT_STREAM = Emit(stream=True)
START = dt.datetime(2026, 1, 1)


def opened(server: Postgres, of: Subject, **options: str) -> tuple[Destination, Sink]:
    said = {"url": server.url, "table": f"t_{of.delivery.replace('-', '_')}", **options}
    connector.validate(said, of.query, "")
    destination = connector.connect(said, Deliverer("test"))
    return destination, destination.open(of, said)


def table_of(server: Postgres, of: Subject) -> list[dict[str, Any]]:
    with psycopg.connect(server.url, row_factory=dict_row) as connection:  # type: ignore[arg-type]
        connection.execute("SET TIME ZONE 'UTC'")
        return list(connection.execute(f'SELECT * FROM "t_{of.delivery.replace("-", "_")}"').fetchall())


def change(name: str, count: int, op: str, ver: int) -> dict[str, Any]:
    return {
        "window_start": START,
        "window_end": START + dt.timedelta(seconds=2),
        "name": name,
        "n": count,
        "_partial": False,
        "_op": op,
        "_ptime": START,
        "_ver": ver,
    }


def test_rows_of_all_types_are_appended_once(postgres: Postgres) -> None:
    mine = subject()
    destination, sink = opened(postgres, mine)
    assert sink.resume() is None
    first, second = rows_of(mine, selected(50), 1), rows_of(mine, selected(30, 50), 2)
    sink.write(first)
    sink.write(second)
    destination.close()
    destination, sink = opened(postgres, mine)
    assert sink.resume() == "after 2"
    destination.close()
    found = sorted(table_of(postgres, mine), key=lambda row: row["n"])
    wanted = first.table.to_pylist() + second.table.to_pylist()
    for got, row in zip(found, wanted, strict=True):
        assert got.pop("_query") == "q-1"
        assert got == {**row, "at": row["at"] and row["at"].replace(tzinfo=dt.UTC)}


def test_a_transaction_that_is_cut_off_leaves_neither_rows_nor_cursor(postgres: Postgres) -> None:
    mine = subject()
    destination, sink = opened(postgres, mine)
    sink.resume()
    sink.write(rows_of(mine, selected(3), 1))
    rows = rows_of(mine, [{**selected(1)[0], "n": 7, "s": "fits"}], 2)
    with psycopg.connect(postgres.url, autocommit=True) as other:
        name = f"t_{mine.delivery.replace('-', '_')}"
        other.execute(f"ALTER TABLE {name} ADD CONSTRAINT small CHECK (n < 5)")
        with pytest.raises(SinkRefused, match="small"):
            sink.write(rows)
        assert sink.resume() == "after 1"
        other.execute(f"ALTER TABLE {name} DROP CONSTRAINT small")
    sink.write(rows)
    assert sink.resume() == "after 2"
    assert [row["n"] for row in table_of(postgres, mine)] == [0, 1, 2, 7]
    destination.close()


def test_a_table_shows_what_holds_now(postgres: Postgres) -> None:
    mine = subject(aggregation(EMIT_STREAM))
    destination, sink = opened(postgres, mine)
    sink.resume()
    sink.write(rows_of(mine, [change("a", 1, "insert", 0), change("b", 1, "insert", 0)], 1))
    sink.write(
        rows_of(mine, [change("a", 1, "retract", 1), change("a", 3, "insert", 2), change("b", 1, "retract", 1)], 2)
    )
    found = table_of(postgres, mine)
    assert [(row["name"], row["n"], row["_ver"]) for row in found] == [("a", 3, 2)]
    nothing = change("a", 3, "retract", 3) | {"name": None}
    sink.write(rows_of(mine, [nothing | {"_op": "insert"}, change("a", 3, "retract", 3)], 3))
    assert [(row["name"], row["n"]) for row in table_of(postgres, mine)] == [(None, 3)]
    sink.write(rows_of(mine, [nothing], 4))
    assert table_of(postgres, mine) == []
    destination.close()


def test_windows_are_put_in_the_place_of_their_own(postgres: Postgres) -> None:
    mine = subject(aggregation())
    destination, sink = opened(postgres, mine)
    sink.resume()
    row = {"window_start": START, "window_end": START, "name": None, "n": 1, "_partial": False}
    sink.write(rows_of(mine, [row, {**row, "name": "a"}], 1))
    sink.write(rows_of(mine, [{**row, "n": 2}], 2))
    assert sorted((row["n"], row["name"]) for row in table_of(postgres, mine)) == [(1, "a"), (2, None)]
    destination.close()


def test_another_deliverer_that_went_on_is_noticed(postgres: Postgres) -> None:
    mine = subject()
    (one, first), (two, second) = opened(postgres, mine), opened(postgres, mine)
    first.resume()
    second.resume()
    first.write(rows_of(mine, selected(1), 1))
    with pytest.raises(SinkDown, match="another deliverer"):
        second.write(rows_of(mine, selected(1), 1))
    second.resume()
    second.write(rows_of(mine, selected(1, 1), 2))
    with pytest.raises(SinkDown, match="another deliverer"):
        first.write(rows_of(mine, selected(1, 1), 2))
    assert [row["n"] for row in table_of(postgres, mine)] == [0, 1]
    one.close()
    two.close()


def test_a_server_that_is_gone_is_down_and_comes_back(postgres: Postgres) -> None:
    mine = subject()
    destination, sink = opened(postgres, mine)
    sink.resume()
    sink.write(rows_of(mine, selected(2), 1))
    postgres.stop()
    try:
        with pytest.raises(SinkDown, match="PostgreSQL"):
            sink.write(rows_of(mine, selected(2, 2), 2))
        with pytest.raises(SinkDown, match="PostgreSQL"):
            opened(postgres, mine)
        destination.close()
    finally:
        postgres.start()
    destination, sink = opened(postgres, mine)
    assert sink.resume() == "after 1"
    sink.write(rows_of(mine, selected(2, 2), 2))
    assert [row["n"] for row in table_of(postgres, mine)] == [0, 1, 2, 3]
    destination.close()


def test_the_character_nul_is_left_out(postgres: Postgres) -> None:
    mine = subject()
    destination, sink = opened(postgres, mine)
    sink.resume()
    sink.write(rows_of(mine, [{**selected(1)[0], "s": "a\0b"}], 1))
    assert table_of(postgres, mine)[0]["s"] == "ab"
    destination.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "must have the option 'url'"),
        ({"url": "postgresql://h/d"}, "must have the option 'table'"),
        ({"url": "postgresql://u:secret@h/d", "table": "t"}, "must hold no password"),
        ({"url": "http://h", "table": "t"}, "must be postgresql://"),
        ({"url": "postgresql://h/d", "table": "a.b.c"}, "TABLE or SCHEMA.TABLE"),
        ({"url": "postgresql://h/d", "table": "t", "password": "plain"}, "must be a reference"),
        ({"url": "postgresql://h/d", "table": "t", "mode": "upsert"}, "what tells rows apart"),
        ({"url": "postgresql://h/d", "table": "t", "key": "nothing"}, "got 'nothing'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        connector.validate(options, SELECTION, "")
