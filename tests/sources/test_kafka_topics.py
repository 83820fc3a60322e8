"""The Kafka connector on Apache Kafka: transactions, compaction, retention, where it begins, topics created anew."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer

from braid.sources.connectors.connector import Extent
from braid.sources.connectors.kafka.connector import KafkaConnector
from braid.sources.core.errors import Gone
from braid.sources.core.storage import Storage
from tests.kit.kafka import Topics
from tests.kit.waiting import wait_until
from tests.sources.kafka_topics import EARLIEST, definition_of, ends, keys, message, problem_of


@pytest.fixture
def transactions(topics: Topics) -> Iterator[Producer]:
    producer = Producer(
        {"bootstrap.servers": topics.servers, "transactional.id": uuid.uuid4().hex, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(30)
    yield producer
    producer.abort_transaction(30)


def source_of(topics: Topics, topic: str, storage: Storage, **options: str) -> KafkaConnector:
    return KafkaConnector(definition_of(topics.servers, topic, **options), storage)


def test_all_partitions_are_read_exactly(topics: Topics, storage: Storage) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.produce(topic, map(message, range(1000 * partition, 1000 * partition + 700 + partition)), partition)
    source = source_of(topics, topic, storage, **EARLIEST)
    extents = ends(source, {"0": 700, "1": 701, "2": 702})
    assert {name: extent.start for name, extent in extents.items()} == {"0": 0, "1": 0, "2": 0}
    for name, extent in extents.items():
        first = 1000 * int(name)
        cuts = [0, 1, 350, 351, extent.end]
        keys_read = [keys(source, name, low, high) for low, high in pairwise(cuts)]
        assert [key for part in keys_read for key in part] == list(range(first, first + extent.end))


def test_messages_of_transactions_are_read_once_these_are_committed(
    topics: Topics, storage: Storage, transactions: Producer
) -> None:
    topic = topics.create()

    def produce(*numbers: int) -> None:
        for number in numbers:
            transactions.produce(topic, message(number), partition=0)
        assert transactions.flush(30) == 0

    transactions.begin_transaction()
    produce(0, 1)
    transactions.commit_transaction(30)  # offset 2 is its control record
    transactions.begin_transaction()
    produce(10, 11, 12)
    transactions.abort_transaction(30)  # and so is offset 6
    topics.produce(topic, map(message, [2]))
    transactions.begin_transaction()
    produce(3)
    source = source_of(topics, topic, storage, **EARLIEST)
    ends(source, {"0": 8})  # not beyond the open transaction
    assert keys(source, "0", 0, 8) == [0, 1, 2]
    assert [keys(source, "0", low, low + 1) for low in range(8)] == [[0], [1], [], [], [], [], [], [2]]
    assert keys(source, "0", 3, 7) == []  # what was aborted, and its control record, are no tuples
    transactions.commit_transaction(30)
    ends(source, {"0": 10})  # the last offset is a control record
    assert keys(source, "0", 8, 10) == [3]
    transactions.begin_transaction()
    produce(13)
    transactions.abort_transaction(30)
    ends(source, {"0": 12})
    assert keys(source, "0", 9, 12) == []
    transactions.begin_transaction()


def test_a_compacted_topic_has_what_is_left(topics: Topics, storage: Storage) -> None:
    topic = topics.create(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
    )
    topics.produce(topic, map(message, range(50)), key=b"same")

    def is_compacted() -> bool:
        topics.produce(topic, map(message, [100]), key=b"other")  # a full segment makes way for another one
        return keys(KafkaConnector(definition, storage), "0", 0, 50) in ([], [49])

    definition = definition_of(topics.servers, topic, **EARLIEST)
    wait_until(is_compacted, 60, "the topic is compacted")
    source = source_of(topics, topic, storage, **EARLIEST)
    end = wait_until(lambda: source.available(0), 30, "the offsets are known")["0"].end  # type: ignore[index]
    assert [key for low in range(0, end, 7) for key in keys(source, "0", low, min(low + 7, end))][-1] == 100


def test_where_a_stream_begins(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    start_ms = 1_700_000_000_000
    for number in range(5):
        topics.produce(topic, map(message, [number]), 0, timestamp=start_ms + 1000 * number)
    topics.produce(topic, map(message, range(3)), 1, timestamp=start_ms)

    def begins(**options: str) -> dict[str, int]:
        source = source_of(topics, topic, Storage(str(tmp_path / uuid.uuid4().hex)), **options)
        return {name: extent.start for name, extent in ends(source, {"0": 5, "1": 3}).items()}

    def mode(name: str) -> dict[str, str]:
        return {"scan.startup.mode": name}

    assert begins(**mode("earliest-offset")) == {"0": 0, "1": 0}
    assert begins(**mode("latest-offset")) == begins() == {"0": 5, "1": 3}
    since = {"scan.startup.timestamp-millis": str(start_ms + 1500)}
    assert begins(**mode("timestamp"), **since) == {"0": 2, "1": 3}
    both_offsets = {"scan.startup.specific-offsets": "partition:0,offset:4; partition:1,offset:3;"}
    assert begins(**mode("specific-offsets"), **both_offsets) == {"0": 4, "1": 3}
    one_offset = {"scan.startup.specific-offsets": "partition:1,offset:2"}
    assert begins(**mode("specific-offsets"), **one_offset) == {"0": 0, "1": 2}


def test_given_offsets_that_are_not_there_yet_are_waited_for(topics: Topics, storage: Storage) -> None:
    topic = topics.create()
    topics.produce(topic, map(message, range(3)))
    options = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:5"}
    source = source_of(topics, topic, storage, **options)
    assert "names offset 5 of partition 0, which ends at 3" in problem_of(source)
    topics.produce(topic, map(message, range(3, 6)))
    assert ends(source, {"0": 6}) == {"0": Extent(5, 6)}
    beyond = {**options, "scan.startup.specific-offsets": "partition:7,offset:0"}
    source = source_of(topics, topic, Storage(storage.uri + "/other"), **beyond)
    assert "partition 7, which is not there" in problem_of(source)


def test_what_retention_dropped_is_an_error_or_skipped(topics: Topics, storage: Storage) -> None:
    topic = topics.create()
    topics.produce(topic, map(message, range(10)))
    failing = source_of(topics, topic, storage, **EARLIEST)
    skipping = source_of(topics, topic, storage, **EARLIEST, on_gap="skip")
    assert ends(failing, {"0": 10}) == ends(skipping, {"0": 10}) == {"0": Extent(0, 10)}
    topics.delete_before(topic, 6)

    def oldest() -> int:
        return skipping.available(0)["0"].skip_to

    wait_until(lambda: oldest() == 6, 30, "the oldest offset is seen")
    assert failing.available(0)["0"].skip_to == 0
    with pytest.raises(Gone, match=r"goes on at offset 0 of partition 0.*on_gap = 'skip'"):
        list(failing.read("0", 0, 10))
    assert keys(skipping, "0", 6, 10) == [6, 7, 8, 9]


def test_a_topic_that_is_created_anew_is_another_one(topics: Topics, storage: Storage) -> None:
    topic = topics.create()
    topics.produce(topic, map(message, range(5)))
    source = source_of(topics, topic, storage, **EARLIEST)
    ends(source, {"0": 5})
    topics.delete(topic)
    topics.create(name=topic)
    topics.produce(topic, map(message, range(100, 120)))  # more than there was: offsets alone do not tell
    again = source_of(topics, topic, storage, **EARLIEST)
    assert "deleted and created anew" in problem_of(again)  # also after a restart
    wait_until(lambda: not source.available(0), 30, "nothing is available of another topic")
    assert "deleted and created anew" in problem_of(source)
