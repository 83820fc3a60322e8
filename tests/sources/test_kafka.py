"""The Kafka connector against a real broker: what is read, where it begins, and what happens when it misbehaves."""

from __future__ import annotations

import json
import os
import random
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.bench_driver.programs.kafka_broker import create_topic
from braid.sources.connectors.connector import Extent
from braid.sources.connectors.kafka.connector import KafkaConnector, validate_options
from braid.sources.connectors.kafka.options import read_offsets
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage
from tests.kit.kafka import GIVEN, Broker
from tests.kit.waiting import wait_until
from tests.sources.kafka_topics import EARLIEST, SCHEMA, definition_of, ends, keys, message, problem_of


def connector(broker: Broker, topic: str, storage: Storage, patience: float = 5.0, **options: str) -> KafkaConnector:
    return KafkaConnector(definition_of(broker.servers, topic, **options), storage, patience)


def test_any_range_reads_the_same_at_every_call(broker: Broker, storage: Storage) -> None:
    topic = broker.create_topic(2)
    broker.produce(topic, (message(number) for number in range(500)), 0)
    broker.produce(topic, (message(number) for number in range(1000, 1020)), 1)
    source = connector(broker, topic, storage, **EARLIEST)
    assert ends(source, {"0": 500, "1": 20}) == {"0": Extent(0, 500), "1": Extent(0, 20)}
    rng = random.Random(1)
    for _ in range(12):
        start = rng.randint(0, 500)
        end = rng.randint(start, 500)
        assert keys(source, "0", start, end) == list(range(start, end))
    assert keys(source, "1", 0, 20) == list(range(1000, 1020))
    assert keys(source, "0", 0, 100) + keys(source, "0", 100, 500) == list(range(500))
    broker.produce(topic, [message(500)], 0)
    ends(source, {"0": 501, "1": 20})
    assert keys(source, "0", 500, 501) == [500]


def test_messages_that_take_much_are_decoded_in_portions(
    broker: Broker, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [message(k) for k in range(20)])
    source = connector(broker, topic, storage, **EARLIEST)
    ends(source, {"0": 20})
    monkeypatch.setattr("braid.sources.connectors.kafka.connector.PORTION_BYTES", 3 * len(message(10)))
    chunks = list(source.read("0", 0, 20))
    assert max(chunk.tuples.num_rows for chunk in chunks) == 3
    assert [k for chunk in chunks for k in chunk.tuples.column("k").to_pylist()] == list(range(20))


def test_what_does_not_fit_is_malformed_and_says_where_it_is(broker: Broker, storage: Storage) -> None:
    topic = broker.create_topic()
    values = [
        message(0),
        b"{",
        None,
        b'{"k": "x", "t": "2026-01-01T00:00:00Z"}',
        b'{"k": 1, "s": "\xff"}',
        b'{\n"k": 7,\n"s": null, "t": "2026-01-01T00:00:01Z"}',
        b"   ",
        b"[1]",
        message(9),
    ]
    broker.produce(topic, values)
    source = connector(broker, topic, storage, **EARLIEST)
    ends(source, {"0": len(values)})
    (chunk,) = source.read("0", 0, len(values))
    assert chunk.tuples.column("k").to_pylist() == [0, 7, 9]
    assert chunk.bytes == sum(len(value) for value in values if value is not None)
    details = [fault.detail for fault in chunk.malformed]
    assert [detail.partition(" must")[0].partition(":")[0] for detail in details] == [
        f"partition 0, offset {number}" for number in (1, 2, 3, 4, 6, 7)
    ]
    assert "got no value" in details[1]
    assert "column 'k'" in details[2]
    assert "must be UTF-8" in details[3]
    assert [fault.raw for fault in chunk.malformed][:2] == ["{", ""]


def test_latest_begins_where_the_topic_was_first_seen_and_new_partitions_at_their_beginning(
    broker: Broker, storage: Storage
) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [message(0), message(1)])
    first = connector(broker, topic, storage)
    assert ends(first, {"0": 2}) == {"0": Extent(2, 2)}
    broker.produce(topic, [message(2)])
    again = connector(broker, topic, storage)
    assert ends(again, {"0": 3}) == {"0": Extent(2, 3)}
    assert keys(again, "0", 2, 3) == [2]
    assert json.loads(storage.get("streams/s-1/start.json")) == {"0": 2}


def test_a_topic_that_is_made_after_its_stream_is_read_from_its_beginning(broker: Broker, storage: Storage) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    assert "create it" in problem_of(connector(broker, topic, storage))
    create_topic(broker.servers, topic, 1)
    broker.produce(topic, [message(0), message(1)])
    again = connector(broker, topic, storage)
    assert ends(again, {"0": 2}) == {"0": Extent(0, 2)}
    assert keys(again, "0", 0, 2) == [0, 1]


@pytest.mark.parametrize(
    "servers",
    [
        "secret:kafka_servers",
        "h",
        "h:1",
        "h:1, g:65535",
        "[::1]:9092",
        "PLAINTEXT://h:9092",
        "SASL_SSL://b-1.example.org:9096",
    ],
)
def test_brokers_are_named_as_the_client_takes_them(servers: str) -> None:
    validate_options(SCHEMA, "json", {"topic": "t", "properties.bootstrap.servers": servers})


@pytest.mark.skipif(GIVEN in os.environ, reason="a broker that is not ours is not paused")
def test_a_broker_that_does_not_answer_is_waited_for_and_then_read_on(broker: Broker, storage: Storage) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [message(number) for number in range(3)])
    source = connector(broker, topic, storage, patience=0.5, **EARLIEST)
    ends(source, {"0": 3})
    with broker.paused():
        with pytest.raises(NotReady, match=r"readings.*gave none for 0\.5 s"):
            list(connector(broker, topic, storage, patience=0.5, **EARLIEST).read("0", 0, 3))
        wait_until(lambda: not source.available(0), 30, "nothing is available of a broker that does not answer")
        assert str(source.problem).startswith("Stream 'readings' from topic 't-")
    ends(source, {"0": 3})
    assert source.problem is None
    patient = connector(broker, topic, storage, **EARLIEST)
    assert keys(patient, "0", 0, 3) == [0, 1, 2]


def test_nothing_is_available_without_brokers(storage: Storage) -> None:
    definition = StreamDefinition(
        "s-1", "readings", SCHEMA, "kafka", "json", {"topic": "t", "properties.bootstrap.servers": "127.0.0.1:1"}
    )
    source = KafkaConnector(definition, storage)
    assert source.available(0) == {}
    assert "topic 't' at 127.0.0.1:1 gets nothing until this is settled: no broker answers there" in problem_of(source)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": ""}, "needs a topic"),
        ({"properties.bootstrap.servers": ""}, "'properties.bootstrap.servers' = 'HOST:PORT"),
        ({"topic": "bad topic/name"}, "up to 249 letters, digits, '.', '_' and '-'; got 'bad topic/name'"),
        ({"topic": ".."}, "up to 249 letters"),
        *(
            ({"properties.bootstrap.servers": servers}, "must be 'HOST:PORT', or several")
            for servers in ("http://h:1", "h:99999", "h:1,h:0", "h:1:2", "h 1", "h:port", "h/path:1")
        ),
        ({"brokers": "h:1"}, "has no option 'brokers'. It has 'topic'"),
        ({"properties.sasl.kerberos.kinit.cmd": "x"}, "properties.sasl.kerberos.kinit.cmd' is not supported"),
        ({"properties.sasl.password": "hunter2"}, "must be a reference"),
        ({"properties.sasl.username": "secret:../etc"}, "letters, digits"),
        (
            {"scan.startup.mode": "latest"},
            "'earliest-offset', 'latest-offset', 'timestamp', 'specific-offsets'; got 'latest'",
        ),
        ({"scan.startup.mode": "timestamp"}, "needs option 'scan.startup.timestamp-millis'"),
        ({"scan.startup.timestamp-millis": "5"}, "goes with no other mode"),
        (
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "-5"},
            "milliseconds since 1970; got '-5'",
        ),
        ({"scan.startup.mode": "specific-offsets"}, "'specific-offsets' needs option 'scan.startup.specific-offsets'"),
        ({"scan.startup.specific-offsets": "partition:0,offset:1"}, "goes with no other mode"),
        *(
            (
                {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": wrong},
                "must be like 'partition",
            )
            for wrong in (
                "",
                "0:1",
                "partition:0",
                "partition:0,offset:-1",
                "partition:0,offset:1;partition:0,offset:2",
            )
        ),
        ({"on_gap": "ignore"}, "'fail' or 'skip'; got 'ignore'"),
    ],
)
def test_wrong_options_say_what_exists(options: dict[str, str], says: str) -> None:
    all_options = {"topic": "t", "properties.bootstrap.servers": "h:1", **options}
    with pytest.raises(NotAllowed) as refused:
        validate_options(SCHEMA, "json", all_options)
    assert says in refused.value.detail
    assert "hunter2" not in refused.value.detail


@given(st.dictionaries(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1), min_size=1, max_size=5))
def test_given_offsets_are_read_as_written(offsets: dict[int, int]) -> None:
    text = ";".join(f"partition:{number},offset:{offset}" for number, offset in offsets.items())
    assert read_offsets(text) == offsets


@given(st.text("partionfse:,;0123456789 -", max_size=40))
def test_other_offsets_are_refused(text: str) -> None:
    with suppress(NotAllowed):
        offsets = read_offsets(text)
        assert offsets
        assert all(number >= 0 and offset >= 0 for number, offset in offsets.items())


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    all_options: dict[str, Any] = {
        "topic": "t",
        "properties.bootstrap.servers": "h:1",
        "properties.sasl.password": "secret:kafka_password",
    }
    options = validate_options(SCHEMA, "json", all_options)
    with pytest.raises(NotReady, match="BRAID_SECRET_KAFKA_PASSWORD"):
        options.client()
    monkeypatch.setenv("BRAID_SECRET_KAFKA_PASSWORD", "hunter2")
    assert options.client()["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options)


def test_a_bounded_topic_ends_where_it_did_when_it_was_first_seen(broker: Broker, storage: Storage) -> None:
    topic = broker.create_topic(2)
    broker.produce(topic, [message(0), message(1)])
    options = {**EARLIEST, "scan.bounded.mode": "latest-offset"}
    first = connector(broker, topic, storage, **options)
    assert first.bounds() is None, "nobody knows before the brokers were asked"
    ends(first, {"0": 2, "1": 0})
    broker.produce(topic, [message(2)])
    again = connector(broker, topic, storage, **options)
    assert ends(again, {"0": 2, "1": 0}) == {"0": Extent(0, 2), "1": Extent(0, 0)}
    assert again.bounds() == {"0": 2, "1": 0}
    assert again.oldest() == {"0": 0, "1": 0}


def test_a_topic_may_be_bounded_by_offsets_that_it_does_not_have_yet(broker: Broker, storage: Storage) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [message(0)])
    options = {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:3"}
    source = connector(broker, topic, storage, **EARLIEST, **options)
    assert ends(source, {"0": 1}) == {"0": Extent(0, 1)}
    assert source.bounds() == {"0": 3}
    broker.produce(topic, [message(k) for k in range(1, 9)])
    assert ends(source, {"0": 3}) == {"0": Extent(0, 3)}
