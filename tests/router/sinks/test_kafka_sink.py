"""Topics of Apache Kafka, in transactions or not; and of another broker, read with another client."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench_driver.kafka_broker import create_topic
from router.sinks import kafka
from router.sinks.sink import Deliverer, Destination, Sink, SinkDown, SinkRefused, Subject
from sources.errors import NotAllowed
from tests.kit.kafka import Broker
from tests.kit.servers import ApacheKafka
from tests.kit.service import free_port
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject

EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once"}


def opened(
    servers: str, topic: str, of: Subject, options: Mapping[str, str], name: str = "test"
) -> tuple[Destination, Sink]:
    said = {"topic": topic, "properties.bootstrap.servers": servers, **options}
    kafka.validate(said, of.query, "")
    destination = kafka.connect(said, Deliverer(name))
    return destination, destination.open(of, said)


def new_topic(servers: str, partitions: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    create_topic(servers, name, partitions)
    return name


def committed(servers: str, topic: str, count: int, partition: int = 0) -> list[Any]:
    """Return the first ``count`` messages of committed transactions in a partition, and check that no more follow."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Any] = []
    try:
        while (message := consumer.poll(20)) is not None:
            if message.error() is not None:
                break  # the end of the partition
            found.append(message)
    finally:
        consumer.close()
    assert len(found) == count
    return found


def numbers(messages: list[Any]) -> list[int]:
    return [json.loads(message.value())["n"] for message in messages]


def test_messages_are_json_with_keys_and_ids(broker: Broker) -> None:
    topic, mine = broker.create_topic(), subject()
    destination, sink = opened(broker.servers, topic, mine, {"key.fields": "s,i"})
    rows = rows_of(mine, selected(30), 4)
    sink.write(rows)
    destination.close()
    found = committed(broker.servers, topic, 30)
    assert numbers(found) == list(range(30))
    first = found[0]
    assert json.loads(first.key()) == {"s": "plain", "i": 0}
    assert first.headers() == [("braid-id", f"{mine.delivery}-4-0".encode())]


def test_a_transaction_has_rows_and_cursor(apache_kafka: ApacheKafka) -> None:
    topic, mine = new_topic(apache_kafka.servers), subject()
    destination, sink = opened(apache_kafka.servers, topic, mine, EXACTLY_ONCE)
    assert sink.keeps_cursor
    assert sink.resume() is None
    sink.write(rows_of(mine, selected(10), 1))
    sink.write(rows_of(mine, selected(10, 10), 2))
    destination.close()
    destination, sink = opened(apache_kafka.servers, topic, mine, EXACTLY_ONCE)
    assert sink.resume() == "after 2"
    destination.close()
    assert numbers(committed(apache_kafka.servers, topic, 20)) == list(range(20))


def test_what_an_earlier_process_left_open_never_counts(apache_kafka: ApacheKafka) -> None:
    topic, mine = new_topic(apache_kafka.servers), subject()
    first, cut_off = opened(apache_kafka.servers, topic, mine, EXACTLY_ONCE)
    cut_off.resume()
    cut_off.write(rows_of(mine, selected(5), 1))
    assert isinstance(first, kafka.Brokers)
    assert isinstance(cut_off, kafka.KafkaSink)
    first.producer.begin_transaction()
    cut_off._send(rows_of(mine, selected(5, 5), 2))  # and the process ends here
    second, sink = opened(apache_kafka.servers, topic, mine, EXACTLY_ONCE)
    assert sink.resume() == "after 1"
    sink.write(rows_of(mine, selected(5, 100), 2))
    with pytest.raises((SinkDown, SinkRefused)):  # fenced off
        cut_off.write(rows_of(mine, selected(5, 5), 2))
    assert numbers(committed(apache_kafka.servers, topic, 10)) == [*range(5), *range(100, 105)]
    second.close()


def test_queries_of_one_destination_have_cursors_of_their_own(apache_kafka: ApacheKafka) -> None:
    topic, one, two = new_topic(apache_kafka.servers), subject(), subject()
    destination, first = opened(apache_kafka.servers, topic, one, EXACTLY_ONCE)
    second = destination.open(two, {"topic": topic, **EXACTLY_ONCE})
    first.resume()
    second.resume()
    first.write(rows_of(one, selected(2), 5))
    assert destination.open(two, {"topic": topic}).resume() is None
    second.write(rows_of(two, selected(2), 6))
    assert destination.open(one, {"topic": topic}).resume() == "after 5"
    assert destination.open(two, {"topic": topic}).resume() == "after 6"
    destination.close()


def test_brokers_that_do_not_answer_are_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT_SECONDS", 1.0)
    mine = subject()
    nobody = f"127.0.0.1:{free_port()}"
    destination, sink = opened(nobody, "t", mine, {})
    with pytest.raises(SinkDown, match=nobody):
        sink.write(rows_of(mine, selected(1), 1))
    destination.close()
    with pytest.raises(SinkDown, match=nobody):
        opened(nobody, "t", mine, EXACTLY_ONCE)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "t"}, "must have the option 'properties.bootstrap.servers'"),
        ({"properties.bootstrap.servers": "h:1"}, "must have the option 'topic'"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "properties.sasl.password": "x"}, "must be a reference"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "properties.fetch.min.bytes": "1"}, "is for reading"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "key.fields": "y"}, "got 'y'"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "sink.delivery-guarantee": "never"}, "got 'never'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        kafka.validate(options, SELECTION, "")
