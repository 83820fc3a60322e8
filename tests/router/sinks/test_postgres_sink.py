"""Tables of PostgreSQL: a real server, read by SQL."""

from __future__ import annotations

import datetime as dt
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from braid.operators.windows import Emit
from braid.router.sinks import postgres as connector
from braid.router.sinks.sink import DelivererIdentity, Destination, RowsRefused, Sink, SinkDown, SinkRefused, Subject
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from tests.kit.servers import Postgres
from tests.router.sinks.subjects import SELECTION, aggregation, rows_of, selected, subject

EMIT_STREAM = Emit(stream=True)
START = dt.datetime(2026, 1, 1)


def opened(server: Postgres, of: Subject, **options: str) -> tuple[Destination, Sink]:
    all_options = {"url": server.url, "table": f"t_{of.delivery_id.replace('-', '_')}", **options}
    connector.validate(all_options, of.query, OPEN)
    destination = connector.connect(all_options, DelivererIdentity("test"))
    return destination, destination.open(of, all_options)


def table_of(server: Postgres, of: Subject) -> list[dict[str, Any]]:
    with psycopg.connect(server.url, row_factory=dict_row) as connection:  # type: ignore[arg-type]
        connection.execute("SET TIME ZONE 'UTC'")
        return list(connection.execute(f'SELECT * FROM "t_{of.delivery_id.replace("-", "_")}"').fetchall())


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
    query = subject()
    destination, sink = opened(postgres, query)
    assert sink.resume() is None
    first, second = rows_of(query, selected(50), 1), rows_of(query, selected(30, 50), 2)
    sink.write(first)
    sink.write(second)
    destination.close()
    destination, sink = opened(postgres, query)
    assert sink.resume() == "after 2"
    destination.close()
    rows = sorted(table_of(postgres, query), key=lambda row: row["n"])
    expected = first.table.to_pylist() + second.table.to_pylist()
    for got, row in zip(rows, expected, strict=True):
        assert got.pop("_query") == query.delivery_id
        assert got == {**row, "at": row["at"] and row["at"].replace(tzinfo=dt.UTC)}


def test_a_transaction_that_is_cut_off_leaves_neither_rows_nor_cursor(postgres: Postgres) -> None:
    query = subject()
    destination, sink = opened(postgres, query)
    sink.resume()
    sink.write(rows_of(query, selected(3), 1))
    rows = rows_of(query, [{**selected(1)[0], "n": 7, "s": "fits"}], 2)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        name = f"t_{query.delivery_id.replace('-', '_')}"
        connection.execute(f"ALTER TABLE {name} ADD CONSTRAINT small CHECK (n < 5)")
        with pytest.raises(SinkRefused, match="small"):
            sink.write(rows)
        assert sink.resume() == "after 1"
        connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT small")
    sink.write(rows)
    assert sink.resume() == "after 2"
    assert [row["n"] for row in table_of(postgres, query)] == [0, 1, 2, 7]
    destination.close()


def test_a_table_shows_what_holds_now(postgres: Postgres) -> None:
    query = subject(aggregation(EMIT_STREAM))
    destination, sink = opened(postgres, query)
    sink.resume()
    sink.write(rows_of(query, [change("a", 1, "insert", 0), change("b", 1, "insert", 0)], 1))
    sink.write(
        rows_of(query, [change("a", 1, "retract", 1), change("a", 3, "insert", 2), change("b", 1, "retract", 1)], 2)
    )
    rows = table_of(postgres, query)
    assert [(row["name"], row["n"], row["_ver"]) for row in rows] == [("a", 3, 2)]
    nothing = change("a", 3, "retract", 3) | {"name": None}
    sink.write(rows_of(query, [nothing | {"_op": "insert"}, change("a", 3, "retract", 3)], 3))
    assert [(row["name"], row["n"]) for row in table_of(postgres, query)] == [(None, 3)]
    sink.write(rows_of(query, [nothing], 4))
    assert table_of(postgres, query) == []
    destination.close()


def test_windows_are_put_in_the_place_of_their_own(postgres: Postgres) -> None:
    query = subject(aggregation())
    destination, sink = opened(postgres, query)
    sink.resume()
    row = {"window_start": START, "window_end": START, "name": None, "n": 1, "_partial": False}
    sink.write(rows_of(query, [row, {**row, "name": "a"}], 1))
    sink.write(rows_of(query, [{**row, "n": 2}], 2))
    assert sorted((row["n"], row["name"]) for row in table_of(postgres, query)) == [(1, "a"), (2, None)]
    destination.close()


def test_another_deliverer_that_went_on_is_noticed(postgres: Postgres) -> None:
    query = subject()
    (destination, first), (other_destination, second) = opened(postgres, query), opened(postgres, query)
    first.resume()
    second.resume()
    first.write(rows_of(query, selected(1), 1))
    with pytest.raises(SinkDown, match="another deliverer"):
        second.write(rows_of(query, selected(1), 1))
    second.resume()
    second.write(rows_of(query, selected(1, 1), 2))
    with pytest.raises(SinkDown, match="another deliverer"):
        first.write(rows_of(query, selected(1, 1), 2))
    assert [row["n"] for row in table_of(postgres, query)] == [0, 1]
    destination.close()
    other_destination.close()


def test_a_server_that_is_gone_is_down_and_comes_back(postgres: Postgres) -> None:
    query = subject()
    destination, sink = opened(postgres, query)
    sink.resume()
    sink.write(rows_of(query, selected(2), 1))
    postgres.stop()
    try:
        with pytest.raises(SinkDown, match="PostgreSQL"):
            sink.write(rows_of(query, selected(2, 2), 2))
        with pytest.raises(SinkDown, match="PostgreSQL"):
            opened(postgres, query)
        destination.close()
    finally:
        postgres.start()
    destination, sink = opened(postgres, query)
    assert sink.resume() == "after 1"
    sink.write(rows_of(query, selected(2, 2), 2))
    assert [row["n"] for row in table_of(postgres, query)] == [0, 1, 2, 3]
    destination.close()


def test_the_character_nul_is_left_out(postgres: Postgres) -> None:
    query = subject()
    destination, sink = opened(postgres, query)
    sink.resume()
    sink.write(rows_of(query, [{**selected(1)[0], "s": "a\0b"}], 1))
    assert table_of(postgres, query)[0]["s"] == "ab"
    destination.close()


def test_a_locked_table_refuses_its_own_query_and_others_go_on(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "LOCK_TIMEOUT", "200ms")
    query, other_query = subject(), subject()
    destination, sink = opened(postgres, query)
    sink.resume()
    second = destination.open(
        other_query, {"url": postgres.url, "table": f"t_{other_query.delivery_id.replace('-', '_')}"}
    )
    second.resume()
    with psycopg.connect(postgres.url) as locking:
        locking.execute(f"LOCK TABLE t_{query.delivery_id.replace('-', '_')} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SinkRefused, match="lock timeout"):
            sink.write(rows_of(query, selected(2), 1))
        second.write(rows_of(other_query, selected(3), 1))
    assert sink.resume() is None
    sink.write(rows_of(query, selected(2), 1))
    destination.close()
    assert [len(table_of(postgres, of)) for of in (query, other_query)] == [2, 3]


def test_a_statement_does_not_take_for_ever(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "STATEMENT_TIMEOUT", "200ms")
    destination, _ = opened(postgres, subject())
    assert isinstance(destination, connector.Database)
    with pytest.raises(psycopg.errors.QueryCanceled) as raised:
        destination.connection.execute("SELECT pg_sleep(60)")
    assert isinstance(destination.failure(raised.value), SinkRefused)
    destination.close()


def test_rows_of_services_with_the_same_ids_stay_apart(postgres: Postgres) -> None:
    query, other_query = subject(aggregation()), subject(aggregation())
    assert query.query_id == other_query.query_id
    row = {"window_start": START, "window_end": START, "name": "a", "n": 1, "_partial": False}
    for of in (query, other_query):
        destination, sink = opened(postgres, of, table=f"t_{query.delivery_id.replace('-', '_')}")
        sink.resume()
        sink.write(rows_of(of, [row], 1))
        destination.close()
    assert {row["_query"] for row in table_of(postgres, query)} == {query.delivery_id, other_query.delivery_id}


def test_nothing_is_left_of_what_is_staged(postgres: Postgres) -> None:
    query = subject(aggregation())
    destination, sink = opened(postgres, query)
    sink.resume()
    row = {"window_start": START, "window_end": START, "name": "a", "n": 1, "_partial": False}
    sink.write(rows_of(query, [row], 1))
    sink.write(rows_of(query, [row], 2))
    assert isinstance(destination, connector.Database)
    staged = "SELECT count(*) FROM pg_class WHERE relname LIKE '\\_braid\\_stage%'"
    assert destination.connection.execute(staged).fetchone() == (0,)
    destination.close()


HIDDEN = "swordfish-17"


@pytest.mark.parametrize(
    ("state", "means"),
    [
        ("08006", SinkDown),
        ("08P01", SinkDown),
        ("53100", SinkDown),
        ("53300", SinkDown),
        ("57P01", SinkDown),
        ("57P02", SinkDown),
        ("57P03", SinkDown),
        ("40001", SinkDown),
        ("40P01", SinkDown),
        ("55P03", SinkRefused),
        ("57014", SinkRefused),
        ("25006", SinkRefused),
        ("42P01", SinkRefused),
        ("42501", SinkRefused),
        ("23514", RowsRefused),
        ("22001", RowsRefused),
        ("54000", RowsRefused),
        ("44000", RowsRefused),
        ("P0001", RowsRefused),
        ("28P01", SinkRefused),
        ("58030", SinkRefused),
    ],
)
def test_what_an_error_means(state: str, means: type[Exception]) -> None:
    problem = psycopg.errors.lookup(state)(f"says {HIDDEN}")
    failure = connector.failure(problem, secrets=(HIDDEN,))
    assert type(failure) is means
    assert HIDDEN not in str(failure)
    assert isinstance(connector.failure(problem, is_closed=True), SinkDown)


def test_an_error_of_no_state_is_down_if_it_is_of_the_connection() -> None:
    assert isinstance(connector.failure(psycopg.OperationalError("gone")), SinkDown)
    assert isinstance(connector.failure(psycopg.InterfaceError("gone")), SinkDown)
    assert isinstance(connector.failure(psycopg.DataError("odd")), RowsRefused)


def test_a_server_that_is_not_there_is_down_and_no_secret_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_PG", HIDDEN)
    url = f"postgresql://{HIDDEN}.invalid:1/d"
    with pytest.raises(SinkDown, match=r"\*\*\*") as raised:
        connector.connect({"url": url, "table": "t", "password": "secret:pg"}, DelivererIdentity("test"))
    assert HIDDEN not in "".join(traceback.format_exception(raised.value))


def test_no_password_of_the_environment_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A server that asks for the password in plain text gets none."""
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:*:*:{HIDDEN}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.setenv("PGPASSWORD", HIDDEN)
    with asking_for_a_password() as (port, got):
        url = f"postgresql://braid@127.0.0.1:{port}/d?sslmode=disable"
        with pytest.raises(SinkDown, match="no password supplied"):
            connector.connect({"url": url, "table": "t"}, DelivererIdentity("test"))
    assert HIDDEN.encode() not in b"".join(got)
    assert capfd.readouterr().err == ""


@contextmanager
def asking_for_a_password() -> Iterator[tuple[int, list[bytes]]]:
    """Run a server of PostgreSQL's protocol for one connection; what it gets is in the list."""
    got: list[bytes] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while True:
                got.append(connection.recv(4096))
                if got[-1][4:8] != (80877104).to_bytes(4, "big"):
                    break
                connection.sendall(b"N")  # no encryption by GSSAPI
            connection.sendall(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
            got.append(connection.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1], got
        finally:
            thread.join()


def test_a_url_may_say_how_to_connect() -> None:
    url = "postgresql://u@h:5/d?sslmode=verify-full&sslrootcert=system&connect_timeout=3&application_name=x"
    for good in (url, "host=/run/postgresql dbname=d", "hostaddr=127.0.0.1", "postgresql://a,b:5/d"):
        connector.validate({"url": good, "table": "t"}, SELECTION, OPEN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the option 'url'"),
        ({"url": "postgresql://h/d"}, "needs the option 'table'"),
        ({"url": "postgresql://u:secret@h/d", "table": "t"}, "must hold no password"),
        ({"url": "http://h", "table": "t"}, "must be postgresql://"),
        ({"url": "postgresql://h/d", "table": "a.b.c"}, "TABLE or SCHEMA.TABLE"),
        ({"url": "postgresql://h/d", "table": "t", "password": "plain"}, "must be a reference"),
        ({"url": "postgresql://h/d", "table": "t", "mode": "upsert"}, "what tells rows apart"),
        ({"url": "postgresql://h/d", "table": "t", "key": "nothing"}, "got 'nothing'"),
        ({"url": "postgresql://h/d", "table": "t", "key": "n", "mode": "append"}, "must be without 'key'"),
        ({"url": "postgresql://h/d?passfile=/x", "table": "t"}, "got 'passfile'"),
        ({"url": "postgresql://h/d?options=-c%20x", "table": "t"}, "got 'options'"),
        ({"url": "postgresql://h/d?sslpassword=x", "table": "t"}, "got 'sslpassword'"),
        ({"url": "service=x", "table": "t"}, "got 'service'"),
        ({"url": "postgresql:///d", "table": "t"}, "must name a host"),
        ({"url": "host=a, dbname=d", "table": "t"}, "must name a host"),
        ({"url": "postgresql://h/d?connect_timeout=0", "table": "t"}, "connect_timeout"),
        ({"url": "postgresql://h/d?connect_timeout=x", "table": "t"}, "connect_timeout"),
        ({"url": "postgresql://h/%ZZ", "table": "t"}, "must be postgresql://"),
        ({"url": "postgresql://h/d\0", "table": "t"}, "must"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        connector.validate(options, SELECTION, OPEN)


def test_values_that_no_retry_helps_are_refused_and_the_next_rows_taken(postgres: Postgres) -> None:
    """A key too large for an index, however often it is sent, and a value too large for its column."""
    query = subject(aggregation())
    destination, sink = opened(postgres, query)
    sink.resume()
    row = {"window_start": START, "window_end": START + dt.timedelta(seconds=2), "name": "a", "n": 1}
    large = {**row, "name": "".join(map(str, range(120_000)))}
    with pytest.raises(RowsRefused, match="index row"):
        sink.write(rows_of(query, [{**row, "name": "b"}, large], 1))
    sink.write(rows_of(query, [row], 2))
    assert [found["name"] for found in table_of(postgres, query)] == ["a"]
    assert sink.resume() == "after 2"
    destination.close()

    narrow = subject()
    destination, sink = opened(postgres, narrow, mode="append")
    with psycopg.connect(postgres.url) as connection:
        table = f"t_{narrow.delivery_id.replace('-', '_')}"
        connection.execute(f'ALTER TABLE "{table}" ALTER COLUMN n TYPE smallint')  # type: ignore[arg-type]
    sink.resume()
    with pytest.raises(RowsRefused, match="smallint"):
        sink.write(rows_of(narrow, selected(1, 40_000), 1))
    destination.close()
