"""Topics of Apache Kafka, in transactions or not; and of another broker, read with another client."""

from __future__ import annotations

import json
import traceback
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from braid.bench_driver.programs.kafka_broker import create_topic
from braid.router.sinks import kafka
from braid.router.sinks.sink import DelivererIdentity, Destination, RowsRefused, Sink, SinkDown, SinkRefused, Subject
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from tests.kit.kafka import Broker
from tests.kit.servers import ApacheKafka
from tests.kit.service import free_port
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject

EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once"}


def opened(
    servers: str, topic: str, of: Subject, options: Mapping[str, str], name: str = "test"
) -> tuple[Destination, Sink]:
    all_options = {"topic": topic, "properties.bootstrap.servers": servers, **options}
    kafka.validate(all_options, of.query, OPEN)
    destination = kafka.connect(all_options, DelivererIdentity(name))
    return destination, destination.open(of, all_options)


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
    messages: list[Any] = []
    try:
        while (message := consumer.poll(20)) is not None:
            if message.error() is not None:
                break  # the end of the partition
            messages.append(message)
    finally:
        consumer.close()
    assert len(messages) == count
    return messages


def numbers(messages: list[Any]) -> list[int]:
    return [json.loads(message.value())["n"] for message in messages]


def test_messages_are_json_with_keys_and_ids(broker: Broker) -> None:
    topic, query = broker.create_topic(), subject()
    destination, sink = opened(broker.servers, topic, query, {"key.fields": "s,i"})
    rows = rows_of(query, selected(30), 4)
    sink.write(rows)
    destination.close()
    messages = committed(broker.servers, topic, 30)
    assert numbers(messages) == list(range(30))
    first = messages[0]
    assert json.loads(first.key()) == {"s": "plain", "i": 0}
    assert first.headers() == [("braid-id", f"{query.delivery_id}-4-0".encode())]


def test_a_transaction_has_rows_and_cursor(apache_kafka: ApacheKafka) -> None:
    topic, query = new_topic(apache_kafka.servers), subject()
    destination, sink = opened(apache_kafka.servers, topic, query, EXACTLY_ONCE)
    assert sink.keeps_cursor
    assert sink.resume() is None
    sink.write(rows_of(query, selected(10), 1))
    sink.write(rows_of(query, selected(10, 10), 2))
    destination.close()
    destination, sink = opened(apache_kafka.servers, topic, query, EXACTLY_ONCE)
    assert sink.resume() == "after 2"
    destination.close()
    assert numbers(committed(apache_kafka.servers, topic, 20)) == list(range(20))


def test_what_an_earlier_process_left_open_never_counts(apache_kafka: ApacheKafka) -> None:
    topic, query = new_topic(apache_kafka.servers), subject()
    first, cut_off = opened(apache_kafka.servers, topic, query, EXACTLY_ONCE)
    cut_off.resume()
    cut_off.write(rows_of(query, selected(5), 1))
    assert isinstance(first, kafka.Brokers)
    assert isinstance(cut_off, kafka.KafkaSink)
    first.producer.begin_transaction()
    cut_off._send(cut_off._messages(rows_of(query, selected(5, 5), 2)))  # and the process ends here
    second, sink = opened(apache_kafka.servers, topic, query, EXACTLY_ONCE)
    assert sink.resume() == "after 1"
    sink.write(rows_of(query, selected(5, 100), 2))
    with pytest.raises((SinkDown, SinkRefused)):  # fenced off
        cut_off.write(rows_of(query, selected(5, 5), 2))
    assert numbers(committed(apache_kafka.servers, topic, 10)) == [*range(5), *range(100, 105)]
    second.close()


def test_queries_of_one_destination_have_cursors_of_their_own(apache_kafka: ApacheKafka) -> None:
    topic, query, other_query = new_topic(apache_kafka.servers), subject(), subject()
    destination, first = opened(apache_kafka.servers, topic, query, EXACTLY_ONCE)
    second = destination.open(other_query, {"topic": topic, **EXACTLY_ONCE})
    first.resume()
    second.resume()
    first.write(rows_of(query, selected(2), 5))
    assert destination.open(other_query, {"topic": topic}).resume() is None
    second.write(rows_of(other_query, selected(2), 6))
    assert destination.open(query, {"topic": topic}).resume() == "after 5"
    assert destination.open(other_query, {"topic": topic}).resume() == "after 6"
    destination.close()


def test_brokers_that_do_not_answer_are_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT_SECONDS", 1.0)
    query = subject()
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(SinkDown, match=nobody):
        opened(nobody, "t", query, {})
    with pytest.raises(SinkDown, match=nobody):
        opened(nobody, "t", query, EXACTLY_ONCE)


def test_brokers_that_end_are_down(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT_SECONDS", 1.0)
    topic, query = broker.create_topic(), subject()
    destination, sink = opened(broker.servers, topic, query, {})
    with broker.paused(), pytest.raises(SinkDown, match=broker.servers):
        sink.write(rows_of(query, selected(1), 1))
    destination.close()


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE])
def test_a_row_that_is_too_large_for_the_client_sends_none_before_it(
    apache_kafka: ApacheKafka, options: dict[str, str]
) -> None:
    topic, query, other_query = new_topic(apache_kafka.servers), subject(), subject()
    destination, first = opened(apache_kafka.servers, topic, query, options)
    second = destination.open(other_query, {"topic": topic, **options})
    first.resume()
    second.resume()
    for _ in range(3):
        with pytest.raises(RowsRefused, match=f"row {query.delivery_id}-1-2 has"):
            first.write(rows_of(query, [*selected(2), {**selected(1)[0], "s": "x" * kafka.MESSAGE_BYTES}], 1))
    second.write(rows_of(other_query, selected(2, 10), 1))
    destination.close()
    assert numbers(committed(apache_kafka.servers, topic, 2)) == [10, 11]


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE])
def test_a_row_that_brokers_refuse_leaves_the_producer_to_others(
    apache_kafka: ApacheKafka, options: dict[str, str]
) -> None:
    topic, small = new_topic(apache_kafka.servers), small_topic(apache_kafka.servers)
    query, other_query = subject(), subject()
    destination, first = opened(apache_kafka.servers, small, query, options)
    second = destination.open(other_query, {"topic": topic, **options})
    first.resume()
    second.resume()
    for _ in range(2):
        with pytest.raises(SinkRefused, match=apache_kafka.servers):
            first.write(rows_of(query, [{**selected(1)[0], "s": "x" * 10_000}], 1))
        second.write(rows_of(other_query, selected(2), 1))
    assert first.resume() is None
    first.write(rows_of(query, selected(1), 1))
    destination.close()
    assert numbers(committed(apache_kafka.servers, small, 1)) == [0]
    assert len(committed(apache_kafka.servers, topic, 4)) == 4


def small_topic(servers: str) -> str:
    """Create a topic for which brokers take no large batch."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "2000"})]).values():
        done.result(20)
    return name


def test_a_topic_that_brokers_make_is_there(apache_kafka: ApacheKafka) -> None:
    topic, query = f"t-{uuid.uuid4().hex[:12]}", subject()
    destination, sink = opened(apache_kafka.servers, topic, query, {})
    sink.write(rows_of(query, selected(2), 1))
    destination.close()
    assert numbers(committed(apache_kafka.servers, topic, 2)) == [0, 1]


HIDDEN = "swordfish-17"


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), RowsRefused),
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), SinkRefused),
        (KafkaError(KafkaError._UNKNOWN_TOPIC), SinkRefused),
        (KafkaError(KafkaError.TOPIC_EXCEPTION), SinkRefused),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), SinkRefused),
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), SinkRefused),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), SinkRefused),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "", True), SinkDown),
        (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), SinkRefused),
        (KafkaError(KafkaError._ALL_BROKERS_DOWN, f"said {HIDDEN}"), SinkDown),
        (KafkaError(KafkaError._TRANSPORT), SinkDown),
        (KafkaError(KafkaError._TIMED_OUT), SinkDown),
        (KafkaError(KafkaError._MSG_TIMED_OUT), SinkDown),
        (KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), SinkDown),
        (KafkaError(KafkaError._FENCED, "", True), SinkDown),
        (KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED), SinkDown),
        (BufferError("full"), SinkDown),
    ],
)
def test_what_an_error_means(error: object, means: type[Exception]) -> None:
    brokers = kafka.Brokers({"bootstrap.servers": "127.0.0.1:1"}, None, (HIDDEN,))
    problem = error if isinstance(error, BufferError) else KafkaException(error)
    failure = brokers.failure(problem)
    brokers.close()
    assert type(failure) is means
    assert HIDDEN not in str(failure)


@pytest.mark.parametrize("name", ["sasl.mechanism", "security.protocol", "ssl.ca.pem"])
def test_what_the_client_says_of_a_secret_does_not_show_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("BRAID_SECRET_X", HIDDEN)
    monkeypatch.setattr(kafka, "TIMEOUT_SECONDS", 1.0)
    options = {"properties.security.protocol": "ssl", f"properties.{name}": "secret:x"}
    with pytest.raises((SinkRefused, SinkDown)) as raised:
        opened("127.0.0.1:1", "t", subject(), options)
    assert HIDDEN not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t"}, "needs the option 'properties.bootstrap.servers'"),
        ({"properties.bootstrap.servers": "h:1"}, "needs the option 'topic'"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "properties.sasl.password": "x"}, "must be a reference"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "properties.fetch.min.bytes": "1"}, "is for reading"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "key.fields": "y"}, "got 'y'"),
        ({"topic": "a b", "properties.bootstrap.servers": "h:1"}, "up to 249 letters"),
        ({"topic": "t\n", "properties.bootstrap.servers": "h:1"}, "up to 249 letters"),
        ({"topic": "t" * 250, "properties.bootstrap.servers": "h:1"}, "up to 249 letters"),
        ({"topic": "..", "properties.bootstrap.servers": "h:1"}, "up to 249 letters"),
        ({"topic": "t", "properties.bootstrap.servers": "h:1", "sink.delivery-guarantee": "never"}, "got 'never'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        kafka.validate(options, SELECTION, OPEN)
