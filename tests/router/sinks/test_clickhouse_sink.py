"""Tables of ClickHouse: a real server, read by its HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest

from braid.router.sinks import clickhouse as connector
from braid.router.sinks.http import HttpPlace
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, Sink, SinkDown, SinkRefused, Subject
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from tests.kit.servers import ClickHouse
from tests.kit.service import free_port
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject

COLUMNS = (
    "n Int64, i Nullable(Int32), x Nullable(Float64), d Nullable(Decimal(12, 2)), s Nullable(String),"
    " b Nullable(UInt8), day Nullable(Date), at Nullable(DateTime('UTC'))"
)


@contextmanager
def opened(server: ClickHouse, of: Subject, table: str, **options: str) -> Iterator[Sink]:
    all_options = {"url": server.url, "table": table, **options}
    connector.validate(all_options, of.query, OPEN)
    with closing(connector.connect(all_options, DelivererIdentity("test"))) as destination:
        yield destination.open(of, all_options)


def test_rows_of_all_types_are_inserted(clickhouse: ClickHouse) -> None:
    clickhouse.query(f"CREATE TABLE plain ({COLUMNS}) ENGINE = MergeTree ORDER BY n")
    query = subject()
    rows = rows_of(query, selected(50), 3)
    with opened(clickhouse, query, "plain", database="default") as sink:
        sink.write(rows)
    text = clickhouse.query("SELECT * FROM plain ORDER BY n FORMAT JSONEachRow")
    inserted = [json.loads(line) for line in text.splitlines()]
    for row, expected in zip(inserted, rows.table.to_pylist(), strict=True):
        assert int(row["n"]) == expected["n"]
        assert row["i"] == expected["i"]
        assert row["x"] == expected["x"]
        assert row["s"] == expected["s"]
        assert (row["d"] and float(row["d"])) == (expected["d"] and float(expected["d"]))
        assert row["b"] == (None if expected["b"] is None else int(expected["b"]))
        assert row["day"] == (expected["day"] and expected["day"].isoformat())
        assert row["at"] == (expected["at"] and expected["at"].strftime("%Y-%m-%d %H:%M:%S"))


def test_a_table_may_keep_what_tells_rows_apart(clickhouse: ClickHouse) -> None:
    clickhouse.query(
        f"CREATE TABLE once ({COLUMNS}, _query String, _row String) ENGINE = ReplacingMergeTree ORDER BY (_query, _row)"
    )
    query = subject()
    rows = rows_of(query, selected(20), 3)
    with opened(clickhouse, query, "once") as sink:
        sink.write(rows)
        sink.write(rows)
    assert clickhouse.query("SELECT count() FROM once FINAL") == "20\n"
    assert clickhouse.query("SELECT DISTINCT _query FROM once") == f"{query.delivery_id}\n"


def test_a_table_that_is_not_there_refuses(clickhouse: ClickHouse) -> None:
    for database in ("default", "no_database"):
        with (
            pytest.raises(SinkRefused, match=r"nowhere|no_database"),
            opened(clickhouse, subject(), "nowhere", database=database),
        ):
            pass


def test_a_column_that_is_not_there_refuses(clickhouse: ClickHouse) -> None:
    query = subject()
    clickhouse.query("CREATE TABLE lacks (n Int64, i Int32, x Float64, s Alias toString(n)) ENGINE = Memory")
    missing = pytest.raises(SinkRefused, match="d, s, b, day, at are missing, there are n, i, x")
    with missing, opened(clickhouse, query, "lacks"):
        pass
    clickhouse.query(f"CREATE TABLE has ({COLUMNS}, more String, _row String) ENGINE = Memory")
    with opened(clickhouse, query, "has") as sink:
        sink.write(rows_of(query, selected(1), 3))
        assert clickhouse.query("SELECT n, more, _row FROM has") == "0\t\t3-0\n"


def test_values_that_do_not_fit_are_refused_and_others_go_on(clickhouse: ClickHouse) -> None:
    clickhouse.query(f"CREATE TABLE strict ({COLUMNS.replace('n Int64', 'n UUID')}) ENGINE = Memory")
    clickhouse.query(f"CREATE TABLE fits ({COLUMNS}) ENGINE = Memory")
    query = subject()
    with opened(clickhouse, query, "strict") as sink, pytest.raises(RowsRefused, match="Code: "):
        sink.write(rows_of(query, selected(2), 1))
    with opened(clickhouse, query, "fits") as sink:
        sink.write(rows_of(query, selected(2), 1))
    assert clickhouse.query("SELECT count() FROM fits") == "2\n"


UNKNOWN, INVALID = "36", "Code: 36. DB::Exception: Unknown element 'x' for enum"  # ClickHouse 22
NOT_THERE = {"x-clickhouse-exception-code": "46"}


def answers_of(null: httpx.Response | None, empty: httpx.Response | None) -> httpx.MockTransport:
    """Answer inserts as servers of several versions do: rows and an empty row into the table function null."""

    def answer(request: httpx.Request) -> httpx.Response:
        into_null = "FUNCTION null('`n` Enum8(\\'a\\' = 1)')" in request.url.params["query"]
        told = (empty if request.content == b"{}" else null) if into_null else None
        return told or httpx.Response(500, headers={"x-clickhouse-exception-code": UNKNOWN}, text=INVALID)

    return httpx.MockTransport(answer)


@pytest.mark.parametrize(
    ("null", "empty", "means"),
    [
        (None, httpx.Response(200), RowsRefused),  # they cannot be parsed
        (None, None, SinkRefused),  # nothing can be inserted
        (None, httpx.Response(200, headers=NOT_THERE), SinkRefused),  # an error that came after the headers
        (httpx.Response(200), httpx.Response(200), SinkRefused),  # they can be parsed
        (httpx.Response(404, headers=NOT_THERE), httpx.Response(404, headers=NOT_THERE), SinkRefused),  # an old server
    ],
)
def test_a_code_that_is_not_known_is_about_rows_where_the_server_cannot_parse_them(
    null: httpx.Response | None, empty: httpx.Response | None, means: type[Exception]
) -> None:
    query = subject()
    with httpx.Client(transport=answers_of(null, empty)) as client:
        sink = connector.ClickHouseSink(HttpPlace(client, "http://h", {}), "`t`", "q", set(), {"n": "Enum8('a' = 1)"})
        with pytest.raises(means, match="Unknown element") as raised:
            sink.write(rows_of(query, selected(2), 1))
    assert type(raised.value) is means


HIDDEN = "swordfish-17"


@pytest.mark.parametrize(
    ("status", "headers", "body", "means"),
    [
        (200, {}, "", None),
        (200, {"x-clickhouse-exception-code": "27"}, "", RowsRefused),
        (500, {}, f"Code: 60, e.displayText() = DB::Exception: {HIDDEN}", SinkRefused),
        (404, {"x-clickhouse-exception-code": "60"}, "", SinkRefused),
        (500, {"x-clickhouse-exception-code": "27"}, "", RowsRefused),
        (500, {}, "Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100)", RowsRefused),
        (500, {}, "Code: 252. DB::Exception: Too many parts (300). Merges are processing slower", SinkDown),
        (403, {"x-clickhouse-exception-code": "516"}, HIDDEN, SinkRefused),
        (500, {}, "anything", SinkRefused),
        (400, {}, "", SinkRefused),
        (302, {}, "", SinkRefused),
        *((500, {"x-clickhouse-exception-code": str(code)}, HIDDEN, SinkDown) for code in connector._DOWN_CODES),
        (500, {}, "Code: 241. DB::Exception: Memory limit", SinkDown),
        (413, {}, HIDDEN, RowsRefused),  # a proxy takes smaller bodies
        (413, {"x-clickhouse-exception-code": "60"}, "", SinkRefused),
        (503, {}, HIDDEN, SinkDown),
        (429, {}, "", SinkDown),
        (504, {}, "", SinkDown),
    ],
)
def test_what_an_answer_means(status: int, headers: dict[str, str], body: str, means: type[Exception] | None) -> None:
    with httpx.Client() as client:
        place = HttpPlace(client, "http://h", {"x-clickhouse-key": HIDDEN}, (HIDDEN,))
        answer = httpx.Response(status, headers=headers, text=body)
        if means is None:
            connector.judge(place, answer)
            return
        with pytest.raises(means) as raised:
            connector.judge(place, answer)
    assert type(raised.value) is means
    assert HIDDEN not in str(raised.value)


def test_a_wrong_password_is_refused_and_not_shown(clickhouse: ClickHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_CH", HIDDEN)
    options = {"username": "default", "password": "secret:ch"}
    with pytest.raises(SinkRefused, match="Code: ") as raised, opened(clickhouse, subject(), "t", **options):
        pass
    assert HIDDEN not in str(raised.value)


def test_nobody_there_is_down() -> None:
    options = {"url": f"http://127.0.0.1:{free_port()}", "table": "t"}
    with (
        closing(connector.connect(options, DelivererIdentity("test"))) as destination,
        pytest.raises(SinkDown, match="answer"),
    ):
        destination.open(subject(), options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://h"}, "needs the option 'table'"),
        ({"url": "http://h", "table": "a; DROP TABLE b"}, "must be a name"),
        ({"url": "http://h", "table": "t", "password": "plain"}, "must be a reference"),
        ({"url": "http://h/?database=x", "table": "t"}, "must be without"),
        ({"url": "http://h/#x", "table": "t"}, "must be without"),
        ({"url": "http://h:99999", "table": "t"}, "must be http"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        connector.validate(options, SELECTION, OPEN)
