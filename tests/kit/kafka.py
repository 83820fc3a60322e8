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

from bench_driver.kafka_broker import BrokerProcess, create_topic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
    from kafka import KafkaProducer

GIVEN = "BRAID_TEST_KAFKA"


class Broker:
    """``servers`` is where it listens; ``process`` is None for one that is not ours."""

    def __init__(self, log: Path) -> None:
        given = os.environ.get(GIVEN)
        self.process = BrokerProcess(log) if given is None else None
        self.servers = given or (self.process.servers if self.process is not None else "")

    def create_topic(self, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        create_topic(self.servers, name, partitions)
        return name

    def produce(self, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """Produce values to a partition, in order; they are there when this returns."""
        # each message a batch, for the sake of what the broker in memory tells of its latest offset
        producer = KafkaProducer(bootstrap_servers=self.servers, batch_size=0, acks="all")
        try:
            sent = [producer.send(topic, value=value, key=b"-", partition=partition) for value in values]
            for each in sent:
                each.get(30)
        finally:
            producer.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have the broker answer nothing for a while."""
        assert self.process is not None
        self.process.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End a broker of ours."""
        if self.process is not None:
            self.process.stop()
