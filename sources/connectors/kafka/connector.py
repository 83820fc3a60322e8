"""The ``kafka`` connector: reads a topic partition by partition, at the offsets that Spark's log has.

The planner asks which offsets there are, in a thread; source tasks read ranges of them with a consumer that they keep.
Nothing is committed to the brokers: where a stream has got to stands in the record of each batch. Where it begins is
written down when its topic is first seen, so that a restart begins there again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from braid.sources.connectors.connector import Chunk, Malformed
from braid.sources.connectors.kafka.formats import OPTIONS, format_of
from braid.sources.connectors.kafka.metadata import MetadataColumns, check_metadata
from braid.sources.connectors.kafka.options import ON_GAP, SKIP, KafkaOptions, check_confined, read_options
from braid.sources.connectors.kafka.topic import QUIET, Topic
from braid.sources.connectors.offset_watch import OffsetWatch, WatchedConnector
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import Gone, NotReady
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage

PATIENCE_SECONDS = 5.0  # how long a read waits for the next messages before it gives up
ASK_EVERY_SECONDS = 0.02
POLL_SECONDS = 0.1
MESSAGES_AT_ONCE = 50_000
PORTION_BYTES = 256 << 20
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_LASTING = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def validate_options(
    schema: StreamSchema, format: str, options: Mapping[str, str], confinement: Confinement = OPEN
) -> KafkaOptions:
    """Return the options; NotAllowed says what is supported instead. Whether the topic is there is not asked."""
    parsed = read_options(options, OPTIONS.get(format, ()))
    check_confined(parsed.properties, confinement)
    check_metadata(schema)
    format_of(format, options, schema.of_values, confinement.outgoing)
    return parsed


class KafkaConnector(WatchedConnector):
    """The reading end of one topic; it connects when it is first used."""

    def __init__(
        self, definition: StreamDefinition, storage: Storage, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._stream = definition.name
        self._options = read_options(definition.options, OPTIONS.get(definition.format, ()))
        outgoing = Confinement.of(storage).outgoing
        self._format = format_of(definition.format, definition.options, definition.schema.of_values, outgoing)
        self._metadata = MetadataColumns(definition.schema, self._options.topic, self._format.show)
        self._patience = patience_seconds
        subject = f"Stream {self._stream!r} from {self._options.where}"
        self._topic = Topic(self._options, storage, f"streams/{origin_of(definition.id)}")
        self._watch = OffsetWatch(self._topic.extents, subject, (KafkaException,), _brief, ASK_EVERY_SECONDS)
        self._consumer: Any = None
        self._position: tuple[str, int] | None = None

    def bounds(self) -> Mapping[str, int] | None:
        """Return where each partition ends, once the stream is bounded and brokers have said where."""
        return self._topic.bounds

    def oldest(self) -> dict[str, int]:
        """Return the oldest message that the brokers keep of each partition."""
        return {str(number): offset for number, offset in self._topic.oldest.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield the messages with offsets in ``[start, end)``; missing ones were compacted, or control messages.

        Raises NotReady when none came for the connector's patience, or their schema is not known yet, and Gone when the
        brokers no longer have ``start``.
        """
        try:
            yield from self._chunks(partition, start, end)
        except Exception:
            self._forget()
            raise

    def _chunks(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        consumer = self._consumer_at(partition, start)
        position, waiting_since = start, time.monotonic()
        while position < end:
            messages = consumer.consume(min(MESSAGES_AT_ONCE, end - position), POLL_SECONDS)
            messages, reached = self._messages_before(messages, partition, position, end)
            for portion in self._portions(messages):
                yield self._chunk(portion, partition)
            if reached > position:
                position, waiting_since = reached, time.monotonic()
            elif time.monotonic() - waiting_since > self._patience:
                raise NotReady(
                    f"{self._source} must give messages {position} to {end} of partition {partition} to stream"
                    f" {self._stream!r}, and gave none for {self._patience:g} s. When its brokers are back the stream"
                    " goes on where it was; or drop the stream.",
                    stream=self._stream,
                )
        # where a message beyond the range was consumed already the next range must seek, or it would lack that one
        self._position = (partition, position) if position == end else None

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
                    **QUIET,
                    "group.id": f"braid-{self._stream}",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                }
            )
        if self._position != (partition, start):
            self._consumer.assign([TopicPartition(self._options.topic, int(partition), start)])
        self._position = None
        return self._consumer

    def _messages_before(
        self, messages: Sequence[Message], partition: str, position: int, end: int
    ) -> tuple[list[Message], int]:
        """Return the messages before ``end``, and up to where the consumer is: beyond it where offsets are missing."""
        accepted = []
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                if position <= (offset or 0) < end:
                    accepted.append(message)
                position = max(position, (offset or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                if message.partition() == int(partition):
                    position = max(position, offset or 0)
            elif error.code() in _GONE:
                raise self._gone(partition, position)
            elif error.code() in _LASTING or error.fatal():
                raise NotReady(f"{self._source} cannot be read: {error.str()}.", stream=self._stream)
        return accepted, position

    def _gone(self, partition: str, position: int) -> Gone:
        return Gone(
            f"{self._source} must keep messages until they were read: stream {self._stream!r} goes on at offset"
            f" {position} of partition {partition}, which the brokers no longer have. Lengthen the topic's retention,"
            f" drop the stream and create it again; with {ON_GAP} = {SKIP!r} it goes on at the oldest message kept.",
            stream=self._stream,
        )

    def _forget(self) -> None:
        """Let go of a consumer that is of no use any more."""
        consumer, self._consumer, self._position = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _portions(self, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
        """Yield messages in portions that take about PORTION_BYTES once they are decoded, or have a message each."""
        first = size = 0
        for number, message in enumerate(messages):
            of_message = self._format.size(message.value())
            if number > first and size + of_message > PORTION_BYTES:
                yield messages[first:number]
                first, size = number, 0
            size += of_message
        if messages:
            yield messages[first:]

    def _chunk(self, messages: Sequence[Message], partition: str) -> Chunk:
        values: list[bytes | None] = [message.value() for message in messages]
        decoded = self._metadata.attach(self._format.decode(values), messages)
        malformed = tuple(
            Malformed(
                f"partition {partition}, offset {messages[line - 1].offset()}{detail.removeprefix(f'line {line}')}", raw
            )
            for line, detail, raw in decoded.malformed
        )
        size = sum(len(value) for value in values if value is not None)
        return Chunk(decoded.tuples, malformed, time.time_ns() // 1000, size)


def _brief(problem: BaseException) -> str:
    """Return what went wrong without the client's codes."""
    error = problem.args[0] if isinstance(problem, KafkaException) and problem.args else problem
    if not isinstance(error, KafkaError):
        return str(error) or type(problem).__name__
    text: str = error.str()
    if error.code() in _NO_ANSWER:
        return f"no broker answers there ({text}); start one, or create the stream with the brokers' addresses"
    return text
