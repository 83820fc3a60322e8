"""Results over REST: every type, every form, cursors, long polls, server-sent events."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import socket
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

from braid.router.cursor import CursorPosition
from braid.router.delivery.refused_rows import RefusedRow
from braid.session.log.archive import Archive
from tests.api.rest import ALL, SUMS, Rest, open_rest, tuple_at
from tests.kit.waiting import wait_until
from tests.router.batches import SECOND

ROW: dict[str, Any] = {
    "user_id": 2**62,
    "pack": -1,
    "price": 0.1,
    "amount": Decimal("1234567.10"),
    "note": 'é "q" \n',
    "day": dt.date(2026, 1, 2),
    "gift": True,
}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


def numbers(answer: Any) -> list[int]:
    """Return the user ids of an answer's rows."""
    return [row["user_id"] for row in answer["rows"]]


def test_every_type_is_written_as_the_contract_says(rest: Rest) -> None:
    query = rest.query()
    rest.select([tuple_at(1.5, **ROW), tuple_at(2), tuple_at(3, price=float("nan"))], [query["slot"]])
    response = rest.client.get(f"/queries/{query['id']}/results")
    assert response.headers["content-type"] == "application/json"
    answer = rest.read(response, 200)
    assert answer["end"] is False
    assert answer["rows"][0] == {
        **ROW,
        "amount": 1234567.1,
        "day": "2026-01-02",
        "time": "1970-01-01T00:00:01.500000Z",
    }
    assert b'"amount":1234567.10' in response.content
    assert set(answer["rows"][1].values()) == {None, "1970-01-01T00:00:02.000000Z"}
    assert answer["rows"][2]["price"] == "NaN"
    assert rest.get(f"/queries/{query['id']}")["rows_out"] == 3


def test_ndjson_and_arrow_carry_the_same_rows_and_the_cursor_in_headers(rest: Rest) -> None:
    query = rest.query()
    rest.select([tuple_at(n, **(ROW | {"user_id": n})) for n in range(5)], [query["slot"]])
    path = f"/queries/{query['id']}/results"
    json_page = rest.get(path, params={"limit": 3})
    response = rest.client.get(path, params={"limit": 3}, headers={"Accept": "application/x-ndjson"})
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [orjson.loads(line) for line in response.content.splitlines()] == json_page["rows"]
    assert (response.headers["braid-cursor"], response.headers["braid-end"]) == (json_page["cursor"], "false")
    arrow = {"Accept": "text/html;q=0.9, application/vnd.apache.arrow.stream"}
    response = rest.client.get(path, params={"after": json_page["cursor"]}, headers=arrow)
    table = pa.ipc.open_stream(io.BytesIO(response.content)).read_all()
    assert table["user_id"].to_pylist() == [3, 4]
    assert table.schema.field("amount").type == pa.decimal128(10, 2)
    after = response.headers["braid-cursor"]
    empty = rest.client.get(path, params={"after": after}, headers=arrow)
    assert pa.ipc.open_stream(io.BytesIO(empty.content)).read_all().schema == table.schema
    assert rest.get(path, 406, headers={"Accept": "text/html"})["title"] == "Not acceptable"


def test_windows_carry_partial(rest: Rest) -> None:
    query = rest.post("/queries", {"sql": SUMS})
    stream = rest.service.session.streams.definition("purchases").id
    wait_until(lambda: rest.get(f"/queries/{query['id']}")["epoch"], 10, "the query has an epoch")
    rest.commit(clocks_at_start={stream: 5 * SECOND})
    slot, plan = (
        rest.get(f"/queries/{query['id']}")["slot"],
        rest.service.session.lookup.deployed(query["id"]).query,
    )
    starts = [4, 0, 8]
    rows = pa.table(
        {
            "_slot": pa.array([slot] * 3, pa.int32()),
            "window_start": pa.array([s * SECOND for s in starts], pa.timestamp("us")),
            "window_end": pa.array([(s + 8) * SECOND for s in starts], pa.timestamp("us")),
            "key0": pa.array([1, 2, 3], pa.int32()),
            **{m.name: pa.array([10, 20, 30], pa.int64()) for m in plan.measures},  # type: ignore[union-attr]
            "count(*)": pa.array([1, 1, 1], pa.int64()),
        }
    )
    rest.commit(results=[rest.batches.aggregation(stream, rows)])
    answer = rest.get(f"/queries/{query['id']}/results")
    assert [(r["window_start"][17:19], r["pack"], r["total"], r["_partial"]) for r in answer["rows"]] == [
        ("00", 2, 20, True),
        ("04", 1, 10, True),
        ("08", 3, 30, False),
    ]


def test_pages_cursors_restart_and_end(tmp_path: Path) -> None:
    with open_rest(tmp_path) as rest:
        rest.stream()
        query = rest.query()
        path = f"/queries/{query['id']}/results"
        for start in (0, 3, 6):
            rest.select([tuple_at(n, user_id=n) for n in range(start, start + 3)], [query["slot"]])
        first = rest.get(path, params={"limit": 4})
        assert numbers(first) == [0, 1, 2, 3]
    with open_rest(tmp_path) as rest:
        second = rest.get(path, params={"limit": 4, "after": first["cursor"]})
        assert numbers(second) == [4, 5, 6, 7]
        assert not second["end"]
        rest.retire(query["id"])
        # the slot is free now: what another query gets in it is not this query's
        other_query = rest.query()
        assert other_query["slot"] == query["slot"]
        rest.select([tuple_at(99, user_id=99)], [other_query["slot"]])
        third = rest.get(path, params={"limit": 1, "after": second["cursor"]})
        assert (numbers(third), third["end"]) == ([8], True)
        last = rest.get(path, params={"after": third["cursor"]})
        assert (numbers(last), last["end"]) == ([], True)
        assert numbers(rest.get(f"/queries/{other_query['id']}/results")) == [99]


@pytest.mark.parametrize("form", ["application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"])
def test_an_answer_ends_at_its_bytes_and_the_cursor_goes_on(tmp_path: Path, form: str) -> None:
    with open_rest(tmp_path, max_page_bytes=20_000) as rest:
        rest.stream()
        query = rest.query()
        # in JSON each character takes six
        notes = ["\x01" * length for length in (10, 9000, 50_000, 1, 9000, 9000, 10)]
        rest.select([tuple_at(n, user_id=n, note=note) for n, note in enumerate(notes)], [query["slot"]])
        seen: list[str] = []
        cursor, answers = None, 0
        while len(seen) < len(notes):
            url = f"/queries/{query['id']}/results?limit=1000" + (f"&after={cursor}" if cursor else "")
            response = rest.client.get(url, headers={"accept": form})
            assert response.status_code == 200
            assert response.headers["braid-end"] == "false"
            if form.endswith("/json"):
                assert rest.read(response, 200)["end"] is False
                rows = rest.read(response, 200)["rows"]
            elif form.endswith("ndjson"):
                rows = [orjson.loads(line) for line in response.content.splitlines()]
            else:
                rows = pa.ipc.open_stream(response.content).read_all().to_pylist()
            assert rows
            seen += [row["note"] for row in rows]
            cursor, answers = response.headers["braid-cursor"], answers + 1
        assert seen == notes
        assert answers > 1


def test_answers_that_clients_do_not_take_are_limited(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_answer_bytes=20_000_000) as rest:
        rest.stream()
        query = rest.query()
        note = "x" * 3_000_000
        rest.select([tuple_at(n, user_id=n, note=note) for n in range(5)], [query["slot"]])
        url = httpx.URL(rest.client.base_url)
        head = f"GET /queries/{query['id']}/results HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n\r\n".encode()
        with socket.create_connection((url.host, url.port)) as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.sendall(head)
            assert idle.recv(1)  # its answer is under way

            def is_refused() -> bool:
                response = rest.client.get(f"/queries/{query['id']}/results")
                assert response.is_success or "(setting max_answer_bytes)" in response.json()["detail"]
                return response.status_code == 429

            wait_until(is_refused, 30, "there is no room for another answer")
            assert rest.client.get("/queries").is_success
        wait_until(lambda: not is_refused(), 30, "there is room again")
        assert len(rest.get(f"/queries/{query['id']}/results")["rows"]) == 5


def test_pages_of_dead_letters_and_of_queries_end_at_their_bytes(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_page_bytes=10_000) as rest:
        stream = rest.stream()
        letters = [{"reason": "malformed", "detail": "", "received_us": 0, "raw": str(n) * 3000} for n in range(9)]
        rest.commit(dead_letters=[rest.batches.dead_letters(stream["id"], letters)])
        raws: list[str] = []
        cursor = ""
        while len(raws) < len(letters):
            answer = rest.get(f"/streams/purchases/dead-letters?limit=100{cursor}")
            assert 0 < len(answer["rows"]) < len(letters)
            raws += [row["raw"] for row in answer["rows"]]
            cursor = f"&after={answer['cursor']}"
        assert raws == [letter["raw"] for letter in letters]
        ids = [rest.post("/queries", {"sql": f"SELECT user_id FROM purchases --{'x' * 3000}"})["id"] for _ in range(9)]
        listed: list[str] = []
        while len(listed) < len(ids):
            page = rest.get(f"/queries?limit=100{f'&cursor={listed[-1]}' if listed else ''}")
            assert 0 < len(page["queries"]) < len(ids)
            listed += [query["id"] for query in page["queries"]]
        assert listed == ids
        assert page["cursor"] is None
        refused = rest.client.get("/plan")
        assert refused.status_code == 413 or len(refused.content) <= 10_000


def test_a_query_that_does_not_run_yet_has_no_rows(rest: Rest) -> None:
    query = rest.post("/queries", {"sql": ALL})
    answer = rest.get(f"/queries/{query['id']}/results")
    assert (answer["rows"], answer["end"]) == ([], False)
    query = rest.run(query["id"])
    rest.select([tuple_at(1, user_id=1)], [query["slot"]])
    assert numbers(rest.get(f"/queries/{query['id']}/results", params={"after": answer["cursor"]})) == [1]


def test_rows_are_there_when_the_state_of_their_query_says_so(rest: Rest) -> None:
    query = rest.query(ALL)
    is_held = threading.Event()
    rest.service.session.on_slots(lambda _: bool(is_held.wait(20)) and None)  # other parts may take long
    try:
        tuples = pa.Table.from_pylist([tuple_at(1, **ROW)], schema=rest.schema().arrow)
        block = rest.batches.selection(
            rest.service.session.streams.definition("purchases").id, tuples, [{query["slot"]}]
        )
        rest.batches.commit(rest.service.session.epoch, results=[block])
        wait_until(lambda: rest.get(f"/queries/{query['id']}")["rows_out"] == 1, 10, "the row is counted")
        assert len(rest.get(f"/queries/{query['id']}/results")["rows"]) == 1
    finally:
        is_held.set()


def test_long_polls_hold_no_thread_and_answer_with_the_first_row(rest: Rest) -> None:
    queries = [rest.post("/queries", {"sql": ALL}) for _ in range(2)]
    queries = [rest.run(query["id"]) for query in queries]
    answers: list[httpx.Response] = []
    polls = 60  # more than the 40 threads of the pool

    def poll() -> None:
        with httpx.Client(base_url=rest.client.base_url, timeout=60) as client:
            answers.append(client.get(f"/queries/{queries[0]['id']}/results?wait=30"))

    waiting = [threading.Thread(target=poll) for _ in range(polls)]
    for thread in waiting:
        thread.start()
    rest.select([tuple_at(1, user_id=1)], [queries[1]["slot"]])  # not theirs
    assert rest.get("/streams")["streams"], "the service answers others meanwhile"
    assert not answers
    rest.select([tuple_at(2, user_id=2)], [queries[0]["slot"]])
    for thread in waiting:
        thread.join(20)
    assert [numbers(rest.read(answer, 200)) for answer in answers] == [[2]] * polls


def test_a_long_poll_ends_when_the_time_is_up_or_the_query_retires(rest: Rest) -> None:
    query = rest.query()
    response = rest.client.get(f"/queries/{query['id']}/results?wait=0.3")
    assert rest.read(response, 200)["rows"] == []
    assert response.elapsed.total_seconds() >= 0.3
    answers: list[Any] = []
    with httpx.Client(base_url=rest.client.base_url, timeout=60) as client:
        waiting = threading.Thread(
            target=lambda: answers.append(client.get(f"/queries/{query['id']}/results?wait=30").json())
        )
        waiting.start()
        rest.retire(query["id"])
        waiting.join(10)
    assert answers[0]["end"] is True


def read_events(text: Iterator[str], count: int) -> list[dict[str, str]]:
    """Read server-sent events until there are ``count``, or the stream ends."""
    events: list[dict[str, str]] = []
    event: dict[str, str] = {}
    for line in text:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            events.append(event)
            event = {}
            if len(events) == count:
                break
    return events


def test_events_follow_resume_and_end(rest: Rest) -> None:
    query = rest.query()
    path = f"/queries/{query['id']}/results/stream"
    rest.select([tuple_at(n, user_id=n) for n in range(3)], [query["slot"]])
    with rest.client.stream("GET", path) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        first = read_events(lines, 3)
        assert [orjson.loads(event["data"])["user_id"] for event in first] == [0, 1, 2]
        rest.select([tuple_at(3, user_id=3)], [query["slot"]])
        assert orjson.loads(read_events(lines, 1)[0]["data"])["user_id"] == 3
    page = rest.get(f"/queries/{query['id']}/results", params={"after": first[0]["id"]})
    assert numbers(page) == [1, 2, 3], "an event's id is a cursor"
    with rest.client.stream("GET", path, params={"tail": 2}) as response:
        assert [orjson.loads(event["data"])["user_id"] for event in read_events(response.iter_lines(), 2)] == [2, 3]
    rest.retire(query["id"])
    with rest.client.stream("GET", f"{path}?tail=1", headers={"Last-Event-ID": first[1]["id"]}) as response:
        rest_of = read_events(response.iter_lines(), 99)
    assert [event.get("event", "row") for event in rest_of] == ["row", "row", "end"]
    assert [orjson.loads(event["data"])["user_id"] for event in rest_of[:2]] == [2, 3]


def test_events_of_a_failed_query_say_so(rest: Rest) -> None:
    query = rest.query()
    rest.select([tuple_at(1, user_id=1)], [query["slot"]])
    rest.commit(failures={query["id"]: "it broke"})
    with rest.client.stream("GET", f"/queries/{query['id']}/results/stream") as response:
        events = read_events(response.iter_lines(), 99)
    assert [event.get("event", "row") for event in events] == ["row", "failed"]
    assert orjson.loads(events[1]["data"]) == {"error": "it broke"}
    assert rest.get(f"/queries/{query['id']}")["error"] == "it broke"


def test_stopping_lets_waiting_readers_go(rest: Rest) -> None:
    query = rest.query()
    with httpx.Client(base_url=rest.client.base_url, timeout=60) as client:
        answers: list[Any] = []
        path = f"/queries/{query['id']}/results?wait=60"
        waiting = threading.Thread(target=lambda: answers.append(client.get(path).json()))
        waiting.start()
        wait_until(lambda: len(rest.service.session.lookup.page()["queries"]) == 1, 5, "it answers")
        rest.service.notifier.stop()
        waiting.join(10)
    assert answers[0]["rows"] == []
    assert rest.post("/queries", {"sql": ALL}, 503)["title"] == "Not ready"
    assert rest.get("/readyz", 503)["detail"].startswith("The service is stopping")


def test_what_is_in_a_file_is_not_read_on_the_event_loop(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    query = rest.query(name="old")
    rest.select([tuple_at(1, user_id=1)], [query["slot"]])
    rest.retire(query["id"])
    rest.service.session.write_snapshot()  # it is in the archive now
    read: list[bool] = []

    def watched(method_watched: Callable[..., Any]) -> Callable[..., Any]:
        def find(archive: Archive, *arguments: Any) -> Any:
            read.append(asyncio._get_running_loop() is not None)
            return method_watched(archive, *arguments)

        return find

    for method in ("find", "find_name"):
        monkeypatch.setattr(Archive, method, watched(getattr(Archive, method)))
    path = f"/queries/{query['id']}"
    assert numbers(rest.get(f"{path}/results?wait=5")) == [1]
    assert "event: end" in rest.client.get(f"{path}/results/stream").text
    for name in (query["id"], "old"):
        assert rest.client.delete(f"/queries/{name}").json()["state"] == "RETIRED"
        for change in ("pause", "resume"):
            assert rest.client.post(f"/queries/{name}/{change}").status_code == 409
    assert len(read) >= 8
    assert not any(read)


def test_rows_that_a_sink_refused_are_read_page_by_page(rest: Rest) -> None:
    query, other = rest.query(), rest.query()
    path = f"/queries/{query['id']}/dead-letters"
    assert rest.get(path)["rows"] == []
    rest.commit()
    seq = rest.batches.seq
    refused = rest.service.refused
    for row in (0, 3):
        content = orjson.dumps({"user_id": row, "price": 0.5})
        refused.keep(query["id"], RefusedRow(CursorPosition(seq, row), "too long", 1_500_000, content))
    refused.keep(query["id"], RefusedRow(CursorPosition(seq + 1), "of a batch that nobody sees yet", 0, b"{}"))
    first = rest.get(f"{path}?limit=1")
    assert first["rows"] == [
        {
            "reason": "refused",
            "detail": "too long",
            "received_at": "1970-01-01T00:00:01.500000Z",
            "query": query["id"],
            "tuple": {"user_id": 0, "price": 0.5},
            "raw": None,
        }
    ]
    second = rest.get(f"{path}?after={first['cursor']}")
    assert [letter["tuple"]["user_id"] for letter in second["rows"]] == [3]
    assert rest.get(f"{path}?after={second['cursor']}") == {"rows": [], "cursor": second["cursor"]}
    assert rest.get(f"/queries/{other['id']}/dead-letters")["rows"] == []
    rest.read(rest.client.get(f"/queries/{other['id']}/dead-letters?after={first['cursor']}"), 400)
    rest.read(rest.client.get("/queries/q-999/dead-letters"), 404)
