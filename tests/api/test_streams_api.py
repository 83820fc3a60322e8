"""Streams over REST: declare, list, push in every format, dead letters, drop."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.sources.connectors.push import PushConnector
from tests.api.rest import NDJSON, STREAM, Rest, open_rest
from tests.router.batches import SECOND

LINE = b'{"user_id": 1, "pack": 2, "price": 1.5, "time": "2026-01-01T00:00:01Z"}\n'


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


def test_a_stream_is_declared_listed_and_dropped(tmp_path: Path) -> None:
    with open_rest(tmp_path) as rest:
        response = rest.client.post("/streams", json={"sql": STREAM})
        stream = rest.read(response, 201)
        assert response.headers["location"] == "/streams/purchases"
        assert [c["name"] for c in stream["columns"]][:2] == ["user_id", "pack"]
        assert stream["source"]["connector"] == "push"
        assert (stream["tuples"], stream["late"], stream["malformed"]) == (0, 0, 0)
        assert stream["clock"] is None
        assert rest.get("/streams") == {"streams": [rest.get("/streams/purchases")]} == {"streams": [stream]}
        response = rest.client.delete("/streams/purchases")
        assert (response.status_code, response.content) == (204, b"")
        assert rest.get("/streams") == {"streams": []}
        assert rest.client.delete("/streams/purchases").status_code == 404


def test_a_used_stream_is_not_dropped(rest: Rest) -> None:
    query = rest.query()
    problem = rest.read(rest.client.delete("/streams/purchases"), 409)
    assert query["id"] in problem["detail"]
    rest.retire(query["id"])
    assert rest.client.delete("/streams/purchases").status_code == 204
    assert rest.get(f"/queries/{query['id']}")["state"] == "RETIRED"


def pushed(rest: Rest) -> list[int | None]:
    """Return the user ids that were pushed."""
    storage = rest.service.storage
    connector = PushConnector(storage, rest.service.session.streams.definition("purchases"))
    end = connector.available(0)["0"].end
    return [n for chunk in connector.read("0", 0, end) for n in chunk.tuples["user_id"].to_pylist()]


def test_pushes_in_every_format_arrive(rest: Rest) -> None:
    push = "/streams/purchases/events"
    ok = {"accepted": 1, "rejected": 0, "errors": []}
    typed = {"Content-Type": "application/json"}
    assert rest.read(rest.client.post(push, content=LINE, headers={"Content-Type": NDJSON}), 200) == ok
    assert rest.read(rest.client.post(push, content=LINE, headers=typed), 200) == ok
    json_array = b"[" + b",".join([LINE] * 3) + b"]"
    assert rest.read(rest.client.post(push, content=json_array, headers=typed), 200) == {**ok, "accepted": 3}
    sink = io.BytesIO()
    table = pa.table({"user_id": [7], "time": pa.array([SECOND], pa.timestamp("us"))})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
    assert rest.read(rest.client.post(push, content=sink.getvalue(), headers=arrow), 200) == ok
    assert pushed(rest) == [1, 1, 1, 1, 1, 7]
    csv = {"Content-Type": "text/csv"}
    text = b"time,user_id\n2026-01-01T00:00:01Z,8\n"
    answer = rest.read(rest.client.post(push, content=text, headers=csv), 200)
    assert answer == {**ok, "missing": [name for name in rest.schema().names if name not in ("time", "user_id")]}
    assert pushed(rest)[6:] == [8]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_pushes_in_every_format_may_be_packed(rest: Rest, encoding: str) -> None:
    table = pa.table({"user_id": [3], "time": pa.array([SECOND], pa.timestamp("us"))})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    bodies = {
        NDJSON: LINE,
        "application/json": b"[" + LINE + b"]",
        "application/vnd.apache.arrow.stream": sink.getvalue(),
        "text/csv": b"user_id,time\n2,2026-01-01T00:00:01Z\n",
    }
    for media_type, body in bodies.items():
        packed = pa.compress(body, codec=encoding, asbytes=True)
        headers = {"Content-Type": media_type, "Content-Encoding": encoding, "Idempotency-Key": media_type}
        answer = rest.client.post("/streams/purchases/events", content=packed, headers=headers)
        assert rest.read(answer, 200)["accepted"] == 1
        again = rest.client.post("/streams/purchases/events", content=packed, headers=headers)
        assert again.content == answer.content
        as_it_is = {name: value for name, value in headers.items() if name != "Content-Encoding"}
        assert rest.client.post("/streams/purchases/events", content=packed, headers=as_it_is).status_code == 422
    assert pushed(rest) == [1, 1, 3, 2]


def test_what_does_not_fit_is_rejected_alone(rest: Rest) -> None:
    body = LINE + b'{"user_id": "x", "time": 1}\n' + b"nonsense\n" + LINE
    answer = rest.read(
        rest.client.post("/streams/purchases/events", content=body, headers={"Content-Type": NDJSON}), 200
    )
    assert (answer["accepted"], answer["rejected"]) == (2, 2)
    assert [error["line"] for error in answer["errors"]] == [2, 3]
    assert "user_id" in answer["errors"][0]["detail"]
    answer = rest.read(
        rest.client.post("/streams/purchases/events?first=501", content=body, headers={"Content-Type": NDJSON}), 200
    )
    assert [error["line"] for error in answer["errors"]] == [502, 503]
    assert answer["errors"][1]["detail"].startswith("line 503 ")
    for first in ("0", "x", str(2**60)):
        rest.read(rest.client.post(f"/streams/purchases/events?first={first}", content=body), 400)


def test_a_push_says_how_many_rows_are_late_already(rest: Rest) -> None:
    def push(*seconds: int) -> Any:
        body = [{"user_id": 1, "time": f"1970-01-01T00:00:{second:02d}Z"} for second in seconds]
        return rest.post("/streams/purchases/events", body, expect=200)

    counted = {"accepted": 3, "rejected": 0, "errors": []}
    assert push(1, 9, 5) == counted, "no batch has read a row yet"
    stream = rest.service.session.streams.definition("purchases").id
    rest.commit(clocks={stream: 9 * SECOND}, watermarks={stream: 7 * SECOND})
    assert push(6, 7, 1) == {**counted, "late": 2}
    assert push(7, 8, 9) == counted


def test_a_push_says_how_many_rows_are_too_far_ahead(rest: Rest) -> None:
    rows = [{"user_id": 1, "time": time} for time in ("2026-01-01T00:00:00Z", "2262-01-01T00:00:00Z")]
    answer = rest.post("/streams/purchases/events", rows, expect=200)
    assert answer == {"accepted": 2, "rejected": 0, "errors": [], "ahead": 1}
    no_limit = (
        "(user_id BIGINT, time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push', max_future = 'none')"
    )
    rest.stream(f"CREATE STREAM plans {no_limit}")
    assert rest.post("/streams/plans/events", rows, expect=200) == {"accepted": 2, "rejected": 0, "errors": []}


def test_a_push_names_what_may_be_misspelt(rest: Rest) -> None:
    row = {"usr_id": 1, "time": "2026-01-01T00:00:00Z"}
    answer = rest.post("/streams/purchases/events", row, expect=200)
    assert (answer["accepted"], "user_id" in answer["missing"], answer["unknown"]) == (1, True, ["usr_id"])


def test_rows_of_the_time_of_their_arrival_are_not_late(rest: Rest) -> None:
    columns = "page VARCHAR, at TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND"
    rest.stream(f"CREATE STREAM clicks ({columns}) WITH (connector = 'push')")
    stream = rest.service.session.streams.definition("clicks").id
    rest.commit(clocks={stream: 9 * SECOND}, watermarks={stream: 9 * SECOND})
    answer = rest.post("/streams/clicks/events", [{"page": "a"}], expect=200)
    assert answer == {"accepted": 1, "rejected": 0, "errors": []}


def test_a_repeated_push_counts_once_also_after_a_restart(tmp_path: Path) -> None:
    headers = {"Content-Type": NDJSON, "Idempotency-Key": "push-1"}
    with open_rest(tmp_path) as rest:
        rest.stream()
        first = rest.client.post("/streams/purchases/events", content=LINE + b"bad\n", headers=headers)
        repeated = rest.client.post("/streams/purchases/events", content=LINE + b"bad\n", headers=headers)
        assert first.status_code == 200
        assert "Idempotent-Replayed" not in first.headers
        assert (repeated.content, repeated.headers["Idempotent-Replayed"]) == (first.content, "true")
        another_body = rest.client.post("/streams/purchases/events", content=LINE, headers=headers)
        assert another_body.status_code == 422
        assert "Idempotency-Key" in rest.read(another_body, 422)["detail"]
    with open_rest(tmp_path) as rest:
        repeated = rest.client.post("/streams/purchases/events", content=LINE + b"bad\n", headers=headers)
        assert repeated.content == first.content
        assert pushed(rest) == [1]
        headers["Idempotency-Key"] = "push-2"
        rest.read(rest.client.post("/streams/purchases/events", content=LINE, headers=headers), 200)
        assert pushed(rest) == [1, 1]


def test_dead_letters_are_read_page_by_page(rest: Rest) -> None:
    assert rest.get("/streams/purchases/dead-letters")["rows"] == []
    stream = rest.service.session.streams.definition("purchases").id
    late = {
        "reason": "late",
        "detail": "too late",
        "received_us": 1_500_000,
        "tuple": '{"amount":1.10}',
        "raw": None,
    }
    malformed = {"reason": "malformed", "detail": "no", "received_us": 2_000_000, "tuple": None, "raw": "{"}
    rest.commit(dead_letters=[rest.batches.dead_letters(stream, [late, malformed])])
    response = rest.client.get("/streams/purchases/dead-letters?limit=1")
    page = rest.read(response, 200)
    assert page["rows"] == [
        {
            "reason": "late",
            "detail": "too late",
            "received_at": "1970-01-01T00:00:01.500000Z",
            "query": None,
            "tuple": {"amount": 1.1},
            "raw": None,
        }
    ]
    assert b'"amount":1.10' in response.content, "digits of a DECIMAL are kept"
    page = rest.get("/streams/purchases/dead-letters", params={"after": page["cursor"]})
    assert [row["raw"] for row in page["rows"]] == ["{"]
    page = rest.get("/streams/purchases/dead-letters", params={"after": page["cursor"]})
    assert page["rows"] == []
    assert rest.get("/streams/purchases/dead-letters", 400, params={"after": "x"})["status"] == 400


def test_pushes_that_outrun_the_job_are_told_to_wait(tmp_path: Path) -> None:
    push, keyed = "/streams/purchases/events", {"Content-Type": NDJSON, "Idempotency-Key": "first"}
    with open_rest(tmp_path, push_backlog_bytes=2 * len(LINE)) as rest:
        rest.stream()
        first = rest.client.post(push, content=LINE, headers=keyed)
        assert rest.client.post(push, content=LINE, headers={"Content-Type": NDJSON}).status_code == 200
        refused = rest.client.post(push, content=LINE, headers={"Content-Type": NDJSON})
        assert "push_backlog_bytes" in rest.read(refused, 429)["detail"]
        assert int(refused.headers["Retry-After"]) > 0
        assert rest.client.post(push, content=LINE, headers=keyed).content == first.content
        assert pushed(rest) == [1, 1]
        stream = rest.service.session.streams.definition("purchases").id
        counted = {"tuples": 1, "late": 0, "malformed": 0, "bytes": len(LINE), "clock": 1, "watermark": 1}
        rest.commit(streams={stream: counted | {"offsets": {"0": 1}}})
        for body in (*[b"\n" * 9] * 40, LINE):  # what is empty is read by no batch, and does not wait for one
            assert rest.client.post(push, content=body, headers={"Content-Type": NDJSON}).status_code == 200
        assert rest.client.post(push, content=LINE, headers={"Content-Type": NDJSON}).status_code == 429


def test_what_waits_is_bounded_over_restarts_too(tmp_path: Path) -> None:
    push, headers = "/streams/purchases/events", {"Content-Type": NDJSON}

    def statuses(rest: Rest, times: int) -> list[int]:
        return [rest.client.post(push, content=LINE, headers=headers).status_code for _ in range(times)]

    with open_rest(tmp_path, push_backlog_bytes=3 * len(LINE)) as rest:
        rest.stream()
        assert statuses(rest, 3) == [200, 200, 200]
        stream = rest.service.session.streams.definition("purchases").id
        counted = {"tuples": 1, "late": 0, "malformed": 0, "bytes": len(LINE), "clock": 1, "watermark": 1}
        rest.commit(streams={stream: counted | {"offsets": {"0": 1}}})
    with open_rest(tmp_path, push_backlog_bytes=3 * len(LINE)) as rest:
        assert statuses(rest, 2) == [200, 429], "two of three wait"
    with open_rest(tmp_path, push_backlog_bytes=3 * len(LINE)) as rest:
        assert statuses(rest, 1) == [429]
        rest.commit(streams={stream: counted | {"tuples": 3, "offsets": {"0": 4}}})
        assert statuses(rest, 4) == [200, 200, 200, 429]


def test_what_waits_counts_as_it_is_unpacked(tmp_path: Path) -> None:
    batch = pa.record_batch({"user_id": np.zeros(10_000, np.int64), "time": pa.array([0] * 10_000, pa.timestamp("us"))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    body, headers = sink.getvalue().to_pybytes(), {"Content-Type": "application/vnd.apache.arrow.stream"}
    assert len(body) < 2000
    with open_rest(tmp_path, push_backlog_bytes=700_000) as rest:
        rest.stream()
        push = "/streams/purchases/events"
        assert [rest.client.post(push, content=body, headers=headers).status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize(
    ("setting", "value", "sent", "status"),
    [
        ("max_body_rows", 3, LINE * 4, 413),
        ("max_body_unpacked_bytes", 100, LINE * 4, 413),
        ("max_body_malformed", 2, LINE + b"x\n" * 3, 400),
    ],
)
@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_a_body_that_brings_too_much_is_refused_as_a_whole(
    tmp_path: Path, setting: str, value: int, sent: bytes, status: int, encoding: str
) -> None:
    push, headers = "/streams/purchases/events", {"Content-Type": NDJSON, "Idempotency-Key": "k"}
    packed = sent if encoding == "identity" else pa.compress(sent, codec=encoding, asbytes=True)
    with open_rest(tmp_path, **{setting: value}) as rest:
        rest.stream()
        refused = rest.client.post(push, content=packed, headers=headers | {"Content-Encoding": encoding})
        assert f"(setting {setting})" in rest.read(refused, status)["detail"]
        assert pushed(rest) == []
        assert rest.client.post(push, content=LINE, headers=headers).status_code == 200, "the key is not used up"
        assert pushed(rest) == [1]


def test_segments_go_once_they_are_read_and_keys_stay(rest: Rest) -> None:
    headers = {"Content-Type": NDJSON, "Idempotency-Key": "k"}
    first = rest.client.post("/streams/purchases/events", content=LINE, headers=headers).content
    stream = rest.service.session.streams.definition("purchases").id
    counted = {stream: {"tuples": 1, "late": 0, "malformed": 0, "bytes": 9, "offsets": {"0": 1}}}
    rest.commit(streams=counted, clocks={stream: SECOND}, watermarks={stream: -SECOND})
    for _ in range(20):
        rest.commit()
    rest.service.pushes.trim({stream})
    assert rest.client.post("/streams/purchases/events", content=LINE, headers=headers).content == first


def test_the_folder_of_a_dropped_stream_goes_when_no_replay_needs_it(rest: Rest) -> None:
    rest.client.post("/streams/purchases/events", content=LINE, headers={"Content-Type": NDJSON})
    assert rest.client.delete("/streams/purchases").status_code == 204
    pushes = rest.service.pushes
    rest.commit()
    pushes.trim(set())
    assert list(rest.folder.glob("streams/*"))
    for _ in range(20):
        rest.commit()
    pushes.trim(set())
    assert not list(rest.folder.glob("streams/*"))
