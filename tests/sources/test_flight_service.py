"""A stream that cannot be read: the other streams go on, and it goes on where it was once it can be."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.client import Api
from tests.kit.waiting import wait_until
from tests.sources.scripted_server import Script, serving

SECOND = 1_000_000
AT = 1_700_000_000


def tuples(start: int, end: int) -> pa.Table:
    """A tuple a second, whose value is its number."""
    numbers = list(range(start, end))
    times = pa.array([(AT + n) * SECOND for n in numbers], pa.timestamp("us"))
    return pa.table({"n": pa.array(numbers, pa.int64()), "time": times})


def sums(api: Api, query: dict[str, Any]) -> list[int]:
    return [row["total"] for row in api.page(query["id"])["rows"]]


@pytest.mark.service
def test_a_stream_that_cannot_be_read_stands_still_alone(api: Api) -> None:
    flown, pushed = f"flown_{uuid.uuid4().hex[:8]}", f"pushed_{uuid.uuid4().hex[:8]}"
    columns = "(n BIGINT, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    script = Script({"0": (0, tuples(0, 1))})
    with serving(script) as server:
        location = f"grpc://127.0.0.1:{server.port}"
        api.create_stream(f"CREATE STREAM {flown} {columns} WITH (connector = 'flight', location = '{location}')")
        api.create_stream(f"CREATE STREAM {pushed} {columns} WITH (connector = 'push', format = 'json')")
        (first,) = api.create_queries([{"sql": f"SELECT n FROM {flown} WHERE n < 0"}])  # it is read from then on
        wait_until(lambda: api.stream(flown)["tuples"] == 1, 30, "the first tuple is read")
        sql = "SELECT SUM(n) AS total FROM {} [RANGE 10 SECONDS]"
        of_flown, of_pushed = api.create_queries([{"sql": sql.format(name)} for name in (flown, pushed)])

        def push(n: int) -> None:
            time = dt.datetime.fromtimestamp(AT + n, dt.UTC).isoformat()
            answer = api.push(pushed, "application/json", json.dumps([{"n": n, "time": time}]).encode())
            assert answer["accepted"] == 1

        # the server says that it has more, and does not give it
        script.offsets = b'{"partitions": {"0": {"start": 0, "end": 40}}}'
        script.tables = {}
        wait_until(lambda: api.stream(flown)["error"], 60, "the stream says why it cannot be read")
        for n in range(0, 40, 5):
            push(n)
        wait_until(lambda: sums(api, of_pushed) == [5, 25, 45], 60, "the windows of the other stream come")
        assert api.stream(flown)["tuples"] == 1
        assert sums(api, of_flown) == []

        script.tables, script.offsets = {"0": (0, tuples(0, 40))}, None
        wait_until(lambda: len(sums(api, of_flown)) == 3, 60, "the stream goes on")
        assert sums(api, of_flown) == [sum(range(1, 10)), sum(range(10, 20)), sum(range(20, 30))]
        assert api.stream(flown)["error"] is None

    # the server is gone for good: its queries and the stream go like any other
    for query in (first, of_flown, of_pushed):
        api.delete_query(query["id"], drain=False)
        api.wait_state(query["id"], "RETIRED")
    api.call("DELETE", f"/streams/{flown}", 204)


@pytest.mark.service
def test_a_new_stream_begins_where_its_server_begins_to_keep_it(api: Api) -> None:
    name = f"flown_{uuid.uuid4().hex[:8]}"
    with serving(Script({"0": (1000, tuples(1000, 1040))})) as server:
        api.create_stream(
            f"CREATE STREAM {name} (n BIGINT, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            f" WITH (connector = 'flight', location = 'grpc://127.0.0.1:{server.port}')"
        )
        (query,) = api.create_queries([{"sql": f"SELECT n FROM {name} WHERE n < 0"}])
        wait_until(lambda: api.stream(name)["tuples"] == 40, 30, "all that is kept is read")
        assert api.stream(name)["offsets"] == {"0": 1040}
    api.delete_query(query["id"], drain=False)
    api.wait_state(query["id"], "RETIRED")
    api.call("DELETE", f"/streams/{name}", 204)
