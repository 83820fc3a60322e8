"""A Kafka broker for tests: a real one, in memory, on a free port; or the one that BRAID_TEST_KAFKA names.

What is produced comes from another client than the one that the connector reads with.
"""

from __future__ import annotations

import os
import signal
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as _NewTopic  # type: ignore[attr-defined]

from braid.bench_driver.programs.kafka_broker import BrokerProcess, create_topic
from tests.kit.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
    from kafka import KafkaProducer

GIVEN = "BRAID_TEST_KAFKA"
STOPPED_SECONDS = 20.0


class Broker:
    """``servers`` is where it listens; ``process`` is None for one that is not ours."""

    def __init__(self, log: Path) -> None:
        given_servers = os.environ.get(GIVEN)
        self.process = BrokerProcess(log) if given_servers is None else None
        self.servers = given_servers or (self.process.servers if self.process is not None else "")

    def create_topic(self, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        create_topic(self.servers, name, partitions)
        return name

    def produce(self, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """Produce values to a partition, in order; they are there when this returns."""
        produce(self.servers, topic, values, partition)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have the broker answer nothing for a while."""
        assert self.process is not None
        self.process.process.send_signal(signal.SIGSTOP)
        # on a busy machine its threads go on for a moment
        pid = self.process.process.pid
        wait_until(lambda: _is_stopped(pid), STOPPED_SECONDS, "all threads of the broker stop")
        try:
            yield
        finally:
            self.process.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End a broker of ours."""
        if self.process is not None:
            self.process.stop()


class Topics:
    """Topics of an Apache Kafka, and what is done to them."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def create(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """Create a topic and return its name; one of the name that is being deleted is waited for."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): value for key, value in config.items()}

        def created() -> bool:
            try:
                self.admin.create_topics([_NewTopic(name, partitions, 1, config=config)])[name].result()
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        wait_until(created, 30, "the topic is created")
        return name

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([name])[name].result()

    def delete_before(self, name: str, offset: int, partition: int = 0) -> None:
        """Delete the messages before an offset, as retention does."""
        (answer,) = self.admin.delete_records([TopicPartition(name, partition, offset)]).values()
        answer.result()

    def produce(self, name: str, values: Iterable[bytes | None], partition: int = 0, **options: Any) -> None:
        """Produce values to a partition, in order; they are there when this returns."""
        # without idempotence a batch that is sent again comes after those that were on their way with it
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0, "enable.idempotence": True})
        for value in values:
            producer.produce(name, value, partition=partition, **options)
        assert producer.flush(30) == 0


def produce(servers: str, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
    """Produce values to a partition, in order; they are there when this returns."""
    # each message a batch, for the sake of what the broker in memory tells of its latest offset; one request at a
    # time, since one that is sent again comes after those that were on their way with it
    producer = KafkaProducer(
        bootstrap_servers=servers, batch_size=0, acks="all", max_in_flight_requests_per_connection=1
    )
    try:
        deliveries = [producer.send(topic, value=value, key=b"-", partition=partition) for value in values]
        for delivery in deliveries:
            delivery.get(30)
    finally:
        producer.close()


def _is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
