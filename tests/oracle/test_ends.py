"""Streams that end, and watermarks that are set from outside: which rows come, and what becomes of queries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Api
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service


@pytest.fixture
def api(service: RunningService) -> Iterator[Api]:
    with Api(service.url) as api:
        yield api
        api.drop_created()


def new_stream(api: Api) -> str:
    name = f"taps_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {name} (k INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND)"
        " WITH (connector = 'push', format = 'json')"
    )
    return name


def push(api: Api, stream: str, *seconds: int) -> None:
    rows = [{"k": second % 2, "t": f"2026-01-01T00:00:{second:02d}Z"} for second in seconds]
    assert api.push(stream, "application/json", json.dumps(rows).encode())["accepted"] == len(rows)


def rows_of(api: Api, query: str) -> list[tuple[Any, ...]]:
    return [(row["window_end"][17:19], row["k"], row["n"]) for row in api.page(query)["rows"]]


def test_windows_are_final_once_a_watermark_is_set_from_outside(api: Api) -> None:
    stream = new_stream(api)
    (query,) = api.create_queries([{"sql": f"SELECT k, COUNT(*) AS n FROM {stream} [RANGE 10 SECONDS] GROUP BY k"}])
    push(api, stream, 1, 2, 3)
    api.call("POST", f"/streams/{stream}/watermark", 200, json={"time": "2026-01-01T00:00:10Z"})
    wait_until(lambda: rows_of(api, query["id"]) == [("10", 0, 1), ("10", 1, 2)], 60, "the window is final")
    push(api, stream, 9, 11)
    wait_until(lambda: bool(api.stream(stream)["late"] == 1), 60, "what is earlier than the watermark is late")
    api.call("POST", f"/streams/{stream}/watermark", 200, json={"time": "2026-01-01T00:00:05Z"})
    assert api.stream(stream)["watermark"] == "2026-01-01T00:00:10.000000Z", "it never falls"


def test_a_stream_that_is_ended_finishes_its_queries_with_all_their_rows(api: Api) -> None:
    stream, other = new_stream(api), new_stream(api)
    texts = (
        f"SELECT k, COUNT(*) AS n FROM {stream} [RANGE 10 SECONDS] GROUP BY k",
        f"SELECT k, COUNT(*) AS n FROM {stream} [SESSION 5 SECONDS] GROUP BY k",
        f"SELECT a.k AS k, COUNT(*) AS n FROM {stream} [RANGE 10 SECONDS] AS a JOIN {other} [RANGE 10 SECONDS] AS b"
        " ON a.k = b.k GROUP BY a.k",
    )
    tumbling, sessions, join = (query["id"] for query in api.create_queries([{"sql": text} for text in texts]))
    push(api, stream, 1, 2, 3, 14)
    push(api, other, 2)
    api.call("POST", f"/streams/{stream}/watermark", 200, json={"end": True})
    for query in (tumbling, sessions):
        api.wait_state(query, "FINISHED")
        assert api.page(query)["end"] is True
    assert rows_of(api, tumbling) == [("10", 0, 1), ("10", 1, 2), ("20", 0, 1)]
    assert sorted(rows_of(api, sessions)) == [("07", 0, 1), ("08", 1, 2), ("19", 0, 1)]
    refused = api.request("POST", f"/streams/{stream}/events", json=[{"k": 1, "t": "2026-01-01T00:01:00Z"}])
    assert refused.status_code == 409
    assert "has ended" in refused.json()["detail"]
    assert api.query(join)["state"] == "RUNNING", "its other stream goes on"
    api.call("POST", f"/streams/{other}/watermark", 200, json={"end": True})
    api.wait_state(join, "FINISHED")
    assert rows_of(api, join) == [("10", 0, 1)]
    (late,) = api.create_queries([{"sql": texts[0], "start": "earliest"}])
    api.wait_state(late["id"], "FINISHED")
    assert rows_of(api, late["id"]) == rows_of(api, tumbling), "what has ended can be asked still"


def test_the_rows_of_a_query_that_has_finished_are_read_by_others(api: Api) -> None:
    stream = new_stream(api)
    name = f"counts_{stream}"
    counted = f"SELECT k, COUNT(*) AS n FROM {stream} [RANGE 10 SECONDS] GROUP BY k"
    (counts,) = api.create_queries([{"sql": counted, "name": name}])
    push(api, stream, 1, 2, 3, 11, 12, 14, 21)
    api.call("POST", f"/streams/{stream}/watermark", 200, json={"end": True})
    api.wait_state(counts["id"], "FINISHED", deadline_seconds=60)
    texts = (
        f"SELECT k, n FROM {name} WHERE n > 1",
        f"SELECT MAX(n) AS n FROM {name} [RANGE 20 SECONDS]",
        f"SELECT n FROM {name} WHERE k = 0 UNION ALL SELECT k AS n FROM {name}",
        f"SELECT k, n FROM (SELECT k, SUM(n) AS n FROM {name} [RANGE 1 MINUTE] GROUP BY k) AS t",
    )
    rows = [[(1, 2), (0, 2)], [(2,), (1,)], [(1,), (2,), (0,), (0,), (1,), (1,), (1,)], [(0, 3), (1, 4)]]
    queries = api.create_queries([{"sql": text} for text in texts])
    for text, query, expected in zip(texts, queries, rows, strict=True):
        api.wait_state(query["id"], "FINISHED", deadline_seconds=60)
        found = [tuple(row[each] for each in ("k", "n") if each in row) for row in api.page(query["id"])["rows"]]
        assert sorted(found) == sorted(expected), text


def test_the_watermark_of_a_silent_stream_follows_the_clock_where_it_shall(api: Api) -> None:
    names = {on_idle: f"taps_{on_idle}_{uuid.uuid4().hex[:8]}" for on_idle in ("advance", "wait")}
    for on_idle, name in names.items():
        api.create_stream(
            f"CREATE STREAM {name} (k INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'push',"
            f" format = 'json', idle_timeout = '500 ms', on_idle = '{on_idle}')"
        )
    text = "SELECT k, COUNT(*) AS n FROM {} [RANGE 1 SECOND] GROUP BY k"
    advancing, waiting = (q["id"] for q in api.create_queries([{"sql": text.format(name)} for name in names.values()]))
    row = {"k": 1, "t": datetime.now(UTC).isoformat()}
    for name in names.values():
        api.push(name, "application/json", json.dumps([row]).encode())
    wait_until(lambda: len(api.page(advancing)["rows"]) == 1, 60, "the window ends though nothing more comes")
    wait_until(lambda: api.stream(names["wait"])["idle"], 60, "the other stream is idle")
    assert api.page(waiting)["rows"] == []


@pytest.mark.parametrize(
    "body", [{}, {"end": False}, {"time": 3}, {"time": "x"}, {"end": True, "time": "2026-01-01"}, []]
)
def test_a_watermark_that_says_nothing_is_refused(api: Api, body: Any) -> None:
    stream = new_stream(api)
    answer = api.request("POST", f"/streams/{stream}/watermark", json=body)
    assert answer.status_code in (400, 422)
    assert "2026" in answer.json()["detail"] or "RFC 3339" in answer.json()["detail"]


def test_a_bounded_folder_ends_after_the_files_that_lie_there(api: Api, tmp_path: Path) -> None:
    for number in range(3):
        lines = [json.dumps({"k": k, "t": f"2026-01-0{number + 1}T12:00:00Z"}) for k in range(5)]
        (tmp_path / f"{number}.json").write_text("\n".join(lines))
    name = f"taps_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {name} (k INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND)"
        f" WITH (connector = 'file', format = 'json', path = '{tmp_path}', bounded = 'true')"
    )
    assert api.stream(name)["tuples"] == 0, "it is not read before its first query"
    text = f"SELECT k, COUNT(*) AS n FROM {name} [RANGE 1 DAY] GROUP BY k"
    (first,) = api.create_queries([{"sql": text}], wait=0)
    api.wait_state(first["id"], "FINISHED")
    (tmp_path / "late.json").write_text('{"k": 1, "t": "2026-01-09T12:00:00Z"}')
    (second,) = api.create_queries([{"sql": text}], wait=0)
    api.wait_state(second["id"], "FINISHED")
    assert len(api.page(first["id"])["rows"]) == 15
    assert api.page(first["id"])["rows"] == api.page(second["id"])["rows"]
    described = api.query(second["id"])
    assert (described["joined"][name]["offsets"], described["start"]) == ({"0": 15}, None)
