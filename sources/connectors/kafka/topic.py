"""What the brokers say of a topic, and where the stream begins in it.

Which topic it is, and where a stream that does not begin at the beginning does, is written down when the brokers first
answer. A topic that is deleted and created anew under its name is another one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]

from braid.sources.connectors.connector import Extent, GappedExtent
from braid.sources.connectors.kafka.options import EARLIEST, LATEST, SPECIFIC, TIMESTAMP, UNBOUNDED, KafkaOptions
from braid.sources.core.errors import NotReady
from braid.sources.core.storage import Storage

ANSWER_SECONDS = 2.0  # how long brokers may take to say which offsets they have
LOOK_EVERY_SECONDS = 1.0  # how soon new partitions, and another topic of the name, are seen
QUIET = {"log_level": 0, "log.connection.close": False}
OffsetSpec: Any = _OffsetSpec  # the package does not say its types
UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NO_ID = "A" * 22  # what brokers without ids of topics say, zero in base 64


class Topic:
    """Asks the brokers; ``folder`` keeps which topic it is, and where the stream begins."""

    def __init__(self, options: KafkaOptions, storage: Storage, folder: str) -> None:
        self._options = options
        self._storage = storage
        self._begins_path = f"{folder}/start.json"
        self._id_path = f"{folder}/topic.json"
        self._client: Any = None
        self._partitions: list[int] = []
        self._look_again_at = 0.0
        self._ends: Mapping[int, int] = {}
        self._id: str | None = None
        self._bounds_path = f"{folder}/bounds.json"
        self.bounds: dict[str, int] | None = None
        """Where each partition of a bounded stream ends, once that is known."""
        self._begins: dict[str, int] | None = None
        self.oldest: Mapping[int, int] = {}
        """The oldest message that the brokers keep of each partition, as they last said."""

    def extents(self) -> dict[str, Extent]:
        """Return the offsets of each partition that can be read; KafkaException or NotReady when brokers do not say."""
        if self._client is None:
            self._client = AdminClient({**self._options.client(), **QUIET})
        if time.monotonic() >= self._look_again_at:
            self._look()
        oldest, ends = self._offsets(OffsetSpec.earliest()), self._offsets(OffsetSpec.latest())
        if any(ends[number] < self._ends.get(number, 0) for number in ends):
            self._look()
        self._ends, self.oldest = ends, oldest
        begins = self._where_to_begin(oldest, ends)
        bounds = self._where_to_end(ends)
        extents: dict[str, Extent] = {}
        for number in self._partitions:
            start = begins.get(str(number), oldest[number])
            end = ends[number] if bounds is None else min(ends[number], bounds.get(str(number), 0))
            start = min(start, end) if bounds is not None else start
            if self._options.skips_gaps:
                extents[str(number)] = GappedExtent(start, end, min(oldest[number], end))
            else:
                extents[str(number)] = Extent(start, end)
        return extents

    def _look(self) -> None:
        """Find out which partitions there are, and whether it is still the same topic."""
        topics = TopicCollection([self._options.topic])
        (answer,) = self._client.describe_topics(topics, request_timeout=ANSWER_SECONDS).values()
        try:
            description = answer.result()
        except KafkaException as problem:
            if problem.args[0].code() not in UNKNOWN_TOPIC:
                raise
            if self._options.mode == LATEST and not self._storage.exists(self._begins_path):
                self._begin({})  # all that the topic will have is later than the stream
            raise NotReady("The brokers must have the topic, and do not know it; create it.") from problem
        self._check_id(str(description.topic_id))
        self._partitions = sorted(partition.id for partition in description.partitions)
        self._look_again_at = time.monotonic() + LOOK_EVERY_SECONDS

    def _check_id(self, topic_id: str) -> None:
        if topic_id.rstrip("=") == _NO_ID:
            return
        if self._id is None and self._storage.exists(self._id_path):
            self._id = self._storage.get_json(self._id_path)["id"]
        if self._id is None:
            self._storage.put(self._id_path, orjson.dumps({"id": topic_id}))
            self._id = topic_id
        if topic_id != self._id:
            self._look_again_at = 0.0
            raise NotReady(
                f"The topic must be the one that the stream began with, whose id is {self._id}; it was deleted and"
                f" created anew since, with the id {topic_id}. Drop the stream and create it again."
            )

    def _offsets(self, spec: Any) -> dict[int, int]:
        answers = self._client.list_offsets(
            {TopicPartition(self._options.topic, number): spec for number in self._partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        offsets = {partition.partition: answer.result().offset for partition, answer in answers.items()}
        if OFFSET_INVALID in offsets.values():  # what the client gives when time is up
            raise NotReady(f"The brokers must say which offsets they have, and did not within {ANSWER_SECONDS:g} s.")
        return offsets

    def _where_to_begin(self, oldest: Mapping[int, int], ends: Mapping[int, int]) -> Mapping[str, int]:
        """Return where each partition begins that was there when the topic was first seen.

        Others begin at the oldest message that they have then.
        """
        if self._options.mode == EARLIEST:
            return {}
        if self._begins is None and self._storage.exists(self._begins_path):
            self._begins = self._storage.get_json(self._begins_path)
        if self._begins is None:
            offsets = dict(ends)
            if self._options.mode == SPECIFIC:
                offsets = {**oldest, **self._specific_offsets(ends)}
            elif self._options.mode != LATEST:
                since = self._offsets(OffsetSpec.for_timestamp(self._options.timestamp_ms or 0))
                offsets = {number: ends[number] if offset < 0 else offset for number, offset in since.items()}
            self._begin({str(number): offset for number, offset in offsets.items()})
        return self._begins or {}

    def _where_to_end(self, ends: Mapping[int, int]) -> Mapping[str, int] | None:
        """Return the offset that each partition is read up to, None for a stream without bounds.

        It is found out when the topic is first seen, and written down.
        """
        if self._options.bounded == UNBOUNDED:
            return None
        if self.bounds is None and self._storage.exists(self._bounds_path):
            self.bounds = self._storage.get_json(self._bounds_path)
        if self.bounds is None:
            bounds = dict(ends)
            if self._options.bounded == SPECIFIC:
                bounds = dict(self._options.bounded_offsets)
            elif self._options.bounded == TIMESTAMP:
                upto = self._offsets(OffsetSpec.for_timestamp(self._options.bounded_ms or 0))
                bounds = {number: ends[number] if offset < 0 else offset for number, offset in upto.items()}
            self.bounds = {str(number): offset for number, offset in bounds.items()}
            self._storage.put(self._bounds_path, orjson.dumps(self.bounds))
        return self.bounds

    def _begin(self, begins: dict[str, int]) -> None:
        self._storage.put(self._begins_path, orjson.dumps(begins))
        self._begins = begins

    def _specific_offsets(self, ends: Mapping[int, int]) -> Mapping[int, int]:
        """Return the offsets of the statement; NotReady when the topic does not have one yet."""
        for number, offset in self._options.offsets.items():
            if offset > ends.get(number, -1):
                state = f"which ends at {ends[number]}" if number in ends else "which is not there"
                raise NotReady(
                    f"Option 'scan.startup.specific-offsets' must name offsets that the topic has; it names offset"
                    f" {offset} of partition {number}, {state}."
                )
        return self._options.offsets
