"""Samples of Kafka topics: what is read of them, and how the client that reads is set up."""

from __future__ import annotations

import json
import struct

import pytest

from braid.session.commands.inference import Inference
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.connectors.kafka.options import read_options
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.inference import places
from braid.sources.inference.places import client_settings, read_topic, sample_place
from tests.kit.kafka import Broker

SERVERS = "properties.bootstrap.servers"


def options(broker: Broker, topic: str, **more: str) -> dict[str, str]:
    return {"topic": topic, SERVERS: broker.servers, **more}


def test_the_oldest_messages_of_all_partitions_are_read(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.create_topic(2)
    for partition in range(2):
        broker.produce(topic, [b"%d" % n for n in range(50)], partition)
    monkeypatch.setattr(places, "MAX_ROWS", 20)
    messages = read_topic(read_options(options(broker, topic)))
    for partition in range(2):
        values = [int(value) for number, value in messages if number == partition]
        assert values == list(range(len(values)))
        assert 10 <= len(values) <= 50


def test_messages_without_a_time_have_that_of_kafka(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [json.dumps({"a": n, "message_time": n}).encode() for n in range(5)])
    inferred = Inference().of_place("kafka", options(broker, topic))
    statement = parse_statement(inferred.sql)
    assert isinstance(statement, CreateStream)
    assert statement.schema.metadata == (("message_time_2", "timestamp"),)
    assert statement.schema.event_time == "message_time_2"
    assert statement.options == options(broker, topic, **{"scan.startup.mode": "earliest-offset"})


def test_what_is_said_of_a_topic_stays(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [b"1;2024-01-31T12:00:00Z", b"2;2024-01-31T12:00:01Z"] * 3)
    given = {"scan.startup.mode": "latest-offset", "csv.delimiter": ";", "format": "csv", "on_gap": "skip"}
    place = sample_place("kafka", options(broker, topic, **given), Confinement())
    assert place.options == options(broker, topic, **given)
    assert [str(column.type) for column in place.sample.columns] == ["INT", "TIMESTAMP"]


def test_messages_in_json_of_a_registry_are_looked_at_without_their_headers(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [struct.pack(">bI", 0, 7) + json.dumps({"a": n}).encode() for n in range(5)])
    given = {"format": "json", "json.schema-registry.url": "http://127.0.0.1:1"}
    place = sample_place("kafka", options(broker, topic, **given), Confinement())
    assert [(column.name, str(column.type)) for column in place.sample.columns] == [("a", "INT")]


def test_a_topic_that_has_nothing_to_look_at_is_refused(broker: Broker) -> None:
    with pytest.raises(NotAllowed, match="must have a message"):
        sample_place("kafka", options(broker, broker.create_topic()), Confinement())
    with pytest.raises((NotAllowed, NotReady), match="no-such-topic"):
        sample_place("kafka", options(broker, "no-such-topic"), Confinement())
    for form in ("avro", "protobuf", "arrow", "xml"):
        with pytest.raises(NotAllowed, match="'json' and 'csv'"):
            sample_place("kafka", options(broker, "t", format=form), Confinement())


def test_brokers_that_do_not_answer_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PATIENCE_SECONDS", 0.5)
    with pytest.raises(NotReady, match=r"127\.0\.0\.1:1 must answer"):
        read_topic(read_options({"topic": "t", SERVERS: "127.0.0.1:1"}))


def test_the_client_has_the_security_that_the_stream_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_KAFKA", "open sesame")
    properties = {
        SERVERS: "SASL_SSL://a:1, b:2",
        "properties.security.protocol": "sasl_ssl",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.username": "braid",
        "properties.sasl.password": "secret:kafka",
        "properties.ssl.endpoint.identification.algorithm": "none",
        "properties.fetch.min.bytes": "7",
    }
    settings = client_settings(read_options({"topic": "t", **properties}))
    assert settings["bootstrap_servers"] == ["a:1", "b:2"]
    assert (settings["security_protocol"], settings["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("braid", "open sesame")
    assert settings["ssl_check_hostname"] is False
    assert "fetch_min_bytes" not in settings


def test_security_that_the_client_lacks_is_refused() -> None:
    given = {"topic": "t", SERVERS: "a:1", "properties.ssl.ca.pem": "…"}
    with pytest.raises(NotAllowed, match=r"'properties\.ssl\.ca\.pem'"):
        client_settings(read_options(given))


def test_a_topic_is_looked_at_as_far_as_its_stream_may(broker: Broker) -> None:
    given = options(broker, "t", **{"properties.ssl.ca.location": "/etc/passwd"})
    with pytest.raises(NotAllowed, match="must lie below"):
        sample_place("kafka", given, Confinement("/nowhere/else"))
    with pytest.raises(NotAllowed, match="secret"):
        sample_place("kafka", options(broker, "t", **{"properties.sasl.password": "plain"}), Confinement())
