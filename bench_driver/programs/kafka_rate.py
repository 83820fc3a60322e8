"""How many tuples a second come from Kafka: JSON, with many aggregations running; broker and service share the cores.

`python -m braid.bench_driver.programs.kafka_rate [--tuples N] [--partitions N] [--queries N] [--output FILE.json]`. All
messages are in a broker in memory before the stream is declared, so the service reads as fast as it can.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from braid.bench_driver.programs.kafka_broker import BrokerProcess, create_topic
from braid.bench_driver.programs.standalone import command, report_on, say, wait_running
from braid.bench_driver.service_process import ServiceProcess
from braid.client import Client

TOPIC = "purchases"
TUPLES_A_SECOND = 300_000  # of event time
STRETCH = 1000  # neighbours that go to one partition
# all tuples but these: of its last batch the broker tells only the beginning until another one follows
ENOUGH = 0.98
POLL_SECONDS = 0.25
MAX_SECONDS = 300.0
WAITING = 500_000


def messages(count: int) -> Iterator[bytes]:
    """Yield purchases as JSON, in order of their event times."""
    rng = random.Random(1)
    for number in range(count):
        second, position = divmod(number, TUPLES_A_SECOND)
        time_of_day = b"%02d:%02d:%02d.%06d" % (second // 3600, second // 60 % 60, second % 60, 3 * position)
        yield (
            b'{"user_id":%d,"gem_pack":%d,"price":%.2f,"time":"2026-01-01T%sZ"}'
            % (rng.randrange(1000), rng.randrange(10), rng.random() * 100, time_of_day)
        )


def produce(servers: str, count: int, partitions: int) -> int:
    """Produce the messages, and return their mean size in bytes."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2 * WAITING,
            # one that is sent again would come after those that were on their way with it, which are late then
            "max.in.flight.requests.per.connection": 1,
        }
    )
    size = 0
    for number, message in enumerate(messages(count)):
        while len(producer) > WAITING:
            producer.poll(0.05)
        producer.produce(TOPIC, message, partition=number // STRETCH % partitions)
        size += len(message)
    if unsent := producer.flush(60):
        raise TimeoutError(f"the Kafka broker must take all messages within a minute, {unsent} are left")
    return size // count


def measure(tuples: int, partitions: int, queries: int) -> dict[str, Any]:
    """Return how fast all messages were read, and how fast the second half of them."""
    with tempfile.TemporaryDirectory(prefix="braid-kafka-") as folder, BrokerProcess(Path(folder) / "log") as broker:
        create_topic(broker.servers, TOPIC, partitions)
        size = produce(broker.servers, tuples, partitions)
        say(f"{tuples} messages of {size} bytes are in {partitions} partitions")
        with ServiceProcess("kafka") as service, Client(service.url, timeout=30) as client:
            service.wait_ready()
            client.create_stream(
                "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
                f" time TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'kafka', topic = '{TOPIC}',"
                f" 'properties.bootstrap.servers' = '{broker.servers}', 'scan.startup.mode' = 'earliest-offset')"
            )
            client.create_queries([{"sql": sql} for sql in _queries(queries)])
            wait_running(client, 60)
            progress = _follow(client, tuples)
    (begin, first), (end, last) = progress[0], progress[-1]
    middle, half = next((at, read) for at, read in progress if read >= (first + last) / 2)
    say(f"{last - first} tuples in {end - begin:.1f} s")
    return {
        "queries": queries,
        "message_bytes": size,
        "partitions": partitions,
        "tuples_per_second": (last - first) / (end - begin),
        "second_half_tuples_per_second": (last - half) / (end - middle) if end > middle else None,
    }


def _queries(count: int) -> Iterator[str]:
    rng = random.Random(2)
    for _ in range(count):
        source = f"purchases [RANGE {rng.randint(1, 5)} SECONDS SLIDE 1 SECOND]"
        yield f"SELECT user_id, SUM(price) AS s FROM {source} WHERE price > {rng.randint(0, 99)} GROUP BY user_id"


def _follow(client: Client, tuples: int) -> list[tuple[float, int]]:
    """Return when how many tuples had been read, whenever that changed."""
    progress = [(time.monotonic(), int(client.stream("purchases")["tuples"]))]
    deadline = time.monotonic() + MAX_SECONDS
    while progress[-1][1] < ENOUGH * tuples:
        if time.monotonic() > deadline:
            raise TimeoutError(f"all {tuples} tuples must be read within {MAX_SECONDS:g} s, got {progress[-1][1]}")
        time.sleep(POLL_SECONDS)
        read = int(client.stream("purchases")["tuples"])
        if read > progress[-1][1]:
            progress.append((time.monotonic(), read))
    return progress


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the figures, write the JSON; 1 when something failed."""
    parser = command("braid.bench_driver.programs.kafka_rate", __doc__)
    parser.add_argument("--tuples", type=int, default=6_000_000, help="how many messages (6 000 000)")
    parser.add_argument("--partitions", type=int, default=4, help="in how many partitions (4)")
    parser.add_argument("--queries", type=int, default=100, help="how many aggregations run (100)")
    options = parser.parse_args(arguments)
    return report_on(lambda: measure(options.tuples, options.partitions, options.queries), options.output)


if __name__ == "__main__":
    sys.exit(main())
