"""Rows that go from Kafka through queries to sinks, while all that takes part ends and comes back.

What arrives is compared with what a plain loop over the messages says, row by row.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from bench_driver.kafka_broker import create_topic
from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.kafka import produce
from tests.kit.servers import ApacheKafka, ClickHouse, Postgres
from tests.kit.service import RunningService
from tests.kit.waiting import DeadlineExceededError, wait_until
from tests.kit.webhook import Receiver, receiving

pytestmark = pytest.mark.service

OUTAGE_SECONDS = float(os.environ.get("BRAID_SINK_OUTAGE", "4"))
SECONDS = 120.0
START = datetime(2026, 1, 1, tzinfo=UTC)

Group = tuple[datetime, int]


def message(number: int) -> bytes:
    at = START + timedelta(milliseconds=20 * number)
    return json.dumps({"device": number % 7, "volts": number % 100, "time": f"{at:%FT%T.%f}"}).encode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def taken_by(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the rows that a webhook took, each once by its id."""
    row_by_id: dict[str, dict[str, Any]] = {}
    for row_id, row in receiver.rows:
        assert row_by_id.setdefault(row_id, row) == row, "the same id is the same row"
    return list(row_by_id.values())


def committed(servers: str, topic: str) -> list[dict[str, Any]]:
    """Return all messages of committed transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = []
    try:
        while (polled := consumer.poll(20)) is not None and polled.error() is None:
            messages.append(json.loads(polled.value() or b""))
    finally:
        consumer.close()
    return messages


def in_table(url: str, table: str) -> dict[Group, int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT window_start, device, total FROM {table}").fetchall()
    totals = {(start.astimezone(UTC), device): total for start, device, total in rows}
    assert len(totals) == len(rows), "no row is there twice"
    return totals


def grouped(rows: list[dict[str, Any]]) -> dict[Group, int]:
    totals = {(datetime.fromisoformat(row["window_start"]), row["device"]): row["total"] for row in rows}
    assert len(totals) == len(rows), "no row is there twice"
    return totals


def in_files(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("*.ndjson"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def is_deliverer(process: psutil.Process) -> bool:
    return "route" in process.cmdline()


def kill_deliverer(service: RunningService) -> None:
    """Kill the deliverer, and wait until another one is there."""
    victim = service.descendants(is_deliverer)[0]
    victim.kill()
    wait_until(
        lambda: [process for process in service.descendants(is_deliverer) if process.pid != victim.pid],
        30,
        "it is back",
    )


def test_rows_arrive_once_whatever_ends_meanwhile(
    fresh_service: FreshService,
    apache_kafka: ApacheKafka,
    postgres: Postgres,
    clickhouse: ClickHouse,
    receiver: Receiver,
    tmp_path: Path,
) -> None:
    service = fresh_service()
    suffix = uuid.uuid4().hex[:8]
    source, target, name = f"in_{suffix}", f"out_{suffix}", f"readings_{suffix}"
    create_topic(apache_kafka.servers, source, 2)
    clickhouse.query(
        f"CREATE TABLE volts_{suffix} (volts Int32, time String, _query String, _row String)"
        " ENGINE = ReplacingMergeTree ORDER BY (_query, _row)"
    )
    totals = f"SELECT device, SUM(volts) AS total FROM {name} [RANGE 2 SECONDS] GROUP BY device"
    high = f"SELECT volts, time FROM {name} WHERE volts > 90"
    once = {"properties.bootstrap.servers": apache_kafka.servers, "sink.delivery-guarantee": "exactly-once"}
    sinks: list[tuple[str, dict[str, Any]]] = [
        (totals, {"connector": "postgres", "url": postgres.url, "table": f"totals_{suffix}"}),
        (f"{totals} EMIT STREAM", {"connector": "postgres", "url": postgres.url, "table": f"now_{suffix}"}),
        (totals, {"connector": "kafka", "topic": target, "key.fields": "device", **once}),
        (totals, {"connector": "file", "path": str(tmp_path / "totals"), "flush_seconds": 0}),
        (high, {"connector": "file", "path": str(tmp_path / "high"), "flush_seconds": 0.3}),
        (high, {"connector": "webhook", "url": receiver.url}),
        (high, {"connector": "clickhouse", "url": clickhouse.url, "table": f"volts_{suffix}"}),
    ]
    with Api(service.url, on_unreachable=service.revive) as api:
        api.create_stream(
            f"CREATE STREAM {name} (device INT, volts INT, time TIMESTAMP LATENESS INTERVAL '15' MINUTE) WITH ("
            f"connector = 'kafka', topic = '{source}', 'properties.bootstrap.servers' = '{apache_kafka.servers}',"
            " 'scan.startup.mode' = 'earliest-offset')"
        )
        queries = [answer["id"] for answer in api.create_queries([{"sql": sql, "sink": sink} for sql, sink in sinks])]
        for query in queries:
            api.wait_state(query, "RUNNING")
        numbers_sent: list[int] = []

        def send(numbers: list[int]) -> None:
            """Produce messages and wait until all are taken in."""
            numbers_sent.extend(numbers)
            for partition in range(2):
                values = [message(n) for n in numbers if n % 2 == partition]
                produce(apache_kafka.servers, source, values, partition)
            wait_until(
                lambda: bool(api.stream(name)["tuples"] == len(numbers_sent)), SECONDS, lambda: str(api.stream(name))
            )

        def send_windows(first: int) -> None:
            """Send 500 messages, and then one so much later that their windows end."""
            send(list(range(first, first + 500)))
            send([first + 50_000])

        send_windows(0)
        with_postgres_down(postgres, lambda: send_windows(60_000))
        kill_deliverer(service)
        receiver.answer = (503, {})
        send_windows(120_000)
        clickhouse.stop()
        service.kill()
        api.get("/healthz")  # revives it
        send_windows(180_000)
        clickhouse.start()
        receiver.answer = (204, {})
        apache_kafka.stop()  # where messages come from, and rows go to
        apache_kafka.start()
        kill_deliverer(service)
        send_windows(240_000)

        assert api.stream(name)["late"] == 0
        expected_rows = Counter((n % 100, START + timedelta(milliseconds=20 * n)) for n in numbers_sent if n % 100 > 90)
        expected: dict[Group, int] = defaultdict(int)
        for n in numbers_sent[:-1]:  # the window of the last one is open
            expected[START + timedelta(seconds=20 * n // 1000 // 2 * 2), n % 7] += n % 100
        expected_now = dict(expected)
        expected_now[START + timedelta(seconds=20 * numbers_sent[-1] // 1000 // 2 * 2), numbers_sent[-1] % 7] = (
            numbers_sent[-1] % 100
        )

        def rows(sink_rows: list[dict[str, Any]]) -> Counter[tuple[int, datetime]]:
            return Counter((int(row["volts"]), datetime.fromisoformat(row["time"])) for row in sink_rows)

        def in_clickhouse() -> list[dict[str, Any]]:
            text = clickhouse.query(f"SELECT volts, time FROM volts_{suffix} FINAL FORMAT JSONEachRow")
            return [json.loads(line) for line in text.splitlines()]

        arrived: list[tuple[Callable[[], object], object]] = [
            (lambda: in_table(postgres.url, f"totals_{suffix}"), expected),
            (lambda: in_table(postgres.url, f"now_{suffix}"), expected_now),
            (lambda: grouped(committed(apache_kafka.servers, target)), expected),
            (lambda: grouped(in_files(tmp_path / "totals")), expected),
            (lambda: rows(in_files(tmp_path / "high")), expected_rows),
            (lambda: rows(taken_by(receiver)), expected_rows),
            (lambda: rows(in_clickhouse()), expected_rows),
        ]
        for query, (read_sink, expected_content) in zip(queries, arrived, strict=True):
            wait_until(
                lambda read_sink=read_sink, expected_content=expected_content: read_sink() == expected_content,  # type: ignore[misc]
                SECONDS,
                lambda query=query: f"all rows of {query} arrive: {api.get(f'/queries/{query}')['delivery']}",  # type: ignore[misc]
            )
        service.stop()


def with_postgres_down(postgres: Postgres, meanwhile: Callable[[], None]) -> None:
    """Have PostgreSQL away for a while, at least as long as something else takes."""
    postgres.stop()
    try:
        meanwhile()
        with pytest.raises(DeadlineExceededError):
            wait_until(lambda: False, OUTAGE_SECONDS, "the outage is over")
    finally:
        postgres.start()
