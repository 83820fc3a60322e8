"""`braid infer`: what it sends for a file, a folder and a topic, and what it prints."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.api.cli import infer
from tests.api.cli.playback import Braid, Playback, answer, problem

INFERRED = {"name": "flights", "sql": "-- 2 rows looked at.\nCREATE STREAM flights (…)", "columns": []}
CSV = b"a,time\n1,2024-01-31T12:00:00Z\n"


@pytest.fixture(autouse=True)
def one_answer(service: Playback, monkeypatch: pytest.MonkeyPatch, braid: Braid) -> None:  # noqa: ARG001
    """Play back a statement, and point the command at it."""
    monkeypatch.setenv("BRAID_URL", service.url)
    service.play(answer(INFERRED))


def test_the_first_rows_of_a_file_are_sent(
    service: Playback, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flights.csv"
    path.write_bytes(CSV)
    assert braid("infer", str(path)).stdout == INFERRED["sql"] + "\n"
    sent = service.last()
    assert (sent.method, sent.path, sent.query) == ("POST", "/streams/infer", {"file": "flights.csv"})
    assert (sent.headers["content-type"], sent.body) == ("application/octet-stream", CSV)
    monkeypatch.setattr(infer, "_SAMPLE_BYTES", 10)
    service.play(answer(INFERRED))
    assert json.loads(braid("infer", str(path), "--name", "mine", "--json").stdout) == INFERRED
    assert (service.last().body, service.last().query["name"]) == (CSV[:10], "mine")


def test_what_is_piped_in_is_looked_at(service: Playback, braid: Braid) -> None:
    assert braid("infer", "-", "--name", "flights", input=CSV).stdout == INFERRED["sql"] + "\n"
    assert (service.last().body, service.last().query) == (CSV, {"name": "flights", "file": ""})


def test_two_notations_that_fit_are_said_beside_the_statement(service: Playback, braid: Braid, tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_bytes(CSV)
    column = {"name": "at", "type": "TIMESTAMP", "comment": "'dd/MM/yyyy HH:mm' would fit as well"}
    assert braid("infer", str(tmp_path / "flights.csv")).stderr == ""
    service.play(answer(INFERRED | {"columns": [column]}))
    result = braid("infer", str(tmp_path / "flights.csv"))
    assert result.stdout == INFERRED["sql"] + "\n"
    assert result.stderr.startswith("Column 'at': 'dd/MM/yyyy HH:mm' would fit as well. To read its times")


def test_of_large_parquet_the_first_rows_are_sent(
    service: Playback, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flights.parquet"
    table = pa.table({"a": list(range(100))})
    pq.write_table(table, path)
    braid("infer", str(path))
    assert service.last().body == path.read_bytes()
    monkeypatch.setattr(infer, "_SMALL_BYTES", 10)
    monkeypatch.setattr(infer, "_ROWS", 7)
    service.play(answer(INFERRED))
    braid("infer", str(path))
    assert pq.read_table(io.BytesIO(service.last().body)) == table.slice(0, 7)


def test_a_folder_is_looked_at_by_the_service(service: Playback, braid: Braid, tmp_path: Path) -> None:
    braid("infer", str(tmp_path), "--name", "flights", "--option", "delimiter=;")
    body = {"connector": "file", "path": str(tmp_path), "delimiter": ";", "name": "flights"}
    assert service.last().json == body
    service.play(answer(INFERRED))
    braid("infer", "s3://bucket/flights")
    assert service.last().json == {"connector": "file", "path": "s3://bucket/flights"}


def test_a_topic_needs_its_brokers(service: Playback, braid: Braid) -> None:
    braid("infer", "flights", "--brokers", "a:9092,b:9092")
    assert service.last().json == {
        "connector": "kafka",
        "topic": "flights",
        "properties.bootstrap.servers": "a:9092,b:9092",
    }
    result = braid("infer", "flights")
    assert result.exit_code == 2
    assert "--brokers" in result.stderr


def test_a_refusal_is_said(service: Playback, braid: Braid, tmp_path: Path) -> None:
    service.played.clear()
    service.play(problem(422, "Not allowed", "A stream must have an event time."))
    (tmp_path / "a.csv").write_text("a\n1\n")
    result = braid("infer", str(tmp_path / "a.csv"))
    assert result.exit_code == 1
    assert "must have an event time" in result.stderr
