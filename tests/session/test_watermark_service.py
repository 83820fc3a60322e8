"""The options of watermarks on a running service: tuples of the far future, and a stream that falls silent."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pytest

from tests.kit.client import Api
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
COLUMNS = "(k INT, v INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND)"


def declare(api: Api, prefix: str, options: str = "") -> str:
    name = f"{prefix}_{uuid.uuid4().hex[:8]}"
    api.create_stream(f"CREATE STREAM {name} {COLUMNS} WITH (connector = 'push'{options})")
    return name


def push(api: Api, stream: str, *tuples: tuple[int, dt.datetime]) -> None:
    rows = [{"k": 1, "v": value, "t": at.isoformat()} for value, at in tuples]
    answer = api.push(stream, "application/json", json.dumps(rows).encode())
    assert (answer["accepted"], answer["rejected"]) == (len(rows), 0)


def after(seconds: int) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def letters(api: Api, stream: str) -> list[Any]:
    return [letter for page in api.dead_letters(stream) for letter in page]


def test_a_tuple_of_the_far_future_closes_no_window(api: Api) -> None:
    name = declare(api, "guarded")
    (query,) = api.create_queries([{"sql": f"SELECT SUM(v) AS total FROM {name} [RANGE 10 SECONDS]"}])
    api.wait_state(query["id"], "RUNNING")
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
    push(api, name, (1, after(1)), (100, ahead))
    push(api, name, (2, after(2)), (100, ahead + dt.timedelta(days=36_500)))
    push(api, name, (4, after(10)))
    wait_until(lambda: api.page(query["id"])["rows"], 60, "the first window comes")
    assert [row["total"] for row in api.page(query["id"])["rows"]] == [3]
    stream = api.stream(name)
    assert (stream["tuples"], stream["late"], stream["malformed"]) == (3, 0, 2)
    assert dt.datetime.fromisoformat(stream["clock"]) == after(10)
    assert stream["max_future_seconds"] == 3600
    first, second = letters(api, name)
    assert (first["reason"], first["tuple"]["v"], first["raw"]) == ("malformed", 100, None)
    assert f"event time {ahead:%FT%T.%f}Z is more than 1 h after " in first["detail"]
    assert "the stream's option max_future sets the limit" in second["detail"]


def test_a_stream_without_the_limit_takes_any_time(api: Api) -> None:
    name = declare(api, "open", ", max_future = 'none'")
    ahead = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    push(api, name, (1, after(1)), (2, ahead))
    wait_until(lambda: api.stream(name)["tuples"] == 2, 60, "both are read")
    assert dt.datetime.fromisoformat(api.stream(name)["clock"]) == ahead
    assert api.stream(name)["max_future_seconds"] is None


def test_a_join_does_not_wait_for_a_silent_stream_whose_old_tuples_are_late_when_it_resumes(api: Api) -> None:
    heard, silent = declare(api, "heard"), declare(api, "silent", ", idle_timeout = '1 s'")
    (query,) = api.create_queries(
        [
            {
                "sql": f"SELECT a.v, b.v AS w FROM {heard} [RANGE 10 SECONDS] AS a, {silent} [RANGE 10 SECONDS] AS b"
                " WHERE a.k = b.k"
            }
        ]
    )
    api.wait_state(query["id"], "RUNNING")

    def rows() -> list[tuple[int, int]]:
        return [(row["v"], row["w"]) for row in api.page(query["id"])["rows"]]

    push(api, silent, (20, after(2)))
    push(api, heard, (10, after(1)), (11, after(12)))
    wait_until(lambda: rows() == [(10, 20)], 60, "the window comes though one stream is silent")
    stream = api.stream(silent)
    assert stream["idle"] is True
    assert not api.stream(heard)["idle"]
    assert [dt.datetime.fromisoformat(stream[name]) for name in ("clock", "watermark")] == [after(2), after(12)]

    push(api, silent, (21, after(3)), (22, after(13)))
    wait_until(lambda: api.stream(silent)["tuples"] == 3, 60, "what it brings later is read")
    (letter,) = letters(api, silent)
    assert (letter["reason"], letter["tuple"]["v"]) == ("late", 21)
    assert "before the watermark 2026-01-01T00:00:12.000000Z" in letter["detail"]
    push(api, heard, (12, after(25)))
    wait_until(lambda: len(rows()) == 2, 60, "it falls silent again")
    assert rows() == [(10, 20), (11, 22)]
