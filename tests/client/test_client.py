"""The Python client, over real HTTP against a service that plays back the contract's answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx
import orjson
import pytest
from fastapi import Response

from braid.client import (
    BraidError,
    Client,
    QueryFailed,
    Refused,
    Unreachable,
    checked_url,
    query_body,
)
from braid.client.http import translated
from tests.api.cli.playback import STREAM, Playback, problem, running

SQL = "SELECT user_id FROM purchases WHERE price > 5"


@pytest.fixture
def service() -> Iterator[Playback]:
    with running() as playback:
        yield playback


@pytest.fixture
def braid(service: Playback) -> Iterator[Client]:
    with Client(service.url) as client:
        yield client


def test_query_is_registered_with_all_its_fields(service: Playback, braid: Client) -> None:
    query = braid.create_query(
        SQL, name="cheap", sink="files", ttl_seconds=60, labels={"team": "ads"}, wait=5, key="once"
    )
    request = service.last()
    assert query["id"] == "q-1"
    assert request.json == {
        "sql": SQL,
        "name": "cheap",
        "sink": "files",
        "ttl_seconds": 60,
        "labels": {"team": "ads"},
    }
    assert request.query == {"wait": "5"}
    assert request.headers["idempotency-key"] == "once"
    assert request.headers["content-type"] == "application/json"


def test_repeating_a_request_with_its_key_registers_once(service: Playback, braid: Client) -> None:
    assert braid.create_query(SQL, key="k")["id"] == braid.create_query(SQL, key="k")["id"]
    assert len(service.queries) == 1


def test_fields_that_are_not_given_are_not_sent(service: Playback, braid: Client) -> None:
    braid.create_query(SQL)
    assert service.last().json == {"sql": SQL}
    assert service.last().query == {}
    assert "idempotency-key" not in service.last().headers


def test_many_queries_are_registered_in_one_request(service: Playback, braid: Client) -> None:
    queries = braid.create_queries([query_body(SQL, name="a"), query_body(SQL)], wait=1)
    assert [query["id"] for query in queries] == ["q-1", "q-2"]
    assert service.last().json == [{"sql": SQL, "name": "a"}, {"sql": SQL}]


def test_queries_are_listed_over_all_pages(service: Playback, braid: Client) -> None:
    for _ in range(5):
        service.add_query({"sql": SQL})
    service.set_state("q-2", "RETIRED")
    assert [query["id"] for query in braid.queries()] == ["q-1", "q-2", "q-3", "q-4", "q-5"]
    assert [query["id"] for query in braid.queries("RUNNING", label="team=ads", limit=3)] == [
        "q-1",
        "q-3",
        "q-4",
        "q-5",
    ]
    assert service.last().query == {"state": "RUNNING", "label": "team=ads", "limit": "3", "cursor": "3"}


@pytest.mark.parametrize(("drain", "parameter"), [(True, "true"), (False, "false")])
def test_deleting_a_query_says_whether_it_drains(service: Playback, braid: Client, drain: bool, parameter: str) -> None:
    service.add_query({"sql": SQL})
    braid.delete_query("q-1", drain)
    assert service.last().query == {"drain": parameter}
    assert braid.get_query("q-1")["state"] == "RETIRED"


def test_many_queries_are_retired_in_one_request(service: Playback, braid: Client) -> None:
    for _ in range(3):
        service.add_query({"sql": SQL})
    assert [query["id"] for query in braid.retire_queries(["q-1", "q-3"], drain=False)] == ["q-1", "q-3"]
    assert service.last().json == {"ids": ["q-1", "q-3"], "drain": False}
    assert [query["id"] for query in braid.queries("RUNNING")] == ["q-2"]


def test_changelogs_are_listed_over_all_pages(braid: Client) -> None:
    assert [changelog["epoch"] for changelog in braid.changelogs()] == [1, 2, 3, 4, 5, 6, 7]
    assert braid.changelogs(after=7) == []


def test_plans_come_as_a_graph_and_as_dot(braid: Client) -> None:
    assert {node["id"] for node in braid.plan("q-1")["nodes"]} >= {"s1", "q-1"}
    assert braid.plan_dot("q-1") == "digraph { s1 -> q-1 }\n"
    assert braid.validate(SQL)["operator"] == "aggregate"


def test_streams_tables_and_statements(service: Playback, braid: Client) -> None:
    braid.create_stream("CREATE STREAM purchases (…)")
    assert (service.last().path, service.last().json) == ("/streams", {"sql": "CREATE STREAM purchases (…)"})
    braid.create_table("CREATE TABLE packs (…)")
    assert service.last().path == "/tables"
    assert braid.sql("SHOW STREAMS")["name"] == "purchases"
    assert service.last().json == {"sql": "SHOW STREAMS"}
    assert braid.streams() == [STREAM]
    assert braid.stream("purchases") == STREAM
    assert braid.refresh_table("packs", wait=1)["refreshing"] is False
    assert (service.last().method, service.last().path) == ("POST", "/tables/packs/refresh")
    assert [table["name"] for table in braid.tables()] == ["packs"]
    assert braid.changelogs(after=6)[0]["epoch"] == 7
    assert braid.dead_letters("purchases", limit=1)["rows"][0]["reason"] == "late"
    braid.drop_stream("purchases")
    braid.drop_table("packs")
    assert (service.last().method, service.last().path) == ("DELETE", "/tables/packs")


def test_a_name_cannot_leave_its_place_in_the_path(service: Playback, braid: Client) -> None:
    with pytest.raises(Refused):
        braid.stream("a/b?c ü")
    assert service.last().path == "/streams/a%2Fb%3Fc%20%C3%BC"
    count = len(service.requests)
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="must not be"):
            braid.stream(name)
    assert len(service.requests) == count


@pytest.mark.parametrize(
    ("form", "media_type"),
    [
        ("ndjson", "application/x-ndjson"),
        ("json", "application/json"),
        ("arrow", "application/vnd.apache.arrow.stream"),
    ],
)
def test_bytes_are_pushed_as_they_are(service: Playback, braid: Client, form: str, media_type: str) -> None:
    assert braid.push("purchases", b"{}\n{}\nx\n", form, key="k")["rejected"] == 1
    assert service.last().body == b"{}\n{}\nx\n"
    assert service.last().headers["content-type"] == media_type
    assert service.last().headers["idempotency-key"] == "k"


def test_dicts_are_pushed_as_lines(service: Playback, braid: Client) -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    event: dict[str, Any] = {"time": when, "day": date(2026, 1, 1), "price": Decimal("1.10"), "name": "ü"}
    assert braid.push("purchases", [event, {"id": 2**60}])["accepted"] == 2
    first, second = service.last().body.splitlines()
    assert json.loads(first) == {
        "time": "2026-01-01T00:00:00+00:00",
        "day": "2026-01-01",
        "price": "1.10",
        "name": "ü",
    }
    assert json.loads(second) == {"id": 2**60}


def test_digits_are_kept_for_who_asks_for_decimals(service: Playback, braid: Client) -> None:
    service.add_query({"sql": SQL})
    service.emit("q-1", {"top": orjson.Fragment("12345678901234567.10"), "n": 1})
    assert braid.results("q-1").rows == [{"top": 12345678901234567.1, "n": 1}]
    with Client(service.url, parse_float=Decimal) as exact:
        (row,) = exact.results("q-1").rows
    assert (str(row["top"]), row["n"]) == ("12345678901234567.10", 1)


def test_what_is_no_json_is_not_sent(service: Playback, braid: Client) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        braid.push("purchases", [{"price": 1.0}, {"price": float("nan")}])
    with pytest.raises(TypeError, match="Decimal"):
        braid.push("purchases", [{"price": object()}])
    with pytest.raises(ValueError, match="format must be one of ndjson, json, arrow, csv, got 'xml'"):
        braid.push("purchases", b"", "xml")
    with pytest.raises(ValueError, match="printable ASCII, got 'Schlüssel'"):
        braid.push("purchases", b"{}", key="Schlüssel")
    assert service.requests == []


def test_results_are_paged_by_cursor(service: Playback, braid: Client) -> None:
    service.add_query({"sql": SQL})
    service.emit("q-1", *({"n": n} for n in range(5)))
    first = braid.results("q-1", limit=3)
    second = braid.results("q-1", after=first.cursor)
    assert [row["n"] for row in first.rows + second.rows] == [0, 1, 2, 3, 4]
    assert not second.end
    service.set_state("q-1", "RETIRED")
    last = braid.results("q-1", after=second.cursor)
    assert (last.rows, last.cursor, last.end) == ([], "5", True)


def test_following_long_polls_until_the_end(service: Playback, braid: Client) -> None:
    service.add_query({"sql": SQL})
    numbers: list[int] = []

    def follow() -> None:
        numbers.extend(row["n"] for row in braid.follow("q-1"))

    reader = threading.Thread(target=follow)
    reader.start()
    results = "/queries/q-1/results"
    service.wait_until(lambda: len(service.asked("GET", results)) == 1)
    service.emit("q-1", {"n": 1}, {"n": 2})
    # the second poll carries the cursor of the first: it is open when the next row comes
    service.wait_until(lambda: len(service.asked("GET", results)) == 2)
    service.emit("q-1", {"n": 3})
    service.wait_until(lambda: len(service.asked("GET", results)) == 3)
    service.set_state("q-1", "RETIRED")
    reader.join(20)
    assert not reader.is_alive()
    assert numbers == [1, 2, 3]
    polls = [request.query for request in service.asked("GET", results)]
    assert [poll.get("after") for poll in polls] == [None, "2", "3"]
    assert all(float(poll["wait"]) > 0 for poll in polls)


def test_following_goes_on_after_a_cursor_and_stops_after_rows(service: Playback, braid: Client) -> None:
    service.add_query({"sql": SQL})
    service.emit("q-1", *({"n": n} for n in range(9)))
    pages = list(braid.follow_pages("q-1", after="4", max_rows=3))
    assert [row["n"] for page in pages for row in page.rows] == [4, 5, 6]
    assert pages[-1].cursor == "7"


def test_following_a_failed_query_gives_its_rows_then_its_error(service: Playback, braid: Client) -> None:
    service.add_query({"sql": SQL})
    service.emit("q-1", {"n": 1})
    service.set_state("q-1", "FAILED", "division by zero")
    rows = braid.follow("q-1")
    assert next(rows) == {"n": 1}
    with pytest.raises(QueryFailed, match="q-1 is FAILED: division by zero"):
        next(rows)


def test_a_long_poll_may_take_longer_than_the_timeout(service: Playback) -> None:
    service.add_query({"sql": SQL})
    with Client(service.url, timeout=2.0) as braid:
        page = braid.results("q-1", wait=2.1)
    assert page.rows == []


def test_a_refusal_carries_the_problem(service: Playback, braid: Client) -> None:
    service.play(problem(422, "Unknown column", "no column 'pric'; there is price", position={"line": 1, "column": 8}))
    with pytest.raises(Refused) as caught:
        braid.create_query("SELECT pric FROM purchases")
    refused = caught.value
    assert (refused.status, refused.title, refused.position) == (422, "Unknown column", (1, 8))
    assert refused.sql == "SELECT pric FROM purchases"
    assert str(refused) == "422 Unknown column: no column 'pric'; there is price"


def test_an_overloaded_service_says_when_to_come_back(service: Playback, braid: Client) -> None:
    overload = problem(429, "Too Many Requests", "1000 queries are the quota")
    overload.headers["Retry-After"] = "7"
    service.play(overload)
    with pytest.raises(Refused) as caught:
        braid.create_query(SQL)
    assert caught.value.retry_after == 7.0


@pytest.mark.parametrize("body", ["<html>bad gateway</html>", "[1]", '{"detail": null, "position": 3}', ""])
def test_a_refusal_that_is_no_problem_json_is_still_a_refusal(service: Playback, braid: Client, body: str) -> None:
    service.play(Response(body, 502, media_type="text/html"))
    with pytest.raises(Refused) as caught:
        braid.streams()
    assert (caught.value.status, caught.value.title, caught.value.position) == (502, "Bad Gateway", None)
    assert "<html>" not in str(caught.value)


def test_a_redirect_is_not_followed(service: Playback, braid: Client) -> None:
    service.play(Response(status_code=307, headers={"Location": "http://127.0.0.1:1/"}))
    with pytest.raises(Refused) as caught:
        braid.create_query(SQL)
    assert caught.value.status == 307


@pytest.mark.parametrize("body", ["<html>hello</html>", "3", '{"things": []}'])
def test_what_is_not_braid_is_unreachable(service: Playback, braid: Client, body: str) -> None:
    service.play(Response(body, 200))
    with pytest.raises(Unreachable, match="does not speak Braid"):
        braid.streams()


def test_a_port_where_nobody_listens_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url) as braid, pytest.raises(Unreachable) as caught:
            braid.streams()
    assert caught.value.url == url


def test_a_service_that_stays_silent_is_unreachable() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, timeout=0.2) as braid, pytest.raises(Unreachable, match="no answer came"):
            braid.streams()


def _httpx_errors() -> list[type[Exception]]:
    public = (getattr(httpx, name) for name in httpx.__all__)
    return [kind for kind in public if isinstance(kind, type) and issubclass(kind, Exception)]


@pytest.mark.parametrize("kind", _httpx_errors(), ids=lambda kind: kind.__name__)
def test_every_error_of_httpx_is_translated(kind: type[Exception]) -> None:
    # made without their constructors, which ask for requests and responses
    error = kind.__new__(kind)
    with pytest.raises(Unreachable), translated("http://127.0.0.1:8080"):
        raise error


def test_all_errors_are_of_one_family() -> None:
    assert len(_httpx_errors()) > 20
    for kind in (Refused, Unreachable, QueryFailed):
        assert issubclass(kind, BraidError)


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host", "http://", "http://host:99999", "http://a\n"])
def test_a_url_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="URL must look like"):
        Client(url)


def test_a_url_may_end_with_a_slash_and_have_a_path() -> None:
    assert checked_url("https://host:1/braid/") == "https://host:1/braid"


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        Client(timeout=timeout)


def test_the_address_and_key_come_from_the_environment(service: Playback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_URL", service.url)
    monkeypatch.setenv("BRAID_API_KEY", "secret")
    with Client() as braid:
        braid.streams()
    assert service.last().headers["authorization"] == "Bearer secret"
    with Client("http://127.0.0.1:1", api_key="mine") as other:
        assert (other.url, other.api_key) == ("http://127.0.0.1:1", "mine")


def test_a_handle_retires_its_query_and_its_table_escapes_what_rows_hold(service: Playback, braid: Client) -> None:
    with braid.query(SQL, name="cheap") as query:
        assert service.asked("POST", "/queries")[-1].json == {"sql": SQL, "name": "cheap"}
        service.emit(query.id, {"page": "<script>", "n": None}, {"page": "/", "n": 2})
        assert "<td>&lt;script&gt;</td><td>NULL</td>" in query._repr_html_()
        assert query.table(1).rows == [{"page": "/", "n": 2}]
    assert braid.get_query(query.id)["state"] == "RETIRED"
    assert braid.find_query(query.id).sql == SQL


def test_a_notebook_shows_why_a_query_cannot_be_read(service: Playback, braid: Client) -> None:
    query = braid.query(SQL)
    service.play(problem(410, "Gone", "its retention has passed"))
    assert "410 Gone: its retention has passed" in query._repr_html_()
