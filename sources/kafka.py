"""The ``kafka`` connector: reads a topic partition by partition, at the offsets that Spark's log has.

The planner asks which offsets there are, in a thread; source tasks read ranges of them with a consumer that they keep.
Nothing is committed to the brokers: where a stream has got to stands in the record of each batch. Where it begins is
written down when its topic is first seen, so that a restart begins there again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]

from sources.connector import Chunk, Extent, Malformed
from sources.errors import Gone, NotReady
from sources.formats.messages import decode_json_messages
from sources.kafka_options import EARLIEST, LATEST, KafkaOptions, read_options
from sources.offset_watch import OffsetWatch, WatchedConnector
from sources.schema import StreamDefinition, StreamSchema
from sources.storage import Storage

PATIENCE_SECONDS = 5.0  # how long a read waits for the next messages before it gives up
ANSWER_SECONDS = 2.0  # how long brokers may take to say which offsets they have
ASK_EVERY_SECONDS = 0.02
PARTITIONS_EVERY_SECONDS = 5.0  # how soon new partitions are seen
POLL_SECONDS = 0.1
MESSAGES_AT_ONCE = 50_000
OffsetSpec: Any = _OffsetSpec  # the package does not say its types
_QUIET = {"log_level": 0, "log.connection.close": False}
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_LASTING = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def validate_options(name: str, schema: StreamSchema, options: Mapping[str, str]) -> KafkaOptions:  # noqa: ARG001
    """Return the options; NotAllowed tells what exists instead. Whether the topic is there is not asked."""
    return read_options(options)


class KafkaConnector(WatchedConnector):
    """The reading end of one topic; it connects when it is first used."""

    def __init__(
        self, definition: StreamDefinition, storage: Storage, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._stream = definition.name
        self._schema = definition.schema
        self._options = read_options(definition.options)
        self._patience = patience_seconds
        subject = f"Stream {self._stream!r} from {self._options.where}"
        self._topic = _Topic(self._options, storage, f"streams/{definition.id}/start.json")
        self._watch = OffsetWatch(self._topic.extents, subject, (KafkaException,), _brief, ASK_EVERY_SECONDS)
        self._consumer: Any = None
        self._at: tuple[str, int] | None = None

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield the messages with offsets in ``[start, end)``; what a topic lacks of them was compacted or control.

        Raises NotReady when none came for the connector's patience, and Gone when the brokers no longer have ``start``.
        """
        consumer = self._consumer_at(partition, start)
        position, waiting_since = start, time.monotonic()
        while position < end:
            messages = consumer.consume(min(MESSAGES_AT_ONCE, end - position), POLL_SECONDS)
            found, reached = self._taken(messages, partition, position, end)
            if found:
                yield self._chunk(found, partition)
            if reached > position:
                position, waiting_since = reached, time.monotonic()
            elif time.monotonic() - waiting_since > self._patience:
                self._forget()
                raise NotReady(
                    f"{self._source} must give messages {position} to {end} of partition {partition} to stream"
                    f" {self._stream!r}, and gave none for {self._patience:g} s. When its brokers are back the stream"
                    " goes on where it was; or drop the stream.",
                    stream=self._stream,
                )
        self._at = (partition, position) if position == end else None

    @property
    def _source(self) -> str:
        return f"The Kafka {self._options.where}"

    def _consumer_at(self, partition: str, start: int) -> Any:
        """Return a consumer that gives ``start`` next; where it stopped reading, it has the next messages already."""
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "fetch.wait.max.ms": 10,
                    "fetch.queue.backoff.ms": 10,  # else a second passes before the next range is fetched
                    **self._options.client(),
                    **_QUIET,
                    "group.id": f"braid-{self._stream}",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                }
            )
        if self._at != (partition, start):
            self._consumer.assign([TopicPartition(self._options.topic, int(partition), start)])
        self._at = None
        return self._consumer

    def _taken(self, messages: Sequence[Message], partition: str, position: int, end: int) -> tuple[list[Message], int]:
        """Return the messages before ``end``, and up to where all offsets are known."""
        found = []
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                if position <= (offset or 0) < end:
                    found.append(message)
                position = max(position, (offset or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                if message.partition() == int(partition):
                    position = max(position, offset or 0)
            elif error.code() in _GONE:
                raise self._gone(partition, position)
            elif error.code() in _LASTING or error.fatal():
                self._forget()
                raise NotReady(f"{self._source} cannot be read: {error.str()}.", stream=self._stream)
        return found, min(position, end)

    def _gone(self, partition: str, position: int) -> Gone:
        self._forget()
        return Gone(
            f"{self._source} must keep messages until they were read: stream {self._stream!r} goes on at offset"
            f" {position} of partition {partition}, which the brokers no longer have. Lengthen the topic's retention,"
            " drop the stream and create it again.",
            stream=self._stream,
        )

    def _forget(self) -> None:
        """Let go of a consumer that is of no use any more."""
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _chunk(self, messages: Sequence[Message], partition: str) -> Chunk:
        values: list[bytes | None] = [message.value() for message in messages]
        decoded = decode_json_messages(values, self._schema)
        malformed = tuple(
            Malformed(
                f"partition {partition}, offset {messages[line - 1].offset()}{detail.removeprefix(f'line {line}')}", raw
            )
            for line, detail, raw in decoded.malformed
        )
        size = sum(len(value) for value in values if value is not None)
        return Chunk(decoded.tuples, malformed, time.time_ns() // 1000, size)


class _Topic:
    """What the brokers say of a topic, and where the stream begins in it."""

    def __init__(self, options: KafkaOptions, storage: Storage, path: str) -> None:
        self._options = options
        self._storage = storage
        self._path = path
        self._client: Any = None
        self._partitions: list[int] = []
        self._look_again_at = 0.0
        self._begins: dict[str, int] | None = None

    def extents(self) -> dict[str, Extent]:
        """Return the offsets of each partition that can be read; KafkaException or NotReady when nobody says."""
        if self._client is None:
            self._client = AdminClient({**self._options.client(), **_QUIET})
        if time.monotonic() >= self._look_again_at:
            self._partitions = self._known_partitions()
            self._look_again_at = time.monotonic() + PARTITIONS_EVERY_SECONDS
        first, last = self._offsets(OffsetSpec.earliest()), self._offsets(OffsetSpec.latest())
        begins = self._where_to_begin(last)
        return {
            str(number): Extent(max(first[number], begins.get(str(number), 0)), last[number])
            for number in self._partitions
            if begins.get(str(number), 0) <= last[number]
        }

    def _known_partitions(self) -> list[int]:
        found = self._client.list_topics(self._options.topic, timeout=ANSWER_SECONDS).topics[self._options.topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _offsets(self, asked: Any) -> dict[int, int]:
        answers = self._client.list_offsets(
            {TopicPartition(self._options.topic, number): asked for number in self._partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        found = {place.partition: answer.result().offset for place, answer in answers.items()}
        if OFFSET_INVALID in found.values():  # what it says when time is up
            raise NotReady(f"The brokers must say which offsets they have, and did not within {ANSWER_SECONDS:g} s.")
        return found

    def _where_to_begin(self, last: Mapping[int, int]) -> Mapping[str, int]:
        """Return where each partition begins that was there when the topic was first seen; others begin at 0."""
        if self._options.mode == EARLIEST:
            return {}
        if self._begins is None and self._storage.exists(self._path):
            self._begins = orjson.loads(self._storage.get(self._path))
        if self._begins is None:
            found = dict(last)
            if self._options.mode != LATEST:
                since = self._offsets(OffsetSpec.for_timestamp(self._options.timestamp_ms or 0))
                found = {number: last[number] if offset < 0 else offset for number, offset in since.items()}
            begins = {str(number): offset for number, offset in found.items()}
            self._storage.put(self._path, orjson.dumps(begins))
            self._begins = begins
        return self._begins


def _brief(problem: BaseException) -> str:
    """Return what went wrong without the client's codes."""
    error = problem.args[0] if isinstance(problem, KafkaException) and problem.args else problem
    return (error.str() if isinstance(error, KafkaError) else str(error)) or type(problem).__name__
