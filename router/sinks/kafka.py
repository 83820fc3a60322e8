"""Rows as JSON messages of a Kafka topic; options are named as in Flink SQL.

Each message has the header ``braid-id``, which tells rows apart that come again. With ``sink.delivery-guarantee`` =
``exactly-once`` the rows of a write and the cursor after them are one transaction: the cursor is the metadata of an
offset that is committed for a consumer group of the query. Those who read with ``isolation.level`` =
``read_committed`` get every row once.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from operators.queries import Query
from router.materialize import schema_of
from router.row_text import json_lines, objects
from router.sinks.options import check_options, choice, columns
from router.sinks.sink import Deliverer, Rows, SinkDown, SinkRefused, Subject
from sources.errors import NotAllowed
from sources.kafka.options import PREFIX, SERVERS, check_properties
from sources.secret import reveal

NAME = "kafka"
FLUSH_ROWS, FLUSH_SECONDS = 10_000, 0.0
GUARANTEE = "sink.delivery-guarantee"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
TIMEOUT_SECONDS = 20.0
TRANSACTION_SECONDS = 60.0
_FOR_READING = ("fetch.", "max.partition.fetch.")
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
)


def validate(options: Mapping[str, str], query: Query, folder: str) -> None:  # noqa: ARG001
    """Check what a query says of its topic."""
    known = ("key.fields", GUARANTEE, "format", f"{PREFIX}*")
    check_options(NAME, options, ("topic", f"{PREFIX}{SERVERS}"), known)
    choice(NAME, options, GUARANTEE, (AT_LEAST_ONCE, EXACTLY_ONCE))
    choice(NAME, options, "format", ("json",))
    columns(NAME, options, "key.fields", tuple(schema_of(query).names))
    properties = _properties(options)
    check_properties(properties)
    for name in properties:
        if name.startswith(_FOR_READING):
            raise NotAllowed(f"Option '{PREFIX}{name}' is for reading; a sink must be without it.")


def destination(options: Mapping[str, str]) -> str:
    """Return the brokers and all that is said to the client."""
    said = {**_properties(options), GUARANTEE: options.get(GUARANTEE, AT_LEAST_ONCE)}
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()


def connect(options: Mapping[str, str], deliverer: Deliverer) -> Brokers:
    """Return the brokers; a transaction that an earlier process left open is aborted."""
    properties = {name: reveal(value) for name, value in _properties(options).items()}
    if options.get(GUARANTEE) != EXACTLY_ONCE:
        return Brokers(properties, None)
    return Brokers(properties, f"braid-{deliverer.name}-{zlib.crc32(destination(options).encode()):08x}")


class Brokers:
    """A producer; with ``transactional_id`` all it sends is in transactions."""

    def __init__(self, properties: Mapping[str, str], transactional_id: str | None) -> None:
        self.properties = properties
        self.is_transactional = transactional_id is not None
        self.where = properties[SERVERS]
        settings: dict[str, Any] = {
            "linger.ms": 5,
            "log_level": 0,
            **properties,
            "enable.idempotence": True,
            "message.timeout.ms": int(TIMEOUT_SECONDS * 1000),
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = int(TRANSACTION_SECONDS * 1000)
        try:
            self.producer = Producer(settings)
            if transactional_id is not None:
                self.producer.init_transactions(TIMEOUT_SECONDS)
        except (KafkaException, ValueError) as problem:
            raise self.failure(problem) from problem

    def open(self, subject: Subject, options: Mapping[str, str]) -> KafkaSink:
        """Return the sink of a query."""
        key = columns(NAME, options, "key.fields", tuple(subject.schema.names))
        return KafkaSink(self, options["topic"], key, subject.delivery)

    def close(self) -> None:
        """Let go of what was not sent."""
        self.producer.purge()

    def failure(self, problem: Exception) -> SinkDown | SinkRefused:
        """Return what an error of the client means."""
        error = problem.args[0] if problem.args else None
        if isinstance(error, KafkaError):
            text = f"Brokers {self.where!r}: {error.str()}."
            return SinkRefused(text) if error.code() in _REFUSED else SinkDown(text)
        return SinkDown(f"Brokers {self.where!r}: {problem}.")


class KafkaSink:
    """The rows of one query in a topic."""

    def __init__(self, brokers: Brokers, topic: str, key: tuple[str, ...], delivery: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._key = key
        self._delivery = delivery
        self._group: Any = None
        self.keeps_cursor = brokers.is_transactional

    def resume(self) -> str | None:
        """Return the cursor that the last transaction committed."""
        if not self.keeps_cursor:
            return None
        properties = {**self._brokers.properties, "group.id": f"braid-{self._delivery}", "enable.auto.commit": False}
        try:
            consumer = Consumer({"log_level": 0, **properties})
            try:
                self._group = consumer.consumer_group_metadata()
                found = consumer.committed([TopicPartition(self._topic, 0)], TIMEOUT_SECONDS)[0]
            finally:
                consumer.close()
        except KafkaException as problem:
            raise self._brokers.failure(problem) from problem
        if found.offset < 0:
            return None
        if not found.metadata:
            raise SinkRefused(
                f"Brokers must keep the metadata of offsets for {GUARANTEE} = {EXACTLY_ONCE!r}; these do not."
            )
        cursor: str = found.metadata
        return cursor

    def write(self, rows: Rows) -> None:
        """Send rows, and wait until brokers have them; in a transaction with the cursor, if there are any."""
        producer = self._brokers.producer
        try:
            if self.keeps_cursor:
                producer.begin_transaction()
            self._send(rows)
            if self.keeps_cursor:
                place = TopicPartition(self._topic, 0, rows.runs[-1][0], rows.cursor)
                producer.send_offsets_to_transaction([place], self._group, TIMEOUT_SECONDS)
                producer.commit_transaction(TIMEOUT_SECONDS)
        except (KafkaException, BufferError) as problem:
            raise self._brokers.failure(problem) from problem

    def _send(self, rows: Rows) -> None:
        producer, failed = self._brokers.producer, []

        def note(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        messages = zip(rows.ids, _keys(rows.table, self._key), json_lines(rows.table), strict=True)
        for row_id, key, line in messages:
            headers: dict[str, str | bytes | None] = {"braid-id": f"{self._delivery}-{row_id}".encode()}
            while True:
                try:
                    producer.produce(self._topic, line[:-1], key, headers=headers, on_delivery=note)
                    break
                except BufferError:
                    if producer.poll(TIMEOUT_SECONDS) == 0:
                        raise
            producer.poll(0)
        left = producer.flush(TIMEOUT_SECONDS)
        if failed:
            raise KafkaException(failed[0])
        if left:
            where = self._brokers.where
            raise SinkDown(f"Brokers {where!r} must take messages within {TIMEOUT_SECONDS:g} s; {left} are left.")


def _keys(table: pa.Table, names: tuple[str, ...]) -> list[bytes | None]:
    if not names:
        return [None] * len(table)
    return [orjson.dumps(each) for each in objects(table.select(list(names)))]


def _properties(options: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
