"""Rows that go from Kafka through queries to sinks, while all that takes part ends and comes back.

What arrives is compared with what a plain loop over the messages says, row by row.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from braid.bench_driver.programs.kafka_broker import create_topic
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


@dataclass(frozen=True)
class Sinks:
    """The servers that rows go to; Kafka is where messages come from, too."""

    kafka: ApacheKafka
    postgres: Postgres
    clickhouse: ClickHouse
    receiver: Receiver
    folder: Path

    def with_postgres_down(self, meanwhile: Callable[[], None]) -> None:
        """Have PostgreSQL away for a while, at least as long as something else takes."""
        self.postgres.stop()
        try:
            meanwhile()
            with pytest.raises(DeadlineExceededError):
                wait_until(lambda: False, OUTAGE_SECONDS, "the outage is over")
        finally:
            self.postgres.start()


@pytest.fixture
def sinks(apache_kafka: ApacheKafka, postgres: Postgres, clickhouse: ClickHouse, tmp_path: Path) -> Iterator[Sinks]:
    with receiving() as receiver:
        yield Sinks(apache_kafka, postgres, clickhouse, receiver, tmp_path)


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
        try:
            rows = connection.execute(f"SELECT window_start, device, total FROM {table}").fetchall()
        except psycopg.errors.UndefinedTable:  # the first row creates it
            return {}
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
    return "deliver" in process.cmdline()


def kill_deliverer(service: RunningService) -> None:
    """Kill the deliverer, and wait until another one is there."""
    victim = service.descendants(is_deliverer)[0]
    victim.kill()
    wait_until(
        lambda: [process for process in service.descendants(is_deliverer) if process.pid != victim.pid],
        30,
        "it is back",
    )


class Delivery:
    """A stream from Kafka, seven queries over it, each with a sink of its own, and what must arrive there."""

    def __init__(self, api: Api, sinks: Sinks) -> None:
        self._api, self._sinks = api, sinks
        self._suffix = uuid.uuid4().hex[:8]
        self._source, self._target, self._name = (f"{kind}_{self._suffix}" for kind in ("in", "out", "readings"))
        self._numbers_sent: list[int] = []
        create_topic(sinks.kafka.servers, self._source, 2)
        sinks.clickhouse.query(
            f"CREATE TABLE volts_{self._suffix} (volts Int32, time String, _query String, _row String)"
            " ENGINE = ReplacingMergeTree ORDER BY (_query, _row)"
        )
        api.create_stream(
            f"CREATE STREAM {self._name} (device INT, volts INT, time TIMESTAMP LATENESS INTERVAL '15' MINUTE) WITH ("
            f"connector = 'kafka', topic = '{self._source}', 'properties.bootstrap.servers' = '{sinks.kafka.servers}',"
            " 'scan.startup.mode' = 'earliest-offset')"
        )
        bodies = [{"sql": sql, "sink": sink} for sql, sink in self._queries_with_sinks()]
        self._queries = [answer["id"] for answer in api.create_queries(bodies)]
        for query in self._queries:
            api.wait_state(query, "RUNNING")

    def _queries_with_sinks(self) -> list[tuple[str, dict[str, Any]]]:
        sinks, suffix = self._sinks, self._suffix
        totals = f"SELECT device, SUM(volts) AS total FROM {self._name} [RANGE 2 SECONDS] GROUP BY device"
        high = f"SELECT volts, time FROM {self._name} WHERE volts > 90"
        once = {"properties.bootstrap.servers": sinks.kafka.servers, "sink.delivery-guarantee": "exactly-once"}
        return [
            (totals, {"connector": "postgres", "url": sinks.postgres.url, "table": f"totals_{suffix}"}),
            (f"{totals} EMIT STREAM", {"connector": "postgres", "url": sinks.postgres.url, "table": f"now_{suffix}"}),
            (totals, {"connector": "kafka", "topic": self._target, "key.fields": "device", **once}),
            (totals, {"connector": "file", "path": str(sinks.folder / "totals"), "flush_seconds": 0}),
            (high, {"connector": "file", "path": str(sinks.folder / "high"), "flush_seconds": 0.3}),
            (high, {"connector": "webhook", "url": sinks.receiver.url}),
            (high, {"connector": "clickhouse", "url": sinks.clickhouse.url, "table": f"volts_{suffix}"}),
        ]

    def send_windows(self) -> None:
        """Send 500 messages, and then one so much later that their windows end."""
        first = self._numbers_sent[-1] + 10_000 if self._numbers_sent else 0
        self._send(list(range(first, first + 500)))
        self._send([first + 50_000])

    def _send(self, numbers: list[int]) -> None:
        """Produce messages and wait until all are taken in."""
        self._numbers_sent.extend(numbers)
        for partition in range(2):
            values = [message(n) for n in numbers if n % 2 == partition]
            produce(self._sinks.kafka.servers, self._source, values, partition)
        wait_until(
            lambda: bool(self._api.stream(self._name)["tuples"] == len(self._numbers_sent)),
            SECONDS,
            lambda: str(self._api.stream(self._name)),
        )

    def verify(self) -> None:
        """Wait until each sink has exactly the rows of its query."""
        assert self._api.stream(self._name)["late"] == 0
        for query, (read_sink, expected_content) in zip(self._queries, self._arrived(), strict=True):
            wait_until(
                lambda read_sink=read_sink, expected_content=expected_content: read_sink() == expected_content,  # type: ignore[misc]
                SECONDS,
                lambda query=query: (  # type: ignore[misc]
                    f"all rows of {query} arrive: {self._api.get(f'/queries/{query}')['delivery']}"
                ),
            )

    def _arrived(self) -> list[tuple[Callable[[], object], object]]:
        """Return how each sink is read, and what it must hold."""
        sinks, suffix, sent = self._sinks, self._suffix, self._numbers_sent
        expected_rows = Counter((n % 100, START + timedelta(milliseconds=20 * n)) for n in sent if n % 100 > 90)
        expected = totals_of(sent[:-1])  # the window of the last one is open
        expected_now = totals_of(sent)
        clickhouse_rows = f"SELECT volts, time FROM volts_{suffix} FINAL FORMAT JSONEachRow"
        return [
            (lambda: in_table(sinks.postgres.url, f"totals_{suffix}"), expected),
            (lambda: in_table(sinks.postgres.url, f"now_{suffix}"), expected_now),
            (lambda: grouped(committed(sinks.kafka.servers, self._target)), expected),
            (lambda: grouped(in_files(sinks.folder / "totals")), expected),
            (lambda: counted(in_files(sinks.folder / "high")), expected_rows),
            (lambda: counted(taken_by(sinks.receiver)), expected_rows),
            (lambda: counted(map(json.loads, sinks.clickhouse.query(clickhouse_rows).splitlines())), expected_rows),
        ]


def totals_of(numbers: list[int]) -> dict[Group, int]:
    """Return the sums of windows of 2 s by device."""
    totals: dict[Group, int] = defaultdict(int)
    for n in numbers:
        totals[START + timedelta(seconds=20 * n // 1000 // 2 * 2), n % 7] += n % 100
    return totals


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[int, datetime]]:
    return Counter((int(row["volts"]), datetime.fromisoformat(row["time"])) for row in rows)


@pytest.mark.long
def test_rows_arrive_once_whatever_ends_meanwhile(fresh_service: FreshService, sinks: Sinks) -> None:
    service = fresh_service()
    with Api(service.url, on_unreachable=service.revive) as api:
        delivery = Delivery(api, sinks)
        delivery.send_windows()
        sinks.with_postgres_down(delivery.send_windows)
        kill_deliverer(service)
        sinks.receiver.answer = (503, {})
        delivery.send_windows()
        sinks.clickhouse.stop()
        service.kill()
        api.get("/healthz")  # revives it
        delivery.send_windows()
        sinks.clickhouse.start()
        sinks.receiver.answer = (204, {})
        sinks.kafka.stop()  # where messages come from, and rows go to
        sinks.kafka.start()
        kill_deliverer(service)
        delivery.send_windows()
        delivery.verify()
        service.stop()


@pytest.mark.long
def test_rows_arrive_once_whatever_ends_but_the_service(service: RunningService, api: Api, sinks: Sinks) -> None:
    delivery = Delivery(api, sinks)
    delivery.send_windows()
    sinks.with_postgres_down(delivery.send_windows)
    kill_deliverer(service)
    sinks.receiver.answer = (503, {})
    sinks.clickhouse.stop()
    delivery.send_windows()
    sinks.clickhouse.start()
    sinks.receiver.answer = (204, {})
    delivery.send_windows()
    delivery.verify()
