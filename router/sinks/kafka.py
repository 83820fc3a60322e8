"""Rows as JSON messages of a Kafka topic; options are named as in Flink SQL.

Each message has the header ``braid-id``, which tells rows apart that come again. With ``sink.delivery-guarantee`` =
``exactly-once`` the rows of a write and the cursor after them are one transaction: the cursor is the metadata of an
offset that is committed for a consumer group of the query. Those who read with ``isolation.level`` =
``read_committed`` get every row once.

A producer is shared by the queries of a destination: what is begun for a page that fails is undone, so that the next
one finds it as it was.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from braid.operators.queries import Query
from braid.operators.result_rows import schema_of
from braid.router.row_text import json_lines, objects
from braid.router.sinks.options import check_options, choice, columns
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, SinkDown, SinkRefused, SinkRows, Subject
from braid.sources.connectors.kafka.options import (
    PREFIX,
    SERVERS,
    TOPIC_RULE,
    check_confined,
    check_properties,
    is_topic,
    reveal_properties,
)
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.secret import hide, is_reference

NAME = "kafka"
FLUSH_ROWS, FLUSH_SECONDS = 10_000, 0.0
GUARANTEE = "sink.delivery-guarantee"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
TIMEOUT_SECONDS = 20.0
TRANSACTION_SECONDS = 60.0
TOPIC_SECONDS = 1.0
"""How long a topic that is not there may take to be, where brokers create it when they are asked for it."""
MESSAGE_BYTES = 1_000_000
"""The largest message that the client sends (``message.max.bytes``), with all that is around its value."""
_AROUND_BYTES = 100
_FOR_READING = ("fetch.", "max.partition.fetch.")
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError._INVALID_ARG,
)
_ROWS_REFUSED = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD)
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NOT_YET = (KafkaError.LEADER_NOT_AVAILABLE,)


def validate(options: Mapping[str, str], query: Query, confinement: Confinement) -> None:
    """Check what a query says of its topic."""
    known = ("key.fields", GUARANTEE, "format", f"{PREFIX}*")
    check_options(NAME, options, ("topic", f"{PREFIX}{SERVERS}"), known)
    if not is_topic(options["topic"]):
        raise NotAllowed(f"Option 'topic' of sink {NAME!r} must be {TOPIC_RULE}; got {options['topic'][:300]!r}.")
    choice(NAME, options, GUARANTEE, (AT_LEAST_ONCE, EXACTLY_ONCE))
    choice(NAME, options, "format", ("json",))
    columns(NAME, options, "key.fields", tuple(schema_of(query).names))
    properties = _properties(options)
    check_properties(properties)
    check_confined(properties, confinement)
    for name in properties:
        if name.startswith(_FOR_READING):
            raise NotAllowed(f"Option '{PREFIX}{name}' is for reading; a sink must be without it.")


def destination(options: Mapping[str, str]) -> str:
    """Return the brokers and all that is said to the client."""
    identity = {**_properties(options), GUARANTEE: options.get(GUARANTEE, AT_LEAST_ONCE)}
    return orjson.dumps(identity, option=orjson.OPT_SORT_KEYS).decode()


def connect(options: Mapping[str, str], deliverer: DelivererIdentity) -> Brokers:
    """Return the brokers; a transaction that an earlier process left open is aborted."""
    unrevealed = _properties(options)
    properties = reveal_properties(unrevealed)
    secrets = tuple(properties[name] for name, value in unrevealed.items() if is_reference(value))
    if options.get(GUARANTEE) != EXACTLY_ONCE:
        return Brokers(properties, None, secrets)
    return Brokers(properties, f"braid-{deliverer.name}-{zlib.crc32(destination(options).encode()):08x}", secrets)


class Brokers:
    """A producer; with ``transactional_id`` all it sends is in transactions. ``secrets`` never stand in an error."""

    def __init__(
        self, properties: Mapping[str, str], transactional_id: str | None, secrets: tuple[str, ...] = ()
    ) -> None:
        self._secrets = secrets
        self.properties = properties
        self.is_transactional = transactional_id is not None
        self.where = properties[SERVERS]
        settings: dict[str, Any] = {
            "linger.ms": 5,
            "log_level": 0,
            **properties,
            "enable.idempotence": True,
            "message.timeout.ms": int(TIMEOUT_SECONDS * 1000),
            "message.max.bytes": MESSAGE_BYTES,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = int(TRANSACTION_SECONDS * 1000)
        self._settings = settings
        self.producer = self._connect()

    def _connect(self) -> Producer:
        """Return a producer; a transaction that another one with the same id left open is aborted."""
        try:
            producer = Producer(self._settings)
            if self.is_transactional:
                producer.init_transactions(TIMEOUT_SECONDS)
            return producer
        except (KafkaException, ValueError, TypeError) as problem:
            raise self.failure(problem) from None

    def open(self, subject: Subject, options: Mapping[str, str]) -> KafkaSink:
        """Return the sink of a query; its topic must be there, or brokers make it now."""
        self._check_topic(options["topic"])
        key = columns(NAME, options, "key.fields", tuple(subject.schema.names))
        return KafkaSink(self, options["topic"], key, subject.delivery_id)

    def close(self) -> None:
        """Let go of what was not sent."""
        self.producer.purge()

    def begin(self) -> None:
        """Begin the transaction that a page is sent in, if it is sent in one."""
        if self.is_transactional:
            self.producer.begin_transaction()

    def give_up(self) -> None:
        """Undo what was begun, and forget what was not sent. Raises SinkDown.

        The producer is replaced: it would purge messages of the next page, too.
        """
        try:
            if self.is_transactional:
                self.producer.abort_transaction(TIMEOUT_SECONDS)
            else:
                self.producer.purge(in_queue=True, in_flight=False)
                self.producer.flush(TIMEOUT_SECONDS)
            self.producer = self._connect()
        except (KafkaException, SinkRefused) as problem:
            raise SinkDown(f"Brokers {self.where!r} must take up anew, but: {self.failure(problem)}") from None

    def failure(self, problem: Exception) -> SinkDown | SinkRefused:
        """Return what an error of the client means; a client that cannot go on is down, whatever made it so."""
        error = problem.args[0] if problem.args else None
        if not isinstance(error, KafkaError):
            return SinkDown(hide(f"Brokers {self.where!r}: {problem}.", self._secrets))
        text = hide(f"Brokers {self.where!r}: {error.str()}.", self._secrets)
        if error.fatal() or error.code() not in _REFUSED:
            return SinkDown(text)
        return RowsRefused(text) if error.code() in _ROWS_REFUSED else SinkRefused(text)

    def _check_topic(self, topic: str) -> None:
        """Raise SinkRefused for a topic that cannot be written, SinkDown when no broker answers."""
        deadline = time.monotonic() + TOPIC_SECONDS
        while True:
            try:
                error = self.producer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].error
            except KafkaException as problem:
                raise self.failure(problem) from None
            if error is None or error.code() in _NOT_YET:
                return
            if error.code() not in _NO_TOPIC or time.monotonic() > deadline:
                failure = self.failure(KafkaException(error))
                raise type(failure)(f"{failure} The topic is {topic!r}.")
            self.producer.poll(TOPIC_SECONDS / 10)


@dataclass(frozen=True)
class Message:
    """A row as it is sent."""

    row_id: str
    key: bytes | None
    value: bytes

    def __post_init__(self) -> None:
        size = len(self.value) + len(self.key or b"") + len(self.row_id) + _AROUND_BYTES
        if size > MESSAGE_BYTES:
            raise RowsRefused(f"A message must have at most {MESSAGE_BYTES} bytes; row {self.row_id} has {size}.")


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
                committed = consumer.committed([TopicPartition(self._topic, 0)], TIMEOUT_SECONDS)[0]
            finally:
                consumer.close()
        except (KafkaException, ValueError) as problem:
            raise self._brokers.failure(problem) from None
        if committed.offset < 0:
            return None
        if not committed.metadata:
            raise SinkRefused(
                f"Brokers must keep the metadata of offsets for {GUARANTEE} = {EXACTLY_ONCE!r}; these do not."
            )
        cursor: str = committed.metadata
        return cursor

    def write(self, rows: SinkRows) -> None:
        """Send rows, and wait until brokers have them; in a transaction with the cursor, if there are any."""
        brokers, messages = self._brokers, self._messages(rows)
        try:
            brokers.begin()
            self._send(messages)
            if self.keeps_cursor:
                offset = TopicPartition(self._topic, 0, rows.runs[-1][0], rows.cursor)
                brokers.producer.send_offsets_to_transaction([offset], self._group, TIMEOUT_SECONDS)
                brokers.producer.commit_transaction(TIMEOUT_SECONDS)
        except (KafkaException, BufferError) as problem:
            failure = brokers.failure(problem)
            if isinstance(failure, SinkRefused):
                brokers.give_up()
            raise failure from None

    def _messages(self, rows: SinkRows) -> list[Message]:
        """Return rows as messages; RowsRefused for one that is too large, before any is sent."""
        parts = zip(rows.ids, _keys(rows.table, self._key), json_lines(rows.table), strict=True)
        return [Message(f"{self._delivery}-{row_id}", key, line[:-1]) for row_id, key, line in parts]

    def _send(self, messages: list[Message]) -> None:
        producer, failed = self._brokers.producer, []

        def note(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for message in messages:
            headers: dict[str, str | bytes | None] = {"braid-id": message.row_id.encode()}
            while True:
                try:
                    producer.produce(self._topic, message.value, message.key, headers=headers, on_delivery=note)
                    break
                except BufferError:
                    if producer.poll(TIMEOUT_SECONDS) == 0:
                        raise
            producer.poll(0)
        unsent = producer.flush(TIMEOUT_SECONDS)
        if failed:
            raise KafkaException(failed[0])
        if unsent:
            servers = self._brokers.where
            raise SinkDown(f"Brokers {servers!r} must take messages within {TIMEOUT_SECONDS:g} s; {unsent} are left.")


def _keys(table: pa.Table, names: tuple[str, ...]) -> list[bytes | None]:
    if not names:
        return [None] * len(table)
    return [orjson.dumps(key) for key in objects(table.select(list(names)))]


def _properties(options: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
