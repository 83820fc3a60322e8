"""POST /streams/infer: samples by content type, and places by the options of their connector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.rest import Rest, open_rest

CSV = b"user_id,price,time\n1,9.5,2024-01-31T12:00:00Z\n"
LINES = b'{"user_id": 1, "price": 9.5, "time": "2024-01-31T12:00:00Z"}\n'
TYPES = {"user_id": "INT", "price": "DOUBLE", "time": "TIMESTAMP"}


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    times = pa.array([0], pa.timestamp("us"))
    pq.write_table(pa.table({"user_id": pa.array([1], pa.int32()), "price": [9.5], "time": times}), sink)
    return sink.getvalue().to_pybytes()


SAMPLES = [
    ("text/csv", CSV),
    ("text/csv; charset=utf-8", CSV),
    ("text/tab-separated-values", CSV.replace(b",", b"\t")),
    ("application/x-ndjson", LINES),
    ("application/json", LINES.strip()),
    ("application/json", b"[" + LINES.strip() + b"]"),
    ("application/json", LINES * 2),
    ("application/vnd.apache.parquet", parquet()),
    ("application/octet-stream", CSV),
    ("application/octet-stream", LINES),
    ("application/octet-stream", parquet()),
]


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service without streams."""
    with open_rest(tmp_path / "data") as running:
        yield running


def infer(rest: Rest, content_type: str, body: bytes, expect: int = 200, **parameters: str) -> Any:
    headers = {"Content-Type": content_type}
    return rest.read(rest.client.post("/streams/infer", content=body, headers=headers, params=parameters), expect)


@pytest.mark.parametrize(("content_type", "body"), SAMPLES, ids=lambda value: str(value)[:40])
def test_a_sample_gives_a_statement_that_is_accepted(rest: Rest, content_type: str, body: bytes) -> None:
    inferred = infer(rest, content_type, body, file="purchases.csv")
    assert {column["name"]: column["type"] for column in inferred["columns"]} == TYPES
    assert (inferred["event_time"], inferred["event_time_candidates"]) == ("time", ["time"])
    assert rest.get("/streams") == {"streams": []}, "nothing is declared"
    stream = rest.post("/sql", {"sql": inferred["sql"]}, 200)
    assert (stream["name"], stream["source"]["connector"]) == ("purchases", "push")
    assert stream["lateness_seconds"] == inferred["lateness_seconds"]
    pushed = rest.client.post(
        "/streams/purchases/events", content=LINES, headers={"Content-Type": "application/x-ndjson"}
    )
    assert rest.read(pushed, 200)["accepted"] == 1
    assert infer(rest, content_type, body, file="purchases.csv")["name"] == "purchases_2"


def test_a_folder_is_looked_at_where_the_service_runs(rest: Rest, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(CSV)
    body = {"connector": "file", "path": str(folder), "name": "readings"}
    inferred = rest.post("/streams/infer", body, 200)
    assert inferred["source"] == {"connector": "file", "format": "csv", "options": {"path": str(folder)}}
    assert rest.post("/sql", {"sql": inferred["sql"]}, 200)["name"] == "readings"
    missing = rest.post("/streams/infer", {"connector": "file", "path": str(tmp_path / "nothing")}, 422)
    assert "must be a folder" in missing["detail"]
    rest.post("/streams/infer", {"connector": "push"}, 422)
    rest.post("/streams/infer", {"connector": "file", "path": 1}, 400)


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("image/png", CSV, 400),
        ("text/csv", b"", 400),
        ("text/csv", b"a,b\n1,2\n", 422),
        ("text/csv", b"\xff\xfe", 400),
        ("application/json", b"{", 400),
        ("application/json", b"[]", 400),
        ("application/vnd.apache.parquet", b"PAR1", 400),
        ("application/octet-stream", b"\x1f\x8b", 400),
    ],
)
def test_what_is_no_sample_is_refused(rest: Rest, content_type: str, body: bytes, status: int) -> None:
    assert infer(rest, content_type, body, status)["status"] == status


def test_a_name_that_no_stream_can_have_is_refused(rest: Rest) -> None:
    assert "reserved" in infer(rest, "text/csv", CSV, 422, name="_x")["detail"]
